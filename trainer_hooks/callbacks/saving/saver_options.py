"""Checks of savers' arguments."""

from __future__ import annotations

import os
from pathlib import Path

from trainer_hooks._options import FLAG, check_option, whole_number
from trainer_hooks.callbacks.saving.file_names import check_template
from trainer_hooks.checkpoint.paths import absolute_path, is_remote, require_reachable
from trainer_hooks.errors import OptionError


def check_top_k(save_top_k: object, monitor: str | None, where: str) -> int:
    """Return `save_top_k` if it is a valid number for `monitor`.

    Raises:
        OptionError: it is no whole number, below -1, or above 1 without a monitor that ranks.
    """
    count: int = check_option("save_top_k", save_top_k, where, whole_number(-1))
    if monitor is None and count > 1:
        raise OptionError(
            f"save_top_k {count!r} of {where}: without a monitor it must be -1 (all), 0 (none) or "
            "1 (the newest). Pass monitor=..., the metric that ranks checkpoints."
        )
    return count


def check_kept(num_checkpoints_to_keep: object, where: str) -> int:
    """Return `num_checkpoints_to_keep` if it is -1 or at least 1.

    Raises:
        OptionError: it is no whole number, below -1, or 0.
    """
    count: int = check_option(
        "num_checkpoints_to_keep", num_checkpoints_to_keep, where, whole_number(-1)
    )
    if count == 0:
        raise OptionError(
            f"num_checkpoints_to_keep 0 of {where}: nothing would be left of what it saves. "
            "Pass -1 to keep all, or a number of at least 1."
        )
    return count


def check_filename(filename: object, where: str) -> str | None:
    """Return `filename` if it is None or a template of a path inside the folder.

    Raises:
        OptionError: the template cannot be filled, or leads out of the folder.
    """
    if filename is None:
        return None
    template = check_template(filename, where)
    if Path(template).is_absolute() or ".." in Path(template).parts:
        raise OptionError(
            f"filename {filename!r} of {where}: it must stay inside dirpath. Pass the folder as "
            "dirpath=... and only the name as filename=..."
        )
    # the ending is added, and would stand there twice
    return template.removesuffix(".ckpt") or template


def check_dirpath(dirpath: object, where: str) -> str | None:
    """Return `dirpath` as an absolute path, or None.

    Raises:
        OptionError: it is no path, or the address of a store that is not installed.
    """
    if dirpath is None:
        return None
    rule = (
        "it must be the path of a folder. Pass such a path, an address such as 's3://bucket/run', "
        "or None for the default"
    )
    return resolved_folder(require_usable_path(dirpath, f"dirpath {dirpath!r} of {where}", rule))


def resolved_folder(path: str | os.PathLike[str]) -> str:
    """Return the path of a folder absolute, with `~` and links resolved; an address unchanged."""
    if is_remote(path):
        return absolute_path(path)
    return str(Path(absolute_path(os.path.expanduser(path))).resolve())  # noqa: PTH111 - not `./~`


def check_source(path: object, name: str, where: str) -> str:
    """Return the path or address of a file to read, made absolute.

    Raises:
        OptionError: it is no path, or the address of a store that is not installed.
    """
    rule = "it must be the path of a file. Pass such a path, or an address as 's3://bucket/a.ckpt'"
    return absolute_path(require_usable_path(path, f"{name} {path!r} of {where}", rule))


def require_usable_path(path: object, what: str, rule: str) -> str:
    """Return a path as text, if it is a path or a usable address.

    Args:
        path: the path, or the address of another store.
        what: the argument that holds it, for messages.
        rule: the rule for it, for messages.

    Raises:
        OptionError: it is no path, or the address of a store that is not installed.
    """
    # os.fspath may return bytes, which no path here may be
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text:
        raise OptionError(f"{what}: {rule}.")
    require_reachable(text, what)
    return text


def check_flags(where: str, **flags: object) -> None:
    """Raise unless each of `flags` is True or False.

    Raises:
        OptionError: one is not.
    """
    for name, value in flags.items():
        check_option(name, value, where, FLAG)
