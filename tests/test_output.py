"""A stream that nobody reads any more costs its text, and never the training."""

from __future__ import annotations

import errno
import io
import os
import random
import select
import subprocess
import sys
import textwrap
import warnings
from contextlib import contextmanager, suppress

import pytest
import torch
import warm_python

from trainer_hooks import Trainer, _output
from trainer_hooks._log import ensure_visible_log, log
from trainer_hooks._output import flush_output, is_terminal, losing_output
from trainer_hooks.callbacks import (
    LambdaCallback,
    ModelSummary,
    RichModelSummary,
    RichProgressBar,
    TQDMProgressBar,
)
from trainer_hooks.compat.accelerated.callbacks import PrintProgressCallback
from trainer_hooks.compat.composer.loggers import ConsoleLogger as ComposerConsoleLogger
from trainer_hooks.loggers import ConsoleLogger
from trainer_hooks.testing import TinyModule


@contextmanager
def broken_pipe(*, is_unbuffered: bool = False):
    """Yield a text stream into a pipe whose reader has closed it."""
    read, write = os.pipe()
    os.close(read)
    raw = os.fdopen(write, "wb", buffering=0)
    stream = io.TextIOWrapper(raw if is_unbuffered else io.BufferedWriter(raw), write_through=True)
    with closing_lost(stream):
        yield stream


@contextmanager
def closing_lost(stream):
    """Close a stream at the end, which loses the text that it still keeps."""
    try:
        yield
    finally:
        with suppress(OSError):
            stream.close()


@contextmanager
def closed_stream():
    stream = io.StringIO()
    stream.close()
    yield stream


@contextmanager
def hung_up():
    """Yield a stream on a terminal whose other side is gone."""
    there, here = os.openpty()
    stream = os.fdopen(here, "w")
    os.close(there)
    with closing_lost(stream):
        yield stream


@contextmanager
def full_disk(*, is_unbuffered: bool = False):
    """Yield a text stream into a file that takes nothing."""
    raw = open("/dev/full", "wb", buffering=0)  # noqa: PTH123, SIM115
    stream = io.TextIOWrapper(raw if is_unbuffered else io.BufferedWriter(raw), write_through=True)
    with closing_lost(stream):
        yield stream


@contextmanager
def nothing():
    yield None  # as pythonw has it


@contextmanager
def whole():
    yield io.StringIO()


STREAMS = {
    "broken": broken_pipe,
    "unbuffered": lambda: broken_pipe(is_unbuffered=True),
    "closed": closed_stream,
    "hung up": hung_up,
    "none": nothing,
    "full": full_disk,
    "full, unbuffered": lambda: full_disk(is_unbuffered=True),
    "whole": whole,
}

CALLBACKS = {
    "none": list,
    "tqdm": lambda: [TQDMProgressBar(refresh_rate=1)],
    "rich": lambda: [RichProgressBar(refresh_rate=1)],
    "summaries": lambda: [ModelSummary()],
    "rich summaries": lambda: [RichModelSummary()],
    "printed": lambda: [PrintProgressCallback()],
    "trainer.print": lambda: [LambdaCallback(on_train_batch_end=lambda t, *_: t.print("batch"))],
    "described": lambda: [LambdaCallback(on_fit_end=lambda t, *_: t.describe_hooks())],
    "composer": lambda: [ComposerConsoleLogger(log_interval="1ba")],
}


def drawn(seed: int) -> tuple[str, str, str, bool]:
    numbers = random.Random(seed)
    return (
        numbers.choice(list(STREAMS)),
        numbers.choice(list(STREAMS)),
        list(CALLBACKS)[seed % len(CALLBACKS)],
        numbers.random() < 0.5,
    )


@pytest.mark.parametrize("seed", range(60))
def test_no_stream_ends_a_fit(seed, monkeypatch, tmp_path) -> None:
    """Each of the two streams in any state, with any of the callbacks that write to it."""
    out, err, callbacks, has_console = drawn(seed)
    with STREAMS[out]() as stdout, STREAMS[err]() as stderr, monkeypatch.context() as patch:
        patch.setattr(log, "handlers", [])
        patch.setattr(log, "propagate", False)
        ensure_visible_log()
        patch.setattr(sys, "stdout", stdout)
        patch.setattr(sys, "stderr", stderr)
        trainer = Trainer(
            callbacks=CALLBACKS[callbacks](),
            logger=ConsoleLogger() if has_console else False,
            default_root_dir=tmp_path, max_epochs=2, log_every_n_steps=1, accelerator="cpu",
            enable_checkpointing=False, enable_run_manifest=False, limit_val_batches=1,
            enable_progress_bar=None, enable_model_summary=None,
        )  # fmt: skip
        trainer.fit(TinyModule())
        steps = trainer.global_step
        flush_output()  # Python does so as it exits
    assert steps == trainer.progress.batches_completed > 0


def test_a_stream_of_the_users_own() -> None:
    """A ConsoleLogger's own stream may break, and is not redirected."""
    with broken_pipe() as stream:
        logger = ConsoleLogger(stream)
        for step in range(3):
            logger.log_metrics({"loss": 1.0}, step)
        with pytest.raises(BrokenPipeError):
            stream.flush()


def test_a_full_disk_is_told_of_once(monkeypatch, capsys) -> None:
    """What stdout loses is told on stderr; a file of the user's own raises its error."""
    with full_disk() as stdout, full_disk() as own, monkeypatch.context() as patch:
        with pytest.raises(OSError, match="No space left"), losing_output(own):
            print("text", file=own, flush=True)
        patch.setattr(sys, "stdout", stdout)
        for _ in range(2):
            with losing_output(stdout):
                print("text", flush=True)
        print("a line of the user's own", flush=True)
    assert capsys.readouterr().err.count("the file of the standard output cannot grow") == 1


@pytest.mark.parametrize("bar", [None, TQDMProgressBar], ids=["no bar", "bar"])
def test_a_users_own_file_loses_nothing_silently(bar, monkeypatch) -> None:
    """Printing to a full or a closed file raises as the builtin does, whatever stdout is."""
    quiet = {"logger": False, "enable_checkpointing": False, "accelerator": "cpu"}
    trainer = Trainer(callbacks=[bar()] if bar else [], enable_progress_bar=bool(bar), **quiet)
    prints = [trainer.print]
    if bar:
        prints.append(trainer.progress_bar_callback.print)
    with full_disk() as own, full_disk() as stdout, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stdout)
        for show in prints:
            with pytest.raises(OSError, match="No space left"):
                show("x" * 100_000, file=own, flush=True)
            with closed_stream() as closed, pytest.raises(ValueError, match="closed"):
                show("text", file=closed)
        with closed_stream() as closed, pytest.raises(ValueError, match="closed"):
            trainer.describe_hooks(file=closed)


def test_a_full_disk_without_buffers_is_told_of_once(monkeypatch, capsys) -> None:
    """With PYTHONUNBUFFERED a stream keeps nothing, and yet it is found and redirected."""
    with full_disk(is_unbuffered=True) as stdout, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stdout)
        for _ in range(2):
            with losing_output():
                print("text")
        print("a line of the user's own")
    assert capsys.readouterr().err.count("the file of the standard output cannot grow") == 1


def test_a_full_disk_of_another_file_is_no_lost_stream(tmp_path, monkeypatch) -> None:
    """Its error passes, though it names no file; the standard output stays as it is."""
    with (tmp_path / "out").open("w") as stdout, full_disk() as other:
        monkeypatch.setattr(sys, "stdout", stdout)
        with pytest.raises(OSError, match="No space left"), losing_output():
            print("text", file=other, flush=True)
        print("further")
    assert (tmp_path / "out").read_text().strip() == "further"


def test_other_errors_pass(monkeypatch) -> None:
    """Only the error of a lost stream is dropped: not that of a file, a socket, or a value."""
    with STREAMS["broken"]() as stdout, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stdout)
        with pytest.raises(FileNotFoundError), losing_output():
            open("/nowhere/at/all")  # noqa: PTH123, SIM115
        patch.setattr(sys, "stdout", io.StringIO())
        for error in (BrokenPipeError(32, "of a socket"), ValueError("bad value")):
            with pytest.raises(type(error)), losing_output():
                raise error


@pytest.mark.parametrize("name", STREAMS)
def test_only_a_terminal_is_one(name) -> None:
    """No stream, a closed or a broken one are no terminals; the question raises nothing."""
    with STREAMS[name]() as stream:
        assert is_terminal(stream) is False


PROGRAM = """
import sys
from trainer_hooks import Trainer
from trainer_hooks.loggers import ConsoleLogger
from trainer_hooks.testing import TinyModule

print("first", flush=True)
sys.stdin.readline()  # now the reader has left
trainer = Trainer(max_epochs=2, logger=ConsoleLogger(), accelerator="cpu", plugins=False)
trainer.fit(TinyModule())
print("the user's own line")
assert trainer.current_epoch == 2
sys.exit(3)
"""


@pytest.mark.slow
def test_a_real_pipe(tmp_path) -> None:
    """The exit code is the program's own, and not Python's 120 of a flush that failed."""
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    with warm_python.Popen(
        [sys.executable, program], cwd=tmp_path, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == "first\n"
        process.stdout.close()
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait(60) == 3
    assert list(tmp_path.rglob("*.ckpt"))


def test_a_pipe_without_a_reader_on_windows(monkeypatch) -> None:
    """There a write fails with EINVAL, nothing is kept to be flushed, and there is no `poll`."""

    class Pipe(io.TextIOWrapper):
        def write(self, text: str) -> int:
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(_output, "_LOST", _output._LOST | {errno.EINVAL})
    monkeypatch.setattr(_output, "_LOST_OR_FULL", _output._LOST_OR_FULL | {errno.EINVAL})
    monkeypatch.delattr(select, "poll")
    reading, writing = os.pipe()
    os.close(reading)
    with Pipe(os.fdopen(writing, "wb", 0)) as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        with losing_output():
            print("lost")
        os.write(pipe.fileno(), b"the null device takes it")


# --- characters that a stream cannot show ---


class Encoded(io.TextIOWrapper):
    """A stream in memory with an encoding; a terminal or not."""

    def __init__(self, encoding: str, errors: str, is_terminal: bool = False) -> None:
        super().__init__(io.BytesIO(), encoding=encoding, errors=errors)
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def text(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode(self.encoding)


class Foreign:
    """A stream of a program's own, which has an encoding and no way to set its error handler."""

    errors = "strict"

    def __init__(self, encoding: str) -> None:
        self.encoding, self.written = encoding, b""

    def write(self, text: str) -> int:
        self.written += text.encode(self.encoding)
        return len(text)

    def flush(self) -> None:
        """Do nothing."""

    def text(self) -> str:
        return self.written.decode(self.encoding)


class Worded(TinyModule):
    """Has names that few encodings can show, and prints one itself."""

    def __init__(self) -> None:
        super().__init__()
        self.größe_量 = torch.nn.Linear(2, 1)

    def loss(self, outputs, batch):
        print("seen by its step: ≠")
        loss = super().loss(outputs, batch)
        self.log("loss → é 量", loss.detach(), prog_bar=True)
        return loss


ENCODINGS = ["ascii", "latin-1", "cp1252", "koi8-r", "shift_jis", "utf-8"]


@pytest.mark.parametrize("seed", range(24))
def test_no_encoding_ends_a_fit(seed, monkeypatch, tmp_path) -> None:
    """What a stream cannot show is escaped, whoever prints or logs; afterwards it is as before."""
    numbers = random.Random(seed)
    encodings = [numbers.choice(ENCODINGS) for _ in range(3)]
    is_terminal_ = numbers.random() < 0.5
    handler = numbers.choice(["strict", "surrogateescape"])
    stdout, stderr = (Encoded(name, handler, is_terminal_) for name in encodings[:2])
    own = Encoded(encodings[2], "strict")
    writer = list(CALLBACKS)[seed % len(CALLBACKS)]

    def speak(trainer, *_) -> None:
        trainer.print("printed: √")
        trainer.print("printed to a file: √", file=own)
        log.info("logged: ∑")
        warnings.warn("warned: ∞", UserWarning, stacklevel=1)

    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        # pytest records warnings, which Python writes so
        patch.setattr(
            warnings, "showwarning",
            lambda *message: sys.stderr.write(warnings.formatwarning(*message[:4])),
        )  # fmt: skip
        patch.setattr(log, "handlers", [])
        patch.setattr(log, "propagate", False)
        ensure_visible_log()
        patch.setattr(sys, "stdout", stdout)
        patch.setattr(sys, "stderr", stderr)
        trainer = Trainer(
            callbacks=[*CALLBACKS[writer](), LambdaCallback(on_train_epoch_end=speak)],
            logger=[ConsoleLogger(), ConsoleLogger(own)],
            default_root_dir=tmp_path, max_epochs=2, log_every_n_steps=1, accelerator="cpu",
            enable_checkpointing=False, enable_run_manifest=False, limit_val_batches=1,
            enable_progress_bar=None, enable_model_summary=None,
        )  # fmt: skip
        trainer.fit(Worded())
        assert (stdout.errors, stderr.errors, own.errors) == (handler, handler, "strict")
        assert sys.stdout is stdout
    assert trainer.current_epoch == 2

    def shows(stream: Encoded, words: str) -> bool:
        escaped = words.encode(stream.encoding, "backslashreplace")
        return escaped.decode(stream.encoding) in stream.text()

    for words in ("seen by its step: ≠", "printed: √", "loss → é 量="):
        assert shows(stdout, words)
    for words in ("logged: ∑", "warned: ∞"):
        # rich writes above its bars what goes to a terminal
        assert shows(stderr, words) or (is_terminal_ and writer == "rich" and shows(stdout, words))
    for words in ("loss → é 量=", "printed to a file: √"):
        assert shows(own, words)


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_stream_without_a_setting_gets_the_text_escaped(encoding, monkeypatch) -> None:
    """A program may put an object of its own in the place of the standard output."""
    stream = Foreign(encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    trainer = Trainer(logger=False, enable_checkpointing=False, enable_progress_bar=False)
    trainer.print("before")
    trainer.print("a → b")
    trainer.print("after")
    assert stream.text() == "before\na \\u2192 b\nafter\n"


def test_the_encoding_of_another_text_is_no_streams(monkeypatch) -> None:
    """A UnicodeEncodeError that no stream has raised passes."""
    monkeypatch.setattr(sys, "stdout", Encoded("latin-1", "strict"))
    with pytest.raises(UnicodeEncodeError), losing_output():
        "é".encode("ascii")


def test_who_replaces_characters_keeps_to_it(monkeypatch) -> None:
    """A stream whose owner has chosen question marks has them."""
    stream = Encoded("ascii", "replace")
    monkeypatch.setattr(sys, "stdout", stream)
    with losing_output():
        print("a → b")
    assert (stream.text(), stream.errors) == ("a ? b\n", "replace")


IN_ANOTHER_LANGUAGE = """
import sys, torch
from trainer_hooks import Trainer
from trainer_hooks.callbacks import ModelCheckpoint, RunManifest
from trainer_hooks.loggers import CSVLogger
from trainer_hooks.testing import TinyModule

class Net(TinyModule):
    def __init__(self, note="größe → 量"):
        super().__init__()
        self.save_hyperparameters()

    def loss(self, outputs, batch):
        loss = super().loss(outputs, batch)
        self.log("loss → 量", loss.detach(), prog_bar=True)
        return loss

assert sys.stdout.encoding.lower() in ("ascii", "ansi_x3.4-1968"), sys.stdout.encoding
for ckpt_path, epochs in ((None, 1), ("logs/trainer_logs/one/checkpoints/last.ckpt", 2)):
    trainer = Trainer(max_epochs=epochs, logger=CSVLogger("logs", version="one"), plugins=False,
                      log_every_n_steps=1, callbacks=[ModelCheckpoint(save_last=True)])
    trainer.fit(Net(), ckpt_path=ckpt_path)
trainer.validate(ckpt_path="last")
"""


@pytest.mark.exhaustive
def test_files_are_the_same_in_every_locale(tmp_path) -> None:
    """Whatever the locale, text files are in UTF-8, and a resume and the commands read them."""
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment.pop("PYTHONIOENCODING", None)

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=environment,
            capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode("ascii")

    (tmp_path / "program.py").write_text(IN_ANOTHER_LANGUAGE, encoding="utf-8")
    assert "loss \\u2192 \\u91cf=" in run("program.py")
    [metrics] = tmp_path.rglob("metrics.csv")
    assert "loss → 量" in metrics.read_text(encoding="utf-8").splitlines()[0]
    [last] = tmp_path.rglob("last.ckpt")
    assert "\\u2192" in run("-m", "trainer_hooks", "checkpoint", "show", str(last))
    run("-m", "trainer_hooks", "report", str(metrics.parent))
    [report] = tmp_path.rglob("*.html")
    assert "loss → 量" in report.read_text(encoding="utf-8")
