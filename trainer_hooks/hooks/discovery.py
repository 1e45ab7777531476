"""Plugin discovery: find, import and call the callback factories and hooks of installed packages.

A plugin is an entry point by which a distribution adds callbacks or hooks. It refers to a factory,
a callable without arguments that returns a callback or a list of them, or to a subclass of `Hooks`
that adds hooks. Each is loaded on its own: a broken one stops no other, and is named with what to
do.

The entry points are read here and not by `importlib_metadata.entry_points()` (9.1), which one
damaged file of any distribution makes fail as a whole: that would end every run on the machine. It
also leaves out a second installation of a distribution without a word, where a user should see that
its plugins are hidden, and has no name for a distribution whose uninstall was interrupted.
"""

from __future__ import annotations

import inspect
import os
import sys
import time
import traceback
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import replace
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType, NoneType
from typing import TYPE_CHECKING, Any

from trainer_hooks._annotations import signature_of
from trainer_hooks._log import log, warn
from trainer_hooks.errors import (
    PluginError,
    TrainerHooksWarning,
    did_you_mean,
    error_summary,
    is_interruption,
)
from trainer_hooks.hooks.catalogue import Hooks
from trainer_hooks.hooks.isolation import isolating
from trainer_hooks.hooks.plugin import (
    BLOCK,
    GROUPS,
    HOOKS_GROUP,
    LIGHTNING_GROUPS,
    Plugin,
    PluginFilter,
    normal_name,
)
from trainer_hooks.hooks.spec import ALIASES, HOOKS, HookSpec, specs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SLOW = 1.0
"""Seconds from which on loading a plugin is worth a warning: every `Trainer(...)` waits for it."""

_LOADED_BEFORE = "torch"
"""The module that a program has imported before its Trainer loads plugins."""

_OWN_PACKAGE = __name__.partition(".")[0]

_SHOWN = 200
"""Characters of a value's repr that a message shows."""

_READ = (*GROUPS, *LIGHTNING_GROUPS, HOOKS_GROUP)
"""The entry-point groups that are read."""


# --- loading ---


def load_plugins(
    plugin_filter: PluginFilter,
    is_callback: Callable[[object], bool],
    errors: str = "warn",
) -> tuple[Plugin, ...]:
    """Import and call the wanted plugins; return a record of every installed one."""
    return tuple(iter_plugin_records(plugin_filter, is_callback, errors))


def iter_plugin_records(
    plugin_filter: PluginFilter,
    is_callback: Callable[[object], bool],
    errors: str = "warn",
) -> Iterator[Plugin]:
    """Load the wanted plugins one by one and yield a record of every installed one.

    Args:
        plugin_filter: the plugins to load. If it takes none, no distribution is looked at.
        is_callback: returns whether an object that a factory returned can be registered.
        errors: `"warn"` to go on without a broken plugin, `"raise"` to stop.

    Raises:
        PluginError: a plugin is broken and `errors` is `"raise"`, or a wanted one is not installed.
    """
    if plugin_filter.takes_none:
        return
    available = installed_plugins()
    _require_installed(plugin_filter, available)
    added: dict[str, HookSpec] = {}
    for plugin in available:
        objection = plugin_filter.objection(plugin, available)
        # importing it would import the installation that hides it
        if plugin.status == "hidden":
            yield plugin
        elif objection:
            yield replace(plugin, status="blocked", reason=objection)
        elif plugin.status == "failed":
            report_plugin_error(plugin, f"could not be loaded: {plugin.reason}", errors)
            yield plugin
        else:
            loaded = _load(plugin, is_callback, added, errors)
            # of two distributions that add one hook, the first in the order of names has it
            added.update(loaded.hooks)
            yield loaded


def installed_hooks() -> dict[str, HookSpec]:
    """Return the hooks that installed packages add, without those that the environment blocks."""
    available = (p for p in installed_plugins() if p.group == HOOKS_GROUP and p.status == "found")
    plugin_filter = PluginFilter.of(True)
    added: dict[str, HookSpec] = {}
    for plugin in available:
        # in this group there are no callbacks, so that nothing asks whether an object is one
        if not plugin_filter.objection(plugin):
            added.update(_load(plugin, lambda item: False, added, "warn").hooks)  # noqa: ARG005
    return added


def _load(
    plugin: Plugin,
    is_callback: Callable[[object], bool],
    added: dict[str, HookSpec],
    errors: str,
) -> Plugin:
    """Import and call one plugin; return its record with the result."""
    clock = _ImportClock(_LOADED_BEFORE)
    started = time.perf_counter()
    try:
        with isolating(plugin.label), clock:
            target = load_entry_point(plugin)
            if plugin.group == HOOKS_GROUP:
                loaded = replace(plugin, hooks=hooks_of_plugin(target, plugin, added))
            else:
                loaded = replace(plugin, callbacks=create_callbacks(target, plugin, is_callback))
    # BaseException: a module that calls sys.exit when imported must not end the user's script
    except BaseException as error:
        if is_interruption(error):
            raise
        reason = error_summary(error) + _location_of(error)
        report_plugin_error(plugin, f"could not be loaded: {reason}", errors, error)
        seconds = time.perf_counter() - started - clock.seconds
        return replace(plugin, status="failed", reason=reason, seconds=seconds)
    seconds = time.perf_counter() - started - clock.seconds
    if seconds > _SLOW:
        warn(
            f"plugin {plugin.label} took {seconds:.1f} s to load, and Trainer(...) waits for it. "
            f"Its author can import what is heavy inside the hooks that need it; to do without it, "
            f"set TRAINER_HOOKS_BLOCK_PLUGINS={plugin.distribution} in the environment.",
            TrainerHooksWarning,
        )
    return replace(loaded, status="loaded", seconds=seconds)


class _ImportClock(MetaPathFinder):
    """Measures the first import of a module in a `with` block, whoever imports it there.

    A command that lists plugins has not imported torch, as a program has: the first plugin that
    needs it must not be charged with that.

    Args:
        module: the module's name.

    Attributes:
        seconds: how long the import took; 0.0 if it was imported before, or not at all.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self.seconds = 0.0

    def __enter__(self) -> None:
        if self._module not in sys.modules:
            sys.meta_path.insert(0, self)

    def __exit__(self, *_: object) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the usual spec of the module with a timed loader; None for all others."""
        spec = PathFinder.find_spec(name, path, target) if name == self._module else None
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def timed(module: ModuleType) -> None:
                started = time.perf_counter()
                try:
                    execute(module)
                finally:
                    self.seconds += time.perf_counter() - started

            # the loader was made for this import alone
            vars(spec.loader)["exec_module"] = timed
        return spec


def _location_of(error: BaseException) -> str:
    """Return the file and line at which a plugin's code failed; empty if none of it ran."""
    package_folder = str(Path(__file__).parents[1])
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        is_ours = frame.filename.startswith((package_folder, "<"))  # "<": code without a file
        if not is_ours and "importlib" not in frame.filename:
            return f" ({frame.filename}, line {frame.lineno})"
    return ""


def load_entry_point(plugin: Plugin) -> Any:
    """Import and return the object that a plugin's entry point refers to; errors are passed on."""
    from importlib_metadata import EntryPoint

    return EntryPoint(plugin.name, plugin.value, plugin.group).load()


def report_plugin_error(
    plugin: Plugin, fault: str, errors: str, cause: BaseException | None = None
) -> None:
    """Warn of a plugin's fault, and say how to switch the plugin off.

    Args:
        plugin: the plugin.
        fault: the fault, as the predicate of a sentence.
        errors: `"warn"` or `"raise"`.
        cause: the exception behind it.

    Raises:
        PluginError: `errors` is `"raise"`.
    """
    message = (
        f"plugin {plugin.label}, group {plugin.group!r}, {fault.rstrip('.')}. "
        f"Mend or uninstall {plugin.distribution}, or switch it off: "
        f"TRAINER_HOOKS_BLOCK_PLUGINS={plugin.distribution} in the environment, or "
        "Trainer(plugins=False)."
    )
    if errors == "raise":
        raise PluginError(message) from cause
    # the traceback is for the plugin's author, and would only alarm a user who has it installed
    log.debug("%s", message, exc_info=cause)
    warn(message, TrainerHooksWarning)


def _require_installed(plugin_filter: PluginFilter, available: Sequence[Plugin]) -> None:
    """Make sure that every plugin that the user or the environment names is installed."""
    wanted = plugin_filter.wanted
    chosen = frozenset() if isinstance(wanted, bool) else wanted
    if not chosen and not plugin_filter.blocked:
        return
    installed = {normal_name(name) for p in available for name in (p.distribution, p.name)}
    # a group is there without members, too
    groups = set(map(normal_name, _READ))
    # a misspelt name would silently load nothing, or block nothing
    for names, source in ((chosen, "Trainer(plugins=[...])"), (plugin_filter.blocked, BLOCK)):
        for name in sorted(names - installed - groups):
            raise PluginError(
                f"plugin {name!r} in {source} is not installed: it must be the name of a "
                f"distribution or of an entry point in one of the groups {', '.join(GROUPS)}."
                f"{did_you_mean(name, installed)} "
                f"Installed: {', '.join(sorted(installed)) or 'none'}."
            )


# --- callbacks and hooks of a plugin ---


def create_callbacks(
    factory: Any, plugin: Plugin, is_callback: Callable[[object], bool]
) -> tuple[Any, ...]:
    """Call a plugin's factory and return the callbacks that it makes.

    Args:
        factory: the object that the entry point refers to.
        plugin: the plugin, for messages.
        is_callback: returns whether an object can be registered.

    Raises:
        TypeError: the object is no factory, needs arguments, or returned no callbacks.
        BaseException: an error of the factory.
    """
    if not callable(factory):
        raise TypeError(
            f"{plugin.value} is a {type(factory).__name__}, not a callable factory: name a "
            "function that returns a callback or a list of callbacks"
        )
    _require_no_arguments(factory, plugin)
    made = factory()
    # first: a callback may be a sequence, too
    if is_callback(made):
        return (made,)
    if isinstance(made, Coroutine):
        made.close()  # or Python would warn that nobody awaited it
    if not isinstance(made, Sequence) or isinstance(made, str | bytes):
        raise TypeError(
            f"the factory returned {_shown(made)}{_hint(made)}: it must return a callback or a "
            "list of callbacks"
        )
    for item in made:
        if not is_callback(item):
            raise TypeError(
                f"the factory's list holds {_shown(item)}{_hint(item)}, which is no callback"
            )
    return tuple(made)


def _require_no_arguments(factory: Callable[..., Any], plugin: Plugin) -> None:
    try:
        signature = signature_of(factory)
    except (TypeError, ValueError):  # some callables written in C have no signature
        return
    # bound before the call, in which a TypeError could as well be an error of the factory's body
    try:
        signature.bind()
    except TypeError as error:
        raise TypeError(
            f"{plugin.value} is called without arguments, and that does not work for "
            f"{getattr(factory, '__qualname__', factory)}{signature}: {error}. Give its arguments "
            "defaults, or name a function that makes the callback"
        ) from None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


_MISTAKES: tuple[tuple[type, str], ...] = (
    (NoneType, " (is a `return` missing?)"),
    (type, " (a class: return an instance)"),
    (Iterator, " (it can be read only once: return a list)"),
    (Coroutine, " (define the factory with a plain `def`: it is called, not awaited)"),
)
"""Wrong return values of a factory, and the likely mistake behind each, for a message."""


def _hint(made: object) -> str:
    return next((mistake for kind, mistake in _MISTAKES if isinstance(made, kind)), "")


def hooks_of_plugin(
    catalogue: Any, plugin: Plugin, added: Mapping[str, HookSpec]
) -> dict[str, HookSpec]:
    """Return the hooks that a plugin's class adds, by name.

    Args:
        catalogue: the object that the entry point refers to.
        plugin: the plugin.
        added: the hooks that other plugins have added already.

    Raises:
        TypeError: the object is no subclass of Hooks, or declares something that cannot be a hook.
    """
    if not (isinstance(catalogue, type) and issubclass(catalogue, Hooks)) or catalogue is Hooks:
        raise TypeError(
            f"{plugin.value} is {_shown(catalogue)}: it must be a subclass of trainer_hooks.Hooks, "
            "with an empty method for each hook that it adds"
        )
    specs = specs_of(catalogue, f"{plugin.distribution} {plugin.version}")
    for spec in specs.values():
        fault = _fault_of_hook(spec, added)
        if fault:
            raise TypeError(f"the hook {spec.name!r} {fault}")
    return specs


def _fault_of_hook(spec: HookSpec, added: Mapping[str, HookSpec]) -> str:
    """Return the rule that a plugin's hook breaks, and the cure; an empty string if none."""
    if spec.name in HOOKS or spec.name in ALIASES:
        return "is one of trainer_hooks itself: give it another name"
    if spec.name in added:
        return f"is one of {added[spec.name].supplier} already: give it another name"
    if not spec.name.startswith("on_"):
        return "has a name that does not start with 'on_': rename it, or begin it with '_'"
    if spec.arguments[:2] != ("trainer", "module"):
        return "does not begin with the arguments (self, trainer, module, ...): add them"
    if not spec.summary:
        return "has no docstring: say in one sentence when it is called"
    assert spec.declared is not None
    kinds = {p.kind for p in signature_of(spec.declared).parameters.values()}
    if not kinds <= {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}:
        return "has arguments that cannot be given positionally: hooks are called so"
    return ""


# --- installed distributions ---


def installed_plugins() -> tuple[Plugin, ...]:
    """Return a record of every registered plugin, sorted by distribution and name.

    Nothing is imported. A factory that one distribution registers in several groups is listed once,
    under the first group. Of a distribution that is installed twice, the plugins of the
    installation that is later on `sys.path` are listed as hidden.
    """
    from importlib_metadata import distributions

    plugins: dict[tuple[str, str], Plugin] = {}
    hidden: list[Plugin] = []
    first_folders: dict[str, str] = {}
    for distribution in distributions():
        for plugin in _plugins_of(distribution):
            folder = str(distribution.locate_file(""))
            # `my_plugin` and `My-Plugin` are spellings of one distribution's name
            key = normal_name(plugin.distribution), plugin.value
            first_folder = first_folders.setdefault(key[0], folder)
            # the groups come in the order of `_READ`, so that the first one's entry stays
            if first_folder == folder:
                plugins.setdefault(key, plugin)
                continue
            if key in plugins and plugins[key].version == plugin.version:
                continue  # an editable installation has metadata in two folders
            reason = f"{plugin.distribution} in {first_folder} comes before the one in {folder}"
            hidden.append(replace(plugin, status="hidden", reason=reason))
    by_name = sorted(plugins.values(), key=lambda p: (normal_name(p.distribution), p.name, p.value))
    return (*by_name, *hidden)


_Stamp = tuple[int, int, int] | None
"""A file's time of change in ns, size in bytes and inode; None if there is no such file."""

_seen: dict[str, tuple[tuple[_Stamp, ...], tuple[Plugin, ...]]] = {}
"""By a distribution's folder of metadata: the stamps of the files read there, and its plugins."""


def _plugins_of(distribution: Any) -> tuple[Plugin, ...]:
    """Return the plugins of one distribution, group by group.

    Files that did not change since they were read are not read again, as each `Trainer(...)` asks
    every installed distribution. An interrupted uninstall leaves entry points without metadata: the
    package that the entry point refers to then stands for the distribution's name.
    """
    # a private name; a finder's distributions without it, or not in a folder, are read each time
    folder = str(getattr(distribution, "_path", ""))
    stamps, plugins = _seen.get(folder, ((), ()))
    if stamps and stamps == _stamps(folder, _FILES[: len(stamps)]):
        return plugins
    # before the reading: a file that changes meanwhile is read again next time
    stamps = _stamps(folder, _FILES[:1])
    is_folder = stamps != (None,) or os.path.isdir(folder)  # noqa: PTH112 - quicker than a Path
    # most distributions have no plugin, or no entry point: one look is all that they cost
    has_none = is_folder and stamps == (None,)
    text, fault = ("", "") if has_none else _entry_points_text(distribution)
    entries = [row for row in _entries(text) if row[0] in _READ]
    if entries:
        stamps += _stamps(folder, _FILES[1:])
    plugins = tuple(_plugins_from(entries, distribution))
    if not plugins and text and (damage := _damage(text)) and _is_of_ours(text, distribution):
        place = distribution.locate_file("")
        fault = fault or f"its entry_points.txt in {place} is damaged: {damage}"
        plugins = tuple(_plugins_from([(GROUPS[0], _UNKNOWN, _UNKNOWN)], distribution))
    if fault:
        plugins = tuple(replace(plugin, status="failed", reason=fault) for plugin in plugins)
    if is_folder:
        _seen[folder] = stamps, plugins
    return plugins


_FILES = ("entry_points.txt", "METADATA", "PKG-INFO")
"""The files of metadata that say which plugins there are, and of which name and version."""


def _stamps(folder: str, names: tuple[str, ...]) -> tuple[_Stamp, ...]:
    """Return the stamps of files in a folder."""
    return tuple(_stamp(f"{folder}{os.sep}{name}") for name in names)


def _stamp(path: str) -> _Stamp:
    try:
        status = os.stat(path)  # noqa: PTH116 - quicker than a Path
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _plugins_from(entries: list[tuple[str, str, str]], distribution: Any) -> Iterator[Plugin]:
    """Yield the plugins of entry points (group, name, value) of one distribution."""
    name, version = name_and_version(distribution) if entries else (None, None)
    for group, name_of_entry, value in sorted(entries, key=lambda row: _READ.index(row[0])):
        package = value.partition(":")[0].partition(".")[0].strip()
        if package == _OWN_PACKAGE and group in LIGHTNING_GROUPS:
            continue  # the door to Lightning for other packages' plugins, and none itself
        distribution_name = name or package or name_of_entry
        yield Plugin(distribution_name, version or "?", name_of_entry, group, value)


def _entry_points_text(distribution: Any) -> tuple[str, str]:
    """Return the content of a distribution's `entry_points.txt`, and a description of its fault.

    Both are empty if there is none.
    """
    try:
        # an editor may have put a mark of the byte order in front
        return (distribution.read_text("entry_points.txt") or "").removeprefix("\ufeff"), ""
    except UnicodeDecodeError as error:
        # it must not end every run. The names of groups are ASCII: they show whether the
        # distribution has plugins, which are listed as failed
        fault = (
            f"its entry_points.txt in {distribution.locate_file('')} is not UTF-8 (byte "
            f"{error.object[error.start]:#04x} at position {error.start})"
        )
        log.debug("%s", fault)
        return error.object.decode("utf-8", "backslashreplace"), fault


_UNKNOWN = "(unreadable)"
"""The name of an entry point in a file that cannot be read."""


def _damage(text: str) -> str:
    """Return the fault of an `entry_points.txt` in which no group was found."""
    if "\0" in text:
        return "it holds null bytes"
    has_group = False
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if line.startswith("["):
            if not line.endswith("]"):
                return f"line {number}, {_shown(line)}, is no header of a group"
            has_group = True
        elif line and not line.startswith(("#", ";")) and not has_group:
            return f"line {number}, {_shown(line)}, stands before every header of a group"
    return ""


def _is_of_ours(text: str, distribution: Any) -> bool:
    """Return whether a damaged `entry_points.txt` is that of a distribution with plugins of ours.

    It names a group of ours, also in two bytes a character, or its distribution needs this package.
    """
    plain = text.replace("\0", "").replace("\\x00", "")
    if any(name in plain for name in (_OWN_PACKAGE, *_READ)):
        return True
    try:
        requirements = distribution.requires or ()
    except (FileNotFoundError, KeyError, TypeError):  # it has no metadata
        return False
    package = normal_name(_OWN_PACKAGE)
    return any(normal_name(requirement).startswith(package) for requirement in requirements)


def _entries(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield (group, name, value) of each entry point in an `entry_points.txt`.

    importlib_metadata's parser would read the file a second time, and one damaged line would hide
    all other entries.
    """
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1].strip()
        elif line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield group, name.strip(), value.strip()


def name_and_version(distribution: Any) -> tuple[str | None, str | None]:
    """Return a distribution's name and version; None for one that its metadata do not hold."""
    try:
        metadata = distribution.metadata  # once: its properties would parse the file anew each time
        return metadata["Name"], metadata["Version"]
    except (FileNotFoundError, KeyError, TypeError):  # TypeError: older releases return None
        return None, None
