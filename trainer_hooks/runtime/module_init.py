"""Build and initialise layers on a run's device, in its precision; allocate meta tensors."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from trainer_hooks.errors import ModuleError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import nn

    from trainer_hooks.runtime.precision import Precision


def materialize(module: nn.Module, device: torch.device, *, is_filled: bool) -> None:
    """Allocate a module's meta tensors on a device and initialise them.

    Each layer's own `reset_parameters` initialises it, in the order of the layers, so that ranks
    with the same random state get the same weights.

    Args:
        module: the module; layers that are not on the meta device stay as they are.
        device: device to allocate on.
        is_filled: whether a checkpoint with all weights is loaded next, so that a layer without
            `reset_parameters` is no error.

    Raises:
        ModuleError: a layer has no `reset_parameters`, or two layers share a parameter.
    """
    meta_layers = [
        layer
        for layer in module.modules()
        if any(t.is_meta for t in (*layer.parameters(recurse=False), *layer.buffers(recurse=False)))
    ]
    _require_single(module, meta_layers)
    for layer in meta_layers:
        # not recursive: child layers are in the list themselves, in the order of the module
        layer.to_empty(device=device, recurse=False)
        # nn.MultiheadAttention and nn.Transformer have the private name.
        resets = (getattr(layer, n, None) for n in ("reset_parameters", "_reset_parameters"))
        reset: Callable[[], object] | None = next(filter(callable, resets), None)
        if reset is not None:
            reset()
        elif not is_filled:
            class_name = type(layer).__qualname__
            raise ModuleError(
                f"{class_name} was built on the meta device and has no reset_parameters(), so that "
                "nobody could give it its first weights: define it, build it elsewhere, or fit "
                "with a ckpt_path that has them."
            )


def _require_single(module: nn.Module, meta_layers: list[nn.Module]) -> None:
    """Check that no meta parameter is shared: allocated for each layer, it would be two."""
    known_names: dict[int, str] = {}
    names = {id(layer): name for name, layer in module.named_modules()}
    for layer in meta_layers:
        for name, parameter in layer.named_parameters(recurse=False):
            full_name = f"{names[id(layer)]}.{name}".strip(".")
            if id(parameter) in known_names:
                raise ModuleError(
                    f"the parameter {known_names[id(parameter)]} is {full_name}, too, and is on "
                    "the meta device: with memory of their own they would be two. Share it in "
                    "configure_model, or build the module elsewhere."
                )
            known_names[id(parameter)] = full_name


@contextmanager
def module_init_context(
    device: torch.device, precision: Precision, is_sharded: bool, skips_init: bool | None
) -> Iterator[None]:
    """Return a context in which layers are built as the run needs them.

    Args:
        device: device of the run.
        precision: precision of the run.
        is_sharded: whether ranks hold shards; then layers are built on the meta device.
        skips_init: whether to skip the initialisation of weights; None for the cheapest complete
            one.
    """
    # sharded layers are built without memory, so that no rank ever holds all weights
    on_meta = is_sharded and skips_init is not False
    init_context = _SkipInit() if skips_init and not on_meta else nullcontext()
    build_device = torch.device("meta") if on_meta else device
    with precision.building_context(), build_device, init_context:
        yield


class _SkipInit(TorchFunctionMode):
    """Turn the functions of `torch.nn.init` into no-ops that return their tensor."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch, or return the tensor that it would initialise."""
        options = kwargs or {}
        # the functions of torch.nn.init call each other and fill in place; all return their first
        # argument
        if getattr(function, "__module__", None) == torch.nn.init.__name__:
            return options["tensor"] if "tensor" in options else args[0]
        return function(*args, **options)
