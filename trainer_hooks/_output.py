"""Text for people, which ends no training if nobody can read it any more.

A stream is lost if its reader has left (`train.py | head`), its terminal has hung up, it is closed,
or it goes to a file on a full disk; under pythonw there is none.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from typing import Any

_LOST = frozenset(
    {errno.EPIPE, errno.EIO, errno.EBADF, errno.ECONNRESET, errno.ESHUTDOWN}
)  # fmt: skip
"""The numbers of the errors of a stream that nobody reads any more."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The numbers of the errors of a file that cannot grow."""
_LOST_OR_FULL = _LOST | _FULL


@contextmanager
def losing_output(*others: Any) -> Iterator[None]:
    """Drop an error in the `with` block whose cause is that a standard stream is lost.

    The rest of the block is skipped. A standard stream that is lost is redirected to the null
    device, so that later writes of the user's code and Python's own flush at the exit find no error
    either. Of a full disk a line on the other stream tells.

    Args:
        *others: further streams that the block writes to.

    Raises:
        OSError: of a stream that is not lost, or of anything else that the block does.
        ValueError: likewise.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        # text is written to a closed stream with a ValueError
        number = error.errno if isinstance(error, OSError) else None
        if number is not None and number not in _LOST_OR_FULL:
            raise
        is_full = number in _FULL
        # in the user's own file a gap would be an error that nobody is told of
        if is_full and any(each is not None and not _is_standard(each) for each in others):
            raise
        lost = [stream for stream in (*others, sys.stdout, sys.stderr) if _is_lost(stream)]
        # an error with a file's name is none of a stream
        if not lost and is_full and getattr(error, "filename", None) is None:
            lost = [stream for stream in (sys.stdout, sys.stderr) if _is_in_full_file(stream)]
        if not lost:
            raise
        for stream in lost:
            _redirect_to_null(stream)
        if is_full:
            _tell_of_full_disk(lost)


def losing_output_to(file: Any) -> AbstractContextManager[None]:
    """Drop the error of a lost standard stream in a block that prints to a file of the user's.

    An error of the user's own file is raised, as that of the builtin `print`.

    Args:
        file: the file to which the block prints; None is the standard output.
    """
    return losing_output() if file is None or _is_standard(file) else nullcontext()


def flush_output() -> None:
    """Flush the standard streams now, where a lost one is no error yet."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with losing_output():
                stream.flush()


def is_terminal(stream: object) -> bool:
    """Return whether a stream is a terminal; none, a closed one, or a bare replacement is not."""
    ask = getattr(stream, "isatty", None)
    try:
        return ask is not None and bool(ask())
    except ValueError:  # it is closed
        return False


def _is_lost(stream: Any) -> bool:
    if stream is None:
        return False
    if getattr(stream, "closed", False):
        return True
    try:
        stream.flush()
        descriptor = stream.fileno()
    except OSError as error:  # io.UnsupportedOperation of fileno() has no number
        return error.errno in _LOST_OR_FULL
    except (AttributeError, ValueError):
        return False
    # an unbuffered stream keeps nothing that could be flushed once more
    poll = select.poll()
    poll.register(descriptor, 0)
    gone = select.POLLERR | select.POLLHUP | select.POLLNVAL
    return any(event & gone for _, event in poll.poll(0))


def _is_in_full_file(stream: Any) -> bool:
    """Return whether the file of an unbuffered stream, which keeps nothing to flush, is full."""
    try:
        descriptor = stream.fileno()
        mode = os.fstat(descriptor).st_mode
        # a terminal, a pipe or a socket is never full
        if stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not os.isatty(descriptor)):
            # nothing less than a byte shows it: an empty line, if the file can grow after all
            os.write(descriptor, b"\n")
    except OSError as error:  # io.UnsupportedOperation of fileno() has no number
        return error.errno in _FULL
    except (AttributeError, ValueError):
        return False
    return False


def _is_standard(stream: Any) -> bool:
    standard = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    return any(stream is one for one in standard)


def _tell_of_full_disk(lost: list[Any]) -> None:
    """Write to the other standard stream that the text of one is dropped from now on."""
    for stream, name in ((sys.stdout, "output"), (sys.stderr, "error output")):
        other = sys.stderr if stream is sys.stdout else sys.stdout
        if any(stream is each for each in lost) and not any(other is each for each in lost):
            with suppress(OSError, ValueError):  # there is no further stream
                print(
                    f"trainer_hooks: the file of the standard {name} cannot grow (a full disk?): "
                    "its text is dropped from here on, and the run goes on.",
                    file=other,
                    flush=True,
                )


def _redirect_to_null(stream: Any) -> None:
    """Redirect the file descriptor of a standard stream to the null device."""
    # not that of the user's own stream; nor of a closed one, whose number may be another file's
    if getattr(stream, "closed", False) or not _is_standard(stream):
        return
    with suppress(OSError, ValueError, AttributeError):  # it has no descriptor
        descriptor = stream.fileno()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, descriptor)
        os.close(null)
        # what it still keeps goes there, too
        stream.flush()
