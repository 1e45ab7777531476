"""What the callback's hooks cost; told, and never a defect."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from trainer_hooks.hooks import ALIASES, HOOKS, overrides
from trainer_hooks.testing.checks.finding import Findings, Note

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.callback import Callback
    from trainer_hooks.testing.bench import Bench

__all__ = ["measure_costs"]

_EPOCHS = 8
_NAMES = tuple(HOOKS)
_BATCH_HOOKS = frozenset(
    _NAMES[_NAMES.index("on_before_dataloader") : _NAMES.index("on_batch_checkpoint") + 1]
)


class _Stopwatch:
    """Add up the time that a callback's hooks take, of a training batch and otherwise."""

    def __init__(self, callback: Callback) -> None:
        self.in_batches = 0.0
        self.elsewhere = 0.0
        if callback.routes_events:
            self._put_on(callback, "run_event")
        else:
            for name in (*HOOKS, *ALIASES):
                if overrides(callback, name):
                    self._put_on(callback, name)

    def _put_on(self, callback: Callback, method: str) -> None:
        call: Callable[..., object] = getattr(callback, method)

        def timed(*args: Any) -> None:
            start = perf_counter()
            try:
                call(*args)
            finally:
                taken = perf_counter() - start
                if (args[0] if method == "run_event" else method) in _BATCH_HOOKS:
                    self.in_batches += taken
                else:
                    self.elsewhere += taken

        vars(callback)[method] = timed  # past a __setattr__ of the callback's own


def measure_costs(bench: Bench) -> Findings:
    """Tell how long the hooks take in each training batch, and all others together."""
    callback = bench.make()
    watch = _Stopwatch(callback)
    with bench.room():
        trainer = bench.trainer(callback, max_epochs=_EPOCHS)
        trainer.fit(bench.make_module())
        trainer.close()
    batches = max(1, trainer.progress.batches_completed)
    yield Note(
        f"{watch.in_batches / batches * 1e6:.1f} us in the hooks of each training batch, "
        f"{watch.elsewhere * 1e3:.2f} ms in all others of a fit of {batches} batches"
    )
