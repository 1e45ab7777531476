"""MLPerfCallback: what it writes passes MLPerf's own checkers, also after a resume."""

from __future__ import annotations

import importlib.util
import json
import platform
import socket
import sys

import pytest
import torch
import warm_python
from samples import one_in
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from trainer_hooks import Callback, Evaluator, Module
from trainer_hooks.callbacks import MLPerfCallback
from trainer_hooks.errors import CheckpointError, DataError, MetricError, OptionError

SYSTEM = "1xcpu_trainer_hooks"


class Classifier(Module):
    """Learns the digits."""

    def __init__(self, name="MulticlassAccuracy"):
        super().__init__()
        self.name = name
        self.net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, images):
        return self.net(images)

    def training_step(self, batch, batch_idx):
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        self.log(self.name, (self(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


class Blind(Classifier):
    """Logs nothing when it is validated."""

    def validation_step(self, batch, batch_idx):
        pass


def train_loader_of(digits):
    generator = torch.Generator().manual_seed(1)
    return DataLoader(digits, 256, shuffle=True, generator=generator)


@pytest.fixture
def run(digits, bare, tmp_path):
    """Fit on the digits, with a report in the test's folder; return it."""

    def make(*others, module=None, val_loader=None, ckpt_path=None, report=None, **options):
        torch.manual_seed(0)
        train = train_loader_of(digits)
        validation = DataLoader(digits, 512) if val_loader is None else val_loader
        options = {"max_epochs": 3, **options}
        callback = MLPerfCallback(tmp_path / "submission", 0, **(report or {}))
        trainer = bare(callback, *others, **options)
        try:
            trainer.fit(module or Classifier(), train, validation, ckpt_path=ckpt_path)
        finally:
            trainer.close()
        return callback

    return make


@pytest.fixture
def result(tmp_path):
    return tmp_path / "submission" / "results" / SYSTEM / "resnet" / "result_0.txt"


def lines_of(path):
    """Return what stands in a result, without what differs from run to run."""
    lines = [line.removeprefix(":::MLLOG ") for line in path.read_text().splitlines()]
    found = [json.loads(line) for line in lines]
    assert [line["time_ms"] for line in found if line["key"] != "init_start"] == sorted(
        line["time_ms"] for line in found if line["key"] != "init_start"
    )
    return [
        (
            line["key"],
            None if line["key"] == "trainer_hooks_run" else line["value"],
            {k: v for k, v in line["metadata"].items() if k not in ("file", "lineno")},
        )
        for line in found
    ]


def keys_of(path):
    return [key for key, _, _ in lines_of(path)]


def is_compliant(path, ruleset, tmp_path):
    """Return whether MLPerf's own checker accepts a result; warnings count as faults."""
    options = ["--usage", "training", "--ruleset", ruleset, "--werror"]
    log = ["--log_output", str(tmp_path / "checker.log")]
    command = [sys.executable, "-m", "mlperf_logging.compliance_checker", str(path)]
    done = warm_python.run(
        [*command, *options, *log], check=False, capture_output=True, text=True, cwd=tmp_path
    )
    assert ("SUCCESS" in done.stderr) == (done.returncode == 0), done.stderr
    return done.returncode == 0


# --- bad input ---


def test_a_package_that_is_missing_is_named(monkeypatch):
    """Without MLPerf's logger it says what to install."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(OptionError, match=r"pip install 'trainer-hooks\[mlperf\]'"):
        MLPerfCallback("a", 0)


# --- what is written ---


@pytest.mark.slow
@pytest.mark.parametrize("benchmark", one_in(2, ["resnet", "bert"]))
def test_a_result_passes_the_checker(benchmark, run, tmp_path):
    """The checker accepts a real run by the rules of each round that had the benchmark."""
    run(report={"target": 0.5, "benchmark": benchmark, "cache_clear_cmd": ["true"]})
    path = tmp_path / "submission" / "results" / SYSTEM / benchmark / "result_0.txt"
    for ruleset in ("1.0.0", "1.1.0", "2.0.0", "2.1.0", "3.0.0", "3.1.0", "4.0.0"):
        assert is_compliant(path, ruleset, tmp_path), ruleset
    without_stop = tmp_path / "cut.txt"
    kept = [line for line in path.read_text().splitlines() if '"run_stop"' not in line]
    without_stop.write_text("\n".join(kept))
    assert not is_compliant(without_stop, "4.0.0", tmp_path)


def test_the_events_of_a_run(run, result):
    """A run has its submission, its start, its epochs and evaluations, and how it stopped."""
    run(max_epochs=2, report={"target": 1.1, "submitter": "us", "status": "research"})
    lines = lines_of(result)
    values = {key: value for key, value, _ in lines}
    assert values["submission_org"] == "us"
    assert values["submission_status"] == "research"
    assert values["submission_platform"] == SYSTEM
    assert values["train_samples"] == values["eval_samples"] == 1797
    assert values["global_batch_size"] == 256
    assert values["cache_clear"] is False
    start = keys_of(result).index("run_start")
    assert [(key, metadata) for key, _, metadata in lines[start:]] == [
        ("run_start", {}),
        ("epoch_start", {"epoch_num": 1}),
        ("epoch_stop", {"epoch_num": 1}),
        ("eval_start", {"epoch_num": 1, "samples_count": 1797}),
        ("eval_accuracy", {"epoch_num": 1, "samples_count": 1797}),
        ("eval_stop", {"epoch_num": 1, "samples_count": 1797}),
        ("epoch_start", {"epoch_num": 2}),
        ("epoch_stop", {"epoch_num": 2}),
        ("eval_start", {"epoch_num": 2, "samples_count": 3594}),
        ("eval_accuracy", {"epoch_num": 2, "samples_count": 3594}),
        ("eval_stop", {"epoch_num": 2, "samples_count": 3594}),
        ("run_stop", {"status": "aborted"}),
    ]


@pytest.mark.slow  # the checker of MLCommons takes seconds to import
@pytest.mark.parametrize("exits", [True, False])
def test_the_target(exits, run, result, tmp_path):
    """At the target, inside the first epoch, the result is complete; the fit goes on or stops."""

    class Last(Callback):
        def on_fit_end(self, trainer, module):
            self.seen = trainer.global_step, trainer.stop_reason

    last = Last()
    run(last, val_check_interval=2, report={"target": 0.05, "exit_at_target": exits})
    assert keys_of(result)[-6:] == [
        "epoch_start",
        "eval_start",
        "eval_accuracy",
        "eval_stop",
        "epoch_stop",
        "run_stop",
    ]
    assert lines_of(result)[-1][2] == {"status": "success"}
    assert is_compliant(result, "4.0.0", tmp_path)
    steps, reason = last.seen
    if exits:
        assert steps == 2
        assert reason == "MLPerfCallback: MulticlassAccuracy reached the target of 0.05"
    else:
        assert (steps, reason) == (24, "")


@pytest.mark.parametrize("name", ["MulticlassAccuracy", "metrics/eval/MulticlassAccuracy"])
def test_the_names_of_the_metric(name, run, result):
    """The metric is found under its own name, and under that which Composer gives it."""
    run(module=Classifier(name), max_epochs=1)
    assert "eval_accuracy" in keys_of(result)


def test_the_label_of_an_evaluator(run, result, digits):
    """The metric of one evaluator among several is the one that counts."""
    few = TensorDataset(*digits[:10])
    loaders = [
        Evaluator("few", DataLoader(few, 10)),
        Evaluator("all", DataLoader(digits, 512)),
    ]
    report = {"metric_label": "all", "target": 1.1}
    module = Classifier()
    run(module=module, val_loader=loaders, max_epochs=1, report=report)
    values = {key: value for key, value, _ in lines_of(result)}
    with torch.no_grad():
        right = (module(digits[:][0]).argmax(1) == digits[:][1]).float().mean().item()
    assert values["eval_accuracy"] == pytest.approx(right)
    assert values["eval_samples"] == 1807


def test_the_system_is_described(run, tmp_path):
    """The description passes MLPerf's checker, tells no host's name, and is not written over."""
    run(max_epochs=1, report={"system_name": "ours", "host_processors_per_node": 2})
    path = tmp_path / "submission" / "systems" / "ours.json"
    command = [sys.executable, "-m", "mlperf_logging.system_desc_checker", str(path)]
    for ruleset in ("1.0.0", "4.0.0", "6.1.0"):
        told = warm_python.run(
            [*command, "training", ruleset], check=True, capture_output=True, cwd=tmp_path
        )
        assert b"System description checker passed for ours" in told.stderr
    described = json.loads(path.read_text())
    assert described["host_processors_per_node"] == "2"
    assert described["status"] == "Available on-premise"
    assert described["framework"] == f"PyTorch {torch.__version__}"
    assert platform.python_version() in described["other_software_stack"]
    assert described["accelerators_per_node"] == "0"
    assert all(isinstance(value, str) for value in described.values())
    assert socket.gethostname() not in described["operating_system"]
    path.write_text("{}")
    run(max_epochs=1, report={"system_name": "ours", "benchmark": "bert"})
    assert path.read_text() == "{}"


# --- what goes wrong ---


@pytest.mark.slow
def test_a_result_is_not_written_over(run, result):
    """Another run with the same index is refused before it trains."""
    run(max_epochs=1)
    before = result.read_bytes()
    with pytest.raises(OptionError, match=r"index 0 .* is there already\. Choose another index"):
        run(max_epochs=1)
    assert result.read_bytes() == before


def test_a_metric_that_is_not_logged_is_told(run):
    """A validation without the metric is an error that lists what was logged."""
    with pytest.raises(MetricError, match="'MulticlassAccuracy' of MLPerfCallback"):
        run(module=Blind(), max_epochs=1)


def test_a_run_without_validation_is_refused(run, result):
    """MLPerf asks for an evaluation, so a run without one is not begun."""
    with pytest.raises(DataError, match="Pass a validation loader"):
        run(limit_val_batches=0)
    assert not result.exists()


class Stream(IterableDataset):
    def __init__(self, data):
        self.data = data

    def __iter__(self):
        return iter(self.data)


def test_a_loader_that_cannot_be_counted(run, digits):
    """A stream without an end must say how long it is."""
    with pytest.raises(DataError, match="MLPerfCallback: its number of samples is unknown"):
        run(val_loader=DataLoader(Stream(digits), 512), max_epochs=1)


def test_a_stream_with_a_limit_is_counted(run, digits, result):
    """With a limit on the batches, a stream has as many samples as these."""
    run(val_loader=DataLoader(Stream(digits), 512), max_epochs=1, limit_val_batches=2)
    assert ("eval_samples", 1024, {}) in lines_of(result)


def test_a_trial_run_writes_nothing(run, tmp_path):
    """A run that only looks for faults has no result."""
    run(fast_dev_run=True)
    assert not (tmp_path / "submission").exists()


def test_the_cache_is_cleared_without_a_shell(run, result, tmp_path):
    """A list is run as it is, with no shell to read it; a text goes through one."""
    code = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])"
    for command, content in (
        ([sys.executable, "-c", code, str(tmp_path / "told"), "$HOME; false"], "$HOME; false"),
        (f"echo a b > {tmp_path / 'told'} && true", "a b\n"),
    ):
        run(max_epochs=1, report={"cache_clear_cmd": command})
        assert (tmp_path / "told").read_text() == content
        assert ("cache_clear", True, {}) in lines_of(result)
        result.unlink()


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (
            [sys.executable, "-c", "import sys; sys.exit('not allowed')"],
            r"ended with status 1: not allowed\. Correct it",
        ),
        (["no-such-command"], "'no-such-command' of MLPerfCallback cannot be run: .*No such file"),
        ("exit 3", "'exit 3' of MLPerfCallback ended with status 3"),
    ],
)
def test_a_cache_that_cannot_be_cleared(command, text, run, result):
    """A command that fails is named, with what it said, and the run is not begun."""
    with pytest.raises(OptionError, match=text):
        run(report={"cache_clear_cmd": command})
    assert not result.exists()


# --- resumed ---


class Cut(Callback):
    """Saves after some batch, and breaks the fit off after a later one."""

    def __init__(self, at, broken_at):
        self.at, self.broken_at = at, broken_at

    def on_batch_checkpoint(self, trainer, module):
        done = trainer.progress.batches_completed
        if done == self.at:
            trainer.save_checkpoint(f"{trainer.default_root_dir}/cut.ckpt")
        if done == self.broken_at:
            raise KeyError("broken")


@pytest.mark.slow
@pytest.mark.parametrize(("at", "broken_at"), [(3, 3), (10, 20), (8, 17)])
def test_a_resumed_run_goes_on_with_its_result(at, broken_at, run, result, tmp_path):
    """Cut anywhere and resumed, the result is that of an uncut run, with one start and one stop."""
    report = {"target": 1.1}
    run(report=report)
    uncut = lines_of(result)
    result.unlink()
    with pytest.raises(KeyError):
        run(Cut(at, broken_at), report=report)
    assert "run_stop" not in keys_of(result)
    run(ckpt_path=tmp_path / "cut.ckpt", report=report)
    assert lines_of(result) == uncut
    assert is_compliant(result, "4.0.0", tmp_path)


def test_a_result_that_was_aborted_goes_on(run, result, tmp_path):
    """A finished training that is trained on has one end; one at its target has that already."""
    run(Cut(16, 0), max_epochs=2, report={"target": 1.1})
    run(ckpt_path=tmp_path / "cut.ckpt", max_epochs=4, report={"target": 0.6})
    keys = keys_of(result)
    assert keys.count("run_start") == keys.count("run_stop") == 1
    assert lines_of(result)[-1] == ("run_stop", None, {"status": "success"})
    assert is_compliant(result, "4.0.0", tmp_path)


def test_a_target_stays_reached(run, result, tmp_path):
    """A run that is resumed after its target writes nothing more."""
    run(Cut(20, 0), report={"target": 0.05})
    before = result.read_bytes()
    run(ckpt_path=tmp_path / "cut.ckpt", max_epochs=5, report={"target": 0.05})
    assert result.read_bytes() == before


def test_a_run_that_was_asked_to_stop_is_asked_again(run, result, tmp_path):
    """A checkpoint of the moment in between leads to the same end as in the uncut run."""
    report = {"target": 0.05, "exit_at_target": True}
    run(Cut(2, 0), val_check_interval=2, report=report)
    module = Classifier()
    run(module=module, val_check_interval=2, report=report, ckpt_path=tmp_path / "cut.ckpt")
    saved = torch.load(tmp_path / "cut.ckpt", weights_only=True)["state_dict"]
    torch.testing.assert_close(module.state_dict(), saved, rtol=0, atol=0)


@pytest.mark.slow
def test_a_result_of_another_run_is_left_alone(run, result, tmp_path):
    """A resumed run finds its own result, or says which is missing; it changes no other."""
    run(Cut(10, 0))
    result.unlink()
    with pytest.raises(CheckpointError, match="cannot be continued: it is not there"):
        run(ckpt_path=tmp_path / "cut.ckpt")
    run()
    before = result.read_bytes()
    with pytest.raises(CheckpointError, match="it is another run's"):
        run(ckpt_path=tmp_path / "cut.ckpt")
    assert result.read_bytes() == before


def test_a_checkpoint_without_a_result(run, bare, digits, tmp_path):
    """A training that began without it cannot become a result half-way."""
    bare(Cut(2, 0)).fit(Classifier(), train_loader_of(digits))
    with (
        pytest.warns(UserWarning, match="MLPerfCallback"),
        pytest.raises(CheckpointError, match="has no run of MLPerfCallback"),
    ):
        run(ckpt_path=tmp_path / "cut.ckpt")
