"""A validation more at the end of an epoch: `trainer.validate_again`."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader

from trainer_hooks import Callback, Evaluator, StopTraining, Trainer
from trainer_hooks.errors import CallbackError, OptionError, UsageError
from trainer_hooks.testing import TinyModule


class Again(Callback):
    """Validates once more in a hook."""

    def __init__(self, hook="on_train_epoch_end", prefix="again_", callbacks=()) -> None:
        self.hook, self.prefix, self.others = hook, prefix, callbacks
        self.results = []

    def run_event(self, event, *args) -> None:
        if event == self.hook and not args[0].sanity_checking:
            self.results.append(args[0].validate_again(self.prefix, self.others))


class Events(Callback):
    """Notes which hooks fire, and in which stage."""

    def __init__(self) -> None:
        self.seen = []

    def run_event(self, event, *args) -> None:
        self.seen.append(event)

    def count(self, event) -> int:
        return self.seen.count(event)


class Noisy(TinyModule):
    """Draws in training, and in validation from the global numbers and its loader's own."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = torch.nn.Dropout(0.5)
        self.hooks_fired = []

    def forward(self, batch):
        return self.layer(self.drop(batch[0]))

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        self.log("val_noise", torch.rand(()), on_step=True, on_epoch=True)
        self.log("val_first", batch[0][0, 0], prog_bar=True)

    def on_validation_batch_end(self, *args):
        pass

    def on_validation_epoch_end(self):
        self.hooks_fired.append(self.trainer.state.stage)
        self.log("val_epochs", 1.0)

    def val_dataloader(self):
        generator = torch.Generator().manual_seed(3)
        return DataLoader(
            super().val_dataloader().dataset, batch_size=2, shuffle=True, generator=generator
        )


def trained(quiet_trainer, *callbacks, module=None, seed=1, **options) -> Trainer:
    torch.manual_seed(seed)
    trainer = quiet_trainer(callbacks=callbacks, **{"max_epochs": 3, **options})
    trainer.fit(module or Noisy())
    return trainer


def test_its_metrics_have_names_of_their_own(quiet_trainer) -> None:
    """Everything that is logged in it is known under the prefix, and its own stays as it was."""
    again = Again()
    plain = trained(quiet_trainer)
    trainer = trained(quiet_trainer, again)
    own = {k: v for k, v in trainer.callback_metrics.items() if not k.startswith("again_")}
    assert own == plain.callback_metrics
    assert {"again_val_noise", "again_val_noise_epoch"} < set(trainer.callback_metrics)
    assert "again_val_noise_step" in trainer.logged_metrics
    assert trainer.logged_metrics["again_val_epochs"] == 1.0
    assert "again_val_first" in trainer.progress_bar_metrics
    assert len(trainer.history.get_metric_values("again_val_epochs")) == 3
    assert again.results[0][0].keys() == {
        "again_val_noise_epoch",
        "again_val_first",
        "again_val_epochs",
    }


def test_the_training_is_as_without_it(quiet_trainer) -> None:
    """Weights, own metrics and their places on the x axis are those of a run without it."""
    plain, other = Noisy(), Noisy()
    first = trained(quiet_trainer, module=plain)
    second = trained(quiet_trainer, Again(), module=other)
    for name, value in plain.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name
    for name in first.history.get_metric_names():
        points = first.history.get_metric_points(name)
        assert second.history.get_metric_points(name) == points, name


def test_the_module_and_the_given_callbacks_are_told(quiet_trainer) -> None:
    """The trainer's own callbacks do not see it; those that it is given see nothing else."""
    outside, inside, module = Events(), Events(), Noisy()
    trained(quiet_trainer, outside, Again(callbacks=[inside]), module=module)
    assert outside.count("on_validation_epoch_end") == 3
    assert len(module.hooks_fired) == 6
    assert set(module.hooks_fired) == {"validate"}
    one = inside.seen[: len(inside.seen) // 3]
    assert one == [
        "on_validation_run_start", "on_validation_start", "on_epoch_start",
        "on_validation_epoch_start",
        *["on_validation_batch_start", "on_validation_batch_end"] * 2,
        "on_validation_epoch_end", "on_epoch_end", "on_validation_end", "on_validation_run_end",
    ]  # fmt: skip


def test_a_given_callback_may_log(quiet_trainer) -> None:
    """What it logs has the prefix, too; afterwards it belongs to no run."""

    class Logging(Callback):
        def on_validation_epoch_end(self, trainer, module) -> None:
            self.log("more", 2.0)

    callback = Logging()
    trainer = trained(quiet_trainer, Again(callbacks=callback))
    assert trainer.callback_metrics["again_more"] == 2.0
    assert callback._run_module is None


@pytest.mark.parametrize("labels", [False, True], ids=["loaders", "evaluators"])
def test_all_loaders_are_run(quiet_trainer, labels) -> None:
    """Their metrics are named as in any validation, whichever loaders were due."""

    class Two(Noisy):
        def val_dataloader(self):
            loaders = [super(Two, self).val_dataloader() for _ in "ab"]
            if not labels:
                return loaders
            return [Evaluator("a", loaders[0]), Evaluator("b", loaders[1], eval_interval="2ep")]

    trainer = trained(quiet_trainer, Again(), module=Two(), max_epochs=1)
    endings = ("/a", "/b") if labels else ("/dataloader_idx_0", "/dataloader_idx_1")
    for ending in endings:
        assert f"again_val_first{ending}" in trainer.callback_metrics
    assert "again_val_epochs" in trainer.callback_metrics


def test_its_time_is_that_of_validation(quiet_trainer) -> None:
    """The clock counts it as evaluation, and as training again afterwards."""
    seen = []

    class Watching(Callback):
        def on_validation_start(self, trainer, module) -> None:
            seen.append(trainer.clock.train_seconds)

        def on_validation_end(self, trainer, module) -> None:
            seen.append(trainer.clock.train_seconds)

    class After(Again):
        def run_event(self, event, *args) -> None:
            super().run_event(event, *args)
            if event == "on_train_end":
                seen.append(args[0].clock.train_seconds)

    trained(quiet_trainer, After(callbacks=Watching()), max_epochs=1)
    assert seen[0] == seen[1] < seen[2]


@pytest.mark.parametrize("hook", ["on_validation_batch_start", "on_validation_epoch_end"])
def test_a_stop_in_it_ends_the_fit_in_order(quiet_trainer, hook) -> None:
    """`StopTraining` cuts it short and ends the fit after the epoch, whose end hooks fire."""

    class Stopping(Callback):
        def run_event(self, event, *args) -> None:
            if event == hook:
                raise StopTraining("enough")

    events = Events()
    trainer = trained(quiet_trainer, events, Again(callbacks=[Stopping()]))
    assert trainer.current_epoch == 1
    assert events.count("on_stop_training_error") == events.count("on_train_end") == 1
    assert events.count("on_epoch_checkpoint") == 1
    assert trainer.state.status == "finished"


def test_an_error_in_it_leaves_nothing_behind(quiet_trainer) -> None:
    """A run that goes on without the callback that failed is as it would have been."""

    class Breaking(Callback):
        def on_validation_epoch_end(self, trainer, module) -> None:
            raise ValueError("no")

    class Once(Again):
        on_error = "disable"

    plain, module = Noisy(), Noisy()
    first = trained(quiet_trainer, module=plain)
    with pytest.warns(UserWarning, match="takes no further part"):
        second = trained(quiet_trainer, Once(callbacks=Breaking()), module=module)
    assert torch.equal(plain.layer.weight, module.layer.weight)
    assert second.logged_metrics == first.logged_metrics
    assert second.history.get_metric_names() == first.history.get_metric_names()
    assert module.training
    assert second.sanity_checking is False


@pytest.mark.parametrize(
    "hook",
    [
        "on_fit_start", "on_train_start", "on_train_epoch_start", "on_train_batch_end",
        "on_train_batches_end", "on_validation_end", "on_validation_run_end",
        "on_epoch_checkpoint", "on_train_end",
    ],
)  # fmt: skip
def test_elsewhere_it_is_refused(quiet_trainer, hook) -> None:
    """The error says where it may be called."""
    with pytest.raises(UsageError, match=r"call it in on_train_epoch_end or on_epoch_end"):
        trained(quiet_trainer, Again(hook))


@pytest.mark.filterwarnings("ignore:.*on_train_epoch_end")
def test_it_is_refused_in_the_set_up_of_a_resume(quiet_trainer, tmp_path) -> None:
    """The epoch of the checkpoint was ending; that of this fit does not yet."""

    class Saves(Callback):
        def on_train_epoch_end(self, trainer, module):
            trainer.save_checkpoint(tmp_path / "ending.ckpt")

    trained(quiet_trainer, Saves(), max_epochs=1)
    trainer = quiet_trainer(callbacks=Again("on_fit_start"))
    with pytest.raises(UsageError, match="no epoch of a fit was ending"):
        trainer.fit(Noisy(), ckpt_path=tmp_path / "ending.ckpt")


def test_it_is_refused_outside_of_a_run_and_inside_itself(quiet_trainer) -> None:
    """There is no epoch of a fit that ends."""
    with pytest.raises(UsageError, match="no epoch of a fit was ending"):
        quiet_trainer().validate_again("again_")
    with pytest.raises(UsageError, match="no epoch of a fit was ending"):
        trained(quiet_trainer, Again(callbacks=Again("on_validation_end")))


def test_without_anything_to_validate_it_is_refused(quiet_trainer) -> None:
    """The error names a valid prefix."""
    with pytest.raises(UsageError, match="fit has nothing to validate"):
        trained(quiet_trainer, Again(), limit_val_batches=0)


@pytest.mark.parametrize("prefix", ["", 3, None])
def test_a_prefix_that_is_none_is_refused(quiet_trainer, prefix) -> None:
    """Without one the metrics would take the place of the epoch's own."""
    with pytest.raises(OptionError, match=r"prefix .* it must be a text"):
        trained(quiet_trainer, Again(prefix=prefix))


def test_what_is_no_callback_is_refused(quiet_trainer) -> None:
    """As in Trainer(callbacks=...)."""
    with pytest.raises(CallbackError, match="must be an instance"):
        trained(quiet_trainer, Again(callbacks=[3]))
