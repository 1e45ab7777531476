"""EventLog: its counts with a stand-in for the Trainer, its file with the Trainer itself."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import types
from collections import OrderedDict
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainer_hooks import Callback, Trainer
from trainer_hooks.errors import OptionError, TrainerHooksWarning
from trainer_hooks.testing import TinyModule, check_callback

SOURCE = Path(__file__).parents[1] / "src"
if str(SOURCE) not in sys.path:  # the tests run from a checkout, installed or not
    sys.path.append(str(SOURCE))

from trainer_hooks_monitoring import EventLog  # noqa: E402
from trainer_hooks_monitoring.counts import Counts, samples_in  # noqa: E402
from trainer_hooks_monitoring.factories import make_event_log  # noqa: E402


class FakeTrainer:
    """Has what the log reads."""

    def __init__(self, *, is_new_training: bool = True) -> None:
        self.progress = SimpleNamespace(is_new_training=is_new_training)
        self.current_epoch = 0
        self.lines: list[str] = []

    def print(self, *words: object) -> None:
        self.lines.append(" ".join(map(str, words)))


def tensor(*shape: int) -> SimpleNamespace:
    """Return what looks like a tensor of that shape."""
    return SimpleNamespace(shape=shape)


def train(log: EventLog, trainer: FakeTrainer, sizes: list[int], epochs: int = 1) -> None:
    """Run a fit whose batches have `sizes`."""
    log.on_fit_start(trainer, None)
    for _ in range(epochs):
        for index, size in enumerate(sizes):
            log.on_train_batch_end(trainer, None, {}, [tensor(size, 4), tensor(size)], index)
        log.on_train_epoch_end(trainer, None)
    log.on_fit_end(trainer, None)
    trainer.progress.is_new_training = False


def test_counts_batches_samples_epochs_and_fits() -> None:
    """After a fit the counts are those of what was trained."""
    log = EventLog()
    train(log, FakeTrainer(), [32, 32, 8], epochs=2)
    assert log.counts == Counts(batches=6, samples=144, epochs=2, fits=1)


def test_prints_a_line_an_epoch_and_one_at_the_end() -> None:
    """The lines hold the counts, with separators, and go through the trainer."""
    trainer = FakeTrainer()
    train(EventLog(prints=True), trainer, [1000, 437])
    assert trainer.lines == [
        "[event-log] epoch 0 done: 2 batches, 1,437 samples so far (resumed 0x)",
        "[event-log] fit 1 done: 2 batches, 1,437 samples so far (resumed 0x)",
    ]


def test_it_counts_and_prints_nothing_unless_asked_to() -> None:
    """A log that nobody asked to print has the same counts and no lines."""
    trainer, log = FakeTrainer(), EventLog()
    train(log, trainer, [4])
    assert trainer.lines == []
    assert log.counts.samples == 4


def test_goes_on_after_a_resume() -> None:
    """Restored counts are continued, and the resume is counted and printed."""
    before = EventLog()
    train(before, FakeTrainer(), [4])
    after, trainer = EventLog(prints=True), FakeTrainer(is_new_training=False)
    after.load_state_dict(before.state_dict())
    train(after, trainer, [4])
    assert after.counts == Counts(batches=2, samples=8, epochs=2, fits=2, resumes=1)
    assert trainer.lines[0].endswith("2 batches, 8 samples so far (resumed 1x)")


def test_a_second_fit_is_no_resume() -> None:
    """Training on in one process counts a fit and no resume, also after a resume."""
    log, trainer = EventLog(), FakeTrainer(is_new_training=False)
    log.load_state_dict({"batches": 3})
    train(log, trainer, [4])
    train(log, trainer, [4])
    assert (log.counts.fits, log.counts.resumes) == (2, 1)


def test_a_fresh_run_starts_over() -> None:
    """A new model in the same Trainer is counted from zero."""
    log = EventLog()
    for _ in range(2):
        train(log, FakeTrainer(), [4])
    assert log.counts == Counts(batches=1, samples=4, epochs=1, fits=1)


def test_state_is_plain_data() -> None:
    """The state goes through JSON and back, and its key is the class's name."""
    log = EventLog()
    train(log, FakeTrainer(), [4, 4])
    restored = EventLog()
    restored.load_state_dict(json.loads(json.dumps(log.state_dict())))
    assert restored.counts == log.counts
    assert log.state_key == "EventLog"
    assert log.is_stateful


def test_a_state_of_another_release_loads() -> None:
    """A count that is missing starts at zero; one that is not known is left out."""
    log = EventLog()
    log.load_state_dict({"batches": 7, "lunches": 3})
    assert log.counts == Counts(batches=7)


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        (tensor(32, 8, 8), 32),
        ([tensor(5, 2), tensor(9)], 5),
        ((tensor(5, 2), tensor(9)), 5),
        ({"text": ["a", "b"], "ids": tensor(7, 3)}, 7),
        (OrderedDict(inputs={"a": [tensor(), tensor(6)]}), 6),
        (types.MappingProxyType({"x": tensor(2)}), 2),
        (tensor(), 0),
        ([], 0),
        (None, 0),
        ("text", 0),
    ],
)
def test_samples_are_the_length_of_the_first_tensor(batch: object, samples: int) -> None:
    """The first tensor with a dimension says how many samples a batch has."""
    assert samples_in(batch) == samples


def lines(path: Path) -> list[dict]:
    """Return the events of a file; each line must be JSON as everybody reads it."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]


def trainer(folder: Path, log: EventLog, **options) -> Trainer:
    quiet = {
        "accelerator": "cpu",
        "callbacks": [log],
        "default_root_dir": folder,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "log_every_n_steps": 2,
        "logger": False,
        "max_epochs": 2,
        "num_sanity_val_steps": 0,
        "plugins": False,
    }
    return Trainer(**{**quiet, **options})


def test_a_fit_is_in_the_file(tmp_path: Path) -> None:
    """Start, metrics, epochs, checkpoints and end are lines of JSON, with time, run and place."""
    path = tmp_path / "logs" / "events.jsonl"
    trainer(tmp_path, EventLog(path)).fit(TinyModule())
    events = lines(path)
    kinds = [event["event"] for event in events]
    assert kinds[0] == "fit_start"
    assert kinds[-1] == "fit_end"
    assert kinds.count("epoch_end") == 2
    assert kinds.count("checkpoint") >= 1
    assert len({event["run"] for event in events}) == 1
    times = [datetime.fromisoformat(event["time"]) for event in events]
    assert all(moment.utcoffset() == timedelta(0) for moment in times)
    assert events[0]["module"] == "TinyModule"
    assert events[-1]["counts"] == {
        "batches": 6, "samples": 12, "epochs": 2, "fits": 1, "resumes": 0
    }  # fmt: skip
    assert [(e["epoch"], e["step"]) for e in events if e["event"] == "epoch_end"] == [
        (0, 3),
        (1, 6),
    ]
    logged = [event["metrics"] for event in events if event["event"] == "metrics"]
    assert any("val_loss" in metrics for metrics in logged)
    saved = [Path(event["path"]) for event in events if event["event"] == "checkpoint"]
    assert saved[-1].is_file()  # those before it were replaced by better ones


def test_a_resume_appends_and_says_so(tmp_path: Path) -> None:
    """The same file goes on, with another run, the checkpoint's path and counts that go on."""
    path = tmp_path / "events.jsonl"
    first = trainer(tmp_path, EventLog(path), max_epochs=1)
    first.fit(TinyModule())
    first.save_checkpoint(tmp_path / "cut.ckpt")
    second = trainer(tmp_path, EventLog(path))
    second.fit(TinyModule(), ckpt_path=tmp_path / "cut.ckpt")
    starts = [event for event in lines(path) if event["event"] == "fit_start"]
    assert starts[0]["resumed_from"] is None
    assert starts[1]["resumed_from"] == str(tmp_path / "cut.ckpt")
    assert starts[0]["run"] != starts[1]["run"]
    assert lines(path)[-1]["counts"]["batches"] == 6
    assert lines(path)[-1]["counts"]["resumes"] == 1


def test_what_ended_a_run_is_in_the_file(tmp_path: Path) -> None:
    """An exception is written with its type and message, and left as it was."""

    class Broken(TinyModule):
        def loss(self, outputs, batch):
            raise ArithmeticError("the loss is lost")

    path = tmp_path / "events.jsonl"
    with pytest.raises(ArithmeticError, match="the loss is lost"):
        trainer(tmp_path, EventLog(path)).fit(Broken())
    last = lines(path)[-1]
    assert (last["event"], last["type"]) == ("exception", "ArithmeticError")
    assert last["message"] == "the loss is lost"


def test_numbers_that_json_does_not_have_are_texts(tmp_path: Path) -> None:
    """NaN and the infinities are written as texts, so that every parser reads the line."""
    path = tmp_path / "events.jsonl"
    fitted = trainer(tmp_path, EventLog(path), max_epochs=1)
    fitted.fit(TinyModule())
    fitted.log_metrics({"a": float("nan"), "b": float("inf"), "c": -float("inf"), "d": 1.5})
    assert lines(path)[-1]["metrics"] == {"a": "NaN", "b": "Infinity", "c": "-Infinity", "d": 1.5}


def test_a_file_that_cannot_be_written_ends_no_run(tmp_path: Path) -> None:
    """It is reported once, and the training is the training."""
    (tmp_path / "file").write_text("no folder")
    log = EventLog(tmp_path / "file" / "events.jsonl")
    fitted = trainer(tmp_path, log)
    with pytest.warns(TrainerHooksWarning, match="callback EventLog"):
        fitted.fit(TinyModule())
    assert fitted.global_step == 6


@pytest.mark.parametrize("path", ["", 3, "."])
def test_wrong_paths_are_told(path: object) -> None:
    """What is no path of a file is an error at construction."""
    with pytest.raises(OptionError, match="of EventLog: it must be"):
        EventLog(path)


@pytest.mark.parametrize(
    ("value", "prints"), [("1", True), ("yes", True), ("0", False), ("", False)]
)
def test_the_factory_reads_the_environment_when_called(
    monkeypatch: pytest.MonkeyPatch, value: str, prints: bool
) -> None:
    """The variables count at the time of the call; unset, the log prints and has no file."""
    monkeypatch.setenv("TRAINER_HOOKS_EVENT_LOG_PRINT", value)
    monkeypatch.setenv("TRAINER_HOOKS_EVENT_LOG", "run/events.jsonl")
    log = make_event_log()
    assert (log.prints, log.path) == (prints, Path("run/events.jsonl"))
    monkeypatch.delenv("TRAINER_HOOKS_EVENT_LOG_PRINT")
    monkeypatch.delenv("TRAINER_HOOKS_EVENT_LOG")
    assert (make_event_log().prints, make_event_log().path) == (False, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [("TRAINER_HOOKS_EVENT_LOG_PRINT", "maybe"), ("TRAINER_HOOKS_EVENT_LOG", ".")],
)
def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """The error has the variable, its value and the rule."""
    monkeypatch.setenv(name, value)
    with pytest.raises(
        OptionError, match=f"{name}='{re.escape(value)}' in the environment: .*must"
    ):
        make_event_log()


def test_the_factory_makes_a_new_callback_each_time() -> None:
    """Two trainers do not share a log."""
    first, second = make_event_log(), make_event_log()
    assert isinstance(first, Callback)
    assert first is not second


@pytest.mark.slow
def test_it_keeps_the_contract_of_callbacks() -> None:
    """The kit finds no fault; how often a run was resumed differs after a resume, as declared."""
    check_callback([make_event_log, lambda: EventLog("events.jsonl")])


def test_importing_the_plugin_prints_nothing() -> None:
    """The import has no output, and loads nothing but the hook layers of trainer_hooks."""
    code = (
        "import sys, trainer_hooks; before = set(sys.modules)\n"
        "from trainer_hooks_monitoring.factories import make_event_log\n"
        "make_event_log()\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "assert not new & {'torch', 'numpy', 'prometheus_client'}, new\n"
    )
    path = [entry for entry in sys.path if entry]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:] = {path!r}\n{code}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
