"""One parameter that torch prunes, and the two forms that its weights have in a checkpoint."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils import prune

from trainer_hooks._log import log

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from torch import Tensor, nn

__all__ = ["Pruned", "log_sparsity", "plain_state", "pruned_state"]


@dataclass(frozen=True, slots=True)
class Pruned:
    """A parameter to prune.

    Attributes:
        module: whose it is.
        name: its name there.
        path: its name in the whole.
    """

    module: nn.Module
    name: str
    path: str

    @property
    def is_pruned(self) -> bool:
        """Whether it has a mask now."""
        return hasattr(self.module, f"{self.name}_mask")

    def values(self) -> Tensor:
        """Return the parameter itself, without its mask."""
        suffix = "_orig" if self.is_pruned else ""
        values: Tensor = getattr(self.module, self.name + suffix)
        return values

    def recompute(self) -> None:
        """Let the product of the values and their mask be that of now; forwards alone renew it."""
        if self.is_pruned:
            values, mask = self.values(), getattr(self.module, f"{self.name}_mask")
            setattr(self.module, self.name, values * mask.to(values.dtype))

    def left(self, dim: int | None = None) -> int:
        """Return how many numbers are not pruned, or how many slices along a dimension are not."""
        if not self.is_pruned:
            values = self.values()
            return values.numel() if dim is None else values.shape[dim]
        mask: Tensor = getattr(self.module, f"{self.name}_mask")
        if dim is None:
            return int(mask.count_nonzero())
        return int(mask.transpose(0, dim).flatten(1).any(dim=1).sum())

    def counts(self) -> tuple[int, int]:
        """Return how many of its numbers are pruned, and how many there are."""
        size = self.values().numel()
        if not self.is_pruned:
            return 0, size
        mask: Tensor = getattr(self.module, f"{self.name}_mask")
        return size - int(mask.count_nonzero()), size

    def state_dict(self) -> dict[str, Any]:
        """Return the parameter without its mask, and the mask."""
        return {
            "values": self.values().detach(),
            "mask": getattr(self.module, f"{self.name}_mask").detach(),
        }

    def follow(self, saved: Mapping[str, Any] | None, weights: dict[str, Any]) -> None:
        """Have a mask if `saved` has one, and put it into the weights in which it is resolved.

        Args:
            saved: what `state_dict` returned, or None where it was not pruned.
            weights: the saved weights; they are not changed if they have the mask.
        """
        is_masked = saved is not None or f"{self.path}_mask" in weights
        if is_masked and not self.is_pruned:
            prune.identity(self.module, self.name)  # type: ignore[no-untyped-call]
        elif self.is_pruned and not is_masked:
            prune.remove(self.module, self.name)  # type: ignore[no-untyped-call]
        if saved is not None and f"{self.path}_mask" not in weights:
            weights.pop(self.path, None)
            weights[f"{self.path}_orig"] = saved["values"]
            weights[f"{self.path}_mask"] = saved["mask"]


def plain_state(
    module: nn.Module | None, weights: dict[str, Any], paths: Collection[str] | None = None
) -> dict[str, Any]:
    """Return weights in which the masks are resolved that a module does not have.

    Args:
        module: what they are for; None for one without masks.
        weights: names ending in `_orig` and `_mask` belong together.
        paths: the names of the parameters that may have masks; any unless given.
    """
    own = {} if module is None else module.state_dict()
    plain = copy(weights)
    for path in _masked(weights):
        if f"{path}_mask" not in own and (paths is None or path in paths):
            values, mask = plain.pop(f"{path}_orig"), plain.pop(f"{path}_mask")
            plain[path] = values * mask.to(values.dtype)
    return plain


def pruned_state(module: nn.Module, weights: dict[str, Any]) -> dict[str, Any]:
    """Return weights with a mask of ones for each parameter that has a mask in the module alone."""
    masked = copy(weights)
    for path in _masked(module.state_dict()):
        if path in masked:
            masked[f"{path}_orig"] = values = masked.pop(path)
            masked[f"{path}_mask"] = torch.ones_like(values)
    return masked


def _masked(weights: dict[str, Any]) -> list[str]:
    """Return the names of what has a mask; a buffer may be called `..._mask` for itself."""
    names = [name.removesuffix("_mask") for name in weights if name.endswith("_mask")]
    return [name for name in names if f"{name}_orig" in weights]


def log_sparsity(
    where: str,
    method: str,
    pruned: Sequence[Pruned],
    before: Sequence[tuple[int, int]],
    amount: int | float,
    *,
    has_details: bool,
) -> None:
    """Log how much is pruned, before and now.

    Args:
        where: who prunes.
        method: the method's name.
        pruned: the parameters.
        before: their counts then.
        amount: by how much they were pruned.
        has_details: whether each parameter's is logged too.
    """
    now = [parameter.counts() for parameter in pruned]
    total = sum(count for _, count in now)
    shown = [
        f"{zeros}/{total} ({zeros / total:.2%})"
        for zeros in (sum(zeros for zeros, _ in counts) for counts in (before, now))
    ]
    log.info("%s: %s pruned %s -> %s", where, method, *shown)
    if not has_details:
        return
    for parameter, (was, size), (zeros, _) in zip(pruned, before, now, strict=True):
        log.info(
            "%s: %s by %s: %d (%.2f%%) -> %d (%.2f%%)",
            *(where, parameter.path, amount),
            *(was, 100 * was / size, zeros, 100 * zeros / size),
        )
