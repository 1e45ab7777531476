r"""Text for people, which ends no training if nobody can read it, or its stream cannot show it.

A stream is lost if its reader has left (`train.py | head`), its terminal has hung up, it is closed,
or it goes to a file on a full disk; under pythonw there is none. A stream in Latin-1 or ASCII
cannot show an arrow: it gets `\u2192`, as Python itself writes to the standard error.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from trainer_hooks._system import IS_WINDOWS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from typing import Any

_PIPE_WITHOUT_READER = errno.EINVAL if IS_WINDOWS else errno.EPIPE
_LOST = frozenset(
    {errno.EPIPE, errno.EIO, errno.EBADF, errno.ECONNRESET, errno.ESHUTDOWN, _PIPE_WITHOUT_READER}
)
"""The numbers of the errors of a stream that nobody reads any more."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The numbers of the errors of a file that cannot grow."""
_LOST_OR_FULL = _LOST | _FULL
_ESCAPE = "backslashreplace"
_LENIENT = frozenset({_ESCAPE, "ignore", "namereplace", "replace", "xmlcharrefreplace"})
"""The error handlers of encoders with which every character can be written."""


@contextmanager
def escaping_output(*others: Any) -> Iterator[None]:
    """Let streams escape characters that they cannot show, for the length of the `with` block.

    These are the standard streams and the given ones. One whose owner has chosen to replace such
    characters stays as it is, and so does one that has no setting for it.

    Args:
        *others: further streams that the block writes to.
    """
    changed: list[tuple[Any, str]] = []
    for stream in (*others, sys.stdout, sys.stderr):
        errors = getattr(stream, "errors", None)
        if isinstance(errors, str) and errors not in _LENIENT and _set_errors(stream, _ESCAPE):
            changed.append((stream, errors))
    try:
        yield
    finally:
        for stream, errors in changed:
            _set_errors(stream, errors)


def _set_errors(stream: Any, errors: str) -> bool:
    """Set a stream's error handler; return whether it has one that can be set."""
    # it flushes the stream, which may be lost: the next write to it finds that out
    with suppress(AttributeError, OSError, ValueError):
        stream.reconfigure(errors=errors)
        return True
    return False


@contextmanager
def losing_output(*others: Any) -> Iterator[None]:
    """Drop an error in the `with` block whose cause is that a standard stream is lost.

    Characters that a stream cannot show are escaped. The rest of a block with an error is skipped.
    A standard stream that is lost is redirected to the null device, so that later writes of the
    user's code and Python's own flush at the exit find no error either. Of a full disk a line on
    the other stream tells.

    Args:
        *others: further streams that the block writes to.

    Raises:
        OSError: of a stream that is not lost, or of anything else that the block does.
        ValueError: likewise.
    """
    try:
        with escaping_output(*others):
            yield
    except UnicodeEncodeError as error:
        # of a stream of the user's own, which has no setting
        if not _write_escaped(error, (*others, sys.stdout, sys.stderr)):
            raise
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
            redirect_to_null(stream)
        if is_full:
            _tell_of_full_disk(lost)


def losing_output_to(file: Any) -> AbstractContextManager[None]:
    """Drop the error of a lost standard stream in a block that prints to a file of the user's.

    An error of the user's own file is raised, as that of the builtin `print`. Characters that it
    cannot show are escaped in any case.

    Args:
        file: the file to which the block prints; None is the standard output.
    """
    is_standard = file is None or _is_standard(file)
    return losing_output() if is_standard else escaping_output(file)


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


def _write_escaped(error: UnicodeEncodeError, streams: tuple[Any, ...]) -> bool:
    """Write the text that could not be encoded, escaped, as a line to the stream that refused it.

    Returns:
        Whether there is such a stream, by its encoding.
    """
    for stream in streams:
        # an encoder names itself otherwise than a stream does: `latin-1`, `iso8859-1`, `charmap`
        encoding = getattr(stream, "encoding", None)
        if encoding is None or getattr(stream, "errors", None) in _LENIENT:
            continue
        try:
            error.object.encode(encoding)
        except UnicodeEncodeError:
            text = error.object.encode(encoding, _ESCAPE).decode(encoding)
            stream.write(text if text.endswith("\n") else f"{text}\n")
            return True
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
    if not hasattr(select, "poll"):
        return _is_broken_pipe(descriptor)
    poll = select.poll()
    poll.register(descriptor, 0)
    gone = select.POLLERR | select.POLLHUP | select.POLLNVAL
    return any(event & gone for _, event in poll.poll(0))


def _is_broken_pipe(descriptor: int) -> bool:
    """Return whether nobody reads a pipe any more, on Windows, which has no `poll`."""
    try:
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            # nothing less than a byte shows it: an empty line, if it is read after all
            os.write(descriptor, b"\n")
    except OSError as error:
        return error.errno in _LOST
    return False


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
    return any(stream is other for other in standard)


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


def redirect_to_null(stream: Any) -> None:
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
