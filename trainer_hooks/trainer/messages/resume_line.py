"""The line that resumes a training: its command, or its call, as it was started."""

from __future__ import annotations

import ast
import linecache
import os
import shutil
import sys
from itertools import islice
from typing import TYPE_CHECKING

from trainer_hooks._log import is_own_module
from trainer_hooks._system import shell_line
from trainer_hooks.checkpoint.paths import is_remote
from trainer_hooks.trainer.identity.run_origin import run_config

if TYPE_CHECKING:
    from types import FrameType

    from trainer_hooks.context.context import Trainer

_LONGEST = 160
"""The length from which a call is shown as `fit(...)`."""


def resume_line(
    trainer: Trainer,
    path: str,
    entry_point: str,
    *,
    finds_itself: bool = False,
    limit: str = "",
) -> str:
    """Return the command or call with which the running fit resumes from a checkpoint.

    Args:
        trainer: the trainer, inside its call of fit.
        path: the checkpoint.
        entry_point: the name of the call, for one that cannot be read.
        finds_itself: whether the same command finds the checkpoint, as with `ckpt_path="auto"`.
        limit: the limit that ended the fit, `"max_epochs"` or `"max_steps"`: the command of a
            config doubles it. A call cannot: the limit is in the Trainer.
    """
    config = run_config(trainer.callbacks)
    shown = shown_path(path)
    if config is not None and (config.command or "fit" in sys.argv[1:]):
        program = config.command[:1] or _program()
        words = _without((config.command or sys.argv)[1:], "--ckpt_path")
        if limit:
            words = _without(words, f"--trainer.{limit}")
            words += [f"--trainer.{limit}", str(2 * max(1, getattr(trainer, limit)))]
        return shell_line([*program, *words, "--ckpt_path", shown])
    # a notebook's command line is its server's
    if finds_itself and sys.argv[0] and "ipykernel" not in sys.modules:
        return typed_command()
    return _call(shown, entry_point)


def typed_command() -> str:
    """Return the command that started this process, as it would be typed."""
    return shell_line([*_program(), *sys.argv[1:]])


def shown_path(path: str) -> str:
    """Return a path relative to the working directory, if it lies inside it."""
    if is_remote(path):
        return path
    near = os.path.relpath(path)  # a path with ".." would be harder to read than the absolute one
    return path if near.startswith(os.pardir) else near


def _program() -> list[str]:
    """Return the words before the arguments, as they would be typed."""
    launcher = _torchrun()
    name = os.path.basename(sys.argv[0])  # noqa: PTH119 - any text
    if name == "__main__.py":
        package = os.path.basename(os.path.dirname(sys.argv[0]))  # noqa: PTH119, PTH120
        return [*(launcher or ["python"]), "-m", package]
    on_path = shutil.which(name)
    if on_path is not None and os.path.realpath(on_path) == os.path.realpath(sys.argv[0]):
        # torchrun takes a program for a Python script unless told otherwise
        return [*launcher, "--no-python", name] if launcher else [name]
    return [*(launcher or ["python"]), shown_path(sys.argv[0])]


def _torchrun() -> list[str]:
    """Return the words of torchrun if it started this process, else an empty list.

    A process knows the number of processes and machines. It does not know how the machines were
    told to find each other: dots stand for that.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return []
    machines = os.environ.get("GROUP_WORLD_SIZE", "1")
    others = [] if machines == "1" else ["--nnodes", machines, "..."]
    return ["torchrun", *others, "--nproc-per-node", os.environ.get("LOCAL_WORLD_SIZE", "1")]


def _without(words: list[str], option: str) -> list[str]:
    remaining: list[str] = []
    skips_value = False
    for word in words:
        name, separator, _ = word.partition("=")
        if not skips_value and name != option:
            remaining.append(word)
        skips_value = name == option and not separator
    return remaining


def _call(path: str, name: str) -> str:
    """Return the user's call with another checkpoint: that of fit as it is, of a Run in short."""
    call = _call_in_source()
    if call is not None:
        given = [keyword for keyword in call.keywords if keyword.arg != "ckpt_path"]
        call.keywords = [*given, ast.keyword("ckpt_path", ast.Constant(path))]
        text = ast.unparse(call)
        if len(text) - len(path) <= _LONGEST:
            return text
    return f"{name}(..., ckpt_path={path!r})"


def _call_in_source() -> ast.Call | None:
    """Return the call of fit in the nearest frame of the user, or None if it cannot be read."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - documented
    while frame is not None and is_own_module(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    if frame is None:
        return None
    # one position for each instruction, and each is two bytes long
    start, end, left, right = next(
        islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), (None,) * 4
    )
    if start is None or end is None or left is None or right is None:
        return None
    linecache.checkcache(frame.f_code.co_filename)
    lines = [linecache.getline(frame.f_code.co_filename, n) for n in range(start, end + 1)]
    # columns count bytes
    source = [line.encode() for line in lines]
    source[-1] = source[-1][:right]
    source[0] = source[0][left:]
    try:
        tree = ast.parse(b"".join(source).decode(), mode="eval").body
    except (SyntaxError, UnicodeDecodeError):  # the file was changed meanwhile
        return None
    if not (isinstance(tree, ast.Call) and isinstance(tree.func, ast.Attribute)):
        return None
    # `ckpt_path` is the fifth argument; with one of `*` or `**` it may be there already
    is_simple = len(tree.args) <= 4 and all(keyword.arg is not None for keyword in tree.keywords)
    has_star = any(isinstance(argument, ast.Starred) for argument in tree.args)
    return tree if tree.func.attr == "fit" and is_simple and not has_star else None
