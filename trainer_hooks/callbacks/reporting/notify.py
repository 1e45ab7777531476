"""Notify: run a command or call a web address when a run has ended.

It uses the standard library and not apprise, which knows the services' addresses better but is
no dependency here: `body` is plain JSON that a webhook takes as it is, every wait has a limit,
an address with a secret stays out of logs, checkpoints and the process list, and a failure
never ends a run. To use apprise, pass `command=["apprise", "--config", FILE]`, which sends its
standard input to the addresses in a file.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import tempfile
import threading
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from trainer_hooks._log import log
from trainer_hooks._options import (
    TEXT,
    Combination,
    Rule,
    check_choices,
    finite_number,
    option_rules,
)
from trainer_hooks._system import as_group, kill_group, split_shell_line
from trainer_hooks.callback import Callback
from trainer_hooks.errors import OptionError, error_message
from trainer_hooks.hooks.band import Band

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

_MOST_SHOWN = 500
_WHERE = "Notify"
_ENDINGS = ("end", "exception")
_STAGES = ("fit", "validate", "test", "predict")
_FIELDS = ("status", "run", "stage", "epoch", "step", "reason", "metrics", "exception")
_MOST_IN_TEXT = 5
_LONGEST_MESSAGE = 1000


class Notify(Callback):
    """Run a command or call a web address when a run has ended, well or with an exception.

    The message is a JSON object:

    - `status`: `"finished"`, `"failed"`, or `"interrupted"` (Ctrl-C, SIGTERM, SystemExit);
    - `run`, `stage`: the run's name, and `"fit"`, `"validate"`, `"test"` or `"predict"`;
    - `epoch`, `step`: the progress of the training;
    - `reason`: the reason of a stop request, or an empty text;
    - `metrics`: `trainer.callback_metrics` as numbers; NaN and infinity are texts;
    - `exception`: None, or its `type` and `message`;
    - `text`: all of that in a sentence, under the name that `text_field` gives it: `"text"` for
      Slack, Mattermost and Teams, `"content"` for Discord.

    An address gets it by POST, a command at its standard input; beside it, a command finds status,
    run and text in `TRAINER_HOOKS_STATUS`, `TRAINER_HOOKS_RUN` and `TRAINER_HOOKS_TEXT`.

    The run ends as it would without: an error of the notification is logged, and it waits no longer
    than `timeout` seconds. Rank 0 alone notifies. Nothing is sent with `fast_dev_run`. The address,
    which may hold a secret, is never logged nor saved.

    Args:
        command: a command and its arguments, as a list or as one text, which is split as a shell
            would; no shell runs it.
        url: a web address, `http://...` or `https://...`.
        on: when to notify: `"end"`, `"exception"`, or both.
        stages: one or more of `"fit"`, `"validate"`, `"test"` and `"predict"`.
        timeout: the longest wait in seconds, for each of the two.
        text_field: the name of the sentence in the object; None to leave it out.
        name: the run's name; unless given, the first logger's name and version, or the module's
            class.
        headers: headers of the request, such as `{"Authorization": "Bearer ..."}`.
        extra: more fields for the object.

    Raises:
        OptionError: an argument is outside its rule.

    State: none.

    Example::

        from pathlib import Path

        notify = Notify(command=["tee", "ended.json"], name="digits")
        trainer = Trainer(max_epochs=2, callbacks=[notify])
        trainer.fit(module, train_loader, val_loader)
        print(Path("ended.json").read_text())
    """

    band: ClassVar[Band] = Band.SAVE  # the last band: notify when all others have torn down

    @option_rules(
        Combination(
            ("command", "url"),
            lambda command, url: command is not None or url is not None,
            "there is neither a command nor a url. Pass one, or both.",
            "{owner}()",
        ),
        timeout=(
            finite_number(),
            Rule("above zero", lambda seconds: seconds > 0, "Pass seconds, as 5.0."),
        ),
        text_field=TEXT,
        name=TEXT,
    )
    def __init__(
        self,
        command: str | Sequence[str] | None = None,
        url: str | None = None,
        on: str | Sequence[str] = _ENDINGS,
        stages: str | Sequence[str] = "fit",
        timeout: float = 5.0,
        text_field: str | None = "text",
        name: str | None = None,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.command = check_command(command)
        self._url = check_url(url)
        self.on = check_choices("on", on, _WHERE, _ENDINGS)
        self.stages = check_choices("stages", stages, _WHERE, _STAGES)
        self.timeout = timeout
        self.text_field = text_field
        self.name = name
        self._headers = check_mapping("headers", headers, str)
        self._extra = check_mapping("extra", extra, object)
        self._check_fields()
        self._is_due = False
        self._error: BaseException | None = None

    @property
    def state_key(self) -> str:
        """The class name with the moments, the stages and the name."""
        return self._generate_state_key(on=self.on, stages=self.stages, name=self.name)

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Expect the end of the run that begins."""
        self._is_due, self._error = True, None

    def on_exception(self, trainer: Trainer, module: Module, exception: BaseException) -> None:
        """Remember the exception that ends the run, which may come before `setup`."""
        self._is_due, self._error = True, exception

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Send the notification, if this end of the run calls for one."""
        is_due, error = self._is_due, self._error
        self._is_due, self._error = False, None
        if not is_due or stage not in self.stages:
            return
        if trainer.fast_dev_run or not trainer.is_global_zero:
            return
        status = _status(trainer, error)
        if ("end" if status == "finished" else "exception") in self.on:
            try:
                self._send(self.body(trainer, module, stage, status, error))
            except Exception as failure:  # noqa: BLE001 - a notification never ends the run
                log.warning("%s: nothing was sent: %s", _WHERE, failure)

    def body(
        self,
        trainer: Trainer,
        module: Module,
        stage: str,
        status: str,
        error: BaseException | None = None,
    ) -> dict[str, Any]:
        """Return the message as a dict. Override it for a service that wants another form.

        Args:
            trainer: the trainer.
            module: the module.
            stage: `"fit"`, `"validate"`, `"test"` or `"predict"`.
            status: `"finished"`, `"failed"` or `"interrupted"`.
            error: the exception that ended the run, or None.
        """
        body: dict[str, Any] = {
            "status": status,
            "run": self.name or _run_name(trainer, module),
            "stage": stage,
            "epoch": trainer.current_epoch,
            "step": trainer.global_step,
            "reason": trainer.stop_reason,
            "metrics": {
                name: _json_value(value) for name, value in trainer.callback_metrics.items()
            },
            "exception": None,
        }
        if error is not None:
            message = error_message(error)[:_LONGEST_MESSAGE]
            body["exception"] = {"type": type(error).__qualname__, "message": message}
        if self.text_field is not None:
            body[self.text_field] = _sentence(body)
        return {**body, **self._extra}

    def _send(self, body: dict[str, Any]) -> None:
        # an error rather than a NaN, which JSON does not have
        message = json.dumps(body, allow_nan=False, default=str).encode()
        if self.command is not None:
            # an overridden `body` may lack these fields
            text = str(body.get(self.text_field or "", "")) or _sentence(body)
            variables = {
                "TRAINER_HOOKS_STATUS": body.get("status", ""),
                "TRAINER_HOOKS_RUN": body.get("run", ""),
                "TRAINER_HOOKS_TEXT": text,
            }
            # an environment variable cannot hold a null character
            clean = {name: str(value).replace("\0", "") for name, value in variables.items()}
            try:
                run_command(self.command, message, clean, self.timeout)
            except SendError as error:
                log.warning("%s: the command %r: %s", _WHERE, self.command[0], error)
        if self._url is not None:
            try:
                post(self._url, message, self._headers, self.timeout)
            except SendError as error:
                log.warning(
                    "%s: the address at %r: %s", _WHERE, urlsplit(self._url).hostname, error
                )

    def _check_fields(self) -> None:
        """Check that no two fields of the message have one name.

        Raises:
            OptionError: two have.
        """
        for option, fields in (("text_field", [self.text_field]), ("extra", list(self._extra))):
            for field in fields:
                if field in _FIELDS or (option == "extra" and field == self.text_field):
                    raise OptionError(
                        f"{option} {field!r} of {_WHERE}: the object that is sent has a field of "
                        "that name already. Choose another."
                    )


def _status(trainer: Trainer, error: BaseException | None) -> str:
    if error is None:  # a run that a signal stopped in order raises no exception
        return "interrupted" if trainer.interrupted else "finished"
    return "failed" if isinstance(error, Exception) else "interrupted"


def _run_name(trainer: Trainer, module: Module) -> str:
    logger = trainer.logger
    if logger is None or not logger.name:
        return type(module).__qualname__
    version = logger.version
    shown = f"version_{version}" if isinstance(version, int) else version
    return f"{logger.name}/{shown}" if shown else str(logger.name)


def _json_value(value: Any) -> float | str:
    """Return a metric as a number for JSON, or as text where JSON has no such number."""
    try:
        number = float(value)
    # RuntimeError: the metric's device failed
    except (TypeError, ValueError, RuntimeError) as error:
        return f"unknown ({type(error).__name__})"
    return number if math.isfinite(number) else str(number)


def _sentence(body: Mapping[str, Any]) -> str:
    """Return the content of a message as a sentence."""
    position = f"epoch {body.get('epoch')}, step {body.get('step')}"
    text = f"{body.get('run')}: {body.get('stage')} {body.get('status')} at {position}"
    metrics = list((body.get("metrics") or {}).items())[:_MOST_IN_TEXT]
    if metrics:
        shown = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in metrics)
        text += f" ({', '.join(shown)})"
    exception = body.get("exception")
    if exception:
        text += f". {exception['type']}: {exception['message']}"
    return f"{text}. {body['reason']}" if body.get("reason") else text


def check_command(command: object) -> list[str] | None:
    """Return a command and its arguments as a list, or None.

    Raises:
        OptionError: it is no command, or cannot be split.
    """
    if command is None:
        return None
    words: Any = command
    if isinstance(command, str):
        words = None
        with contextlib.suppress(ValueError):
            words = split_shell_line(command)
    is_list = isinstance(words, list | tuple) and bool(words)
    if is_list and all(isinstance(part, str) for part in words) and words[0]:
        return list(words)
    raise OptionError(
        f"command {command!r} of Notify: it must be a command with its arguments. Pass a list of "
        "texts such as ['notify-send', 'done']."
    )


def check_url(url: object) -> str | None:
    """Return a web address, or None.

    Raises:
        OptionError: it is no http address; the message leaves out the value, which may be secret.
    """
    if url is None:
        return None
    parts = None
    if isinstance(url, str):
        with contextlib.suppress(ValueError):
            parts = urlsplit(url)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        # without the address, which may be a secret, as that of a chat service's webhook
        raise OptionError(
            f"url of Notify, of type {type(url).__name__}: it must be an address that begins "
            "with http:// or https://. Pass the whole of it."
        )
    return str(url)


def check_mapping(name: str, value: object, of: type) -> dict[str, Any]:
    """Return a copy of a dict with strings as keys and values of one type; empty for None.

    Raises:
        OptionError: it is no such dict.
    """
    if value is None:
        return {}
    if isinstance(value, dict) and all(
        isinstance(key, str) and isinstance(item, of) for key, item in value.items()
    ):
        return dict(value)
    raise OptionError(f"{name} of Notify: it must be a dict of texts. Pass one, or leave it out.")


class SendError(Exception):
    """Raised where a message was not delivered; gives the reason, but no address."""


def run_command(
    command: Sequence[str], message: bytes, variables: Mapping[str, str], timeout: float
) -> None:
    """Run a command with the message at its standard input, and kill it after `timeout` seconds.

    Args:
        command: the command and its arguments.
        message: the bytes for its standard input.
        variables: environment variables to add.
        timeout: seconds.

    Raises:
        SendError: it cannot be run, failed, or took too long.
    """
    # a file and not a pipe: processes that the command left behind could keep a pipe open
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={**os.environ, **variables},
                **as_group(),  # its children are killed with it
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
            output = errors.read()[-_MOST_SHOWN:].decode(errors="replace").strip()
            details = f": {output}" if output else ""
            raise SendError(f"it ended with {process.returncode}{details}")


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that has not ended, with the processes that it started."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill_group(process)
        # this collects the exit status, so that no zombie is left
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)


def post(url: str, message: bytes, headers: Mapping[str, str], timeout: float) -> None:
    """Send a JSON message to a web address, and wait for an answer for `timeout` seconds.

    Raises:
        SendError: there was no answer in time, or no success.
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
            # an HTTPError is the open answer itself, which must be closed
            with error:
                outcome.append(f"it answered {error.code} {error.reason}")
        except Exception as error:  # noqa: BLE001 - the caller raises it
            outcome.append(f"it was not reached: {getattr(error, 'reason', None) or error}")

    # urlopen's `timeout` limits each socket operation and no name look-up: limit the whole wait;
    # a daemon, as a request that hangs must not keep the process alive
    thread = threading.Thread(target=send, name="trainer_hooks-notify", daemon=True)
    thread.start()
    thread.join(timeout)
    if not outcome:
        raise SendError(f"there was no answer within {timeout:g} s")
    if outcome[0]:
        raise SendError(outcome[0])
