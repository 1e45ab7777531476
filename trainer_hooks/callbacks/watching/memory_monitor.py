"""MemoryMonitor: log how much of the device's memory is in use, under Composer's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.watching.cuda_memory import named_statistics, tells
from trainer_hooks.callbacks.watching.due import closes_window
from trainer_hooks.clock import Cue, TimeUnit, parse_when
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer_hooks.clock import When
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["MemoryMonitor"]

_WHERE = "MemoryMonitor"
_KINDS = {
    "allocated": "allocated_bytes",
    "active": "active_bytes",
    "inactive": "inactive_split_bytes",
    "reserved": "reserved_bytes",
}
_NAMES = {
    f"{torch_name}.all.{when}": f"{when}_{name}_mem"
    for when in ("current", "peak")
    for name, torch_name in _KINDS.items()
} | {"num_alloc_retries": "alloc_retries"}
_OVER_PROCESSES = ("avg", "min", "max")


class MemoryMonitor(Callback):
    """Log how much of the CUDA device's memory is in use, under Composer's names.

    Each `log_every_n_steps` steps, when the gradients are there and the optimizer is about to step,
    these go to the loggers: `memory/current_allocated_mem`, what tensors take;
    `memory/current_active_mem`, with what waits to be freed; `memory/current_inactive_mem`, what
    cannot be given back; `memory/current_reserved_mem`, all that the process has taken of the
    device; the same as `memory/peak_...`, the most since the process began; and
    `memory/alloc_retries`, how often a cache had to be emptied. Memory is in gigabytes (1e9 bytes)
    of five significant digits. Where the run is not on a CUDA device it warns once and does
    nothing.

    Args:
        memory_keys: statistics of `torch.cuda.memory_stats()` and what they are to be called, such
            as `{"num_ooms": "ooms"}`, instead of those above. Those about bytes become gigabytes.
        dist_aggregate_batch_interval: how often each is also logged as its mean, least and most
            over all processes, `..._avg`, `..._min` and `..._max`: a number of optimizer steps, a
            time such as `"100ba"`, a filter, or a function of the clock; None for never. In one
            process the three are equal.

    State: the counts when it last looked whether that is due.

    Raises:
        OptionError: an argument is outside its rule, or in a run, there is no such statistic.

    Example::

        monitor = MemoryMonitor()
        trainer = Trainer(max_epochs=2, logger=CSVLogger("logs"), callbacks=[monitor])
        trainer.fit(module, train_loader)
    """

    def __init__(
        self,
        memory_keys: Mapping[str, str] | None = None,
        dist_aggregate_batch_interval: int | When | None = None,
    ) -> None:
        self.memory_keys = _check_keys(memory_keys)
        self.dist_aggregate_batch_interval = dist_aggregate_batch_interval
        self._cue: Cue | None = None
        if dist_aggregate_batch_interval is not None:
            name = "dist_aggregate_batch_interval"
            when = parse_when(dist_aggregate_batch_interval, name, _WHERE, bare=TimeUnit.STEP)
            self._cue = Cue(when)
        self._is_on = self._is_warned = self._is_asked = False

    @property
    def state_key(self) -> str:
        """The class with what it logs and when."""
        when = None if self._cue is None else str(self._cue.when)
        own = self.memory_keys if self.memory_keys != _NAMES else None
        return self._generate_state_key(memory_keys=own, dist_aggregate_batch_interval=when)

    def state_dict(self) -> dict[str, Any]:
        """Return the counts when it last looked."""
        if self._cue is None:
            return {}
        return {"asked": self._cue.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take them back."""
        if self._cue is not None and "asked" in state_dict:
            self._cue.load_state_dict(state_dict["asked"])

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """See whether there is anything to be asked."""
        self._is_asked = False
        if self._cue is not None and trainer.progress.is_fresh:
            self._cue.forget()
        self._is_on = tells(trainer.device, _WHERE, history=False, is_quiet=self._is_warned)
        self._is_warned = self._is_warned or not self._is_on

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Start counting, or go on."""
        if self._cue is not None:
            self._cue.start(trainer.clock)

    def on_after_train_batch(self, trainer: Trainer, module: Module) -> None:
        """Log before the optimizer steps, if it is due."""
        if not self._is_asked:  # an optimizer may compute the gradients of a step several times
            self._is_asked = True
            self._log(trainer, trainer.progress.batches_stepped)

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Log after a step that a module made by itself, if it is due."""
        if closes_window(trainer):
            if not self._is_asked:
                self._log(trainer, trainer.progress.batches_stepped - 1)
            self._is_asked = False

    def _log(self, trainer: Trainer, step: int) -> None:
        is_due = (step + 1) % trainer.log_every_n_steps == 0
        is_aggregated = self._cue is not None and self._cue.is_due(trainer.clock)
        if not self._is_on or not (is_due or is_aggregated):
            return
        stats = torch.cuda.memory_stats(trainer.device)
        values = named_statistics(stats, self.memory_keys, _WHERE)
        metrics = {f"memory/{name}": value for name, value in values.items()} if is_due else {}
        if is_aggregated:
            # this trainer runs in one process, whose values are the mean, the least and the most
            for name, value in values.items():
                metrics.update({f"memory/{name}_{kind}": value for kind in _OVER_PROCESSES})
        trainer.log_metrics(metrics, step)


def _check_keys(keys: Any) -> dict[str, str]:
    """Return which statistics are logged under which names.

    Raises:
        OptionError: they are no texts by texts, or two have one name.
    """
    if keys is None:
        return dict(_NAMES)
    is_dict = isinstance(keys, dict) and bool(keys)
    if is_dict and all(isinstance(text, str) and text for pair in keys.items() for text in pair):
        if len(set(keys.values())) == len(keys):
            return dict(keys)
        rule = "no two may have the same name"
    else:
        rule = "it must be a dict of the names of statistics and what they are to be called"
    raise OptionError(
        f"memory_keys {keys!r} of {_WHERE}: {rule}. Pass one such as "
        "{'allocated_bytes.all.current': 'allocated_mem'}."
    )
