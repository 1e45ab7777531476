"""Optimizers and schedulers that a config names instead of `configure_optimizers`."""

from __future__ import annotations

import importlib
from types import MethodType
from typing import TYPE_CHECKING, Any

from torch.optim.lr_scheduler import ReduceLROnPlateau

from trainer_hooks._log import warn
from trainer_hooks.cli.run.parser import AUTOMATIC
from trainer_hooks.errors import TrainerHooksWarning, UsageError
from trainer_hooks.module.module import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainer_hooks.cli.run.parser import ConfigurableClass, TrainerParser

__all__ = ["as_configured", "check_optimizer", "configure_from_config"]


def as_configured(optimizer: Any, lr_scheduler: Any) -> Any:
    """Return an optimizer and its scheduler in the form that `configure_optimizers` returns."""
    if lr_scheduler is None:
        return optimizer
    if isinstance(lr_scheduler, ReduceLROnPlateau):
        monitor = getattr(lr_scheduler, "monitor", "val_loss")
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": lr_scheduler, "monitor": monitor},
        }
    return [optimizer], [lr_scheduler]


def check_optimizer(model: Any, parser: TrainerParser) -> None:
    """Check that there is an optimizer to train with.

    Raises:
        UsageError: neither the module nor the config has one.
    """
    makes = getattr(getattr(model, "configure_optimizers", None), "__func__", None)
    keys = [key for key, made in parser.optimizers.items() if made.link_to == AUTOMATIC]
    if makes is Module.configure_optimizers and keys:
        raise UsageError(
            f"{keys[0]}: none is given, and {type(model).__qualname__} has no configure_optimizers."
            f" Give one, as --{keys[0]} Adam, or name it in a config."
        )


def configure_from_config(
    model: Module,
    parser: TrainerParser,
    config: Any,
    configure: Callable[[Module, Any, Any], Any],
) -> None:
    """Let a module's `configure_optimizers` make the optimizer of the config, if there is one.

    Args:
        model: the module.
        parser: the parser of the arguments that name it.
        config: the values of these arguments.
        configure: combines optimizer and scheduler.

    Raises:
        UsageError: there are several optimizers, and none is linked to an argument.
    """
    optimizer_key, optimizer = _unlinked_entry(parser.optimizers, config, "optimizers")
    scheduler_key, scheduler = _unlinked_entry(parser.lr_schedulers, config, "schedulers")
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

    _try_to_make({optimizer_key: optimizer, scheduler_key: scheduler}, list(model.parameters()))

    # it is made when the training asks for it: the parameters may be others by then
    def configure_optimizers(self: Module) -> Any:
        made = _instantiate(optimizer, self.parameters())
        return configure(self, made, None if scheduler is None else _instantiate(scheduler, made))

    # a method of the object, so that its copies have their own
    model.configure_optimizers = MethodType(configure_optimizers, model)  # type: ignore[method-assign]


def _unlinked_entry(
    entries: Mapping[str, ConfigurableClass], config: Any, what: str
) -> tuple[str, Any]:
    """Return key, class path and arguments of the one class that is not linked to an argument."""
    keys = [key for key, made in entries.items() if made.link_to == AUTOMATIC]
    if len(keys) > 1:
        raise UsageError(
            f"{what} {', '.join(keys)}: one at most may be left without link_to. Link the others "
            "to arguments of the module."
        )
    value = config.get(keys[0]) if keys else None
    if value is None:
        return "", None
    values: dict[str, Any] = value.as_dict() if hasattr(value, "as_dict") else dict(value)
    return keys[0], entries[keys[0]].with_class_path(values)


def _try_to_make(wanted: Mapping[str, Any], parameters: list[Any]) -> None:
    """Make the objects once before the run, so that a bad value is reported in time.

    Args:
        wanted: the config of the optimizer, then of the scheduler, by key.
        parameters: the module's parameters.

    Raises:
        UsageError: an object cannot be made.
    """
    if not parameters:  # a module may make them later
        return
    made: Any = parameters
    for key, given in wanted.items():
        try:
            made = made if given is None else _instantiate(given, made)
        except (TypeError, ValueError) as error:
            raise UsageError(f"{key}: {given['class_path']} cannot be made: {error}") from error


def _instantiate(given: dict[str, Any], first: Any) -> Any:
    home, _, name = given["class_path"].rpartition(".")
    kind = getattr(importlib.import_module(home), name)
    return kind(first, **given.get("init_args", {}), **given.get("dict_kwargs", {}))
