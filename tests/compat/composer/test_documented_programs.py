"""The programs of Composer's pages on callbacks and events, by other import lines alone.

What is expected is what the pages say: "Callbacks" (the guide), "Callback" (the API) and the list
of events with its pseudocode.
"""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks.compat.composer import (
    Callback,
    ComposerModel,
    Evaluator,
    Event,
    Logger,
    State,
    Trainer,
)
from trainer_hooks.errors import UsageError


def parts(model, loader):
    return {
        "model": model,
        "train_dataloader": loader(),
        "optimizers": torch.optim.SGD(model.parameters(), lr=0.1),
        "max_duration": "1ep",
        "device": "cpu",
        "progress_bar": False,
    }


@pytest.mark.slow
def test_the_first_program_of_the_guide_runs(net, loader, monkeypatch, tmp_path) -> None:
    """Built-in callbacks and a W&B logger are handed to the trainer, as the guide shows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    wandb = pytest.importorskip("wandb")
    from trainer_hooks.compat.composer.callbacks import LRMonitor, SpeedMonitor
    from trainer_hooks.compat.composer.loggers import InMemoryLogger, WandBLogger

    kept = InMemoryLogger()
    trainer = Trainer(
        **{**parts(net, loader), "max_duration": "1ep"},
        eval_dataloader=None,
        callbacks=[SpeedMonitor(window_size=2), LRMonitor()],
        loggers=[WandBLogger(), kept],
    )
    trainer.fit()
    assert wandb.run.summary["lr-SGD/group0"] == 0.1
    assert wandb.run.summary["throughput/batches_per_sec"] > 0
    trainer.close()
    assert wandb.run is None, "the next trainer would log to it"
    wandb.teardown()
    assert "throughput/batches_per_sec" in kept.data
    assert [value for _, value in kept.data["lr-SGD/group0"]] == [0.1] * 4


def test_a_callback_by_methods_prints_the_epoch(net, loader, capsys) -> None:
    """The guide's `EpochMonitor`, whose method is named for its event, is called."""

    class EpochMonitor(Callback):
        def epoch_start(self, state: State, logger: Logger):
            print(f"Epoch: {state.timestamp.epoch}")

    trainer = Trainer(**{**parts(net, loader), "max_duration": "2ep"}, callbacks=[EpochMonitor()])
    trainer.fit()
    trainer.close()
    assert capsys.readouterr().out.splitlines()[:2] == ["Epoch: 0ep", "Epoch: 1ep"]


def test_a_callback_by_run_event_prints_the_epoch(net, loader, capsys) -> None:
    """The guide's other `EpochMonitor`, which receives every event, does the same."""

    class EpochMonitor(Callback):
        def run_event(self, event: Event, state: State, logger: Logger):
            if event == Event.EPOCH_START:
                print(f"Epoch: {state.timestamp.epoch}")

    trainer = Trainer(**{**parts(net, loader), "max_duration": "2ep"}, callbacks=[EpochMonitor()])
    trainer.fit()
    trainer.close()
    assert capsys.readouterr().out.splitlines()[:2] == ["Epoch: 0ep", "Epoch: 1ep"]


@pytest.mark.parametrize("way", ["methods", "run_event"])
def test_the_engine_runs_an_event_by_hand(net, loader, capsys, way) -> None:
    """Both doctests of the API page: `trainer.engine.run_event(...)` prints `Epoch: 0`."""

    class ByMethod(Callback):
        def epoch_start(self, state: State, logger: Logger):
            print(f"Epoch: {int(state.timestamp.epoch)}")

    class ByEvent(Callback):
        def run_event(self, event: Event, state: State, logger: Logger):
            if event == Event.EPOCH_START:
                print(f"Epoch: {int(state.timestamp.epoch)}")

    trainer = Trainer(
        **parts(net, loader),
        eval_dataloader=loader(),
        callbacks=[ByMethod() if way == "methods" else ByEvent()],
    )
    _ = trainer.engine.run_event(Event.EPOCH_START)
    assert capsys.readouterr().out == "Epoch: 0\n"
    assert trainer.engine.run_event("epoch_start") == {}
    trainer.close()
    with pytest.raises(UsageError, match="the trainer is closed"):
        trainer.engine.run_event(Event.EPOCH_START)


def test_run_event_takes_the_place_of_the_methods(make) -> None:
    """With `run_event` overridden the methods are not called, but from it, as the page says."""
    called = []

    class Both(Callback):
        def run_event(self, event, state, logger):
            if event is Event.EPOCH_END:
                super().run_event(event, state, logger)

        def epoch_start(self, state, logger):
            called.append("start")

        def epoch_end(self, state, logger):
            called.append("end")

    make(Both()).fit()
    assert called == ["end"]


METHODS = [event.value for event in Event]


@pytest.fixture(scope="module")
def seen():
    """What each method was called with in two iterations of fits, an eval and a predict."""

    class Net(ComposerModel):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 3)

        def forward(self, batch):
            return self.layer(batch[0])

        def loss(self, outputs, batch):
            return torch.nn.functional.cross_entropy(outputs, batch[1])

    calls = {}

    def method(name):
        def call(self, *arguments):
            calls.setdefault(name, []).append(arguments)

        return call

    kind = type("All", (Callback,), {n: method(n) for n in (*METHODS, "close", "post_close")})
    data = TensorDataset(torch.randn(8, 4), torch.randint(0, 3, (8,)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINER_HOOKS_DISABLE_PLUGINS", "1")
        trainer = Trainer(
            **parts(Net(), lambda: DataLoader(data, batch_size=4)),
            eval_dataloader=DataLoader(data, batch_size=4),
            callbacks=[kind()],
        )
        trainer.fit()
        trainer.eval()
        trainer.predict(DataLoader(data, batch_size=4))
        trainer.engine.run_event(Event.ITERATION_END)  # a training without iterations has none
        trainer.engine.run_event(Event.ITERATION_CHECKPOINT)
        trainer.close()
    return calls


@pytest.mark.parametrize("name", [*METHODS, "close"])
def test_each_method_is_called_with_state_and_logger(seen, name) -> None:
    """Each method of the API page is called on its event, with `(state, logger)`."""
    assert seen[name]
    for arguments in seen[name]:
        assert [type(argument) for argument in arguments] == [State, Logger]


def test_post_close_is_called_without_arguments(seen) -> None:
    """`post_close()` is called once, after `close`, with nothing."""
    assert seen["post_close"] == [()]


def test_there_are_the_events_of_the_page_and_no_others(seen) -> None:
    """The methods of the page are those of the enum: forty, and `close` and `post_close`."""
    assert len(METHODS) == 40
    assert set(METHODS) | {"close", "post_close"} == set(seen)


def test_the_order_is_that_of_the_pseudocode(make, recorder, loader, events_of_a_batch) -> None:
    """One epoch of one batch in two microbatches, and an evaluation, as the page's code says."""
    make(
        recorder,
        train_dataloader=loader(4),
        eval_dataloader=loader(4),
        device_train_microbatch_size=2,
    ).fit()
    assert recorder.names == events_of_a_batch(2)


def test_each_evaluator_has_its_own_pair(make, recorder, loader) -> None:
    """`EVAL_START` and `EVAL_END` fire once for each loader, as in the page's inner loop."""
    both = [Evaluator(label=name, dataloader=loader(4)) for name in ("a", "b")]
    labels = []

    class Labels(Callback):
        def eval_start(self, state, logger):
            labels.append(state.dataloader_label)

        def eval_end(self, state, logger):
            labels.append(state.dataloader_label)

        def eval_after_all(self, state, logger):
            labels.append(state.dataloader_label)

    make(recorder, Labels(), eval_dataloader=both).fit()
    assert labels == ["a", "a", "b", "b", "train"]
    found = [name for name in recorder.names if name in ("eval_start", "eval_end")]
    assert found == ["eval_start", "eval_end"] * 2


def test_gradients_are_clipped_and_weights_old_after_the_train_batch(make, net) -> None:
    """At `AFTER_TRAIN_BATCH` the gradients are there and the step is still to come."""
    seen = []

    class Look(Callback):
        def fit_start(self, state, logger):
            self.before = state.model.layer.weight.clone()

        def after_train_batch(self, state, logger):
            seen.append(torch.equal(self.before, state.model.layer.weight))
            assert state.model.layer.weight.grad is not None
            state.stop_training()

        def batch_end(self, state, logger):
            seen.append(torch.equal(self.before, state.model.layer.weight))

    make(Look()).fit()
    assert seen == [True, False]


def test_canonical_names_are_those_of_the_source() -> None:
    """`canonical_name`, `is_before_event` and their kin, as in `composer/core/event.py`."""
    assert {Event.EPOCH_START.canonical_name, Event.EPOCH_END.canonical_name} == {"epoch"}
    assert Event.EVAL_BEFORE_ALL.canonical_name == "eval_all"
    assert Event.BEFORE_LOSS.is_before_event
    assert not Event.BEFORE_LOSS.is_after_event
    assert not Event.INIT.is_before_event
    assert not Event.BATCH_CHECKPOINT.is_after_event
    assert Event.EVAL_AFTER_ALL.is_after_event
    assert Event.EVAL_STANDALONE_START.is_eval
    assert Event.PREDICT_END.is_predict
    assert Event("EPOCH_START") is Event.EPOCH_START
    assert Event("epoch_start") is Event.EPOCH_START
