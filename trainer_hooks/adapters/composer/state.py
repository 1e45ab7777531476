"""GuestState: Composer's State, for a Trainer of trainer_hooks; it needs Composer to be imported.

It is made of Composer's own classes, so that its functions for states take it: those that save and
load, format names, and say when something is due.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from composer.core import DataSpec, Evaluator, Precision, State, Time
from composer.utils import get_device

from trainer_hooks.adapters.composer.metrics import LabelledMetrics, LoggedMetrics, Losses
from trainer_hooks.adapters.views import lacking
from trainer_hooks.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["GuestState", "evaluators_of", "length_of", "make_state"]

_DEVICES = {"cuda": "gpu"}
_PRECISIONS = {
    "16-mixed": Precision.AMP_FP16,
    "16-true": Precision.AMP_FP16,
    "bf16-mixed": Precision.AMP_BF16,
    "bf16-true": Precision.AMP_BF16,
}
_BEFORE_LOSS = frozenset({"after_forward", "before_loss", "eval_after_forward"})


class GuestState(State):  # type: ignore[misc]
    """The state that guests are given; the trainer alone puts the batch, outputs and loss there.

    A timestamp takes Composer longer to make than a small batch takes to be read, so that one is
    made when somebody asks.

    Attributes:
        event_in_work: the event that is delivered, or an empty text.
        catch_up: brings the two timestamps up to date; None as long as there is nothing to count.
        now: the timestamp as it was made last.
        before: likewise, the one before it.
    """

    event_in_work = ""
    catch_up: Callable[[], None] | None = None
    now: Any = None
    before: Any = None

    @property
    def timestamp(self) -> Any:
        """How much is trained."""
        if self.catch_up is not None:
            self.catch_up()
        return self.now

    @timestamp.setter
    def timestamp(self, timestamp: Any) -> None:
        self.keep("now", timestamp)

    @property
    def previous_timestamp(self) -> Any:
        """The same, before the last batch, epoch or iteration was counted."""
        if self.catch_up is not None:
            self.catch_up()
        return self.before

    @previous_timestamp.setter
    def previous_timestamp(self, timestamp: Any) -> None:
        self.keep("before", timestamp)

    def keep(self, name: str, value: Any) -> None:
        """Put an attribute there, for the trainer."""
        self.__dict__[name] = value

    def load_state_dict(self, *_: Any, **__: Any) -> None:
        """Refuse to go on from a training of Composer's.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            "state.load_state_dict(): the counters, optimizers and data of a checkpoint of "
            "Composer's are not this trainer's. Load the weights alone, as with "
            "LoadCheckpoint(load_weights_only=True), or go on from a checkpoint of trainer_hooks: "
            "trainer.fit(ckpt_path=...)."
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise lacking("State", "Composer", name)

    def __setattr__(self, name: str, value: Any) -> None:
        event = self.event_in_work
        if event and (name in {"batch", "loss"} or (name == "outputs" and event in _BEFORE_LOSS)):
            raise UsageError(
                f"state.{name} was set at {event!r}: here the module's own step makes the batch, "
                "the outputs and the loss, and does not look there. Change tensors in place, or "
                "do it in the module."
            )
        super().__setattr__(name, value)


def make_state(trainer: Any, module: Any) -> GuestState:
    """Return the state for a trainer, as far as it is known before a run.

    Args:
        trainer: it.
        module: what it is to run.
    """
    state = GuestState(
        model=module,
        rank_zero_seed=int(os.environ.get("PL_GLOBAL_SEED", "0")),
        run_name=_run_name(trainer),
        device=get_device(_DEVICES.get(trainer.device.type, trainer.device.type)),
        precision=_PRECISIONS.get(trainer.precision, Precision.FP32),
    )
    state.train_metrics = LoggedMetrics(trainer, "train")
    state.eval_metrics = LabelledMetrics(trainer)
    state.train_metric_values = LoggedMetrics(trainer, "train", are_values=True)
    state.eval_metric_values = LoggedMetrics(trainer, are_values=True)
    state.total_loss_dict = Losses(state)
    return state


def _run_name(trainer: Any) -> str:
    """Return the last part of the folder of the run, if there is one."""
    folder = trainer.log_dir if trainer.loggers else None
    return os.path.basename(os.path.normpath(folder)) if folder else "run"  # noqa: PTH119


def length_of(trainer: Any) -> Time | None:
    """Return how long a trainer trains, as a Time of Composer's; None where it has no end."""
    duration = trainer.max_duration
    if duration is not None and duration.unit.value in {"ba", "sp", "tok", "ep"}:
        number = int(duration.value)
        if duration.unit.value == "ba":  # a batch of Composer's is a step
            number = -(-number // trainer.accumulate_grad_batches)
        return Time(number, duration.unit.value)
    if trainer.max_steps >= 0:
        return Time(trainer.max_steps, "ba")
    return Time(trainer.max_epochs, "ep") if trainer.max_epochs >= 0 else None


def evaluators_of(trainer: Any) -> list[Evaluator]:
    """Return an Evaluator for each validation loader."""
    given = trainer.val_dataloaders
    loaders = given if isinstance(given, list | tuple) else [] if given is None else [given]
    several = len(loaders) > 1
    found = []
    for index, loader in enumerate(loaders):
        label = getattr(loader, "label", f"eval_{index}" if several else "eval")
        spec = _spec_of(getattr(loader, "dataloader", loader))
        found.append(Evaluator(label=label, dataloader=spec, metric_names=[]))
    return found


def _spec_of(loader: Any) -> DataSpec:
    """Return what Composer keeps a loader in, of which it wants to share the data by itself."""
    spec = DataSpec(())
    spec.dataloader = loader
    return spec
