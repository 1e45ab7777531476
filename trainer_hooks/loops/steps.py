"""The step of a batch: the module's own, or the default made of its forward and loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from trainer_hooks.data import defines
from trainer_hooks.errors import ModuleError
from trainer_hooks.loops.step_arguments import fitted
from trainer_hooks.module import Module
from trainer_hooks.runtime import map_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.context import RunContext
    from trainer_hooks.hooks import HookRelay

    Step = Callable[..., Any]

__all__ = [
    "check_loss",
    "evaluation_step",
    "has_evaluation",
    "loss_of",
    "outputs_of",
    "overrides",
    "predict_step",
    "training_step",
]

_STEPS = {"validate": "validation_step", "test": "test_step"}
_LOSSES = {"validate": "val_loss", "test": "test_loss"}


def training_step(context: RunContext) -> Step:
    """Return what runs a training batch.

    Raises:
        ModuleError: the module has no `training_step`, and not both `forward` and `loss`; or one
            that takes other arguments.
    """
    step = _through_trainer(context, "train", _training_step(context))
    return context.steps.watched("training_step", step)


def _training_step(context: RunContext) -> Step:
    module = context.module
    if overrides(module, "training_step"):
        return context.steps.compile(fitted(module, "training_step"))
    if not _has_default(module):
        raise ModuleError(
            f"{type(module).__qualname__} has no training_step: define training_step(batch, "
            "batch_idx) and return the loss, or define forward(batch) and loss(outputs, batch)."
        )
    trainer, hooks, logs = context.trainer, context.hooks, not context.trainer.barebones
    forward = context.steps.forward_of(module)

    def step(batch: Any, batch_idx: int) -> Tensor:  # noqa: ARG001 - a training_step takes it
        hooks.on_before_forward(trainer, module)
        outputs = forward(batch)
        hooks.on_after_forward(trainer, module, outputs)
        hooks.on_before_loss(trainer, module)
        loss: Tensor = module.loss(outputs, batch)  # type: ignore[operator]
        hooks.on_after_loss(trainer, module, loss)
        if logs:
            module.log("train_loss", loss, prog_bar=True)
            module.log("train_loss_epoch", loss, on_step=False, on_epoch=True)
        return loss

    return step


def _through_trainer(context: RunContext, kind: str, step: Step) -> Step:
    """Return `step`, or the trainer's method that takes its place and may call it."""
    method = context.steps.overridden.get(kind)
    if method is None:
        return step

    def through(batch: Any, *place: int) -> Any:
        def own_step(given: Any) -> Any:
            output = step(given, *place)
            return {"loss": output} if kind == "train" and isinstance(output, Tensor) else output

        context.steps.own = own_step
        try:
            return method(batch)
        finally:
            context.steps.own = None

    return through


def has_evaluation(module: Module, stage: str) -> bool:
    """Return whether a module can be evaluated: by its own step, or by default."""
    return overrides(module, _STEPS[stage]) or (
        _has_default(module) and not overrides(module, "training_step")
    )


def evaluation_step(context: RunContext, stage: str, hooks: HookRelay) -> Step:
    """Return what runs a validation or test batch.

    Args:
        context: the run.
        stage: `"validate"` or `"test"`.
        hooks: who is told of the forward.

    Raises:
        ModuleError: the module has no such step, and not both `forward` and `loss`; or one that
            takes other arguments.
    """
    step = _through_trainer(context, "eval", _evaluation_step(context, stage, hooks))
    return context.steps.watched(_STEPS[stage], step)


def _evaluation_step(context: RunContext, stage: str, hooks: HookRelay) -> Step:
    module = context.module
    name = _STEPS[stage]
    if overrides(module, name):
        loaders = len(context.data.evaluation[stage].loaders)
        return context.steps.compile(fitted(module, name, loaders))
    if not _has_default(module):
        raise ModuleError(
            f"{type(module).__qualname__} has no {name}: define {name}(batch, batch_idx), or "
            "define forward(batch) and loss(outputs, batch)."
        )
    trainer, forward = context.trainer, context.steps.forward_of(module)
    fires, logs = stage == "validate", not trainer.barebones

    def step(batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:  # noqa: ARG001
        if fires:
            hooks.on_validation_before_forward(trainer, module)
        outputs = forward(batch)
        if fires:
            hooks.on_validation_after_forward(trainer, module, outputs)
        loss = module.loss(outputs, batch)  # type: ignore[operator]
        if fires:
            hooks.on_validation_after_loss(trainer, module, loss)
        if logs:
            module.log(_LOSSES[stage], loss, prog_bar=True)
        return outputs

    return step


def predict_step(context: RunContext) -> Step:
    """Return what runs a predict batch: `predict_step`, or else the forward.

    Raises:
        ModuleError: the module has neither, or a step that takes other arguments.
    """
    return context.steps.watched("predict_step", _predict_step(context))


def _predict_step(context: RunContext) -> Step:
    module = context.module
    if overrides(module, "predict_step"):
        loaders = len(context.data.evaluation["predict"].loaders)
        return context.steps.compile(fitted(module, "predict_step", loaders))
    if not _has_forward(module):
        raise ModuleError(
            f"{type(module).__qualname__} has no predict_step and no forward: define one of them."
        )
    trainer, hooks = context.trainer, context.hooks
    forward = context.steps.forward_of(module)

    def step(batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:  # noqa: ARG001
        hooks.on_predict_before_forward(trainer, module)
        outputs = forward(batch)
        hooks.on_predict_after_forward(trainer, module, outputs)
        return outputs

    return step


def loss_of(output: Any, module: Module) -> Tensor | None:
    """Return the loss in what `training_step` returned, or None where it skips the batch.

    Raises:
        ModuleError: it is no tensor, no dict with a tensor under `loss`, and not None.
    """
    if isinstance(output, Tensor) or output is None:
        return output
    if isinstance(output, dict) and "loss" in output:
        loss = output["loss"]
        if isinstance(loss, Tensor) or loss is None:
            return loss
        found = f"a dict with {loss!r} under 'loss'"
    elif isinstance(output, dict):
        found = f"a dict with the keys {sorted(map(str, output))}"
    else:
        found = f"{output!r} of type {type(output).__qualname__}"
    raise ModuleError(
        f"{type(module).__qualname__}.training_step returned {found}: it must return the loss "
        "as a tensor, a dict with the loss under 'loss', or None to skip the batch."
    )


def check_loss(loss: Tensor, module: Module) -> None:
    """Make sure that a loss can be learned from.

    Raises:
        ModuleError: it has more than one element, or no gradient can be computed for it.
    """
    name = type(module).__qualname__
    if loss.numel() != 1:
        raise ModuleError(
            f"{name}.training_step returned a loss of shape {tuple(loss.shape)}: it must have one "
            "element. Reduce it, as with loss.mean()."
        )
    if not loss.requires_grad:
        raise ModuleError(
            f"{name}.training_step returned a loss that does not require grad: nothing can be "
            "learned from it. It was computed without parameters that require grad, under "
            "torch.no_grad(), or went through .detach() or .item()."
        )


def outputs_of(output: Any, loss: Tensor | None) -> dict[str, Any]:
    """Return what hooks are given of a training step: the loss, detached, and what came with it."""
    if loss is None:
        return {}
    outputs: dict[str, Any] = {"loss": loss.detach()}
    if isinstance(output, dict):
        others = {name: value for name, value in output.items() if name != "loss"}
        outputs.update(map_tensors(others, Tensor.detach))
    return outputs


def overrides(module: Module, name: str) -> bool:
    """Return whether a module has a `name` of its own: in its class or on itself."""
    return defines(module, name, Module)


def _has_forward(module: Module) -> bool:
    return type(module).forward is not nn.Module.forward


def _has_default(module: Module) -> bool:
    return _has_forward(module) and callable(getattr(module, "loss", None))
