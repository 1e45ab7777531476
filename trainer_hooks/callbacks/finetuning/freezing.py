"""What of a module is frozen, and how its parameters are grouped, by name: saved and put back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.nn.modules.batchnorm import _BatchNorm

from trainer_hooks.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import nn
    from torch.optim import Optimizer

__all__ = ["Freezing"]

_GROUPS = "internal_optimizer_metadata"
"""The key that Lightning has for the optimizers' groups; it saves no other."""


class Freezing:
    """Reads and restores what is frozen in a module and grouped in its optimizers.

    Args:
        module: the module.
        optimizers: its optimizers.
    """

    def __init__(self, module: nn.Module, optimizers: Sequence[Optimizer]) -> None:
        self._module = module
        self._optimizers = optimizers

    @staticmethod
    def nothing() -> dict[str, Any]:
        """Return the state of no training."""
        return {_GROUPS: {}, "frozen": [], "without_statistics": []}

    def state_dict(self) -> dict[str, Any]:
        """Return the groups with their parameters by name, and the names of what is frozen."""
        names = {parameter: name for name, parameter in self._module.named_parameters()}
        groups = {
            number: [
                # a parameter of an optimizer may be none of the module's
                {**group, "params": [names.get(p, "") for p in group["params"]]}
                for group in optimizer.param_groups
            ]
            for number, optimizer in enumerate(self._optimizers)
        }
        return {
            _GROUPS: groups,
            "frozen": [name for p, name in names.items() if not p.requires_grad],
            "without_statistics": [name for name, _ in self._without_statistics()],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Group and freeze as it was.

        Raises:
            CheckpointError: the module lacks a parameter.
        """
        groups: Mapping[int, list[dict[str, Any]]] = state[_GROUPS]
        parameters = dict(self._module.named_parameters())
        for number, optimizer in enumerate(self._optimizers):
            before = groups.get(number, [])
            if before:
                del optimizer.param_groups[len(before) :]  # an earlier moment of the same training
            for saved in before[len(optimizer.param_groups) :]:
                found = [_found(parameters, name) for name in saved["params"]]
                for parameter in found:
                    parameter.requires_grad_(True)  # Lightning does not say what is frozen
                optimizer.add_param_group({**saved, "params": found})
        if "frozen" in state:
            frozen, without = set(state["frozen"]), set(state["without_statistics"])
            for name, parameter in parameters.items():
                if parameter.requires_grad is (name in frozen):
                    parameter.requires_grad_(name not in frozen)
            for name, part in self._module.named_modules():
                if isinstance(part, _BatchNorm) and part.running_mean is not None:
                    part.track_running_stats = name not in without

    def _without_statistics(self) -> list[tuple[str, nn.Module]]:
        return [
            (name, part)
            for name, part in self._module.named_modules()
            if isinstance(part, _BatchNorm) and not part.track_running_stats
        ]


def _found(parameters: Mapping[str, nn.Parameter], name: str) -> nn.Parameter:
    if name not in parameters:
        raise CheckpointError(
            f"parameter {name!r} of the checkpoint's optimizer: the module has none of that name, "
            "so the groups that finetuning added cannot be made again. Build the module as it was "
            "when the checkpoint was saved."
        )
    return parameters[name]
