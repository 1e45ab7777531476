"""Callbacks of installed packages that register for our Trainer, in the trainers of others.

Lightning's entry points refer to `lightning_plugins`, which every `Trainer(...)` of Lightning calls
where this package is installed: so importing this file loads neither torch nor a framework.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import OptionError, TrainerHooksError, did_you_mean
from trainer_hooks.hooks.discovery import installed_plugins, report_plugin_error
from trainer_hooks.hooks.plugin import GROUPS, LIGHTNING_GROUPS, PluginFilter, normal_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType

    from trainer_hooks.connector.registry import CallbackEntry

SWITCH = "TRAINER_HOOKS_IN_LIGHTNING"
"""The environment variable that keeps packages registered for our Trainer out of Lightning's."""

_HERE = "trainer_hooks.adapters.export"
_CONVERTERS = {
    "lightning": ("lightning", "to_lightning"),
    "transformers": ("transformers", "to_transformers"),
    "composer": ("composer", "to_composer"),
    "accelerated": ("accelerated", "to_accelerated"),
    "ignite": ("ignite", "to_ignite"),
}
"""The file and the function of each framework."""


def plugins_for(
    framework: str, *, plugins: bool | str | Iterable[str] = True, plugin_errors: str = "warn"
) -> list[Any]:
    """Return the callbacks of installed packages that register for our Trainer, for another one.

    ::

        trainer = transformers.Trainer(..., callbacks=plugins_for("transformers"))

    The packages are those that a `Trainer(plugins=...)` would load, by the same environment
    variables and with the same messages. A callback that the framework cannot run is told like a
    plugin that fails, and left out. One that you pass yourself, of the same class and state_key,
    replaces a package's as the framework's Trainer is made.

    Args:
        framework: `"lightning"`, `"transformers"`, `"composer"`, `"accelerated"` or `"ignite"`.
        plugins: True for all packages, False for none, or the names of some.
        plugin_errors: `"warn"` to go on without one that fails, or `"raise"`.

    Returns:
        The converted callbacks, in the order of our callbacks; in Ignite each is to be attached.

    Raises:
        OptionError: there is no such framework.
        PluginError: a package is broken and `plugin_errors` is `"raise"`.
    """
    if framework not in _CONVERTERS:
        raise OptionError(
            f"framework {framework!r} of plugins_for: it must be one of "
            f"{', '.join(map(repr, _CONVERTERS))}.{did_you_mean(str(framework), _CONVERTERS)} Pass "
            "one of them."
        )
    if PluginFilter.of(plugins).takes_none:
        return []
    from trainer_hooks.connector.connector import CallbackConnector

    connector = CallbackConnector(discover=plugins, plugin_errors=plugin_errors)
    return _converted(connector.entries, framework, plugin_errors)


def _converted(entries: Iterable[CallbackEntry], framework: str, errors: str) -> list[Any]:
    """Return the callbacks of entries in a framework's form, without those that it cannot run."""
    file, name = _CONVERTERS[framework]
    convert: Callable[[Any], Any] = getattr(importlib.import_module(f"{_HERE}.{file}"), name)
    converted = []
    for entry in entries:
        guest = getattr(entry.callback, "guest", None)
        if guest is not None and _framework_of(entry.callback) == framework:
            converted.append(guest)  # one of that framework's own callbacks
            continue
        try:
            made = convert(entry.callback)
        except TrainerHooksError as error:
            assert entry.plugin is not None
            report_plugin_error(entry.plugin, f"cannot run in {framework}: {error}", errors, error)
        else:
            _mark_as_plugin(made)
            converted.append(made)
    return converted


def _framework_of(callback: Any) -> str:
    return str(getattr(callback, "framework", "")).removeprefix("pytorch-").replace("_", "-")


def lightning_plugins() -> list[Any]:
    """Return the callbacks that Lightning's Trainer gets by itself.

    They are those of packages that register for our Trainer. It returns none where no package
    does, where the environment switches plugins off (`TRAINER_HOOKS_DISABLE_PLUGINS=1`) or this
    way alone (`TRAINER_HOOKS_IN_LIGHTNING=0`). A package that registers in Lightning itself, as
    with `lightning_factory`, is left to that. A callback that the user passes replaces a package's.
    """
    if os.environ.get(SWITCH, "").strip().lower() in {"0", "false", "no"}:
        return []
    plugin_filter = PluginFilter.of(True)
    if plugin_filter.takes_none:
        return []
    plugins = installed_plugins()
    of_lightning = {normal_name(p.distribution) for p in plugins if p.group in LIGHTNING_GROUPS}
    wanted = {
        plugin.distribution
        for plugin in plugins
        if plugin.group in GROUPS
        and normal_name(plugin.distribution) not in of_lightning
        # one that is blocked is no reason to load anything
        and not plugin_filter.objection(plugin)
    }
    return without_users_own(plugins_for("lightning", plugins=sorted(wanted))) if wanted else []


def without_users_own(made: list[Any]) -> list[Any]:
    """Return a factory's callbacks for Lightning without those that the user has passed as well.

    As in our Trainer, a callback of the user replaces a plugin's of the same class and state_key.
    Lightning would run both, and refuses two with a state. It hands a factory nothing, but calls it
    in the constructor of its Trainer, which has the user's callbacks by then.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - documented, and read only
    while frame is not None and frame.f_code.co_name != "on_trainer_init":
        frame = frame.f_back
    trainer = None if frame is None else getattr(frame.f_locals.get("self"), "trainer", None)
    given = {_identity(callback) for callback in getattr(trainer, "callbacks", None) or ()}
    rest = [callback for callback in made if _identity(callback) not in given]
    for callback in rest:
        # it steps back for one that the module brings later
        _mark_as_plugin(callback)
    return rest


def _mark_as_plugin(callback: Any) -> None:
    driver = driver_of(callback)
    if driver is not None:  # none in Ignite, where each callback is attached by hand
        driver.is_from_plugin = True


def driver_of(callback: Any) -> Any:
    """Return the driver of a callback of ours in a host's form; None of any other callback."""
    # by the class: one framework's callbacks answer an unknown attribute with another error
    return getattr(type(callback), "trainer_hooks_driver", None)


def _identity(callback: Any) -> tuple[type, str]:
    """Return class and state_key of a callback of Lightning, or of ours that it stands for."""
    driver = driver_of(callback)
    original = callback if driver is None else driver.callback
    return type(original), original.state_key
