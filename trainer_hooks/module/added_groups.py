"""Parameter groups that hooks add to an optimizer after it was made, and their return in a resume.

`configure_optimizers` makes an optimizer again in each process. A group that a hook adds later,
such as `on_train_epoch_start` of epoch 3, is not made again by a resume inside epoch 4, where that
hook is not called. So a checkpoint holds the names of the parameters of such groups.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import OptimizationError, add_note, error_message
from trainer_hooks.runtime.parameter_names import plain_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import nn
    from torch.optim import Optimizer

    from trainer_hooks.module.optimization import Optimization

_TWICE = "parameters appear in more than one parameter group"
"""A part of torch's message about a parameter that is in a group already."""


def added_groups(
    optimization: Optimization, module: nn.Module, setup: Mapping[str, Any]
) -> list[list[list[str]]]:
    """Return, for each optimizer, the names of the parameters of each group that a hook added.

    A parameter that is none of the module's has an empty name.

    Args:
        optimization: the optimizers.
        module: their module.
        setup: the return value of `describe_setup` when the optimizers were made.

    Returns:
        An empty list if no optimizer has such a group.
    """
    added = [
        optimizer.param_groups[made:]
        for optimizer, made in zip(optimization.optimizers, _made_groups(setup), strict=False)
    ]
    if not any(added):
        return []
    # as keys, parameters are told apart by identity
    names = {parameter: plain_name(name) for name, parameter in module.named_parameters()}
    return [
        [[names.get(parameter, "") for parameter in group["params"]] for group in groups]
        for groups in added
    ]


def drop_added_groups(optimization: Optimization, setup: Mapping[str, Any]) -> None:
    """Leave each optimizer of an earlier fit with the groups that `configure_optimizers` made."""
    for optimizer, made in zip(optimization.optimizers, _made_groups(setup), strict=False):
        del optimizer.param_groups[made:]


def add_groups_again(
    optimization: Optimization, checkpoint: Mapping[str, Any], module: nn.Module
) -> None:
    """Add the groups that hooks had added before a checkpoint was saved, and that are not there.

    Args:
        optimization: the optimizers.
        checkpoint: the checkpoint.
        module: the module.

    Raises:
        OptimizationError: the module has no parameter of a saved name.
    """
    named = {plain_name(name): parameter for name, parameter in module.named_parameters()}
    entries = checkpoint["trainer_hooks"]
    for optimizer, state, made, groups in zip(
        optimization.optimizers,
        checkpoint["optimizer_states"],
        _made_groups(entries.get("setup", {})),
        entries.get("added_groups") or [],
        strict=False,
    ):
        present = len(optimizer.param_groups)
        # fewer than were made: `configure_optimizers` is another now, which the comparison tells
        if present < made:
            continue
        # the state of a wrapper may have another form; its `load_state_dict` sets the options then
        saved = state.get("param_groups", []) if isinstance(state, dict) else []
        parameter_ids = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for number, saved_names in enumerate(groups[present - made :], start=present):
            names = list(map(plain_name, saved_names))
            missing = [name for name in names if name not in named]
            if missing:
                raise OptimizationError(
                    f"a hook had added a group of the parameters {', '.join(map(repr, names))} to "
                    f"{type(optimizer).__qualname__}, and the module has no parameter "
                    f"{missing[0]!r}: build it as it was, or add the group in on_fit_start."
                )
            parameters = [named[name] for name in names]
            if any(id(parameter) in parameter_ids for parameter in parameters):
                break  # grouped otherwise now: the comparison tells
            options = saved[number] if number < len(saved) else {}
            optimizer.add_param_group({**options, "params": parameters})
            optimization.has_groups_again = True


def note_group_twice(error: BaseException, optimization: Optimization) -> None:
    """Add the cure to torch's error of a hook that adds a group which a resume has added again."""
    is_twice = isinstance(error, ValueError) and _TWICE in error_message(error)
    if is_twice and optimization.has_groups_again:
        add_note(
            error,
            "the resume has added the group again that a hook had added before the checkpoint was "
            "saved. Add it in on_fit_start, or only if trainer.progress.is_new_training.",
        )


@contextmanager
def restored_on_error(optimization: Optimization) -> Iterator[None]:
    """Give optimizers and schedulers their attributes back if the `with` block raises an error."""
    optimizers, configs = list(optimization.optimizers), list(optimization.schedulers)
    groups = [
        [(g, dict(g), list(g["params"])) for g in optimizer.param_groups]
        for optimizer in optimizers
    ]
    owners = [*optimizers, *(config.scheduler for config in configs)]
    # shallow: loading a state replaces what it consists of
    attributes = [
        (vars(owner), dict(vars(owner))) for owner in owners if hasattr(owner, "__dict__")
    ]
    try:
        yield
    except BaseException:
        optimization.awaited, optimization.has_groups_again = None, False
        optimization.optimizers, optimization.schedulers[:] = optimizers, configs
        for present, before in attributes:
            present.clear()
            present.update(before)
        for optimizer, saved in zip(optimizers, groups, strict=True):
            _regroup(optimizer, saved)
        raise


def _regroup(
    optimizer: Optimizer, saved: list[tuple[dict[str, Any], dict[str, Any], list[Any]]]
) -> None:
    for group, options, parameters in saved:
        group.clear()
        group.update(options, params=parameters)
    optimizer.param_groups[:] = [group for group, _, _ in saved]


def _made_groups(setup: Mapping[str, Any]) -> list[int]:
    """Return the number of groups with which each optimizer was made."""
    return [len(made["groups"]) for made in setup.get("optimizers", ())]
