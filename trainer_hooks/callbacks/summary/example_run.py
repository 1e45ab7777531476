"""Run an example input through a model without a trace, to see what happens in between."""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.backends import mha

from trainer_hooks._log import warn
from trainer_hooks.errors import TrainerHooksWarning, described

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.utils.flop_counter import FlopCounterMode
    from torch.utils.hooks import RemovableHandle

__all__ = ["ExampleRun", "run_example"]


@dataclass(slots=True)
class ExampleRun:
    """What was seen when an example input ran through a model.

    Attributes:
        sizes: shapes of what went in and out the first time, by the name of the layer that ran.
        flops: floating-point operations that torch counted, by the name of the layer that ran.
        total_flops: those of the whole model.
    """

    sizes: dict[str, tuple[str, str]] = field(default_factory=dict)
    flops: dict[str, int] = field(default_factory=dict)
    total_flops: int = 0


def run_example(
    module: nn.Module, layers: Mapping[str, nn.Module], example: Any
) -> ExampleRun | None:
    """Run `example` through `module` without a trace; return what was seen, None if it failed.

    Args:
        module: the model, what wraps it seen through.
        layers: the layers to watch, by name.
        example: a tuple or list of positional arguments, a mapping of keyword arguments, or the one
            argument.
    """
    from torch.utils.flop_counter import FlopCounterMode

    handles: list[RemovableHandle] = []
    example = _moved(example, next(module.parameters(), None))
    try:
        with _without_trace(module), FlopCounterMode(display=False) as counter:
            seen = _watch(layers, counter, handles)
            if isinstance(example, Mapping):
                module(**example)
            elif isinstance(example, list | tuple):
                module(*example)
            else:
                module(example)
            seen.total_flops = counter.get_total_flops()
    except Exception as error:  # noqa: BLE001 - user code may fail in any way; it is reported
        warn(
            f"example_input_array of {type(module).__qualname__} could not be run for the summary, "
            f"so the table has no sizes: {described(error)}. Set it to what forward "
            "takes, or to None.",
            TrainerHooksWarning,
        )
        return None
    finally:
        for handle in handles:
            handle.remove()
    return seen


def _watch(
    layers: Mapping[str, nn.Module], counter: FlopCounterMode, handles: list[RemovableHandle]
) -> ExampleRun:
    """Let each layer note what goes in and out, and what `counter` counts meanwhile."""
    seen = ExampleRun()
    under_way: list[tuple[str, int]] = []

    def before(name: str) -> Any:
        def hook(_: nn.Module, __: tuple[Any, ...]) -> None:
            under_way.append((name, counter.get_total_flops()))

        return hook

    def after(name: str) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
            inputs = [*args, *kwargs.values()]
            shown = inputs[0] if len(inputs) == 1 else inputs
            seen.sizes.setdefault(name, (_shape(shown), _shape(out)))
            begun, counted = under_way.pop()
            while begun != name:  # one whose error its caller caught never came to its end
                begun, counted = under_way.pop()
            seen.flops[name] = seen.flops.get(name, 0) + counter.get_total_flops() - counted

        return hook

    for name, layer in layers.items():
        handles.append(layer.register_forward_pre_hook(before(name)))
        handles.append(layer.register_forward_hook(after(name), with_kwargs=True))
    return seen


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
        # the counter of operations hooks all modules for a while, which compiled ones warn of
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", r"Using `torch.compile\(module\)` when there are global")
        if "torch._dynamo" in sys.modules:  # something is compiled: not now, and not for eval mode
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        # it takes several layers at once, whose sizes and operations would not be seen
        stack.callback(mha.set_fastpath_enabled, mha.get_fastpath_enabled())
        mha.set_fastpath_enabled(False)
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
