"""Evaluators: several validation loaders with names, intervals and metrics of their own."""

from __future__ import annotations

import pytest
import torch

from trainer_hooks import Callback, Evaluator, every
from trainer_hooks.errors import OptionError

pytestmark = pytest.mark.filterwarnings(
    "ignore:a checkpoint was saved in the hook"  # what these look at does not depend on the place
)


class Seen(Callback):
    """Records at which batch which loader was evaluated, and the metrics at that moment."""

    def __init__(self) -> None:
        self.runs, self.labels, self.sizes = [], [], []

    def on_validation_start(self, trainer, module):
        if not trainer.sanity_checking:
            self.runs.append((trainer.clock.batches, []))
            self.sizes.append(trainer.num_val_batches)

    def on_validation_batch_end(self, trainer, module, outputs, batch, batch_idx, dataloader_idx=0):
        if not trainer.sanity_checking:
            label = trainer.dataloader_label
            if label not in self.runs[-1][1]:
                self.runs[-1][1].append(label)

    @property
    def by_batch(self):
        return [(batch, "+".join(labels)) for batch, labels in self.runs]


def evaluator(loader, label, **options):
    return Evaluator(label, loader(2), **options)


@pytest.mark.parametrize(
    ("intervals", "expected"),
    [
        ((None, None), [(4, "a+b"), (8, "a+b")]),
        (("3ba", None), [(3, "a"), (4, "b"), (6, "a"), (8, "a+b")]),
        (("2ba", "4ba"), [(2, "a"), (4, "a+b"), (6, "a"), (8, "a+b")]),
        (("2ep", None), [(4, "b"), (8, "a+b")]),
        ((2, 1), [(4, "b"), (8, "a+b")]),
        (("0.25dur", "0.5dur"), [(2, "a"), (4, "a+b"), (6, "a"), (8, "a+b")]),
        (("100ba", "100ba"), [(8, "a+b")]),
        (
            (every("3ba") | every("4ba"), "100ba"),
            [(3, "a"), (4, "a"), (6, "a"), (8, "a"), (8, "b")],
        ),
        ((lambda clock: clock.batches == 5, None), [(4, "b"), (5, "a"), (8, "a+b")]),
    ],
    ids=[
        "the trainer's",
        "batches and the trainer's",
        "batches",
        "epochs",
        "numbers",
        "shares",
        "at the end alone",
        "either",
        "a function",
    ],
)
def test_each_is_run_when_it_is_due(bare, tiny, loader, intervals, expected) -> None:
    """An evaluator goes by its own interval, or by the trainer's; each is run at the end."""
    seen = Seen()
    first, second = intervals
    bare(seen, max_epochs=2).fit(
        tiny(),
        loader(4),
        [evaluator(loader, "a", eval_interval=first), evaluator(loader, "b", eval_interval=second)],
    )
    assert seen.by_batch == expected


def test_one_that_is_not_due_counts_no_batches(bare, tiny, loader) -> None:
    """The length that a progress bar gets is the length of this validation."""
    seen = Seen()
    evaluators = [evaluator(loader, "a", eval_interval="2ba"), evaluator(loader, "b")]
    trainer = bare(seen, max_epochs=1)
    trainer.fit(tiny(), loader(4), evaluators)
    assert seen.sizes == [[2, 0], [2, 0], [0, 2]]
    assert trainer.num_val_batches == [2, 2]


def test_a_label_is_part_of_the_names(bare, tiny, loader) -> None:
    """Metrics are named after the label, of one evaluator too, in validate and test as well."""
    trainer = bare(max_epochs=1)
    trainer.fit(tiny(), loader(2), Evaluator("clean", loader(1)))
    assert set(trainer.callback_metrics) == {"loss", "val_loss/clean"}
    [found] = trainer.validate(tiny(), Evaluator("noisy", loader(1)), verbose=False)
    assert set(found) == {"val_loss/noisy"}
    [one, two] = trainer.test(
        tiny(), {"x": Evaluator("a", loader(1)), "y": Evaluator("b", loader(1))}, verbose=False
    )
    assert (set(one), set(two)) == ({"test_loss/a"}, {"test_loss/b"})


def test_only_the_metrics_that_are_asked_for_are_kept(bare, tiny, loader) -> None:
    """metric_names are regular expressions; a metric that none matches is dropped."""

    class Two(tiny):
        def validation_step(self, batch, batch_idx, dataloader_idx=0):
            super().validation_step(batch, batch_idx)
            self.log("accuracy", 0.5, prog_bar=True, on_step=True)

    trainer = bare(max_epochs=1)
    trainer.fit(
        Two(),
        loader(2),
        [
            evaluator(loader, "a", metric_names=["^acc"]),
            evaluator(loader, "b", metric_names=["loss", "nothing"]),
        ],
    )
    names = {name for name in trainer.callback_metrics if name != "loss"}
    assert names == {"accuracy/a", "accuracy_epoch/a", "val_loss/b"}


def test_a_subset_is_evaluated(bare, tiny, loader) -> None:
    """subset_num_batches bounds an evaluator's batches, and the trainer's limit still counts."""
    trainer = bare(max_epochs=1, limit_val_batches=3)
    trainer.fit(
        tiny(),
        loader(2),
        [
            Evaluator("a", loader(5), subset_num_batches=1),
            Evaluator("b", loader(5), subset_num_batches=4),
            Evaluator("c", loader(5), subset_num_batches=-1),
        ],
    )
    assert trainer.num_val_batches == [1, 3, 3]


def test_a_validation_that_is_asked_for_runs_all(bare, tiny, loader) -> None:
    """trainer.request_validation() is about every evaluator."""
    seen = Seen()

    class Ask(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if batch_idx == 1:
                trainer.request_validation()

    evaluators = [evaluator(loader, "a", eval_interval="100ba"), evaluator(loader, "b")]
    bare(seen, Ask(), max_epochs=1).fit(tiny(), loader(4), evaluators)
    assert seen.by_batch == [(2, "a+b"), (4, "a+b")]


@pytest.mark.parametrize("cut", range(1, 8))
@pytest.mark.parametrize("hook", ["on_train_batch_end", "on_batch_checkpoint"])
def test_a_resumed_run_evaluates_at_the_same_batches(bare, tiny, loader, tmp_path, cut, hook):
    """Wherever a run is cut, no evaluation is lost or done twice."""

    def evaluators():
        return [
            evaluator(loader, "a", eval_interval="3ba"),
            evaluator(loader, "b"),
            evaluator(loader, "c", eval_interval="2ep"),
        ]

    whole = Seen()
    bare(whole, max_epochs=2).fit(tiny(), loader(4), evaluators())

    class Cut(Callback):
        def save(self, trainer):
            if trainer.clock.batches == cut:
                trainer.save_checkpoint(tmp_path / "cut.ckpt")
                raise RuntimeError("cut")

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if hook == "on_train_batch_end":
                self.save(trainer)

        def on_batch_checkpoint(self, trainer, module):
            if hook == "on_batch_checkpoint":
                self.save(trainer)

    first, second = Seen(), Seen()
    with pytest.raises(RuntimeError, match="cut"):
        bare(first, Cut(), max_epochs=2).fit(tiny(), loader(4), evaluators())
    bare(second, max_epochs=2).fit(tiny(), loader(4), evaluators(), ckpt_path=tmp_path / "cut.ckpt")
    assert first.by_batch + second.by_batch == whole.by_batch


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"label": ""}, "label ''"),
        ({"label": 3}, "label 3"),
        ({"label": "a/b"}, "without a slash"),
        ({"subset_num_batches": 0}, "above zero"),
        ({"subset_num_batches": True}, "above zero"),
        ({"metric_names": "acc"}, "a list of regular expressions"),
        ({"metric_names": ["("]}, "is no regular expression"),
        ({"metric_names": [3]}, "is no regular expression"),
        ({"eval_interval": "5"}, "eval_interval '5' of Evaluator 'a'"),
        ({"eval_interval": "-1ep"}, "eval_interval"),
    ],
    ids=str,
)
def test_bad_arguments_are_refused(options, rule) -> None:
    """Each argument has a rule, and the message says which evaluator breaks it."""
    with pytest.raises(OptionError, match=rule.replace("(", r"\(")):
        Evaluator(**{"label": "a", "dataloader": [torch.zeros(1)], **options})


def test_labels_are_told_apart_and_loaders_not_mixed_in(bare, tiny, loader) -> None:
    """Two of one label would hide each other; a loader between them would have no label."""
    with pytest.raises(OptionError, match=r"label 'a'.*two of them"):
        bare().fit(tiny(), loader(2), [evaluator(loader, "a"), evaluator(loader, "a")])
    with pytest.raises(OptionError, match="given together"):
        bare().fit(tiny(), loader(2), [evaluator(loader, "a"), loader(2)])
