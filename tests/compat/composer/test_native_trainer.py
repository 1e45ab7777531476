"""Composer's callbacks in a trainer of trainer_hooks."""

from __future__ import annotations

import gc
from collections import Counter

import pytest
import torch

from trainer_hooks import Evaluator, Module
from trainer_hooks.compat.composer import Callback
from trainer_hooks.compat.composer.loggers import InMemoryLogger
from trainer_hooks.loggers import InMemoryLogger as Native


class Plain(Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, batch):
        return self.layer(batch[0])

    def loss(self, outputs, batch):
        return torch.nn.functional.cross_entropy(outputs, batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_the_order_is_composers(bare, recorder, loader, events_of_a_batch) -> None:
    """One batch and a validation: the events and their order are those of Composer's trainer."""
    trainer = bare(recorder)
    trainer.fit(Plain(), loader(4), loader(4))
    trainer.close()
    assert recorder.names == [*events_of_a_batch(), "close", "post_close"]


def test_a_window_is_a_batch(bare, recorder, loader) -> None:
    """With `accumulate_grad_batches` the batch events fire once for the batches of a step."""
    bare(recorder, accumulate_grad_batches=2).fit(Plain(), loader())
    count = Counter(recorder.names)
    assert (count["batch_start"], count["batch_end"], count["batch_checkpoint"]) == (2, 2, 2)
    assert (count["after_dataloader"], count["before_forward"]) == (4, 4)
    assert [batch for name, _, batch in recorder.events if name == "batch_end"] == [1, 2]


def test_the_length_of_an_epoch_is_in_windows(bare, loader) -> None:
    """`state.dataloader_len` and `max_duration` count steps, as the timestamp does."""
    lengths = []

    class Look(Callback):
        def fit_start(self, state, logger):
            lengths.append((int(state.dataloader_len), str(state.max_duration)))

    bare(Look(), accumulate_grad_batches=2).fit(Plain(), loader())
    bare(Look(), max_epochs=None, max_steps=2, accumulate_grad_batches=2).fit(Plain(), loader())
    assert lengths == [(2, "1ep"), (2, "2ba")]


def test_each_loader_has_its_own_pair(bare, recorder, loader) -> None:
    """Two evaluators, and a test of two loaders: a pair of events each, with the labels."""
    labels = []

    class Labels(Callback):
        def eval_start(self, state, logger):
            labels.append(state.dataloader_label)

    module = Plain()
    trainer = bare(recorder, Labels())
    trainer.fit(module, loader(), [Evaluator("a", loader(4)), Evaluator("b", loader(4))])
    trainer.test(module, [loader(4), loader(4)], verbose=False)
    assert labels == ["a", "b", "eval_0", "eval_1"]
    assert Counter(recorder.names)["eval_standalone_start"] == 1
    trainer.predict(module, loader(4))
    assert Counter(recorder.names)["predict_batch_end"] == 1


def test_the_sanity_check_is_silent(bare, recorder, loader) -> None:
    """A sanity check, which Composer does not have, fires none of its events."""
    trainer = bare(recorder, num_sanity_val_steps=1)
    trainer.fit(Plain(), loader(), loader(4))
    assert Counter(recorder.names)["eval_start"] == 1


def test_what_is_logged_goes_to_the_trainers_loggers(bare, loader) -> None:
    """`logger.log_metrics` hands on to the trainer's loggers, its history, and destinations."""

    class Log(Callback):
        def batch_end(self, state, logger):
            logger.log_metrics({"seen": float(state.timestamp.sample)})
            logger.log_hyperparameters({"a": 1})
            logger.log_table(["x"], [[1]], name="t")

    native, kept = Native(), InMemoryLogger()
    bare(Log(), kept, logger=native).fit(Plain(), loader(8))
    assert native.history("seen") == [(1, 4.0), (2, 8.0)]
    assert (native.hparams["a"], len(native.tables["t"])) == (1, 2)
    assert [value for _, value in kept.data["seen"]] == [4.0, 8.0]


def test_state_is_the_trainers(bare, loader) -> None:
    """The state has the module, its optimizer, how long, and stops the trainer."""
    found = {}

    class Look(Callback):
        def fit_start(self, state, logger):
            found["start"] = (state.model, state.optimizers[0], str(state.max_duration))
            found["length"] = int(state.dataloader_len)

        def batch_end(self, state, logger):
            found["loss"] = float(state.loss)
            state.stop_training()

    module, look = Plain(), Look()
    trainer = bare(look, max_epochs=3)
    trainer.fit(module, loader())
    assert found["start"] == (module, trainer.optimizers[0], "3ep")
    assert (found["length"], trainer.global_step) == (4, 1)
    assert trainer.stop_reason == "state.stop_training() was called"


def test_the_state_of_a_callback_is_resumed(bare, loader, tmp_path) -> None:
    """A callback with state, and the timestamp, come back from a checkpoint of trainer_hooks."""

    class Count(Callback):
        batches = 0
        seen = ()

        def batch_end(self, state, logger):
            self.batches += 1
            self.seen = (int(state.timestamp.epoch), int(state.timestamp.batch))

        def state_dict(self):
            return {"batches": self.batches}

        def load_state_dict(self, state):
            self.batches = state["batches"]

    trainer = bare(Count())
    trainer.fit(Plain(), loader())
    trainer.save_checkpoint(tmp_path / "end.ckpt")
    again = Count()
    bare(again, max_epochs=2).fit(Plain(), loader(), ckpt_path=tmp_path / "end.ckpt")
    assert (again.batches, again.seen) == (8, (1, 8))


def test_one_that_joins_later_is_told(bare, recorder, loader) -> None:
    """A callback that is added to the trainer has its `init`, and takes part from then on."""
    module, trainer = Plain(), bare(Callback())
    trainer.fit(module, loader())
    trainer.add_callback(recorder)
    trainer.max_epochs = 2
    trainer.fit(module, loader())
    assert recorder.names[:2] == ["init", "before_load"]
    assert Counter(recorder.names)["batch_end"] == 4


def test_callbacks_are_closed_when_the_trainer_goes(bare, recorder, loader) -> None:
    """Without `close()` too, also of a fit that fails; then they may be in another trainer."""

    class Fails(Callback):
        def batch_end(self, state, logger):
            raise LookupError("here")

    trainer = bare(recorder, Fails())
    with pytest.raises(LookupError):
        trainer.fit(Plain(), loader())
    del trainer
    gc.collect()
    assert recorder.names[-2:] == ["close", "post_close"]
    bare(recorder).fit(Plain(), loader())


def test_gradients_are_clipped_after_the_train_batch(bare, loader) -> None:
    """`AFTER_TRAIN_BATCH` sees the gradients of the window that the step is made with."""
    norms = []

    class Look(Callback):
        def after_train_batch(self, state, logger):
            gradients = [parameter.grad for parameter in state.model.parameters()]
            norms.append(float(torch.nn.utils.get_total_norm(gradients)))

    bare(Look(), gradient_clip_val=0.01, accumulate_grad_batches=2).fit(Plain(), loader())
    assert norms == pytest.approx([0.01, 0.01], rel=1e-3)


def test_a_module_with_its_own_step_has_no_forward_events(bare, recorder, loader) -> None:
    """Forward and loss are the module's own business there; the other events fire."""

    class Own(Plain):
        def training_step(self, batch, batch_idx):
            return self.loss(self(batch), batch)

    bare(recorder).fit(Own(), loader(4))
    assert "before_forward" not in recorder.names
    assert Counter(recorder.names)["before_backward"] == 1


@pytest.mark.parametrize("name", ["setup", "teardown", "on_fit_start"])
def test_methods_of_trainer_hooks_are_ones_own(bare, loader, name) -> None:
    """A method that happens to have a hook's name is never called by trainer_hooks."""

    def method(self):
        raise AssertionError

    own = type("Own", (Callback,), {name: method})
    bare(own()).fit(Plain(), loader(4))


def test_who_listens_to_the_forward_of_such_a_module_is_told(bare, loader) -> None:
    """A method that nothing will call is warned of when the fit begins."""

    class Own(Plain):
        def training_step(self, batch, batch_idx):
            return self.loss(self(batch), batch)

    class Listens(Callback):
        def after_loss(self, state, logger):
            pass

    with pytest.warns(UserWarning, match=r"after_loss of .*Listens: .*Own has a training_step"):
        bare(Listens()).fit(Own(), loader(4))


@pytest.mark.parametrize(
    ("window", "after", "batches"), [(1, "6ba", 6), (2, "3ba", 6), (1, "3ep", 12)]
)
def test_max_duration_is_set_in_a_fit(bare, loader, window, after, batches) -> None:
    """A fit under way obeys `state.max_duration`; a batch is a window of accumulated ones."""

    class Change(Callback):
        def batch_end(self, state, logger):
            if state.timestamp.batch == 1:
                state.max_duration = after

    trainer = bare(Change(), max_epochs=2, accumulate_grad_batches=window)
    trainer.fit(Plain(), loader())
    assert trainer.progress.batches_completed == batches
