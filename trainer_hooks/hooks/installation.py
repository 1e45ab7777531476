"""Which plugins are installed: read from the files that installers leave; nothing is imported."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import log
from trainer_hooks.hooks.plugin import GROUPS, HOOKS_GROUP, LIGHTNING_GROUPS, Plugin, normal_name

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["installed"]

_READ = (*GROUPS, *LIGHTNING_GROUPS, HOOKS_GROUP)


def installed() -> tuple[Plugin, ...]:
    """Return every registered plugin, sorted by distribution and name; nothing is imported.

    A factory that one distribution registers in several groups is listed once, under the first. Of
    a distribution that is installed in two versions, what comes later on `sys.path` is listed as
    hidden.
    """
    from importlib_metadata import distributions

    found: dict[tuple[str, str], Plugin] = {}
    hidden: list[Plugin] = []
    owners: dict[str, str] = {}
    for distribution in distributions():
        # most have nothing to do with us; reading this one file of theirs is all that is done then
        text = _entry_points(distribution)
        if not any(group in text for group in _READ):
            continue
        place = str(distribution.locate_file(""))
        for plugin in _registered(distribution, text):
            key = normal_name(plugin.distribution), plugin.value
            owner = owners.setdefault(key[0], place)
            if owner == place:
                found.setdefault(key, plugin)
                continue
            if key in found and found[key].version == plugin.version:
                continue  # an editable installation leaves its mark in two places
            reason = f"{plugin.distribution} in {owner} comes before the one in {place}"
            hidden.append(replace(plugin, status="hidden", reason=reason))
    by_name = sorted(found.values(), key=lambda p: (normal_name(p.distribution), p.name, p.value))
    return (*by_name, *hidden)


def _entry_points(distribution: Any) -> str:
    """Return the text of a distribution's file of entry points; empty if there is none."""
    try:
        return distribution.read_text("entry_points.txt") or ""
    except UnicodeDecodeError as error:
        # whose it is, and whether it has to do with us, cannot be told: it must not end every run
        log.debug("%s: entry_points.txt is damaged: %s", distribution.locate_file(""), error)
        return ""


def _registered(distribution: Any, text: str) -> Iterator[Plugin]:
    """Yield the plugins of one distribution, group by group.

    An uninstall that was cut short leaves entry points without metadata: then the package that the
    entry point refers to lends its name.
    """
    entries = [entry for entry in _entries(text) if entry[0] in _READ]
    name, version = _identity(distribution) if entries else (None, None)
    for group, entry, value in sorted(entries, key=lambda entry: _READ.index(entry[0])):
        package = value.partition(":")[0].partition(".")[0].strip()
        yield Plugin(name or package or entry, version or "?", entry, group, value)


def _entries(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield (group, name, value) of each entry point.

    The text is parsed here, and not by importlib_metadata, which would read the file once more, and
    lets one line that is damaged hide all the others.
    """
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1].strip()
        elif line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield group, name.strip(), value.strip()


def _identity(distribution: Any) -> tuple[str | None, str | None]:
    """Return a distribution's name and version; None for what its metadata do not tell."""
    try:
        metadata = distribution.metadata  # once: its properties would parse the file anew each time
        return metadata["Name"], metadata["Version"]
    except (FileNotFoundError, KeyError, TypeError):  # TypeError: older releases return None
        return None, None
