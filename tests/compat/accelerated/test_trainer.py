"""What pytorch-accelerated's Trainer does here besides what its programs show."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch.utils.data import TensorDataset

import trainer_hooks
from trainer_hooks.compat import accelerated
from trainer_hooks.compat.accelerated import (
    CallbackHandler,
    StopTrainingError,
    Trainer,
    TrainerCallback,
    TrainerPlaceholderValues,
)
from trainer_hooks.compat.accelerated.callbacks import (
    EarlyStoppingCallback,
    ModelEmaCallback,
    SaveTrainingStateCallback,
    StepBasedEvaluationCallback,
)
from trainer_hooks.errors import CallbackError, OptionError, UsageError

QUICK = {
    "per_device_batch_size": 2,
    "train_dataloader_kwargs": {"num_workers": 0, "shuffle": False},
    "eval_dataloader_kwargs": {"num_workers": 0},
}


def data(samples: int = 8) -> TensorDataset:
    generator = torch.Generator().manual_seed(samples)
    inputs = torch.randn(samples, 3, generator=generator)
    return TensorDataset(inputs, inputs.sum(1, keepdim=True))


def trainer_of(*callbacks, kind=Trainer, **options):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    loss = torch.nn.functional.mse_loss
    return kind(model, loss, optimizer, callbacks=callbacks, **options)


def test_it_is_the_one_trainer() -> None:
    """There is no second trainer: it is a subclass, with its attributes and verbs."""
    trainer = trainer_of()
    assert isinstance(trainer, trainer_hooks.Trainer)
    trainer.train(data(), 2, **QUICK)
    assert trainer.global_step == 8
    assert trainer.run_history is trainer.history
    assert trainer.get_model() is trainer.model


@pytest.mark.slow
def test_the_package_is_loaded_only_when_it_is_imported() -> None:
    """`import trainer_hooks`, its trainer and its callbacks load nothing of the packages."""
    code = (
        "import sys, trainer_hooks; trainer_hooks.Trainer; import trainer_hooks.callbacks as c\n"
        "[getattr(c, name) for name in c.__all__]\n"
        "print([name for name in sys.modules if name.startswith('trainer_hooks.compat')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_each_name_of_the_package_is_there() -> None:
    """What is listed can be had."""
    assert sorted(accelerated.__all__) == accelerated.__all__ == dir(accelerated)
    for name in accelerated.__all__:
        assert getattr(accelerated, name) is getattr(accelerated, name)


def test_the_default_callbacks_take_part_unless_others_are_given(capsys) -> None:
    """A bar, lines and metrics are shown by default, and given callbacks replace them."""
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = torch.nn.functional.mse_loss
    trainer = Trainer(model, loss, optimizer)
    trainer.train(data(), 1, data(4), **QUICK)
    trainer.close()
    shown = capsys.readouterr()
    assert "train_loss_epoch: " in shown.out + shown.err
    assert "eval_loss_epoch: " in shown.out + shown.err
    assert "TerminateOnNaNCallback" in trainer.callback_handler.callback_list
    others = Trainer(model, loss, optimizer, callbacks=())
    others.train(data(), 1, data(4), **QUICK)
    assert capsys.readouterr().out == ""


STEPS, EVALUATION = ["step"] * 4, ["eval"] * 4
BEFORE_THE_END = {
    "on_train_epoch_start": ["stop", "train epoch", "run epoch"],
    "on_train_step_end": ["step", "stop", "train epoch", "run epoch"],
    "on_train_epoch_end": [*STEPS, "train epoch", "stop", "run epoch"],
    "on_eval_epoch_end": [*STEPS, "train epoch", *EVALUATION, "stop", "run epoch"],
    "on_training_run_epoch_end": [*STEPS, "train epoch", *EVALUATION, "run epoch", "stop"],
}
"""The events until the end of a run of which a hook raises StopTrainingError.

pytorch-accelerated leaves out what comes after "stop", and has no evaluation where there is none
here; `docs/coming-from-pytorch-accelerated.md` says so.
"""


class Events(TrainerCallback):
    """Notes the events."""

    def __init__(self):
        self.seen = []

    def on_train_step_end(self, trainer, **kwargs):
        self.seen.append("step")

    def on_train_epoch_end(self, trainer, **kwargs):
        self.seen.append("train epoch")

    def on_eval_step_end(self, trainer, **kwargs):
        self.seen.append("eval")

    def on_training_run_epoch_end(self, trainer, **kwargs):
        self.seen.append("run epoch")

    def on_stop_training_error(self, trainer, **kwargs):
        self.seen.append("stop")


@pytest.mark.parametrize("hook", BEFORE_THE_END)
def test_a_stop_is_followed_by_no_evaluation(hook) -> None:
    """An epoch that a hook ends is not evaluated, and `on_stop_training_error` is called once."""

    def stops(self, trainer, **kwargs):
        raise StopTrainingError("enough")

    events = Events()
    trainer = trainer_of(events, type("Stops", (TrainerCallback,), {hook: stops})())
    trainer.train(data(), 3, data(), **QUICK)
    assert events.seen == BEFORE_THE_END[hook]


def test_early_stopping_is_told_to_callbacks() -> None:
    """`on_stop_training_error` is called for its stop; a minimum of epochs is still kept."""
    events = Events()
    stopper = EarlyStoppingCallback(early_stopping_threshold=1e9)
    trainer = trainer_of(events, stopper)
    trainer.train(data(), 5, data(), **QUICK)
    epoch = [*STEPS, "train epoch", *EVALUATION, "run epoch"]
    assert events.seen == [*epoch, *epoch, "stop"]
    told = "EarlyStopping: eval_loss_epoch did not improve in 1 check"
    assert trainer.stop_reason.startswith(told)


def test_the_message_of_a_request_to_stop_is_printed_and_the_reason(capsys) -> None:
    """`StopTrainingError("enough")` ends the training, is printed, and is the stop reason."""

    class Enough(TrainerCallback):
        def on_train_epoch_end(self, trainer, **kwargs):
            raise StopTrainingError("enough")

    trainer = trainer_of(Enough)
    trainer.train(data(), 3, **QUICK)
    assert trainer.stop_reason == "enough"
    assert "enough" in capsys.readouterr().out


def test_the_run_config_is_read_by_attribute_and_by_item() -> None:
    """Both forms that releases of pytorch-accelerated had give the same values."""
    trainer = trainer_of()
    assert trainer.run_config is None
    trainer.train(data(), 2, gradient_accumulation_steps=2, **QUICK)
    config = trainer.run_config
    assert config.train_per_device_batch_size == config["train_per_device_batch_size"] == 2
    assert config.to_dict()["train_total_batch_size"] == 4
    assert config.num_update_steps_per_epoch == 2
    with pytest.raises(AttributeError):
        config.num_epochs = 3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the checkpoint and this run")
def test_a_training_goes_on_from_a_saved_state(tmp_path) -> None:
    """`resume_from` ends with the weights and losses of a training that was never cut."""
    whole = trainer_of()
    whole.train(data(), 3, data(4), **QUICK)
    saver = SaveTrainingStateCallback(tmp_path, save_every_n_steps=1, save_at_end=False)
    cut = trainer_of(saver)
    cut.train(data(), 3, data(4), max_num_train_steps=6, **QUICK)
    for name in ("step_2.ckpt", "step_6.ckpt"):
        resumed = trainer_of()
        resumed.train(data(), 3, data(4), resume_from=tmp_path / name, **QUICK)
        for mine, theirs in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
            assert torch.equal(mine, theirs)
        losses = [t.run_history.get_metric_values("train_loss_epoch") for t in (resumed, whole)]
        assert losses[0][-2:] == losses[1][-2:]
    resumed.save_training_state(tmp_path / "state", {"note": 1})
    again = trainer_of()
    again.train(data(), 4, data(4), resume_from=tmp_path / "state", **QUICK)
    assert again.global_step == 16


def test_a_history_that_is_not_reset_goes_on() -> None:
    """With `reset_run_history=False` the values of the training before stay."""
    trainer = trainer_of()
    trainer.train(data(), 2, **QUICK)
    trainer.train(data(), 1, reset_run_history=False, **QUICK)
    assert len(trainer.run_history.get_metric_values("train_loss_epoch")) == 3


def test_an_evaluation_inside_an_epoch_is_marked() -> None:
    """It is told by `is_intermediate`, and its loss is there for its callbacks alone."""
    seen = []

    class Seen(TrainerCallback):
        def on_eval_epoch_end(self, trainer, is_intermediate=False, **kwargs):
            names = trainer.run_history.get_metric_names()
            seen.append((is_intermediate, "intermediate_eval_loss" in names))

    trainer = trainer_of(Seen, StepBasedEvaluationCallback(3))
    trainer.train(data(), 1, data(4), **QUICK)
    assert seen == [(True, True), (False, False)]
    assert len(trainer.run_history.get_metric_values("eval_loss_epoch")) == 1
    assert "intermediate_eval_loss" not in trainer.run_history.get_metric_names()


def test_an_average_of_the_weights_is_evaluated_too(tmp_path) -> None:
    """ModelEmaCallback records its loss under the prefix that it has there."""
    trainer = trainer_of(ModelEmaCallback(save_path=tmp_path / "ema.pt"))
    trainer.train(data(), 2, data(4), **QUICK)
    values = trainer.run_history.get_metric_values("ema_model_eval_loss_epoch")
    assert len(values) == 2


def test_overridden_clearing_and_clipping_are_called() -> None:
    """`optimizer_zero_grad` and `_clip_gradients` of a subclass take the place of the default."""
    calls = []

    class Own(Trainer):
        def optimizer_zero_grad(self):
            calls.append("clear")
            super().optimizer_zero_grad()

        def _clip_gradients(self):
            calls.append("clip")
            super()._clip_gradients()

    trainer = trainer_of(kind=Own)
    trainer.train(data(4), 1, gradient_clip_value=0.5, **QUICK)
    assert calls == ["clear", "clip"] * 2


def test_placeholders_can_be_computed_with() -> None:
    """Sums, differences and products are computed when the run is known."""
    values = TrainerPlaceholderValues
    seen = {}

    def make(optimizer, **numbers):
        seen.update(numbers)
        return torch.optim.lr_scheduler.StepLR(optimizer, 1)

    from functools import partial

    trainer = trainer_of()
    trainer.train(
        data(),
        2,
        data(4),
        create_scheduler_fn=partial(
            make,
            a=values.NUM_EPOCHS + 1,
            b=values.EVAL_DATALOADER_LEN * 2 + 1,
            c=values.PER_PROCESS_NUM_UPDATE_STEPS_PER_EPOCH,
            d="x",
            e=values.NUM_EPOCHS * values.NUM_UPDATE_STEPS_PER_EPOCH,
            f=2 * values.NUM_EPOCHS + values.EVAL_DATALOADER_LEN * values.NUM_EPOCHS,
            g=values.NUM_EPOCHS - 1,
            h=1 + (7 - values.NUM_EPOCHS * 0.5),
        ),
        **QUICK,
    )
    assert seen == {"a": 3, "b": 5, "c": 4, "d": "x", "e": 8, "f": 8, "g": 1, "h": 7.0}
    with pytest.raises(TypeError, match="unsupported operand"):
        values.NUM_EPOCHS - "x"


def test_a_handler_of_ones_own_takes_instances_and_classes() -> None:
    """`CallbackHandler([...])` calls events in its order, and skips who has no method."""
    got = []

    class Listening(TrainerCallback):
        def my_event(self, trainer, x):
            got.append((type(self), trainer, x))

    class Other(TrainerCallback):
        pass

    class Last(Listening):
        pass

    handler = CallbackHandler([Listening, Other(), Last])
    handler.call_event("my_event", "trainer", x=3)
    assert got == [(Listening, "trainer", 3), (Last, "trainer", 3)]
    assert handler.callback_list == ["Listening", "Other", "Last"]
    assert [type(callback) for callback in handler] == [Listening, Other, Last]
    handler.clear_callbacks()
    assert handler.callbacks == []
    with pytest.raises(CallbackError, match="must be a callback or a class of one"):
        handler.add_callback(3)


def test_a_batch_loss_that_is_computed_otherwise_is_what_is_learned_from() -> None:
    """An overridden method computes the loss of the training, and of the evaluation too."""

    class Zero(Trainer):
        def calculate_train_batch_loss(self, batch):
            output = super().calculate_train_batch_loss(batch)
            return {**output, "loss": output["loss"] * 0}

        def calculate_eval_batch_loss(self, batch):
            evaluated.append(super().calculate_eval_batch_loss(batch))
            return evaluated[-1]

    evaluated: list = []
    trainer = trainer_of(kind=Zero)
    before = [p.clone() for p in trainer.model.parameters()]
    trainer.train(data(), 1, data(4), **QUICK)
    after = trainer.model.parameters()
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert len(evaluated) == 2


class _WithMethods(Trainer):
    calls: list

    def train_epoch_end(self):
        super().train_epoch_end()
        self.calls.append("method")

    def eval_epoch_start(self):
        super().eval_epoch_start()
        self.calls.append("eval method")


def test_a_trainers_own_methods_run_before_the_callbacks() -> None:
    """`train_epoch_end` runs just before `on_train_epoch_end`."""
    calls: list = []

    class Recording(TrainerCallback):
        def on_train_epoch_end(self, trainer, **kwargs):
            calls.append("callback")

        def on_eval_epoch_start(self, trainer, **kwargs):
            calls.append("eval callback")

    trainer = trainer_of(Recording(), kind=_WithMethods)
    trainer.calls = calls
    trainer.train(data(), 2, data(4), **QUICK)
    assert calls == ["method", "callback", "eval method", "eval callback"] * 2


def test_a_trainer_listens_to_what_it_overrides() -> None:
    """A plain Trainer sets the model's mode; a subclass is called for its own methods as well."""

    def listened(kind: type[Trainer]) -> set[str]:
        trainer = trainer_of(kind=kind)
        for callback in trainer.callbacks:
            trainer.remove_callback(callback)
        relay = trainer._core.connector.relay
        relay.on_init_end(trainer)  # lets it see who takes part
        return set(relay.listened)

    modes = {"on_train_epoch_start", "on_validation_epoch_start", "on_test_epoch_start"}
    assert listened(Trainer) == listened(type("Same", (Trainer,), {})) == modes
    assert listened(_WithMethods) == {*modes, "on_train_batches_end"}


def test_the_trainers_handler_takes_classes_and_instances() -> None:
    """It adds both, any number of a class, lists them, and takes all out; losses are kept still."""

    class Mine(TrainerCallback):
        pass

    trainer = trainer_of()
    handler = trainer.callback_handler
    assert handler.callback_list == []
    handler.add_callbacks([Mine, Mine()])
    handler.add_callback(Mine)
    assert [type(callback) for callback in handler] == [Mine] * 3
    assert handler.callback_list == ["Mine", "Mine", "Mine"]
    with pytest.raises(CallbackError, match="must be an instance"):
        handler.add_callback(3)
    handler.clear_callbacks()
    assert list(handler) == []
    trainer.train(data(), 1, data(4), **QUICK)
    assert sorted(trainer.run_history.get_metric_names()) == ["eval_loss_epoch", "train_loss_epoch"]
    with pytest.raises(UsageError, match="is a hook"):
        handler.call_event("on_train_epoch_end")


def test_the_trainers_handler_fires_an_event_with_positional_arguments() -> None:
    """`call_event(name, trainer, 3)` calls the method with these; the trainer may be left out."""
    got: list = []

    class Listening(TrainerCallback):
        def my_event(self, trainer, x, y=0):
            assert x > 0
            got.append((trainer, x, y))

    trainer = trainer_of(Listening())
    trainer.callback_handler.call_event("my_event", trainer, 3)
    trainer.callback_handler.call_event("my_event", x=4, y=5)
    assert got == [(trainer, 3, 0), (trainer, 4, 5)]
    with pytest.raises(AssertionError):
        trainer.callback_handler.call_event("my_event", x=0)


@pytest.mark.parametrize(
    "name",
    [
        "calculate_train_batch_loss", "calculate_eval_batch_loss", "callback_handler",
        "training_run_start", "train_epoch_end", "evaluation_run_end",
    ],
)  # fmt: skip
def test_the_plain_trainer_has_none_of_these_names(name) -> None:
    """Names of pytorch-accelerated are on the Trainer of this package alone."""
    assert hasattr(Trainer, name)
    assert not hasattr(trainer_hooks.Trainer, name)


def test_what_is_not_offered_says_so() -> None:
    """A history of one's own, and a loss function that is missing, name what to do instead."""
    with pytest.raises(OptionError, match="run_history <object"):
        trainer_of(run_history=object())
    with pytest.raises(CallbackError, match="must be a callback or a class of one"):
        trainer_of("no callback")
    model = torch.nn.Linear(3, 1)
    bare = Trainer(model, None, torch.optim.SGD(model.parameters(), lr=0.1), callbacks=())
    with pytest.raises(UsageError, match="override calculate_train_batch_loss"):
        bare.train(data(), 1, **QUICK)
    with pytest.raises(AttributeError, match=r"pass the folder to train\(resume_from=\.\.\.\)"):
        bare.load_training_state("folder")
    with pytest.raises(AttributeError, match=r"override Trainer\.scheduler_step"):
        _ = trainer_hooks.compat.accelerated.TrainerWithTimmScheduler


@pytest.mark.parametrize(
    "name", ["optimizer", "scheduler", "_train_dataloader", "_eval_dataloader"]
)
def test_what_a_run_would_not_follow_is_refused(name) -> None:
    """A callback that replaces what the run began with is told; between runs it can be replaced."""

    class Replaces(TrainerCallback):
        def on_training_run_start(self, trainer, **kwargs):
            setattr(trainer, name, object())

    trainer = trainer_of(Replaces)
    with pytest.raises(UsageError, match=rf"trainer\.{name} = object in a run under way"):
        trainer.train(data(), 1, data(4), **QUICK)
    setattr(trainer, name, None)


def test_a_scheduler_that_is_there_already_steps() -> None:
    """`Trainer(scheduler=)` steps after each step of the optimizer."""
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    loss = torch.nn.functional.mse_loss
    trainer = Trainer(model, loss, optimizer, callbacks=(), scheduler=scheduler)
    trainer.train(data(), 1, **QUICK)
    assert optimizer.param_groups[0]["lr"] == 0.5**4
    assert torch.equal(trainer.gather(torch.ones(2)), torch.ones(2))
    padded = torch.tensor([[1.0, -1.0], [-1.0, -1.0]])
    assert torch.equal(trainer.gather(padded, padding_value=-1), padded[:1])
    assert torch.equal(trainer.gather({"rows": padded})["rows"], padded)


def test_what_programs_take_from_the_accelerator() -> None:
    """The private `_accelerator` of pytorch-accelerated's trainer unwraps models."""

    class Averaging(Trainer):
        def training_run_start(self) -> None:
            self.average = self._accelerator.unwrap_model(self.model)
            self.place = self._accelerator.device

    trainer = trainer_of(kind=Averaging)
    trainer.train(data(), 1, **QUICK)
    assert trainer.average is trainer.model
    assert trainer.place == trainer.device
    assert trainer._accelerator.is_main_process
    assert trainer._accelerator.num_processes == 1
