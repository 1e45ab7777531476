"""Another scheduler or optimizer on purpose: put its state in the place of a checkpoint's."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.errors import OptimizationError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from trainer_hooks.module.optimization import LRSchedulerConfig, Optimization

SCHEDULERS, OPTIMIZERS = "lr_schedulers", "optimizers"

REPLACEABLE = frozenset({SCHEDULERS, OPTIMIZERS})
"""The words in `overrides` that name no option."""

_SET_BY_SCHEDULERS = (
    "lr", "initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum",
)  # fmt: skip
"""What schedulers keep in the groups of an optimizer."""


def replace_states(
    checkpoint: dict[str, Any],
    optimization: Optimization,
    setup: Mapping[str, Any],
    names: Collection[str],
) -> list[str]:
    """Put the states of this run's schedulers and optimizers in the place of saved ones.

    A new scheduler goes through the steps that the training has made, so that its rates are those
    of a run that had it from the start; one that monitors a metric begins anew. A new optimizer
    begins without a state. Nothing is replaced if the file was saved with the same ones: a run that
    is started again by the same line goes on exactly.

    Args:
        checkpoint: the checkpoint, whose lists and setup are replaced.
        optimization: the optimizers and schedulers, as `configure_optimizers` made them.
        setup: the return value of `describe_setup` for these.
        names: which to replace: some of `REPLACEABLE`. An emptied list of schedulers replaces
            them, too.

    Returns:
        A text for each that is replaced.

    Raises:
        OptimizationError: a scheduler cannot go through these steps.
    """
    entries = checkpoint["trainer_hooks"]
    saved = entries.get("setup", {})
    is_emptied = not checkpoint[SCHEDULERS] and bool(saved.get("schedulers"))
    has_new_optimizers = OPTIMIZERS in names and _kinds(saved.get("optimizers")) != _kinds(
        setup["optimizers"]
    )
    has_new_schedulers = SCHEDULERS in names and _kinds(saved.get("schedulers"), "options") != (
        _kinds(setup["schedulers"], "options")
    )
    if not (has_new_optimizers or has_new_schedulers or is_emptied):
        return []
    replaced = [
        _step_again(number, config, entries)
        for number, config in enumerate(optimization.schedulers)
    ]
    # copied: the states may hold lists of the schedulers
    checkpoint[SCHEDULERS] = [
        deepcopy(config.scheduler.state_dict()) for config in optimization.schedulers
    ]
    present = {name: setup[name] for name in ("schedulers", "rates")}
    if has_new_optimizers:
        replaced += [
            f"{type(optimizer).__qualname__} without a state"
            for optimizer in optimization.optimizers
        ]
        checkpoint["optimizer_states"] = [
            deepcopy(optimizer.state_dict()) for optimizer in optimization.optimizers
        ]
        entries["added_groups"] = []
        present["optimizers"] = setup["optimizers"]
    else:
        states, noted = list(checkpoint["optimizer_states"]), list(saved.get("optimizers", ()))
        for number, optimizer in enumerate(optimization.optimizers[: len(states)]):
            taken = _options_of_schedulers(optimizer, states[number])
            states[number] = _with_options_of(optimizer, states[number], taken)
            if number < len(noted):
                noted[number] = _with_noted(noted[number], setup["optimizers"][number], taken)
        checkpoint["optimizer_states"], present["optimizers"] = states, noted
    entries["setup"] = {**saved, **present}
    return replaced


def _kinds(parts: Any, key: str = "") -> list[Any]:
    """Return the classes of optimizers or schedulers, with their options if `key` names them.

    A class of the script itself is in `__main__` in one run, in a module in another.
    """
    return [
        (part["class"].rpartition(".")[2], part[key] if key else len(part["groups"]))
        for part in parts or ()
    ]


def _step_again(number: int, config: LRSchedulerConfig, entries: Mapping[str, Any]) -> str:
    """Step a new scheduler as often as the saved training has; return its description.

    Raises:
        OptimizationError: it raises an error.
    """
    scheduler = config.scheduler
    name = type(scheduler).__qualname__
    if config.reduce_on_plateau:
        return f"{name} from its start"
    count = _steps_of(config, entries)
    # else torch warns that the scheduler steps before the optimizer
    getattr(getattr(scheduler, "optimizer", None), "__dict__", {})["_opt_called"] = True
    try:
        for _ in range(count):
            scheduler.step()
    except Exception as error:  # of any class: it is code of others
        raise OptimizationError(
            f"scheduler {number}, {name}, is new in this run, and cannot go through the {count} "
            f"steps that the training has made: {type(error).__name__}: {error}. Make it for a "
            "longer training."
        ) from error
    return f"{name} after {count} steps"


def _steps_of(config: LRSchedulerConfig, entries: Mapping[str, Any]) -> int:
    """Return how often the saved training would have stepped a scheduler."""
    progress = entries["progress"]
    if config.interval == "step":
        return int(progress["steps_completed"]) // config.frequency
    # stepped after the last batch of an epoch that is not counted yet
    is_stepped = entries.get("loop", {}).get("has_scheduled", False)
    is_inside = EpochStage(progress["stage"]) is not EpochStage.BETWEEN
    return int(progress["epochs_completed"] + (is_stepped and is_inside)) // config.frequency


def _options_of_schedulers(optimizer: Any, state: Any) -> tuple[str, ...]:
    """Return the options that the saved schedulers or the new ones set in the groups."""
    groups = list(optimizer.param_groups)
    if _has_groups(state):
        groups += state["param_groups"]
    # a cycle of rates may be one of momenta as well
    has_momenta = any("max_momentum" in group for group in groups)
    return (*_SET_BY_SCHEDULERS, *(("momentum", "betas") if has_momenta else ()))


def _with_options_of(optimizer: Any, state: Any, names: Collection[str]) -> Any:
    """Return a saved state with the options that an optimizer's groups have now."""
    if not _has_groups(state):
        return state
    groups = [dict(group) for group in state["param_groups"]]
    for saved, group in zip(groups, optimizer.param_groups, strict=False):
        for name in names:
            if name in group:
                saved[name] = deepcopy(group[name])
            else:
                saved.pop(name, None)
    return {**state, "param_groups": groups}


def _with_noted(
    saved: dict[str, Any], present: Mapping[str, Any], names: Collection[str]
) -> dict[str, Any]:
    """Return the settings of a saved optimizer with some options of this run's."""
    groups = list(saved["groups"])
    for number, group in enumerate(present["groups"][: len(groups)]):
        taken = {name: value for name, value in group.items() if name in names}
        groups[number] = {**groups[number], **taken}
    return {**saved, "groups": groups}


def _has_groups(state: Any) -> bool:
    """Return whether a saved state has groups; that of a wrapper may have another form."""
    return isinstance(state, dict) and "param_groups" in state
