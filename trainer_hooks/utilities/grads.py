"""How large gradients are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["grad_norm"]


def grad_norm(
    module: nn.Module, norm_type: float | int | str, group_separator: str = "/"
) -> dict[str, Tensor]:
    """Return the norm of each parameter's gradient, and that of all together, for `log_dict`.

    Nothing is copied from the device. For `on_before_optimizer_step`, where gradients are
    complete::

        def on_before_optimizer_step(self, optimizer):
            self.log_dict(grad_norm(self, norm_type=2))

    Args:
        module: whose gradients; parameters without one are left out.
        norm_type: the p of the p-norm, or `"inf"`.
        group_separator: what stands between the kind of the norm and the parameter's name.

    Returns:
        0-dim tensors, as `grad_2.0_norm/layer.weight`, and `grad_2.0_norm_total` unless there is no
        gradient.

    Raises:
        OptionError: `norm_type` is no positive number.
    """
    p = float(norm_type)
    if not p > 0:
        raise OptionError(
            f"grad_norm(norm_type={norm_type!r}): must be a positive number, or 'inf'. The usual "
            "one is 2."
        )
    norms = {
        f"grad_{p}_norm{group_separator}{name}": torch.linalg.vector_norm(parameter.grad, p)
        for name, parameter in module.named_parameters()
        if parameter.grad is not None
    }
    if norms:
        first = next(iter(norms.values()))
        together = torch.stack([norm.to(first.device, torch.float32) for norm in norms.values()])
        norms[f"grad_{p}_norm_total"] = torch.linalg.vector_norm(together, p)
    return norms
