"""Hand a message to a command or a web address, within a time, whatever becomes of it there."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import Request, urlopen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["SendError", "post", "run_command"]

_MOST_SHOWN = 500


class SendError(Exception):
    """Raised where a message did not get through; says why, and no address."""


def run_command(
    command: Sequence[str], message: bytes, variables: Mapping[str, str], timeout: float
) -> None:
    """Run a command with the message at its standard input; after `timeout` seconds it is killed.

    Raises:
        SendError: it cannot be run, failed, or took too long.
    """
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={**os.environ, **variables},
                start_new_session=True,  # so that what it starts in turn is killed with it
            )
        except OSError as error:
            raise SendError(f"it cannot be run: {error.strerror or error}") from error
        try:
            # a command that does not read its input closes it
            with contextlib.suppress(BrokenPipeError):
                process.communicate(message, timeout)
        except subprocess.TimeoutExpired as error:
            raise SendError(f"it took longer than {timeout:g} s and was killed") from error
        finally:
            _kill(process)
        if process.returncode:
            errors.seek(0)
            said = errors.read()[-_MOST_SHOWN:].decode(errors="replace").strip()
            raise SendError(f"it ended with {process.returncode}" + (f": {said}" if said else ""))


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process that has not ended, and what it started."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)


def post(url: str, message: bytes, headers: Mapping[str, str], timeout: float) -> None:
    """Send a message of JSON to a web address, and wait for an answer for `timeout` seconds.

    Raises:
        SendError: there was no answer in time, or it was no success.
    """
    request = Request(
        url,
        data=message,
        headers={"Content-Type": "application/json", "User-Agent": "trainer-hooks", **headers},
        method="POST",
    )
    outcome: list[str] = []

    def send() -> None:
        try:
            with urlopen(request, timeout=timeout):
                outcome.append("")
        except HTTPError as error:
            with error:
                outcome.append(f"it answered {error.code} {error.reason}")
        except Exception as error:  # noqa: BLE001 - told by the caller
            outcome.append(f"it was not reached: {getattr(error, 'reason', None) or error}")

    # `timeout` of urlopen is that of each packet, and name look-ups have none: so wait from outside
    thread = threading.Thread(target=send, name="trainer_hooks-notify", daemon=True)
    thread.start()
    thread.join(timeout)
    if not outcome:
        raise SendError(f"there was no answer within {timeout:g} s")
    if outcome[0]:
        raise SendError(outcome[0])
