"""`trainer-hooks demo`, as its user meets it."""

from __future__ import annotations

import builtins
import os
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import warm_python
from quiet_trainers import QUIET_OPTIONS

from trainer_hooks import Module, Trainer
from trainer_hooks.cli.demo.demo import run_demo
from trainer_hooks.cli.demo.demo_report import EXAMPLE
from trainer_hooks.cli.demo.training import (
    CtrlC,
    RecordRestoredStates,
    SmoothedLoss,
    single_threaded,
)

if TYPE_CHECKING:
    import subprocess

ROOT = Path(__file__).parents[3]


def has_example_plugin() -> bool:
    try:
        version(EXAMPLE)
    except PackageNotFoundError:
        return False
    return True


class Tiny(Module):
    """One weight, four batches, the loss of batch i is i."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.weight * 0 + batch

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)

    def train_dataloader(self) -> Any:
        return [torch.tensor(float(i)) for i in range(4)]


def trainer(*callbacks: Any) -> Trainer:
    return Trainer(max_epochs=2, **QUIET_OPTIONS, callbacks=callbacks)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """Run the fast demo once, in a process of its own without a terminal."""
    pytest.importorskip("sklearn")
    folder = tmp_path_factory.mktemp("demo") / "new"
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = {k: v for k, v in os.environ.items() if not k.startswith("TRAINER_HOOKS_")}
    done = warm_python.run(
        [sys.executable, "-W", "error", "-m", "trainer_hooks", "demo", "--fast", "--dir", folder],
        cwd=folder.parent,
        env={**env, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done, folder


@pytest.mark.exhaustive
def test_the_resumed_run_is_equal_to_the_uncut_one(demo: Any) -> None:
    """The demo interrupts itself inside an epoch, resumes, and finds every comparison equal."""
    done, _ = demo
    assert "KeyboardInterrupt left fit after 144 batches, 21 of them in epoch 3" in done.stdout
    assert "SIGINT: stopping after this batch" in done.stderr
    for part in ("weights", "optimizer, schedule", "random numbers"):
        assert re.search(rf"^  {part} +equal, bit for bit", done.stdout, re.MULTILINE), part
    assert "(at the interruption 18 of 18 still differed)" in done.stdout
    assert "The resumed run is the run that was never interrupted" in done.stdout
    assert re.search(r"^SmoothedLoss value .* same$", done.stdout, re.MULTILINE)
    assert re.search(r"^ModelCheckpoint files +3 +3 +7 +7 +same$", done.stdout, re.MULTILINE)


@pytest.mark.slow
def test_what_it_says_of_weights_is_true(demo: Any) -> None:
    """The weights in the files of both runs are equal, so are those of both runs' best."""
    _, folder = demo
    ends = [torch.load(folder / run / "final.ckpt", weights_only=True) for run in ("uncut", "cut")]
    assert ends[0]["global_step"] == ends[1]["global_step"] == 7 * 41
    for name, tensor in ends[0]["state_dict"].items():
        assert torch.equal(tensor, ends[1]["state_dict"][name]), name
    names = [
        {path.name for path in (folder / run / "checkpoints").glob("epoch=*.ckpt")}
        for run in ("uncut", "cut")
    ]
    assert len(names[0]) == 7
    assert names[0] == names[1]


@pytest.mark.slow
def test_it_ends_with_accuracy_path_and_three_lines(demo: Any) -> None:
    """The end shows an accuracy over 97%, a best checkpoint that exists, and the next lines."""
    done, folder = demo
    accuracy = re.search(r"^test accuracy +([\d.]+)%, over 97%", done.stdout, re.MULTILINE)
    assert accuracy is not None
    assert 97 < float(accuracy[1]) <= 100
    best = re.search(r"^best checkpoint  (.+)$", done.stdout, re.MULTILINE)
    assert best is not None
    assert Path(best[1]).is_file()
    assert folder in Path(best[1]).parents
    assert "    trainer.fit(MyModule(), datamodule=MyData())\n" in done.stdout


@pytest.mark.slow
def test_a_log_of_it_can_be_read(demo: Any) -> None:
    """Without a terminal there are neither escapes nor carriage returns, and lines are short."""
    done, folder = demo
    assert not {"\x1b", "\r"} & set(done.stdout + done.stderr)
    lines = [line for line in done.stdout.splitlines() if str(folder) not in line]
    assert max(len(line) for line in lines if str(ROOT) not in line) <= 100
    assert "Epoch 0/6: 41/41" in done.stdout


@pytest.mark.slow
def test_the_plugin_is_listed_and_does_its_work(demo: Any) -> None:
    """The example plugin, imported by nobody, is listed, prints, and its counts go on."""
    if not has_example_plugin():
        pytest.skip(f"{EXAMPLE} is not installed: pip install -e plugins_example/monitoring")
    done, _ = demo
    assert re.search(rf"^EventLog +plugin {EXAMPLE} \d", done.stdout, re.MULTILINE)
    [told] = re.findall(r"^Nobody imported (.*):", done.stdout, re.MULTILINE)
    assert told == "trainer_hooks_monitoring"  # those that take no part are not told of
    assert "[event-log] epoch 6 done: 287 batches" in done.stdout
    assert "Epoch 6/6: 41/41" in done.stdout
    assert "[event-log] fit 1 done: 287 batches, 9,079 samples so far (resumed 0x)" in done.stdout
    assert "[event-log] fit 2 done: 287 batches, 9,079 samples so far (resumed 1x)" in done.stdout
    assert re.search(r"^EventLog batches +144 +144 +287 +287 +same$", done.stdout, re.MULTILINE)
    assert re.search(r"^EventLog resumes +0 +1 +1 +0 +\+1, rightly$", done.stdout, re.MULTILINE)


def test_nothing_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that holds something, or a file, is refused with exit code 1 and left alone."""
    kept = tmp_path / "kept.txt"
    kept.write_text("mine")
    for taken in (tmp_path, kept):
        assert run_demo(taken, is_fast=True) == 1
        assert f"--dir {str(taken)!r} is no empty folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]
    assert kept.read_text() == "mine"


def test_missing_scikit_learn_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without scikit-learn the demo says in one line what to install, and leaves no folder."""
    importing = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name.startswith("sklearn"):
            raise ModuleNotFoundError(f"No module named {name!r}", name="sklearn")
        return importing(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    monkeypatch.chdir(tmp_path)
    assert run_demo() == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert 'pip install "trainer-hooks[demo]"' in captured.err
    assert list(tmp_path.iterdir()) == []


def test_the_demos_ctrl_c_is_a_real_signal(handlers) -> None:
    """SIGINT in the middle of an epoch ends fit with KeyboardInterrupt, that batch done."""
    ctrl_c = CtrlC(epoch=1)
    run = trainer(ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        run.fit(Tiny())
    assert ctrl_c.has_fired
    assert (run.current_epoch, run.progress.batches_in_epoch) == (1, 3)


def test_the_smoothed_loss_goes_on_where_it_was() -> None:
    """The average follows every batch, and its state brings it back."""
    loss = SmoothedLoss()
    trainer(loss).fit(Tiny())
    expected = torch.zeros(())
    for _ in range(2):
        for i in range(4):
            expected = torch.lerp(expected, torch.tensor(float(i)), 0.05)
    assert torch.equal(loss.value, expected)
    assert loss.batches == 8
    other = SmoothedLoss()
    other.load_state_dict(loss.state_dict())
    assert other.state_dict() == loss.state_dict()


def test_states_are_noted_before_the_first_batch() -> None:
    """The witness notes what callbacks hold when training starts, not what they come to hold."""
    witness = RecordRestoredStates()
    trainer(witness, SmoothedLoss()).fit(Tiny())
    assert witness.states == {"SmoothedLoss": {"value": torch.zeros(()), "batches": 0}}


def test_threads_are_put_back() -> None:
    """The demo's one thread is its own affair: afterwards torch has as many as before."""
    before = torch.get_num_threads()
    with single_threaded():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


@pytest.mark.exhaustive
def test_a_process_that_is_killed_changes_nothing(tmp_path):
    """Two processes, one of which is killed, come to the same end as two that nobody kills."""
    command = [sys.executable, "-m", "trainer_hooks", "demo", "--processes", "2", "--dir"]
    ended = warm_python.run(
        [*command, tmp_path / "new"], check=False, capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "[demo] rank 0: rank 1 of 2 was killed by SIGKILL, perhaps" in ended.stdout
    assert "The run that was killed is the run that was not, to the last bit." in ended.stdout
    assert ended.stdout.count("equal, bit for bit") == 4
