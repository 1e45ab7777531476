"""Build the functions that run one batch: the module's steps, or defaults from forward and loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from trainer_hooks._annotations import signature_of
from trainer_hooks._names import is_of_package
from trainer_hooks.data.data_hooks import defines
from trainer_hooks.errors import ModuleError, add_note
from trainer_hooks.module.module import Module
from trainer_hooks.runtime.nested_tensors import map_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.context.context import RunContext
    from trainer_hooks.hooks.relay import HookRelay

    Step = Callable[..., Any]

_STEPS = {"validate": "validation_step", "test": "test_step", "predict": "predict_step"}
_LOSSES = {"validate": "val_loss", "test": "test_loss"}
_ARGUMENTS = ("batch", "batch_idx", "dataloader_idx")


def build_training_step(context: RunContext) -> Step:
    """Return the function that runs a training batch.

    Raises:
        ModuleError: the module has no `training_step` and lacks `forward` or `loss`; or the
            signature of its `training_step` is wrong.
    """
    if defines(context.module, "training_step", Module):
        own_step = adapt_to_signature(context.module, "training_step")
        return context.steps.watched("training_step", context.steps.compile(own_step))
    return context.steps.watched("training_step", _default_training_step(context))


def _default_training_step(context: RunContext) -> Step:
    """Return the training step of a module that has a forward and a loss alone."""
    module = context.module
    if not _has_default(module, "training_step"):
        raise ModuleError(
            f"{type(module).__qualname__} has no training_step: define training_step(batch, "
            f"batch_idx) and return the loss{_default_hint(module)}.{_misnamed(module)}"
        )
    trainer, hooks, logs_loss = context.trainer, context.hooks, not context.trainer.barebones
    forward = context.steps.forward_of(module)

    def step(batch: Any, batch_idx: int) -> Tensor:  # noqa: ARG001 - as a training_step
        hooks.on_before_forward(trainer, module)
        outputs = forward(batch)
        hooks.on_after_forward(trainer, module, outputs)
        hooks.on_before_loss(trainer, module)
        loss: Tensor = module.loss(outputs, batch)  # type: ignore[operator]
        hooks.on_after_loss(trainer, module, loss)
        if logs_loss:
            module.log("train_loss", loss, prog_bar=True)
            module.log("train_loss_epoch", loss, on_step=False, on_epoch=True)
        return loss

    return step


def has_validation_step(module: Module) -> bool:
    """Return whether a module can be validated, by its own step or the default."""
    return defines(module, "validation_step", Module) or _has_default(module, "validation_step")


def build_evaluation_step(context: RunContext, stage: str, hooks: HookRelay) -> Step:
    """Return the function that runs a validation, test or prediction batch.

    Args:
        context: the run context.
        stage: `"validate"`, `"test"` or `"predict"`.
        hooks: the relay on which the hooks of the forward are called.

    Raises:
        ModuleError: the module has no such step and lacks `forward`, or `loss` where it is needed;
            or the signature of its step is wrong.
    """
    module, name = context.module, _STEPS[stage]
    if defines(module, name, Module):
        loaders = len(context.data.evaluation[stage].loaders)
        step = context.steps.compile(adapt_to_signature(module, name, loaders))
    elif stage == "predict":
        step = _default_predict_step(context, hooks)
    else:
        step = _default_evaluation_step(context, stage, hooks)
    return context.steps.watched(name, step)


def _default_evaluation_step(context: RunContext, stage: str, hooks: HookRelay) -> Step:
    """Return the validation or test step of a module that has a forward and a loss alone."""
    module, name = context.module, _STEPS[stage]
    if not _has_default(module, name):
        raise ModuleError(
            f"{type(module).__qualname__} has no {name}: define {name}(batch, batch_idx)"
            f"{_default_hint(module)}."
        )
    trainer, forward = context.trainer, context.steps.forward_of(module)
    calls_hooks, logs_loss = stage == "validate", not trainer.barebones

    def step(batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:  # noqa: ARG001
        if calls_hooks:
            hooks.on_validation_before_forward(trainer, module)
        outputs = forward(batch)
        if calls_hooks:
            hooks.on_validation_after_forward(trainer, module, outputs)
        loss = module.loss(outputs, batch)  # type: ignore[operator]
        if calls_hooks:
            hooks.on_validation_after_loss(trainer, module, loss)
        if logs_loss:
            module.log(_LOSSES[stage], loss, prog_bar=True)
        return outputs

    return step


def _default_predict_step(context: RunContext, hooks: HookRelay) -> Step:
    """Return the prediction step of a module that has a forward alone."""
    module = context.module
    if not _has_forward(module):
        raise ModuleError(
            f"{type(module).__qualname__} has no predict_step and no forward: define one of them."
        )
    trainer, forward = context.trainer, context.steps.forward_of(module)

    def step(batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:  # noqa: ARG001
        hooks.on_predict_before_forward(trainer, module)
        try:
            outputs = forward(batch)
        except Exception as error:
            # a loader of a training gives inputs and targets together
            if not isinstance(batch, Tensor):
                add_note(
                    error,
                    f"{type(module).__qualname__} has no predict_step, so its forward was given "
                    f"the whole batch, of type {type(batch).__qualname__}: define "
                    "predict_step(batch, batch_idx) to give it a part",
                )
            raise
        hooks.on_predict_after_forward(trainer, module, outputs)
        return outputs

    return step


def _misnamed(module: Module) -> str:
    """Return a sentence that names a method of the module that was meant as its training step."""
    name = next((n for n in ("train_step", "train_batch", "step") if hasattr(module, n)), "")
    return f" Nothing calls {name}: rename it." if name else ""


def extract_loss(output: Any, module: Module) -> Tensor | None:
    """Return the loss from the return value of `training_step`; None skips the batch.

    Raises:
        ModuleError: the value is neither a tensor, nor a dict with a tensor under `loss`, nor None.
    """
    if isinstance(output, Tensor) or output is None:
        return output
    if isinstance(output, dict) and "loss" in output:
        loss = output["loss"]
        if isinstance(loss, Tensor) or loss is None:
            return loss
        description = f"a dict with {_shown(loss)} under 'loss'"
    elif isinstance(output, dict):
        description = f"a dict with the keys {sorted(map(str, output))}"
    else:
        description = f"{_shown(output)} of type {type(output).__qualname__}"
    more = " Return {'loss': loss, ...} to return more." if isinstance(output, tuple) else ""
    raise ModuleError(
        f"{type(module).__qualname__}.training_step returned {description}: it must return the "
        f"loss as a tensor, a dict with the loss under 'loss', or None to skip the batch.{more}"
    )


def _shown(value: Any) -> str:
    """Return a short text of a value, with tensors by their shapes."""
    if isinstance(value, Tensor):
        return f"tensor of shape {tuple(value.shape)}"
    if isinstance(value, tuple | list):
        inner = ", ".join(_shown(item) for item in value[:_MOST_SHOWN])
        rest = ", ..." if len(value) > _MOST_SHOWN else ""
        return f"({inner}{rest})" if isinstance(value, tuple) else f"[{inner}{rest}]"
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


_MOST_SHOWN, _LONGEST_SHOWN = 5, 80


def check_loss(loss: Tensor, source: str) -> None:
    """Check that a loss has one element and requires grad.

    Args:
        loss: the loss.
        source: where it comes from, as in "Net.training_step returned".

    Raises:
        ModuleError: the loss breaks one of the two rules.
    """
    if loss.numel() != 1:
        raise ModuleError(
            f"{source} a loss of shape {tuple(loss.shape)}: it must have one "
            "element. Reduce it, as with loss.mean()."
        )
    if not loss.requires_grad:
        raise ModuleError(
            f"{source} a loss that does not require grad: nothing can be "
            "learned from it. It was computed without parameters that require grad, under "
            "torch.no_grad(), or went through .detach() or .item()."
        )


def hook_outputs(output: Any, loss: Tensor | None) -> dict[str, Any]:
    """Return the outputs of a training step for hooks: the detached loss and further outputs."""
    if loss is None:
        return {}
    # detached, or a callback that keeps outputs would keep the graph of every batch
    outputs: dict[str, Any] = {"loss": loss.detach()}
    if isinstance(output, dict):
        extra_outputs = {name: value for name, value in output.items() if name != "loss"}
        outputs.update(map_tensors(extra_outputs, Tensor.detach))
    return outputs


def _has_forward(module: Module) -> bool:
    """Return whether the module's class defines a forward."""
    # nn.Module has an attribute of that name as well, which raises NotImplementedError.
    return type(module).forward is not nn.Module.forward


def _has_default(module: Module, name: str) -> bool:
    """Return whether a step of the module is made of its forward and its loss.

    It is where the class has both and no training_step: beside one, `loss` is a method of the
    user's like any other. A step that is set to None is meant to be missing.
    """
    return (
        _may_have_default(module)
        and getattr(module, name) is not None
        and _has_forward(module)
        and callable(getattr(module, "loss", None))
    )


def _may_have_default(module: Module) -> bool:
    makes_steps = module._makes_default_steps  # noqa: SLF001 - users' classes have no such name
    return makes_steps and not _has_training_step(module)


def _has_training_step(module: Module) -> bool:
    """Return whether the user, and not a class of this package, defines `training_step`."""
    if not defines(module, "training_step", Module):
        return False
    classes = (kind for kind in type(module).__mro__ if "training_step" in vars(kind))
    return "training_step" in vars(module) or not is_of_package(next(classes))


def _default_hint(module: Module) -> str:
    """Return a phrase that names the parts of default steps, where the module may have them."""
    hint = ", or define forward(batch) and loss(outputs, batch)"
    return hint if _may_have_default(module) else ""


def adapt_to_signature(module: Module, name: str, num_loaders: int = 1) -> Callable[..., Any]:
    """Return a step of the module as a function of the batch, its index and the loader's index.

    A step that takes the batch alone is called with the batch alone, as in Lightning.

    Args:
        module: the module.
        name: name of the step.
        num_loaders: number of loaders; with several, the loader's index is passed.

    Raises:
        ModuleError: the step takes too few or too many arguments.
    """
    step: Callable[..., Any] = getattr(module, name)
    try:
        parameters = signature_of(step).parameters.values()
    except (TypeError, ValueError):  # a callable written in C may have no signature
        return step
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return step
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = sum(parameter.default is parameter.empty for parameter in positional)
    num_arguments = 3 if num_loaders > 1 else 2
    where = f"{type(module).__qualname__}.{name}"
    if num_arguments == 3 and len(positional) < num_arguments:
        raise ModuleError(
            f"{where}({', '.join(p.name for p in positional)}) with {num_loaders} loaders: it must "
            f"take dataloader_idx, too. Write def {name}(self, batch, batch_idx, dataloader_idx=0)."
        )
    if not positional or required > num_arguments:
        raise ModuleError(
            f"{where}({', '.join(p.name for p in positional)}): it is called with "
            f"({', '.join(_ARGUMENTS[:num_arguments])}). Take these, and give what else it takes a "
            "default."
        )
    if positional[0].name == "dataloader_iter":
        raise ModuleError(
            f"{where}(dataloader_iter): a step takes no batches from the loader here, it is given "
            f"one after another. Write def {name}(self, batch, batch_idx)."
        )
    # only then is it wrapped: the frame of the lambda would be one more in each batch
    if len(positional) == 1:
        return lambda batch, *_: step(batch)
    return step
