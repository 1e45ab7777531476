"""Optimizers and schedulers that a config names instead of `configure_optimizers`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.optim import lr_scheduler

from trainer_hooks._log import warn
from trainer_hooks.cli.run.arguments import import_class
from trainer_hooks.errors import TrainerHooksWarning, UsageError
from trainer_hooks.module.module import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch.optim import Optimizer

AUTOMATIC = "AUTOMATIC"
"""Where an optimizer goes that no argument of the module is linked to: `configure_optimizers`."""


class ReduceLROnPlateau(lr_scheduler.ReduceLROnPlateau):
    """torch's scheduler with the name of the metric that it monitors, for command lines.

    Args:
        optimizer: the optimizer.
        monitor: the logged metric.
        args: further arguments of torch's scheduler.
        kwargs: further arguments of torch's scheduler, by name.
    """

    def __init__(self, optimizer: Optimizer, monitor: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(optimizer, *args, **kwargs)
        self.monitor = monitor


@dataclass(frozen=True, slots=True)
class ConfigurableClass:
    """An optimizer or a scheduler among the arguments.

    Attributes:
        class_path: the class; empty where the config names it, by its class path.
        link_to: the argument that takes it, or `AUTOMATIC`.
    """

    class_path: str
    link_to: str

    def with_class_path(self, values: Any) -> dict[str, Any]:
        """Return class path and arguments."""
        plain: dict[str, Any] = values.as_dict() if hasattr(values, "as_dict") else values
        return {"class_path": self.class_path, "init_args": plain} if self.class_path else plain


def check_optimizer(model: Any, optimizers: Mapping[str, ConfigurableClass]) -> None:
    """Check that there is an optimizer to train with.

    Raises:
        UsageError: neither the module nor the config has one.
    """
    # `__func__`: a bound method is a new object at each access, so `is` would never hold
    method = getattr(getattr(model, "configure_optimizers", None), "__func__", None)
    keys = [key for key, optimizer in optimizers.items() if optimizer.link_to == AUTOMATIC]
    if method is Module.configure_optimizers and keys:
        raise UsageError(
            f"{keys[0]}: none is given, and {type(model).__qualname__} has no configure_optimizers."
            f" Give one, as --{keys[0]} Adam, or name it in a config."
        )


def configure_from_config(
    model: Module,
    optimizers: Mapping[str, ConfigurableClass],
    lr_schedulers: Mapping[str, ConfigurableClass],
    config: Any,
    configure: Callable[[Module, Any, Any], Any],
) -> None:
    """Let a module's `configure_optimizers` make the optimizer of the config, if there is one.

    Args:
        model: the module.
        optimizers: the optimizers among the arguments, by key.
        lr_schedulers: the schedulers, likewise.
        config: the values of the arguments.
        configure: combines optimizer and scheduler.

    Raises:
        UsageError: there are several optimizers, and none is linked to an argument.
    """
    optimizer_key, optimizer = _unlinked_entry(optimizers, config, "optimizers")
    scheduler_key, scheduler = _unlinked_entry(lr_schedulers, config, "schedulers")
    if optimizer is None and scheduler is None:
        return
    if optimizer is None:
        raise UsageError(
            f"{scheduler_key}: {scheduler['class_path']} cannot be made: there is no optimizer. "
            "Give optimizer as well."
        )
    if type(model).configure_optimizers is not Module.configure_optimizers:
        warn(
            f"the optimizer of the config takes the place of "
            f"{type(model).__qualname__}.configure_optimizers. Leave one of them out.",
            TrainerHooksWarning,
        )

    _check_instantiation(
        {optimizer_key: optimizer, scheduler_key: scheduler}, list(model.parameters())
    )

    # a method of the object, so that its copies have their own
    model.configure_optimizers = _OptimizersOfConfig(  # type: ignore[method-assign]
        model, optimizer, scheduler, configure
    ).configure_optimizers


@dataclass(frozen=True)
class _OptimizersOfConfig:
    """Makes the optimizer and the scheduler of a config for a module, whose copies bring their own.

    No function inside another: a pickle of the module, as for processes that are spawned, would
    find the method of its class in the place of one.

    Attributes:
        model: the module.
        optimizer: class path and arguments of the optimizer.
        scheduler: those of the scheduler, if there is one.
        configure: combines the two.
    """

    model: Module
    optimizer: Any
    scheduler: Any
    configure: Callable[[Module, Any, Any], Any]

    def configure_optimizers(self) -> Any:
        """Return them; they are made now, as the parameters may be others than at the start."""
        optimizer = _instantiate(self.optimizer, self.model.parameters())
        if self.scheduler is None:
            return self.configure(self.model, optimizer, None)
        return self.configure(self.model, optimizer, _instantiate(self.scheduler, optimizer))


def _unlinked_entry(
    entries: Mapping[str, ConfigurableClass], config: Any, plural: str
) -> tuple[str, Any]:
    """Return key, class path and arguments of the one class that is not linked to an argument."""
    keys = [key for key, entry in entries.items() if entry.link_to == AUTOMATIC]
    if len(keys) > 1:
        raise UsageError(
            f"{plural} {', '.join(keys)}: one at most may be left without link_to. Link the others "
            "to arguments of the module."
        )
    value = config.get(keys[0]) if keys else None
    if value is None:
        return "", None
    return keys[0], entries[keys[0]].with_class_path(value)


def _check_instantiation(chosen: Mapping[str, Any], parameters: list[Any]) -> None:
    """Make the objects once before the run, so that a bad value is reported in time.

    Args:
        chosen: the config of the optimizer, then of the scheduler, by key.
        parameters: the module's parameters.

    Raises:
        UsageError: an object cannot be made.
    """
    if not parameters:  # a module may make them later
        return
    # the optimizer takes the parameters, the scheduler that optimizer; both are thrown away
    first: Any = parameters
    for key, config in chosen.items():
        try:
            first = first if config is None else _instantiate(config, first)
        except (TypeError, ValueError) as error:
            raise UsageError(f"{key}: {config['class_path']} cannot be made: {error}") from error


def _instantiate(config: dict[str, Any], first: Any) -> Any:
    """Make an object of a class path; a `first` argument comes before those of the config."""
    class_ = import_class(config["class_path"])
    return class_(first, **config.get("init_args", {}), **config.get("dict_kwargs", {}))
