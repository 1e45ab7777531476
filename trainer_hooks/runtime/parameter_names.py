"""Names of parameters, buffers and layers as in checkpoints: without those of torch's wrappers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import nn

WRAPPERS = ("_orig_mod", "_checkpoint_wrapped_module")
"""The attributes in which torch.compile and activation checkpointing keep the layer they wrap."""


def plain_name(name: str) -> str:
    """Return the name that a parameter or layer has where torch has not wrapped any layer."""
    # most names have no wrapper
    if not any(wrapper in name for wrapper in WRAPPERS):
        return name
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def tensor_names(module: nn.Module) -> frozenset[str]:
    """Return the plain names of a module's parameters and buffers, those of tied ones, too."""
    return frozenset(
        plain_name(name)
        for tensors in (
            module.named_parameters(remove_duplicate=False),
            module.named_buffers(remove_duplicate=False),
        )
        for name, _ in tensors
    )


def with_plain_names(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping by names with plain names; the mapping itself if its names are plain."""
    if not any(plain_name(name) != name for name in mapping):
        return mapping  # type: ignore[return-value]
    # a copy, since a state_dict's class can take the attribute `_metadata`, the layers' versions
    renamed: dict[str, Any] = mapping.copy()  # type: ignore[attr-defined]
    renamed.clear()
    renamed.update((plain_name(name), value) for name, value in mapping.items())
    versions = getattr(mapping, "_metadata", None)
    if versions is not None:
        vars(renamed)["_metadata"] = {plain_name(name): v for name, v in versions.items()}
    return renamed


def with_names_of(names: Iterable[str], saved: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return saved tensors under the names that they have in a module.

    Args:
        names: the names in the module, whose layers may be wrapped.
        saved: the tensors by name, of a module whose layers may be wrapped otherwise; names that
            the module does not have stay.
    """
    by_plain_name = {plain_name(name): name for name in names}
    renamed = {name: by_plain_name.get(plain_name(name), name) for name in saved}
    if all(name == there for name, there in renamed.items()):
        return saved
    return {renamed[name]: value for name, value in saved.items()}
