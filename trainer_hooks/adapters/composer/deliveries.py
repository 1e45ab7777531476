"""What is done at hooks that ask for more than delivering one event: keep the state as it is there.

Each function takes the guest and what the hook brings. What is shared is done by the first guest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from trainer_hooks.data import defines
from trainer_hooks.module import Module

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DELIVERIES", "Guest"]


class Guest(Protocol):
    """What is asked of a guest's adapter here."""

    home: Any
    loaders_told: int

    def at_home(self, trainer: Any, module: Any) -> Any:
        """Return what the guests of a trainer share."""

    def enter(self, trainer: Any, module: Any) -> None:
        """Take part in a run."""

    def tell(self, event: str) -> None:
        """Deliver an event, if the guest hears it."""


# --- a run begins and ends ---


def _enter(guest: Guest, trainer: Any, module: Any) -> None:
    guest.enter(trainer, module)


def _before_load(guest: Guest, trainer: Any, module: Any, path: str | None) -> None:
    home = guest.at_home(trainer, module)
    home.limit()
    home.state.load_path = path
    guest.tell("before_load")


def _after_load(guest: Guest, trainer: Any, module: Any, _checkpoint: Any) -> None:
    guest.at_home(trainer, module).look()
    guest.tell("after_load")


def _begin_fit(guest: Guest, trainer: Any, module: Any) -> None:
    guest.at_home(trainer, module).begin_fit()
    guest.tell("fit_start")


def _close(guest: Guest, _trainer: Any, _module: Any) -> None:
    if guest.home is not None:
        guest.home.close()


def _nothing(*_: Any) -> None:
    """Do nothing: all are closed together."""


# --- training ---


def _begin_epoch(guest: Guest, trainer: Any, module: Any) -> None:
    home = guest.at_home(trainer, module)
    home.begin_epoch()
    if home.state.timestamp.epoch_in_iteration.value == 0:
        guest.tell("iteration_start")
    guest.tell("epoch_start")


def _take_from_loader(guest: Guest, trainer: Any, module: Any, batch: Any) -> None:
    home = guest.at_home(trainer, module)
    if batch is None:
        home.note_end_of_data()
    else:
        home.state.keep("batch", batch)
        guest.tell("after_dataloader")


def _start_batch(guest: Guest, trainer: Any, module: Any, batch: Any, _idx: int) -> None:
    home = guest.at_home(trainer, module)
    home.state.keep("batch", batch)
    if trainer.progress.batches_in_window == 0:
        guest.tell("batch_start")
    elif home.has_own_step:
        guest.tell("before_forward")


def _before_window(guest: Guest, trainer: Any, module: Any) -> None:
    guest.tell("before_train_batch")
    if guest.at_home(trainer, module).has_own_step:
        guest.tell("before_forward")


def _after_forward(guest: Guest, trainer: Any, module: Any, outputs: Any) -> None:
    guest.at_home(trainer, module).state.keep("outputs", outputs)
    guest.tell("after_forward")


def _after_loss(guest: Guest, trainer: Any, module: Any, loss: Any) -> None:
    guest.at_home(trainer, module).state.keep("loss", loss)
    guest.tell("after_loss")


def _before_backward(guest: Guest, trainer: Any, module: Any, loss: Any) -> None:
    home = guest.at_home(trainer, module)
    if home.has_own_step:
        home.state.keep("loss", loss)
        for event in ("after_forward", "before_loss", "after_loss"):
            guest.tell(event)
    guest.tell("before_backward")


def _end_batch(
    guest: Guest, trainer: Any, module: Any, outputs: Any, batch: Any, _idx: int
) -> None:
    if trainer.progress.batches_in_window:
        return
    home = guest.at_home(trainer, module)
    home.state.keep("batch", batch)
    if outputs:
        home.state.keep("loss", outputs["loss"])
    home.count()
    guest.tell("batch_end")


def _save_batch(guest: Guest, trainer: Any, module: Any) -> None:
    if trainer.progress.batches_in_window == 0:
        guest.at_home(trainer, module)
        guest.tell("batch_checkpoint")


def _end_batches(guest: Guest, trainer: Any, module: Any) -> None:
    home = guest.at_home(trainer, module)
    if trainer.is_last_batch and home.is_asked_once_more:
        guest.tell("before_dataloader")
    if home.end_epoch():
        guest.tell("epoch_end")


def _save_epoch(guest: Guest, trainer: Any, module: Any) -> None:
    if guest.at_home(trainer, module).state.timestamp.batch_in_epoch.value == 0:
        guest.tell("epoch_checkpoint")


def _end_iteration(guest: Guest, trainer: Any, module: Any) -> None:
    guest.at_home(trainer, module).end_iteration()
    guest.tell("iteration_end")


# --- evaluations and predictions ---


def _begin_evaluation(guest: Guest, trainer: Any, module: Any) -> None:
    guest.at_home(trainer, module).begin_evaluation()
    guest.loaders_told = 0


def _start_eval_batch(
    guest: Guest, trainer: Any, module: Any, batch: Any, batch_idx: int, index: int = 0
) -> None:
    if trainer.sanity_checking:
        return
    home = guest.at_home(trainer, module)
    if batch_idx == 0 and trainer.world_size == 1:  # several processes reduce metrics at the end
        _end_loaders(guest, home, index)
    if home.begin_eval_batch(batch, batch_idx, index):
        guest.tell("eval_start")
    guest.tell("eval_batch_start")
    if _has_own_eval_step(trainer, module):
        guest.tell("eval_before_forward")


def _eval_forward(guest: Guest, trainer: Any, module: Any) -> None:
    if not trainer.sanity_checking:
        guest.at_home(trainer, module)
        guest.tell("eval_before_forward")


def _eval_outputs(guest: Guest, trainer: Any, module: Any, outputs: Any) -> None:
    if not trainer.sanity_checking:
        guest.at_home(trainer, module).state.keep("outputs", outputs)
        guest.tell("eval_after_forward")


def _end_eval_batch(
    guest: Guest,
    trainer: Any,
    module: Any,
    outputs: Any,
    batch: Any,
    batch_idx: int,
    _index: int = 0,
) -> None:
    if trainer.sanity_checking:
        return
    home = guest.at_home(trainer, module)
    home.keep_eval_outputs(outputs)
    if _has_own_eval_step(trainer, module):
        guest.tell("eval_after_forward")
    home.end_eval_batch(batch, batch_idx)
    guest.tell("eval_batch_end")


def _end_evaluation(guest: Guest, trainer: Any, module: Any) -> None:
    if not trainer.sanity_checking:
        _end_loaders(guest, guest.at_home(trainer, module), None)


def _end_loaders(guest: Guest, home: Any, following: int | None) -> None:
    for told in home.ended_loaders(guest.loaders_told, following):
        guest.loaders_told = told
        guest.tell("eval_end")


def _begin_prediction(guest: Guest, trainer: Any, module: Any) -> None:
    guest.at_home(trainer, module).begin_prediction()
    guest.tell("predict_start")


def _start_predict_batch(
    guest: Guest, trainer: Any, module: Any, batch: Any, _idx: int, _index: int = 0
) -> None:
    guest.at_home(trainer, module).state.keep("batch", batch)
    guest.tell("predict_batch_start")
    if defines(module, "predict_step", Module):
        guest.tell("predict_before_forward")


def _predict_outputs(guest: Guest, trainer: Any, module: Any, outputs: Any) -> None:
    guest.at_home(trainer, module).state.keep("outputs", outputs)
    guest.tell("predict_after_forward")


def _end_predict_batch(
    guest: Guest,
    trainer: Any,
    module: Any,
    outputs: Any,
    batch: Any,
    batch_idx: int,
    _index: int = 0,
) -> None:
    guest.at_home(trainer, module).end_predict_batch(outputs, batch, batch_idx)
    if defines(module, "predict_step", Module):
        guest.tell("predict_after_forward")
    guest.tell("predict_batch_end")


def _has_own_eval_step(trainer: Any, module: Any) -> bool:
    return trainer.testing or defines(module, "validation_step", Module)


DELIVERIES: dict[str, Callable[..., object]] = {
    "on_after_configure_model": _enter,
    "on_before_load": _before_load,
    "on_after_load": _after_load,
    "on_fit_start": _begin_fit,
    "on_train_epoch_start": _begin_epoch,
    "on_after_dataloader": _take_from_loader,
    "on_train_batch_start": _start_batch,
    "on_before_train_batch": _before_window,
    "on_after_forward": _after_forward,
    "on_after_loss": _after_loss,
    "on_before_backward": _before_backward,
    "on_train_batch_end": _end_batch,
    "on_batch_checkpoint": _save_batch,
    "on_train_batches_end": _end_batches,
    "on_epoch_checkpoint": _save_epoch,
    "on_iteration_end": _end_iteration,
    "on_validation_start": _begin_evaluation,
    "on_validation_batch_start": _start_eval_batch,
    "on_validation_before_forward": _eval_forward,
    "on_validation_after_forward": _eval_outputs,
    "on_validation_batch_end": _end_eval_batch,
    "on_validation_end": _end_evaluation,
    "on_test_start": _begin_evaluation,
    "on_test_batch_start": _start_eval_batch,
    "on_test_batch_end": _end_eval_batch,
    "on_test_end": _end_evaluation,
    "on_predict_start": _begin_prediction,
    "on_predict_batch_start": _start_predict_batch,
    "on_predict_after_forward": _predict_outputs,
    "on_predict_batch_end": _end_predict_batch,
    "on_close": _close,
    "on_post_close": _nothing,
}
"""By hook; an event at any other is delivered as it comes."""
