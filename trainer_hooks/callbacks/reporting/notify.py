"""Notify: tell somebody that a run is over, by a command or a web address."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from trainer_hooks._log import log
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitoring import check_number, check_several, check_text
from trainer_hooks.callbacks.reporting.notify_options import (
    check_command,
    check_mapping,
    check_url,
)
from trainer_hooks.callbacks.reporting.sending import SendError, post, run_command
from trainer_hooks.errors import OptionError, message_of
from trainer_hooks.hooks import Band

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["Notify"]

_WHERE = "Notify"
_MOMENTS = ("end", "exception")
_STAGES = ("fit", "validate", "test", "predict")
_FIELDS = ("status", "run", "stage", "epoch", "step", "reason", "metrics", "exception")
_MOST_IN_TEXT = 5
_LONGEST_MESSAGE = 1000


class Notify(Callback):
    """Run a command or call a web address when a run has ended, well or with an exception.

    What is sent is a JSON object:

    - `status`: `"finished"`, `"failed"`, or `"interrupted"` (Ctrl-C, SIGTERM, SystemExit);
    - `run`, `stage`: the run's name, and `"fit"`, `"validate"`, `"test"` or `"predict"`;
    - `epoch`, `step`: how far the training got;
    - `reason`: why it was asked to stop, or an empty text;
    - `metrics`: `trainer.callback_metrics` as numbers; what JSON has no number for is a text;
    - `exception`: None, or its `type` and `message`;
    - `text`: all of that in a sentence, under the name that `text_field` gives it: `"text"` for
      Slack, Mattermost and Teams, `"content"` for Discord.

    An address gets it by POST, a command at its standard input; beside it, a command finds status,
    run and text in `TRAINER_HOOKS_STATUS`, `TRAINER_HOOKS_RUN` and `TRAINER_HOOKS_TEXT`.

    Whatever becomes of it, the run ends as it would without: an error is told in the log, and
    nothing is waited for longer than `timeout` seconds. Of several processes the first alone
    notifies. Nothing is sent with `fast_dev_run`. The address, which may hold a secret, is never
    logged nor saved.

    Args:
        command: a command and its arguments, as a list or as one text, which is split as a shell
            would; no shell runs it.
        url: a web address, `http://...` or `https://...`.
        on: when: `"end"`, `"exception"`, or both.
        stages: of which entry points.
        timeout: how many seconds to wait at most, for each of the two.
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

    band: ClassVar[Band] = Band.SAVE  # when the others have torn down

    def __init__(
        self,
        command: str | Sequence[str] | None = None,
        url: str | None = None,
        on: str | Sequence[str] = _MOMENTS,
        stages: str | Sequence[str] = "fit",
        timeout: float = 5.0,
        text_field: str | None = "text",
        name: str | None = None,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        if command is None and url is None:
            raise OptionError(
                f"{_WHERE}(): there is neither a command nor a url. Pass one, or both."
            )
        self.command = check_command(command)
        self._url = check_url(url)
        self.on = check_several("on", on, _WHERE, _MOMENTS)
        self.stages = check_several("stages", stages, _WHERE, _STAGES)
        if not check_number("timeout", timeout, _WHERE) > 0:
            raise OptionError(
                f"timeout {timeout!r} of {_WHERE}: it must be above zero. Pass seconds, as 5.0."
            )
        self.timeout = timeout
        self.text_field = check_text("text_field", text_field, _WHERE)
        self.name = check_text("name", name, _WHERE)
        self._headers = check_mapping("headers", headers, str)
        self._extra = check_mapping("extra", extra, object)
        self._check_fields()
        self._is_due = False
        self._error: BaseException | None = None

    @property
    def state_key(self) -> str:
        """The class with when it notifies, and of what."""
        return self._generate_state_key(on=self.on, stages=self.stages, name=self.name)

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Begin to wait for the end."""
        self._is_due, self._error = True, None

    def on_exception(self, trainer: Trainer, module: Module, exception: BaseException) -> None:
        """Note what ends the run; that may be before it was set up."""
        self._is_due, self._error = True, exception

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Tell it."""
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
            except Exception as failure:  # noqa: BLE001 - what tells of a run never ends it
                log.warning("%s: nothing was sent: %s", _WHERE, failure)

    def body(
        self,
        trainer: Trainer,
        module: Module,
        stage: str,
        status: str,
        error: BaseException | None = None,
    ) -> dict[str, Any]:
        """Return what is sent. Override it for a service that wants another form.

        Args:
            trainer: the trainer.
            module: the module.
            stage: the entry point.
            status: `"finished"`, `"failed"` or `"interrupted"`.
            error: what ended the run, if anything did.
        """
        body: dict[str, Any] = {
            "status": status,
            "run": self.name or _run_name(trainer, module),
            "stage": stage,
            "epoch": trainer.current_epoch,
            "step": trainer.global_step,
            "reason": trainer.stop_reason,
            "metrics": {name: _plain(value) for name, value in trainer.callback_metrics.items()},
            "exception": None,
        }
        if error is not None:
            said = message_of(error)[:_LONGEST_MESSAGE]
            body["exception"] = {"type": type(error).__qualname__, "message": said}
        if self.text_field is not None:
            body[self.text_field] = _sentence(body)
        return {**body, **self._extra}

    def _send(self, body: dict[str, Any]) -> None:
        message = json.dumps(body, allow_nan=False, default=str).encode()
        if self.command is not None:
            text = str(body.get(self.text_field or "", "")) or _sentence(body)
            variables = {
                "TRAINER_HOOKS_STATUS": body.get("status", ""),
                "TRAINER_HOOKS_RUN": body.get("run", ""),
                "TRAINER_HOOKS_TEXT": text,
            }
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
        """Make sure that no field of the object has the name of another.

        Raises:
            OptionError: one has.
        """
        for option, given in (("text_field", [self.text_field]), ("extra", list(self._extra))):
            for field in given:
                if field in _FIELDS or (option == "extra" and field == self.text_field):
                    raise OptionError(
                        f"{option} {field!r} of {_WHERE}: the object that is sent has a field of "
                        "that name already. Choose another."
                    )


def _status(trainer: Trainer, error: BaseException | None) -> str:
    if error is None:  # a signal that was heeded in order is told by the trainer alone
        return "interrupted" if trainer.interrupted else "finished"
    return "failed" if isinstance(error, Exception) else "interrupted"


def _run_name(trainer: Trainer, module: Module) -> str:
    logger = trainer.logger
    if logger is None or not logger.name:
        return type(module).__qualname__
    version = logger.version
    shown = f"version_{version}" if isinstance(version, int) else version
    return f"{logger.name}/{shown}" if shown else str(logger.name)


def _plain(value: Any) -> float | str:
    """Return a metric as a number of JSON, or in words where it is none."""
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError) as error:  # a device that has failed, too
        return f"unknown ({type(error).__name__})"
    return number if math.isfinite(number) else str(number)


def _sentence(body: Mapping[str, Any]) -> str:
    """Return all of a body in a sentence for people."""
    place = f"epoch {body.get('epoch')}, step {body.get('step')}"
    told = f"{body.get('run')}: {body.get('stage')} {body.get('status')} at {place}"
    metrics = list((body.get("metrics") or {}).items())[:_MOST_IN_TEXT]
    if metrics:
        shown = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in metrics)
        told += f" ({', '.join(shown)})"
    exception = body.get("exception")
    if exception:
        told += f". {exception['type']}: {exception['message']}"
    return f"{told}. {body['reason']}" if body.get("reason") else told
