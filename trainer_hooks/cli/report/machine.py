"""Take paths and host names out of texts, for a page that is sent to others."""

from __future__ import annotations

import dataclasses
import os
import re
import socket
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks.checkpoint.inspection import as_mapping
from trainer_hooks.cli.report.logged_run import text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trainer_hooks.cli.report.logged_run import LoggedRun

_PART = r"""[^\s'"\\/:;,<>|*?]+"""
_PATH = re.compile(
    # not after a letter or a slash: `val/loss` and addresses are no absolute paths
    rf"""(?:file://(?=/)|(?<![\w.:/\\~\x3c-]))(?:/|[A-Za-z]:[\\/])(?:{_PART}[\\/])+(?:{_PART})?"""
)
_HOST = "HOST"


def common_folder(folders: Sequence[Path]) -> Path:
    """Return the folder that holds all of some folders, given by resolved paths."""
    # not os.path.commonpath, which raises for two drives of Windows
    levels = zip(*(folder.parts for folder in folders), strict=False)
    return Path(*(parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, levels)))


class MachineFilter:
    """Shortens absolute paths in texts, and replaces the names of hosts.

    A path below one of the bases becomes relative to it; of another the last part stays, as
    `.../name`.

    Args:
        bases: folders to which paths are relative.
        hosts: the names of machines.
    """

    def __init__(self, bases: Iterable[Path], hosts: Iterable[str]) -> None:
        roots = {os.path.realpath(base) for base in bases}
        # the longest first: it makes the shortest paths; not the root, which every path begins with
        self._bases = sorted((r for r in roots if Path(r).name), key=len, reverse=True)
        names = sorted({host for host in hosts if host and host != "localhost"}, key=len)
        hosts_pattern = "|".join(map(re.escape, reversed(names)))
        self._hosts = re.compile(rf"(?<![\w.-])({hosts_pattern})(?![\w-])") if names else None

    @classmethod
    def of(cls, folders: Iterable[Path], runs: Iterable[LoggedRun]) -> MachineFilter:
        """Return the filter for runs: relative to the working directory, or beside the runs."""
        paths = [Path(os.path.realpath(folder)) for folder in folders]
        is_inside = all(path.is_relative_to(Path.cwd()) for path in paths)
        base = Path.cwd() if is_inside else common_folder([path.parent for path in paths])
        hosts = [
            text(as_mapping(start.start.get("hardware")), "host")
            for run in runs
            for start in run.starts
        ]
        return cls([base], [*hosts, socket.gethostname()])

    def text(self, value: str) -> str:
        """Return a text without absolute paths and names of hosts."""
        for base in self._bases:
            # by itself first: a base may have spaces in its name, which end a path in a text
            value = value.replace(base + os.sep, "")
            value = re.sub(rf"{re.escape(base)}(?![\w-])", ".", value)
        value = _PATH.sub(_last_part, value)
        return value if self._hosts is None else self._hosts.sub(_HOST, value)

    def data(self, value: Any) -> Any:
        """Return plain data, or a dataclass, with all its texts filtered; keys stay."""
        if isinstance(value, str):
            # an enumeration of texts is none that could hold a path
            return self.text(value) if type(value) is str else value
        if isinstance(value, dict):
            return {key: self.data(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.data(item) for item in value]
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {
                field.name: self.data(getattr(value, field.name))
                for field in dataclasses.fields(value)
            }
            return dataclasses.replace(value, **fields)
        return value


def _last_part(match: re.Match[str]) -> str:
    return ".../" + re.split(r"[\\/]", match[0].rstrip("\\/"))[-1]
