"""Which parts of a module train, and which parameters require gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.errors import TrainerHooksWarning

if TYPE_CHECKING:
    from torch import nn

    from trainer_hooks.context import Training

__all__ = ["Modes", "modes_of"]


class Modes:
    """The modes of a module's parts, and `requires_grad` of its parameters, by name.

    Hooks that freeze, unfreeze or set a mode as an epoch begins are not fired again by a resume
    inside it, so a checkpoint keeps what they did. Where the module itself was built otherwise than
    when the training began, that is meant: what it says now stays.

    Args:
        module: whose.
        training: its training, which knows how they were as it began.
    """

    def __init__(self, module: nn.Module, training: Training) -> None:
        self._module = module
        self._training = training

    def state_dict(self) -> dict[str, Any]:
        """Return the names of the parts that evaluate and of the parameters that are frozen."""
        return {**modes_of(self._module), "began": self._training.began}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take them back, if the training began as this one did."""
        if not state:
            return  # an older file says nothing of them
        before, now = state["began"], self._training.began
        if before and now and before != now:
            warn(
                f"{type(self._module).__qualname__} is built with other parts in eval mode, or "
                "with other parameters that require gradients, than when the training in the "
                "checkpoint began: as it is built now it goes on. Build it as it was to resume "
                "exactly.",
                TrainerHooksWarning,
            )
            return
        evaluates, frozen = set(state["evaluates"]), set(state["frozen"])
        for name, part in self._module.named_modules():
            part.training = name not in evaluates
        for name, parameter in self._module.named_parameters():
            wanted = name not in frozen
            if parameter.requires_grad is not wanted and _may_require(parameter):
                parameter.requires_grad_(wanted)


def modes_of(module: nn.Module) -> dict[str, list[str]]:
    """Return the names of a module's parts in eval mode, and of its frozen parameters."""
    return {
        "evaluates": [name for name, part in module.named_modules() if not part.training],
        "frozen": [name for name, p in module.named_parameters() if not p.requires_grad],
    }


def _may_require(parameter: nn.Parameter) -> bool:
    return parameter.is_floating_point() or parameter.is_complex()
