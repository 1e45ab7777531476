"""Check of the states of torch's own optimizers and schedulers, before a step uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.optim import Optimizer

_COUNTERS = frozenset({"step", "eta", "mu", "mu_product"})
"""Names under which torch's optimizers keep one number of a parameter."""

_NEEDED = {"amsgrad": "max_exp_avg_sq", "centered": "grad_avg"}
"""Options of torch's optimizers, and the tensor that each adds to the state of a parameter."""

_OTHER_SHAPES = frozenset({"Adafactor", "LBFGS"})
"""torch's optimizers that keep tensors of other shapes than those of the parameters."""


def keep_capturable_to_devices(
    groups: Sequence[dict[str, Any]], made: Sequence[Mapping[str, Any]]
) -> None:
    """Set `capturable` back in groups that were saved with it on a GPU and are on the CPU now.

    It lets a CUDA graph capture a step, and torch's optimizers refuse to step with it on the CPU.

    Args:
        groups: the groups of an optimizer, changed in place, after they have loaded their options.
        made: their options before.
    """
    for group, options in zip(groups, made, strict=False):  # another optimizer may add groups
        is_new = group.get("capturable") is True and options.get("capturable") is False
        if is_new and any(parameter.device.type == "cpu" for parameter in group["params"]):
            group["capturable"] = False


def require_usable_state(optimizer: Optimizer, made: Sequence[Mapping[str, Any]]) -> None:
    """Require the loaded state of one of torch's optimizers to be such as its `step` can use.

    torch itself compares the numbers of groups and parameters alone. Optimizers of others are not
    judged.

    Args:
        optimizer: the optimizer, with the state that it has loaded.
        made: the options of its groups before the load.

    Raises:
        TypeError: an option or a tensor is missing, or of another type or shape.
    """
    kind = type(optimizer)
    if not kind.__module__.startswith("torch.optim."):
        return
    for number, (group, options) in enumerate(zip(optimizer.param_groups, made, strict=True)):
        for name, option in options.items():
            if name != "params" and not _is_alike(group.get(name, _ABSENT), option):
                shown = f"is {group[name]!r}" if name in group else "is missing"
                raise TypeError(f"option {name!r} of group {number} {shown}, here {option!r}")
        if kind.__name__ not in _OTHER_SHAPES:
            _require_same_form(optimizer, number)


def require_usable_schedule(scheduler: object, state: Mapping[str, Any]) -> None:
    """Require the saved state of one of torch's schedulers to be such as its `step` can use.

    Args:
        scheduler: the scheduler, before it loads the state.
        state: the state.

    Raises:
        TypeError: an attribute is of another type.
    """
    if type(scheduler).__module__ != "torch.optim.lr_scheduler":
        return
    for name, value in vars(scheduler).items():
        if name not in state or value is None:
            continue
        saved = state[name]
        if isinstance(value, list | tuple):
            # of any length, which other options may change; functions and schedulers in it are
            # saved in other forms
            is_plain = bool(value) and isinstance(value[0], int | float)
            is_usable = isinstance(saved, list | tuple) and (
                not is_plain or all(_is_alike(item, value[0]) for item in saved)
            )
        else:
            is_usable = not isinstance(value, bool | int | float | str) or _is_alike(saved, value)
        if not is_usable:
            raise TypeError(f"{name!r} is {saved!r}, here {value!r}")


def _require_same_form(optimizer: Optimizer, number: int) -> None:
    """Require equal names for the parameters of a group, and tensors of the parameters' shapes."""
    names: set[str] | None = None
    for parameter in optimizer.param_groups[number]["params"]:
        state = optimizer.state.get(parameter)
        if state is None or state == {}:
            continue  # it has had no gradient yet
        names = set(state) if names is None else names
        if set(state) != names:
            raise TypeError(f"a parameter of group {number} lacks {sorted(set(state) ^ names)}")
        for option, name in _NEEDED.items():
            if optimizer.param_groups[number].get(option) and name not in state:
                raise TypeError(f"{name!r} is missing, which {option!r} of group {number} needs")
        for name, value in state.items():
            if name in _COUNTERS:
                is_usable = _is_number(value)
                # Adam divides by a number that is zero for a step of -1
                if is_usable and name == "step" and not float(value) >= 0:
                    raise TypeError(
                        f"'step' of a parameter {tuple(parameter.shape)} in group {number} is "
                        f"{float(value):g}, which counts no steps"
                    )
            else:
                # SGD keeps None until its first step with momentum
                is_usable = (value is None and name == "momentum_buffer") or (
                    isinstance(value, Tensor) and value.shape == parameter.shape
                )
            if not is_usable:
                shape = f" {tuple(value.shape)}" if isinstance(value, Tensor) else ""
                raise TypeError(
                    f"{name!r} of a parameter {tuple(parameter.shape)} in group {number} is a "
                    f"{type(value).__qualname__}{shape}"
                )


_ABSENT = object()


def _is_alike(saved: object, option: object) -> bool:
    """Return whether a saved option is of the kind that the optimizer was made with."""
    if isinstance(option, bool):
        return saved is None or (isinstance(saved, int) and saved in (0, 1))
    if isinstance(option, int | float | Tensor):
        return _is_number(saved)
    if option is None:  # not chosen, as `foreach`; a step or another run may have chosen
        return saved is None or isinstance(saved, bool | int | float | str)
    if isinstance(option, tuple | list):
        return (
            isinstance(saved, tuple | list)
            and len(saved) == len(option)
            and all(map(_is_alike, saved, option))
        )
    return type(saved) is type(option)


def _is_number(value: object) -> bool:
    if isinstance(value, Tensor):
        return value.numel() == 1
    return isinstance(value, int | float) and not isinstance(value, bool)
