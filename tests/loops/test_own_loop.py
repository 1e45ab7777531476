"""A loop by Run that does what fit does calls the same hooks, with the same counters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from own_loops import fit_by_run
from quiet_trainers import QUIET_OPTIONS

from trainer_hooks import Callback, StopTraining, Trainer
from trainer_hooks.callbacks import EarlyStopping
from trainer_hooks.hooks.spec import HOOKS

QUIET: dict[str, Any] = {
    **QUIET_OPTIONS,
    "num_sanity_val_steps": 0,
    "max_epochs": 2,
    "log_every_n_steps": 2,
}


class Trace(Callback):
    """Notes each hook with the kinds of its arguments and the trainer's counters."""

    def __init__(self, *, with_length: bool = True) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.with_length = with_length
        for hook in HOOKS:
            if not hook.startswith("on_init"):
                setattr(self, hook, self._listener(hook))

    def _listener(self, hook: str) -> Any:
        def listen(trainer: Any, *args: Any) -> None:
            progress = trainer.progress.state_dict()
            kinds = tuple(
                sorted(arg) if isinstance(arg, dict) else arg if isinstance(arg, int | str) else ""
                for arg in args[1:]
            )
            length = trainer.num_training_batches if self.with_length else None
            self.calls.append(
                (hook, kinds, progress, trainer.is_last_batch, length, trainer.state.stage)
            )

        return listen


def stop_in(hook: str, at: int) -> Callback:
    """Return a callback that raises StopTraining at the n-th call of a hook."""

    class Stop(Callback):
        seen = 0

    def raise_stop(self: Any, *_: Any) -> None:
        self.seen += 1
        if self.seen == at:
            raise StopTraining("enough")

    setattr(Stop, hook, raise_stop)
    return Stop()


class Skip(Callback):
    """Skips the second batch of each epoch."""

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx == 1:
            trainer.skip_batch()


class EndEpoch(Callback):
    """Ends each epoch after its second batch."""

    def on_train_batch_end(self, trainer: Any, module: Any, out: Any, batch: Any, i: int) -> None:
        if i == 1:
            trainer.end_epoch()


CASES: dict[str, tuple[dict[str, Any], Any]] = {
    "plain": ({}, list),
    "accumulated": ({"accumulate_grad_batches": 2}, list),
    "accumulated, with a rest": ({"accumulate_grad_batches": 3}, list),
    "clipped, bf16": ({"gradient_clip_val": 0.1, "precision": "bf16-mixed"}, list),
    "float64": ({"precision": "64-true"}, list),
    "validation inside": ({"val_check_interval": 2}, list),
    "validation inside a window": ({"val_check_interval": 1, "accumulate_grad_batches": 2}, list),
    "validation over epochs": ({"val_check_interval": 3, "check_val_every_n_epoch": None}, list),
    "every other epoch": ({"check_val_every_n_epoch": 2, "max_epochs": 4}, list),
    "by steps": ({"max_epochs": -1, "max_steps": 6}, list),
    "by samples": ({"max_epochs": -1, "max_duration": "10sp"}, list),
    "cycles": ({"iteration_length": 2, "max_epochs": 3}, list),
    "limited": ({"limit_train_batches": 2, "limit_val_batches": 1}, list),
    "dry": ({"fast_dev_run": 2}, list),
    "stopped early": (
        {"max_epochs": 5},
        lambda: [EarlyStopping("val_loss", patience=1, min_delta=100.0)],
    ),
    "skipped batches": ({}, lambda: [Skip()]),
    "epochs that end early": ({"accumulate_grad_batches": 3}, lambda: [EndEpoch()]),
    **{
        f"stop in {hook} {at}": ({}, lambda hook=hook, at=at: [stop_in(hook, at)])
        for hook, at in (
            ("on_train_start", 1),
            ("on_train_epoch_start", 2),
            ("on_train_batch_start", 3),
            ("on_before_backward", 3),
            ("on_before_optimizer_step", 3),
            ("on_after_backward", 3),
            ("on_train_batch_end", 3),
            ("on_batch_checkpoint", 3),
            ("on_validation_batch_start", 2),
            ("on_validation_end", 1),
            ("on_train_epoch_end", 1),
        )
    },
}


@pytest.mark.parametrize("case", CASES)
def test_hooks_and_counters_are_those_of_fit(case: str, tiny, batches) -> None:
    """Hooks, their arguments and all counters are the Trainer's, and so are the weights."""
    options, extra = CASES[case]
    traces, weights = [], []
    for is_own in (False, True):
        trace, module = Trace(), tiny()
        callbacks = [trace, *extra()]
        train, val = batches(4), batches(2)
        if is_own:
            trainer = fit_by_run(module, train, val, callbacks=callbacks, **QUIET | options)
        else:
            trainer = Trainer(callbacks=callbacks, **QUIET | options)
            trainer.fit(module, train, val)
        traces.append(trace.calls)
        weights.append(module.state_dict())
    for theirs, ours in zip(*traces, strict=False):
        assert ours == theirs
    assert len(traces[0]) == len(traces[1])
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize(
    "hook",
    [
        "on_batch_checkpoint",
        "on_train_batches_end",
        "on_validation_run_start",
        "on_train_epoch_end",
        "on_epoch_checkpoint",
    ],
)
@pytest.mark.filterwarnings("ignore:a checkpoint was saved in the hook on_train_epoch_end")
def test_a_resume_makes_the_calls_that_were_left(hook, at, tiny, batches, loader, tmp_path) -> None:
    """From a checkpoint inside an epoch or at its end the calls, counters and weights follow."""
    path = tmp_path / "cut.ckpt"

    class Save(Callback):
        seen = 0

    def save(self: Any, trainer: Any, module: Any) -> None:
        self.seen += 1
        if self.seen == at:
            trainer.save_checkpoint(path)

    setattr(Save, hook, save)
    calls, weights = [], []
    for callback, ckpt_path in ((Save(), None), (Callback(), path)):
        trace, module = Trace(), tiny()
        options = QUIET | {"max_epochs": 3, "callbacks": [trace, callback]}
        fit_by_run(module, loader(3), batches(2), ckpt_path=ckpt_path, **options)
        weights.append(module.state_dict())
        calls.append([call for call in trace.calls if "checkpoint" not in call[0]])
    whole, resumed = calls
    resumed = resumed[[name for name, *_ in resumed].index("on_train_start") + 1 :]
    assert 5 < len(resumed) < len(whole)
    assert resumed == whole[-len(resumed) :]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_several_validation_loaders(tiny, batches, loader) -> None:
    """With several loaders the hooks get the loader's index, and metrics its suffix."""
    traces, metrics = [], []
    for is_own in (False, True):
        trace, module = Trace(), tiny()
        val = [loader(2), loader(1)]
        if is_own:
            trainer = fit_by_run(module, batches(3), val, callbacks=[trace], **QUIET)
        else:
            trainer = Trainer(callbacks=[trace], **QUIET)
            trainer.fit(module, batches(3), val)
        traces.append(trace.calls)
        metrics.append(trainer.callback_metrics)
    assert traces[0] == traces[1]
    assert metrics[0] == metrics[1]
    assert "val_loss/dataloader_idx_1" in metrics[1]


def test_a_loader_that_comes_in_the_loop(tiny, batches) -> None:
    """Without the loader beforehand everything but the length of the first epoch is the same."""
    traces = []
    for is_known in (False, True):
        trace = Trace(with_length=False)
        fit_by_run(tiny(), batches(3), batches(1), callbacks=[trace], is_known=is_known, **QUIET)
        traces.append(trace.calls)
    assert traces[0] == traces[1]


def test_a_loader_without_length(tiny, batches) -> None:
    """A generator's epochs end where it ends, as in fit."""

    class Unsized:
        def __iter__(self):
            return iter(batches(3))

    traces = []
    for is_own in (False, True):
        trace, module = Trace(), tiny()
        options = QUIET | {"accumulate_grad_batches": 2}
        if is_own:
            fit_by_run(module, Unsized(), batches(1), callbacks=[trace], **options)
        else:
            Trainer(callbacks=[trace], **options).fit(module, Unsized(), batches(1))
        traces.append(trace.calls)
    assert traces[0] == traces[1]
