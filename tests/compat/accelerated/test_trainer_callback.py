"""Callbacks that are written with the names of pytorch-accelerated, in a plain Trainer."""

from __future__ import annotations

import importlib

import pytest
import torch
from quiet_trainers import QUIET_OPTIONS

import trainer_hooks
from trainer_hooks import Callback, StopTraining, StopTrainingError, Trainer
from trainer_hooks.callbacks import LambdaCallback
from trainer_hooks.compat.accelerated import TrainerCallback, callbacks
from trainer_hooks.compat.accelerated.built_in_callback import built_in
from trainer_hooks.errors import TrainerHooksAdvice, TrainerHooksWarning
from trainer_hooks.testing import TinyModule

THEIRS = (
    "on_training_run_start", "on_train_epoch_start", "on_train_step_start", "on_train_step_end",
    "on_train_epoch_end", "on_eval_epoch_start", "on_eval_step_start", "on_eval_step_end",
    "on_eval_epoch_end", "on_training_run_epoch_end", "on_training_run_end",
    "on_evaluation_run_start", "on_evaluation_run_end",
)  # fmt: skip


def _noting(calls: list) -> TrainerCallback:
    def method(name: str):
        return lambda self, trainer, **kwargs: calls.append((name, tuple(sorted(kwargs))))

    return type("Noting", (TrainerCallback,), {name: method(name) for name in THEIRS})()


class _Written(TinyModule):
    """Has a training step of its own, which fires no hooks around its forward."""

    def training_step(self, batch, batch_idx):
        return self.loss(self(batch), batch)

    def validation_step(self, batch, batch_idx):
        return {"loss": self.loss(self(batch), batch), "model_outputs": self(batch)}

    def on_validation_batch_end(self, outputs, batch, batch_idx):
        super().on_validation_batch_end(outputs["model_outputs"], batch, batch_idx)


@pytest.mark.parametrize("module", [TinyModule, _Written])
def test_hooks_are_called_in_their_order_with_their_keywords(module) -> None:
    """A fit and a validation fire the hooks as pytorch-accelerated does, whoever made the steps."""
    calls: list = []
    trainer = Trainer(max_epochs=1, callbacks=[_noting(calls)], **QUIET_OPTIONS)
    model = module()
    trainer.fit(model)
    step = [
        ("on_train_step_start", ()),
        ("on_train_step_end", ("batch", "batch_output", "step")),
    ]
    evaluation = [
        ("on_eval_epoch_start", ("is_intermediate",)),
        *[("on_eval_step_start", ()), ("on_eval_step_end", ("batch", "batch_output"))] * 2,
        ("on_eval_epoch_end", ("is_intermediate",)),
    ]
    assert calls == [
        ("on_training_run_start", ()),
        ("on_train_epoch_start", ()),
        *step * 3,
        ("on_train_epoch_end", ()),
        *evaluation,
        ("on_training_run_epoch_end", ()),
        ("on_training_run_end", ()),
    ]
    calls.clear()
    trainer.validate(model, verbose=False)
    assert calls == [
        ("on_evaluation_run_start", ()),
        *evaluation,
        ("on_evaluation_run_end", ()),
    ]


def test_a_step_ends_before_its_backward_with_what_the_model_returned() -> None:
    """The loss has its graph still, the outputs are the model's, and the batch is the batch."""
    seen = []

    class Looking(TrainerCallback):
        def on_train_step_end(self, trainer, batch, batch_output, step, **kwargs):
            outputs, loss = batch_output["model_outputs"], batch_output["loss"]
            assert loss.requires_grad
            assert torch.equal(trainer.model.loss(outputs, batch), loss)
            seen.append((step, batch_output["batch_size"], len(batch[0])))

    Trainer(max_epochs=1, callbacks=[Looking()], **QUIET_OPTIONS).fit(TinyModule())
    assert [place for place, *_ in seen] == [0, 1, 2]
    assert all(size == length for _, size, length in seen)


def test_a_validation_between_batches_is_intermediate() -> None:
    """`is_intermediate` tells a validation inside an epoch from the one at its end."""
    told = []

    class Looking(TrainerCallback):
        def on_eval_epoch_end(self, trainer, is_intermediate, **kwargs):
            told.append(is_intermediate)

    trainer = Trainer(max_epochs=1, val_check_interval=2, callbacks=[Looking()], **QUIET_OPTIONS)

    class Asking(TrainerCallback):
        def on_train_epoch_end(self, trainer, **kwargs):
            trainer.request_validation()

    trainer.add_callback(Asking())
    trainer.fit(TinyModule())
    assert told == [True, False]


class ClassificationMetricsCallback(TrainerCallback):
    """As on the page of pytorch-accelerated, but for the import."""

    def __init__(self, num_classes):
        from torchmetrics import Accuracy, ConfusionMatrix, MetricCollection, Precision

        kind = {"task": "multiclass", "num_classes": num_classes}
        self.metrics = MetricCollection(
            {"accuracy": Accuracy(**kind), "precision": Precision(**kind)}
        )
        self.confusion_matrix = ConfusionMatrix(**kind)

    def _move_to_device(self, trainer):
        self.metrics.to(trainer.device)
        self.confusion_matrix.to(trainer.device)

    def on_training_run_start(self, trainer, **kwargs):
        self._move_to_device(trainer)

    def on_evaluation_run_start(self, trainer, **kwargs):
        self._move_to_device(trainer)

    def on_eval_step_end(self, trainer, batch, batch_output, **kwargs):
        predictions = batch_output["model_outputs"].argmax(dim=-1)
        self.metrics.update(predictions, batch[1])
        self.confusion_matrix.update(predictions, batch[1])

    def on_eval_epoch_end(self, trainer, **kwargs):
        for name, value in self.metrics.compute().items():
            trainer.run_history.update_metric(name, value.cpu())
        self.matrix = self.confusion_matrix.compute()
        self.metrics.reset()
        self.confusion_matrix.reset()


def test_the_metrics_callback_of_their_page_runs() -> None:
    """It records what torchmetrics computes of each validation, which the module's own equals."""
    callback = ClassificationMetricsCallback(2)
    trainer = Trainer(max_epochs=2, callbacks=[callback], **QUIET_OPTIONS)
    module = TinyModule()
    trainer.fit(module)
    values = trainer.run_history.get_metric_values("accuracy")
    assert len(values) == 2
    assert values[-1] == pytest.approx(trainer.callback_metrics["val_acc"].item(), abs=0.3)
    right = sum((module(b).argmax(1) == b[1]).sum().item() for b in module.val_dataloader())
    total = sum(len(b[1]) for b in module.val_dataloader())
    assert callback.matrix.diagonal().sum() == right
    assert callback.matrix.sum() == total


def test_a_callback_that_overrides_nothing_listens_to_nothing() -> None:
    """Hooks of theirs that are not overridden cost nothing."""
    trainer = Trainer(callbacks=[TrainerCallback()], **QUIET_OPTIONS)
    assert set(trainer._core.connector.relay.listened) == set()


def test_a_misspelt_attribute_in_a_hook_raises() -> None:
    """It is an AttributeError, and the rest of the hook is not passed over in silence."""

    class Misspelt(TrainerCallback):
        def on_train_epoch_start(self, trainer, **kwargs):
            self.counter += 1

    assert not hasattr(Misspelt(), "counter")
    with pytest.raises(AttributeError, match="counter"):
        Trainer(max_epochs=1, callbacks=[Misspelt()], **QUIET_OPTIONS).fit(TinyModule())


def test_a_stop_is_told_and_the_run_ends_in_order() -> None:
    """StopTrainingError is StopTraining; `on_stop_training_error` and the run's end still fire."""
    calls = []

    class Stopping(TrainerCallback):
        def on_train_step_end(self, trainer, **kwargs):
            raise StopTrainingError("enough")

        def on_stop_training_error(self, trainer, **kwargs):
            calls.append("stopped")

        def on_training_run_end(self, trainer, **kwargs):
            calls.append("ended")

    trainer = Trainer(max_epochs=3, callbacks=[Stopping()], **QUIET_OPTIONS)
    trainer.fit(TinyModule())
    assert calls == ["stopped", "ended"]
    assert trainer.global_step == 0
    assert StopTrainingError is StopTraining


def test_hooks_of_both_kinds_stand_beside_each_other() -> None:
    """A hook that they do not have is called as it is here."""
    calls = []

    class Both(TrainerCallback):
        def on_before_optimizer_step(self, trainer, module, optimizer):
            calls.append("native")

        def on_train_step_start(self, trainer, **kwargs):
            calls.append("theirs")

    Trainer(max_epochs=1, callbacks=[Both()], **QUIET_OPTIONS).fit(TinyModule())
    assert calls == ["theirs", "native"] * 3


def test_a_resumed_run_trains_its_epochs_and_no_more(tmp_path) -> None:
    """A run of 3 epochs that is resumed after the second trains the third alone."""
    epochs = []

    class Counting(TrainerCallback):
        def on_train_epoch_start(self, trainer, **kwargs):
            epochs.append(trainer.run_history.current_epoch)

    first = Trainer(max_epochs=2, callbacks=[Counting()], **QUIET_OPTIONS)
    first.fit(TinyModule())
    first.save_checkpoint(tmp_path / "two.ckpt")
    Trainer(max_epochs=3, callbacks=[Counting()], **QUIET_OPTIONS).fit(
        TinyModule(), ckpt_path=tmp_path / "two.ckpt"
    )
    assert epochs == [1, 2, 3]


class _Returning(TinyModule):
    """Returns the loss of its own validation step alone."""

    def validation_step(self, batch, batch_idx):
        return self.loss(self(batch), batch)

    def on_validation_batch_end(self, outputs, batch, batch_idx):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("module", [TinyModule, _Written, _Returning])
def test_the_end_of_an_evaluation_step_is_given_the_loss(module) -> None:
    """`batch_output["loss"]` is there whichever way the step of the validation is written."""
    losses: list = []

    class Seen(TrainerCallback):
        def on_eval_step_end(self, trainer, batch, batch_output, **kwargs):
            losses.append(batch_output["loss"])
            assert batch_output["batch_size"] == len(batch[0])

    Trainer(max_epochs=1, callbacks=[Seen()], **QUIET_OPTIONS).fit(module())
    assert losses
    assert all(isinstance(loss, torch.Tensor) and loss.numel() == 1 for loss in losses)


def test_an_event_of_ones_own_takes_positional_arguments() -> None:
    """`trainer.call_event(name, trainer, 3)` calls the method with these."""
    got: list = []

    class Listening(TrainerCallback):
        def my_event(self, trainer, x, y=0):
            got.append((trainer, x, y))

    trainer = Trainer(max_epochs=1, callbacks=[Listening()], **QUIET_OPTIONS)
    trainer.call_event("my_event", trainer, 6)
    assert got == [(trainer, 6, 0)]


@pytest.mark.parametrize("hook", ["on_train_start", "on_train_batch_end", "on_validation_end"])
def test_the_message_of_a_request_to_stop_is_the_reason(hook) -> None:
    """What `StopTrainingError` was raised with is `trainer.stop_reason`."""

    def stop(*args):
        raise StopTrainingError("enough")

    callback = LambdaCallback(**{hook: stop})
    trainer = Trainer(max_epochs=3, callbacks=[callback], num_sanity_val_steps=0, **QUIET_OPTIONS)
    trainer.fit(TinyModule())
    assert trainer.stop_reason == "enough"


BUILT_IN = [
    getattr(callbacks, name)
    for name in callbacks.__all__
    if name not in ("CallbackHandler", "StopTrainingError", "get_default_callbacks")
]


@pytest.mark.parametrize("kind", BUILT_IN, ids=lambda kind: kind.__name__)
def test_a_built_in_callback_is_one_of_this_system(kind) -> None:
    """It is a TrainerCallback and a Callback, and its module has it by its name."""
    assert issubclass(kind, TrainerCallback)
    assert issubclass(kind, Callback)
    assert getattr(importlib.import_module(kind.__module__), kind.__name__) is kind
    assert kind is TrainerCallback or "TrainerCallback" not in kind.__doc__


def test_a_subclass_overrides_events_of_a_built_in_callback() -> None:
    """With the signatures there and `super()`; the callback's own work is done once."""
    calls = []

    class Stopping(callbacks.EarlyStoppingCallback):
        def on_train_epoch_end(self, trainer, **kwargs):
            super().on_train_epoch_end(trainer, **kwargs)
            calls.append(("epoch", trainer.current_epoch, self.wait_count))

        def on_train_step_end(self, trainer, batch_output, batch, step, **kwargs):
            calls.append(("step", step, sorted(batch_output)))

        def on_training_run_end(self, trainer, **kwargs):
            super().on_training_run_end(trainer, **kwargs)
            calls.append(("end", self.stopped_epoch))

    class Never(TinyModule):
        def on_validation_epoch_end(self):
            self.log("worse", torch.tensor(float(self.current_epoch)))

    stopping = Stopping(early_stopping_patience=1, watch_metric="worse")
    Trainer(max_epochs=9, callbacks=[stopping], **QUIET_OPTIONS).fit(Never())
    epochs = [call for call in calls if call[0] == "epoch"]
    assert epochs[0] == ("epoch", 0, 0)
    assert len(epochs) < 9
    assert ("step", 0, ["batch_size", "loss", "model_outputs"]) in calls
    assert calls[-1][0] == "end"


def test_own_hooks_of_a_built_in_callback_run_beside_events() -> None:
    """Of all hooks, also those with the name of an event, and those that both have."""
    seen = []

    class Own(trainer_hooks.Callback):
        def on_train_epoch_end(self, trainer, module):
            seen.append("own")

        def on_validation_after_loss(self, trainer, module, loss):
            seen.append("loss")

    class Mine(built_in(Own, __name__)):
        def on_train_epoch_end(self, trainer, **kwargs):
            super().on_train_epoch_end(trainer, **kwargs)
            seen.append("event")

        def on_eval_step_end(self, trainer, batch, batch_output, **kwargs):
            seen.append(batch_output["loss"] is not None)

    Trainer(max_epochs=1, callbacks=[Mine()], num_sanity_val_steps=0, **QUIET_OPTIONS).fit(
        TinyModule()
    )
    assert sorted(map(str, seen)) == ["True", "True", "event", "loss", "loss", "own"]


def test_a_method_is_an_event_of_ones_own_or_nearly_a_hook() -> None:
    """A name that is near no hook's is not warned of; a misspelt hook is."""

    class Own(TrainerCallback):
        def on_loss_computed(self, trainer, loss):
            pass

    class Misspelt(TrainerCallback):
        def on_train_epoch_strat(self, trainer, **kwargs):
            pass

    Trainer(callbacks=[Own()], **QUIET_OPTIONS)
    with pytest.warns(TrainerHooksWarning, match="'on_train_epoch_strat' is no hook"):
        Trainer(callbacks=[Misspelt()], **QUIET_OPTIONS)


@pytest.mark.parametrize(
    ("name", "event"),
    [
        ("LimitBatchesCallback", "on_training_run_start"),
        ("ModelEmaCallback", "on_train_epoch_end"),
        ("EarlyStoppingCallback", "on_training_run_start"),
        ("SaveTrainingStateCallback", "on_training_run_end"),
    ],
)
def test_work_that_cannot_be_replaced_says_so(name, event) -> None:
    """The class statement of the subclass tells, with what to do; other events do not."""
    kind = getattr(callbacks, name)
    methods = {event: lambda self, trainer, **kwargs: None}
    with pytest.warns(
        TrainerHooksAdvice, match=f"Mine.{event} does not replace the work of {name}"
    ):
        type("Mine", (kind,), methods)
    type("Mine", (kind,), {"on_evaluation_run_end": methods[event]})


def test_a_line_tells_of_an_evaluation(capsys) -> None:
    """One of a training and one of `evaluate`, but none of a sanity check."""
    trainer = Trainer(
        callbacks=[callbacks.PrintProgressCallback()],
        max_epochs=1,
        num_sanity_val_steps=1,
        **QUIET_OPTIONS,
    )
    module = TinyModule()
    trainer.fit(module)
    assert capsys.readouterr().out.count("evaluation begins") == 1
    trainer.validate(module, verbose=False)
    assert capsys.readouterr().out.count("evaluation begins") == 1
