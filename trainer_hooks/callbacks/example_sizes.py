"""Run an example input through a model without a trace, to see the sizes in between."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._log import warn
from trainer_hooks.errors import TrainerHooksWarning

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.utils.hooks import RemovableHandle

__all__ = ["example_sizes"]


def example_sizes(
    module: nn.Module, layers: Mapping[str, nn.Module], example: Any
) -> dict[str, tuple[str, str]]:
    """Run `example` through `module` without a trace; return each layer's in and out sizes."""
    sizes: dict[str, tuple[str, str]] = {}

    def record(name: str) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
            inputs = [*args, *kwargs.values()]
            shown = inputs[0] if len(inputs) == 1 else inputs
            sizes.setdefault(name, (_shape(shown), _shape(out)))

        return hook

    handles: list[RemovableHandle] = []
    example = _moved(example, next(module.parameters(), None))
    try:
        for name, layer in layers.items():
            handles.append(layer.register_forward_hook(record(name), with_kwargs=True))
        with _without_trace(module):
            if isinstance(example, Mapping):
                module(**example)
            elif isinstance(example, list | tuple):
                module(*example)
            else:
                module(example)
    except Exception as error:  # noqa: BLE001 - user code may fail in any way; it is reported
        warn(
            f"example_input_array of {type(module).__qualname__} could not be run for the summary, "
            f"so the table has no sizes: {type(error).__name__}: {error}. Set it to what forward "
            "takes, or to None.",
            TrainerHooksWarning,
        )
        return {}
    finally:
        for handle in handles:
            handle.remove()
    return sizes


@contextmanager
def _without_trace(module: nn.Module) -> Iterator[None]:
    """Put `module` into eval mode without gradients; afterwards all is as it was before."""
    modes = [(layer, layer.training) for layer in module.modules()]
    kept = [
        (layer, name, buffer, buffer.clone())
        for layer in module.modules()
        for name, buffer in layer.named_buffers(recurse=False)
    ]
    generators = random.getstate()
    numpy = sys.modules.get("numpy")
    numpy_state = numpy.random.get_state() if numpy is not None else None
    devices = sorted({p.device.index or 0 for p in module.parameters() if p.device.type == "cuda"})
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=devices))
        stack.enter_context(torch.no_grad())
        module.eval()
        try:
            yield
        finally:
            for layer, mode in modes:
                layer.training = mode
            for layer, name, buffer, content in kept:
                setattr(layer, name, buffer)
                buffer.copy_(content)
            random.setstate(generators)
            if numpy is not None:
                numpy.random.set_state(numpy_state)


def _moved(example: Any, like: Tensor | None) -> Any:
    """Return `example` with its tensors on the device of the parameter `like`."""
    if isinstance(example, torch.Tensor) and like is not None:
        floating = example.is_floating_point() and like.is_floating_point()
        return example.to(like.device, like.dtype if floating else example.dtype)
    if isinstance(example, Mapping):
        return {key: _moved(item, like) for key, item in example.items()}
    if type(example) in {list, tuple}:
        return type(example)(_moved(item, like) for item in example)
    return example


def _shape(value: Any) -> str:
    """Return the shape of a tensor, or the shapes in a container, in words."""
    if isinstance(value, torch.Tensor):
        return str(list(value.shape))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_shape(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_shape, value)) + "]"
    return "?"
