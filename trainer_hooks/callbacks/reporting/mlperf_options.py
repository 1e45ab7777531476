"""The checks of MLPerfCallback's arguments."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["check_command", "check_name", "check_root", "clear_cache", "require_mlperf"]

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_SHOWN = 500


def require_mlperf(where: str) -> None:
    """Make sure that MLPerf's logger is there.

    Raises:
        OptionError: it is not.
    """
    if importlib.util.find_spec("mlperf_logging") is None:
        raise OptionError(
            f"{where} writes with the package mlperf_logging, which is not installed. Install it: "
            "pip install 'trainer-hooks[mlperf]'."
        )


def check_name(name: str, value: object, where: str) -> str:
    """Return `value` if it can be the name of a folder in a submission.

    Raises:
        OptionError: it cannot.
    """
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise OptionError(
            f"{name} {value!r} of {where}: it names a folder or a file of the submission. Pass a "
            "text of letters, digits, '_', '-' and '.', which does not begin with a point."
        )
    return value


def check_root(root_folder: Any, where: str) -> Path:
    """Return the folder of the submission.

    Raises:
        OptionError: it is no path of this machine.
    """
    if not isinstance(root_folder, str | Path) or not str(root_folder) or "://" in str(root_folder):
        raise OptionError(
            f"root_folder {root_folder!r} of {where}: it must be the path of a folder of this "
            "machine. Pass such a path."
        )
    return Path(root_folder).expanduser()


def check_command(command: Any, where: str) -> str | list[str] | None:
    """Return a command, as a text for a shell or as a list of its words, or None.

    Raises:
        OptionError: it is none of them.
    """
    if command is None or (isinstance(command, str) and command.strip()):
        return command
    is_list = isinstance(command, list | tuple) and bool(command)
    if not is_list or not all(isinstance(word, str) for word in command):
        raise OptionError(
            f"cache_clear_cmd {command!r} of {where}: it must be a command. Pass a list of its "
            "words, a text for a shell, or None."
        )
    return list(command)


def clear_cache(command: str | Sequence[str], where: str) -> None:
    """Run the command that empties the system's caches.

    Raises:
        OptionError: it cannot be run, or it fails.
    """
    told = command if isinstance(command, str) else shlex.join(command)
    try:
        done = subprocess.run(
            command,
            shell=isinstance(command, str),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except OSError as error:
        raise OptionError(
            f"cache_clear_cmd {told!r} of {where} cannot be run: {error}. Correct it, or leave it "
            "out."
        ) from error
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()[-_SHOWN:]
        raise OptionError(
            f"cache_clear_cmd {told!r} of {where} ended with status {done.returncode}: {said}. "
            "Correct it, or leave it out."
        )
