"""SchedulerBase and StatefulSchedulerBase: set a field of an optimizer's groups at each step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.optim import Optimizer

__all__ = ["SchedulerBase", "StatefulSchedulerBase"]


class SchedulerBase(ABC):
    """Set a field of an optimizer's parameter groups from the number of steps.

    The value of each group when the scheduler is made is its base value, which is also kept in the
    group, as `initial_lr`.

    Args:
        optimizer: the optimizer.
        param_group_field: the field.

    Attributes:
        optimizer: the optimizer.
        param_group_field: the field.
        base_lr_values: the base value of each group.

    Raises:
        OptionError: a group lacks the field.
    """

    def __init__(self, optimizer: Optimizer, param_group_field: str = "lr") -> None:
        self.optimizer = optimizer
        self.param_group_field = param_group_field
        base = f"initial_{param_group_field}"
        for index, group in enumerate(optimizer.param_groups):
            if param_group_field not in group:
                raise OptionError(
                    f"param_group_field {param_group_field!r} of {type(self).__qualname__}: group "
                    f"{index} of the optimizer has none. Its fields are {sorted(group)}."
                )
            group.setdefault(base, group[param_group_field])
        self.base_lr_values: list[float] = [group[base] for group in optimizer.param_groups]
        self._update_param_groups(self.base_lr_values)

    @abstractmethod
    def get_updated_values(self, num_updates: int) -> float | Sequence[float] | None:
        """Return the value for all groups or one for each; None to leave them as they are.

        Args:
            num_updates: the number of steps before.
        """

    def step_update(self, num_updates: int) -> None:
        """Set the groups to their values after a number of steps."""
        values = self.get_updated_values(num_updates)
        if values is not None:
            self._update_param_groups(values)

    def _update_param_groups(self, values: float | Sequence[float]) -> None:
        groups = self.optimizer.param_groups
        each = values if isinstance(values, list | tuple) else [values] * len(groups)
        for group, value in zip(groups, each, strict=False):
            group[self.param_group_field] = value

    def state_dict(self) -> dict[str, Any]:
        """Return all attributes but the optimizer."""
        return {name: value for name, value in vars(self).items() if name != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the attributes that `state_dict` returned."""
        vars(self).update(state_dict)


class StatefulSchedulerBase(SchedulerBase, ABC):
    """A `SchedulerBase` that counts its steps; the first one is number 0.

    Args:
        optimizer: the optimizer.
        param_group_field: the field.
    """

    def __init__(self, optimizer: Optimizer, param_group_field: str = "lr") -> None:
        super().__init__(optimizer, param_group_field)
        self._num_updates = -1

    def step(self) -> None:
        """Count a step, and set the groups."""
        self._num_updates += 1
        self.step_update(self._num_updates)
