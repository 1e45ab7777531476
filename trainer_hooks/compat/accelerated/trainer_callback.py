"""TrainerCallback: a callback written with the hook names of pytorch-accelerated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from trainer_hooks.adapters.pytorch_accelerated.events import (
    BATCH_HOOKS,
    EVALUATION_STEP_END,
    EVENTS,
    STEP_END,
    EventTranslation,
)
from trainer_hooks.callback import Callback
from trainer_hooks.hooks.catalogue import Hooks
from trainer_hooks.hooks.spec import HOOKS, is_empty_hook, mark_empty, overrides

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.trainer.trainer import Trainer

__all__ = ["EVENT_NAMES", "TrainerCallback"]

# on_init_end has one name and one signature in both, so the relay calls it as any other hook
_TRANSLATED = {hook: event for hook, event in EVENTS.items() if hook != "on_init_end"}
_EVALUATION_LOSS = "on_validation_after_loss"

EVENT_NAMES = frozenset({*_TRANSLATED.values(), STEP_END})
"""The names of the events that are methods of a callback."""


def _empty_event(name: str) -> Callable[..., None]:
    def event(self: object, trainer: Trainer, **kwargs: Any) -> None:
        pass

    event.__name__ = name
    event.__doc__ = f"Do nothing at `{name}`; override it."
    return mark_empty(event)


_AcceleratedHooks: type[Hooks] = type(
    "_AcceleratedHooks",
    (Hooks,),
    {name: _empty_event(name) for name in sorted(EVENT_NAMES)},
)
"""The events of pytorch-accelerated as empty methods, so that they are no misspelt hooks."""


class TrainerCallback(EventTranslation, _AcceleratedHooks, Callback):  # type: ignore[misc, valid-type]
    """Base of callbacks with the hooks of pytorch-accelerated: the trainer first, then keywords.

    Each hook is called at the moment that it has there: `on_train_epoch_end` before the epoch's
    validation, `on_training_run_epoch_end` after it, and `on_train_step_end` before the backward.
    `trainer-hooks hooks` tells which hook of trainer_hooks stands behind which; those that have no
    twin there, such as `on_before_optimizer_step` or `setup`, may be overridden beside them. A
    sanity check fires none of the evaluation hooks.

    `batch_output` has `loss`, `model_outputs` and `batch_size`. A module with a `training_step` of
    its own keeps what its model returned to itself, so there `model_outputs` is None in
    `on_train_step_end`; of a `validation_step` of its own the loss is what that returns, alone or
    under `"loss"`, and the outputs are what it returns under `"model_outputs"`, or else all of it.

    State, bands and errors are those of every callback: two instances are fine, and a misspelt
    attribute is an AttributeError.
    """

    translated_hooks: ClassVar[frozenset[str]] = frozenset(
        {*_TRANSLATED, *BATCH_HOOKS, _EVALUATION_LOSS, *(set(_TRANSLATED.values()) & HOOKS.keys())}
    )
    """Hooks for which `translated` says which function is called."""

    fires_own_events: ClassVar[bool] = True
    """Whether a method whose name is near no hook's is an event of the user's own."""

    _evaluation_loss: Any = None

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return the function to call at a hook of trainer_hooks, or None if there is none."""
        if hook == _EVALUATION_LOSS:
            return self._keep_evaluation_loss if self._has_event(EVALUATION_STEP_END) else None
        call = self._translated_event(hook)
        if call is not None:
            return call
        # a name that both have means their moment: on_train_epoch_end is before the validation
        is_theirs = hook in _TRANSLATED.values()
        return getattr(self, hook) if not is_theirs and overrides(self, hook) else None

    def _has_event(self, name: str) -> bool:
        method = vars(self).get(name) or getattr(type(self), name)
        return not is_empty_hook(method)

    def _event_method(self, name: str) -> Callable[..., object]:
        method: Callable[..., object] = getattr(self, name)
        return method

    def _keep_evaluation_loss(self, _trainer: Trainer, _module: Any, loss: Any) -> None:
        self._evaluation_loss = loss

    def _step_output(self, trainer: Trainer, outputs: Any, batch: Any, loss: Any) -> dict[str, Any]:
        """Return the `batch_output` of a training step."""
        # that of the Trainer of this package, whose loss is not divided by the window's batches
        output: dict[str, Any] | None = getattr(trainer, "batch_output", None)
        if output:
            # that of the backward, as there; a callback before this one may have assigned another
            if trainer.handed_loss is not loss:  # type: ignore[attr-defined]
                trainer.handed_loss = output["loss"] = loss  # type: ignore[attr-defined]
            return output
        return super()._step_output(trainer, outputs, batch, loss)

    def _evaluation_output(self, outputs: Any, batch: Any) -> dict[str, Any]:
        """Return the `batch_output` of an evaluation step, with the loss of the default step."""
        loss, self._evaluation_loss = self._evaluation_loss, None
        if loss is None and isinstance(outputs, Tensor) and outputs.ndim == 0:
            loss, outputs = outputs, None  # a step of the module's own that returns its loss alone
        output = {"loss": loss, "model_outputs": outputs}
        output.update(outputs if isinstance(outputs, dict) else {})
        return super()._evaluation_output(output, batch)
