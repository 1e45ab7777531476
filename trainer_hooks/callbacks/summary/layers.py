"""The layers of a model, what only wraps them seen through."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.parallel import DataParallel, DistributedDataParallel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

__all__ = ["named_layers", "seen_through"]

# how torch.compile, activation checkpointing and FSDP name the one module that they wrap
_WRAPPED = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")


def seen_through(module: nn.Module) -> nn.Module:
    """Return what a wrapper holds, as one of `torch.compile` or DDP, or the module itself."""
    if isinstance(module, DistributedDataParallel | DataParallel):
        return seen_through(module.module)
    children = dict(module.named_children())
    wrapped = next((children[name] for name in _WRAPPED if name in children), None)
    return module if wrapped is None else seen_through(wrapped)


def named_layers(
    module: nn.Module, path: str = "", known: set[nn.Module] | None = None
) -> Iterator[tuple[str, nn.Module]]:
    """Yield `module` and all below it with their paths, in order, each once and no wrapper."""
    known = set() if known is None else known
    module = seen_through(module)
    if module in known:
        return
    known.add(module)
    yield path, module
    for name, child in module.named_children():
        yield from named_layers(child, f"{path}.{name}" if path else name, known)
