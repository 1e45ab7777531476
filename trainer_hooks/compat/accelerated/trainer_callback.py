"""TrainerCallback: a callback that is written with the hook names of pytorch-accelerated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from trainer_hooks.callback import Callback
from trainer_hooks.clock import EpochStage
from trainer_hooks.data import count_samples
from trainer_hooks.hooks import HOOKS, Hooks, overrides

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.trainer import Trainer

__all__ = ["TrainerCallback"]

_STEP_END = "on_train_step_end"
_TWINS = {spec.name: spec.accelerated for spec in HOOKS.values() if spec.accelerated}
del _TWINS["on_init_end"]  # the same in both
del _TWINS["on_after_loss"]  # which a module with a training_step of its own does not reach
_CAPTURES = ("on_train_batch_start", "on_after_forward", "on_before_backward")
_EVAL_STEP_END = "on_eval_step_end"
_EVAL_LOSS = "on_validation_after_loss"


def _empty(name: str) -> Callable[..., None]:
    def hook(self: object, trainer: Trainer, **kwargs: Any) -> None:
        pass

    hook.__name__ = name
    hook.__doc__ = f"Do nothing at `{name}`; override it."
    hook.__dict__["is_empty_hook"] = True
    return hook


_AcceleratedHooks: type[Hooks] = type(
    "_AcceleratedHooks", (Hooks,), {name: _empty(name) for name in (*_TWINS.values(), _STEP_END)}
)
"""The hooks of pytorch-accelerated; deriving from it makes their names known."""


class TrainerCallback(_AcceleratedHooks, Callback):  # type: ignore[misc, valid-type]
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
        {*_TWINS, *_CAPTURES, _EVAL_LOSS, *(set(_TWINS.values()) & HOOKS.keys())}
    )
    """Hooks for which `translated` says what is called."""

    _batch: Any = None
    _batch_idx: int = 0
    _outputs: Any = None
    _eval_loss: Any = None

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return what is called at a hook of trainer_hooks, or None if nothing is."""
        if hook in _CAPTURES and self._has(_STEP_END):
            captures: dict[str, Callable[..., object]] = {
                "on_train_batch_start": self._start_step,
                "on_after_forward": self._keep_outputs,
                "on_before_backward": self._end_step,
            }
            return captures[hook]
        if hook == _EVAL_LOSS:
            return self._keep_loss if self._has(_EVAL_STEP_END) else None
        name = _TWINS.get(hook)
        if name is not None and self._has(name):
            return self._evaluated(hook, name) if "eval_" in name else self._plain(name)
        is_theirs = hook in _TWINS.values()
        return getattr(self, hook) if not is_theirs and overrides(self, hook) else None

    def _has(self, name: str) -> bool:
        method = vars(self).get(name) or getattr(type(self), name)
        return getattr(method, "is_empty_hook", False) is not True

    def _plain(self, name: str) -> Callable[..., object]:
        method = getattr(self, name)

        def call(trainer: Trainer, *_: Any) -> None:
            method(trainer)

        return call

    def _evaluated(self, hook: str, name: str) -> Callable[..., object]:
        """Return what calls an evaluation hook with its keywords, except in a sanity check."""
        method = getattr(self, name)

        def call(trainer: Trainer, _module: Any, *arguments: Any) -> None:
            if trainer.sanity_checking:
                return
            if name == _EVAL_STEP_END:
                outputs, batch = arguments[:2]
                loss, self._eval_loss = self._eval_loss, None
                method(trainer, batch_output=_as_output(outputs, batch, loss), batch=batch)
            elif hook.endswith(("epoch_start", "epoch_end")):
                method(trainer, is_intermediate=_is_intermediate(trainer))
            else:
                method(trainer)

        return call

    def _start_step(self, trainer: Trainer, _module: Any, batch: Any, batch_idx: int) -> None:
        self._batch, self._batch_idx, self._outputs = batch, batch_idx, None
        self.on_train_step_start(trainer)

    def _keep_outputs(self, _trainer: Trainer, _module: Any, outputs: Any) -> None:
        self._outputs = outputs

    def _keep_loss(self, _trainer: Trainer, _module: Any, loss: Any) -> None:
        self._eval_loss = loss

    def _end_step(self, trainer: Trainer, _module: Any, loss: Any) -> None:
        batch, outputs = self._batch, self._outputs
        self._outputs = None
        # what the step of a Trainer of this package returned, whose loss is not divided yet
        given = getattr(trainer, "batch_output", None)
        output = given or {"model_outputs": outputs, "batch_size": count_samples(batch)}
        output["loss"] = loss
        self.on_train_step_end(trainer, batch_output=output, batch=batch, step=self._batch_idx)


def _as_output(outputs: Any, batch: Any, loss: Any) -> dict[str, Any]:
    """Return what an evaluation step returned under their names, with the default step's loss."""
    found = dict(outputs) if isinstance(outputs, dict) else {}
    if loss is None and isinstance(outputs, Tensor) and outputs.ndim == 0:
        loss, outputs = outputs, None
    found.setdefault("loss", loss)
    found.setdefault("model_outputs", outputs)
    found.setdefault("batch_size", count_samples(batch))
    return found


def _is_intermediate(trainer: Trainer) -> bool:
    """Return whether this is a validation between two batches of an epoch."""
    return trainer.state.fn == "fit" and trainer.progress.stage is EpochStage.BATCHES
