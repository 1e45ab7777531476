"""What the package logs is heard, and its warnings point at the user's line."""

from __future__ import annotations

import logging
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from trainer_hooks._log import ensure_visible_log, log, warn
from trainer_hooks.callbacks import EarlyStopping, ModelCheckpoint
from trainer_hooks.testing import TinyModule

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Seen(logging.Handler):
    """A handler of the application's own."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@pytest.fixture
def no_logging_set_up(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A function that takes away what pytest set up, and what an earlier trainer left."""

    def take_away() -> None:
        monkeypatch.setattr(logging.getLogger(), "handlers", [])
        monkeypatch.setattr(log, "handlers", [])
        monkeypatch.setattr(log, "level", logging.NOTSET)
        ensure_visible_log()
        ensure_visible_log()

    return take_away


def test_the_package_is_heard_without_set_up(
    no_logging_set_up: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """What it logs from INFO on goes to the standard error, once, as the message alone."""
    no_logging_set_up()
    log.info("loss is %s", 1.0)
    log.debug("never")
    seen = capsys.readouterr()
    assert (seen.out, seen.err) == ("", "loss is 1.0\n")


@pytest.mark.parametrize("place", ["", "trainer_hooks"])
def test_a_set_up_of_the_application_is_alone(
    place: str, no_logging_set_up: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Where there is a handler, however late it came, nothing is written beside it."""
    no_logging_set_up()
    log.info("before")
    handler = Seen()
    logging.getLogger(place).addHandler(handler)
    log.info("after")
    assert handler.messages == ["after"]
    assert capsys.readouterr().err == "before\n"


def test_the_level_of_the_logger_turns_it_off(
    no_logging_set_up: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """A level that the user chose stays when another trainer is made."""
    no_logging_set_up()
    log.setLevel(logging.WARNING)
    ensure_visible_log()
    log.info("quiet")
    assert log.level == logging.WARNING
    assert capsys.readouterr().err == ""


def test_verbose_callbacks_are_seen(
    bare: Any,
    tmp_path: Path,
    no_logging_set_up: Callable[[], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """EarlyStopping and ModelCheckpoint with verbose=True write where nobody set up logging."""
    no_logging_set_up()
    stopping = EarlyStopping("val_loss", patience=1, min_delta=1e9, verbose=True)
    saver = ModelCheckpoint(tmp_path, monitor="val_loss", verbose=True)
    trainer = bare(stopping, saver, max_epochs=5, enable_checkpointing=True)
    trainer.fit(TinyModule())
    lines = capsys.readouterr().err.splitlines()
    assert sum(line.startswith("EarlyStopping: val_loss") for line in lines) == 2
    assert sum("val_loss 1.33 is among the best" in line for line in lines) == 1


def inside(name: str, code: str) -> ModuleType:
    """Return a module of that name made from `code`, with a file name of its own."""
    module = ModuleType(name)
    module.__dict__["warn"] = warn
    exec(compile(code, f"<{name}>", "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("depth", [0, 1, 7])
def test_the_first_frame_outside_the_package_is_shown(depth: int) -> None:
    """However deep inside the package, the warning is placed on the line that called into it."""
    library = inside(
        "trainer_hooks.somewhere",
        "def down(n):\n    return warn('look', UserWarning) if n == 0 else down(n - 1)\n",
    )
    line = sys._getframe().f_lineno + 2
    with pytest.warns(UserWarning, match="look") as caught:
        library.down(depth)
    assert (caught[0].filename, caught[0].lineno) == (__file__, line)


def test_a_context_manager_of_the_package_is_passed_over() -> None:
    """Between it and the caller stands a frame of contextlib, whose line nobody wants."""
    library = inside(
        "trainer_hooks.somewhere",
        "from contextlib import contextmanager\n"
        "@contextmanager\n"
        "def part():\n    warn('look', UserWarning)\n    yield\n"
        "def enter():\n    with part():\n        pass\n",
    )
    line = sys._getframe().f_lineno + 2
    with pytest.warns(UserWarning, match="look") as caught:
        library.enter()
    assert (caught[0].filename, caught[0].lineno) == (__file__, line)


def test_a_package_with_a_like_name_is_outside() -> None:
    """`trainer_hooks_monitoring` is not `trainer_hooks`: its line is shown."""
    plugin = inside("trainer_hooks_monitoring", "def complain():\n    warn('look', UserWarning)\n")
    with pytest.warns(UserWarning, match="look") as caught:
        plugin.complain()
    assert caught[0].filename == "<trainer_hooks_monitoring>"
