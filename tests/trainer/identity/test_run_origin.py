"""`ckpt_path="auto"` goes on with this run, and not with another one that has the same root."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from new_processes import forget_trainings

from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.checkpoint.file import summarize
from trainer_hooks.errors import CheckpointNotFoundError, TrainerHooksWarning
from trainer_hooks.trainer.identity import run_origin as origin
from trainer_hooks.trainer.identity.run_origin import (
    compute_run_origin,
    is_live_elsewhere,
    process_identity,
    training_values,
)


@pytest.fixture
def net(Tiny):
    class SavesRate(Tiny):
        def __init__(self, rate=0.1) -> None:
            super().__init__()
            self.save_hyperparameters()

    return SavesRate


@pytest.fixture
def started(quiet_trainer, net, batches, monkeypatch):
    """Start a run as a command would, with or without a logger; return its trainer."""

    def start(*command, rate=0.1, ckpt_path="auto", logger=True, epochs=1, callbacks=()):
        forget_trainings()
        monkeypatch.setattr(sys, "argv", ["/some/where/train.py", *command])
        trainer = quiet_trainer(
            logger=logger, callbacks=list(callbacks), enable_checkpointing=None, max_epochs=epochs
        )
        trainer.fit(net(rate), batches(), ckpt_path=ckpt_path)
        return trainer

    return start


@pytest.mark.slow
@pytest.mark.parametrize("logger", [True, False], ids=["logger", "no logger"])
def test_runs_of_a_sweep_go_on_with_their_own(started, logger) -> None:
    """Of runs that share a root, each restart finds its own checkpoint, not the newest one."""
    runs = {}
    for seed in "123":
        runs[seed] = started(seed, logger=logger)
        assert runs[seed].ckpt_path is None
    for seed in "213":
        again = started(seed, logger=logger, epochs=2)
        assert again.ckpt_path == runs[seed].checkpoint_callback.best_model_path
        assert again.log_dir == runs[seed].log_dir


@pytest.mark.slow
def test_a_sweep_in_one_process(started, capsys) -> None:
    """Where the command line is the same, the hyperparameters tell runs apart; a line says so."""
    first = started(rate=0.1).checkpoint_callback.best_model_path
    capsys.readouterr()
    assert started(rate=0.2).ckpt_path is None
    told = capsys.readouterr().out
    assert told.startswith("ckpt_path='auto': a new training. All checkpoints here (1) are of")
    assert f"the newest is {first!r}, and hyperparameter rate 0.1 -> 0.2. To resume it" in told
    assert told.rstrip().endswith(f"trainer.fit(net(rate), batches(), ckpt_path={first!r})")
    assert started(rate=0.1, epochs=2).ckpt_path == first


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["--epochs", "1"], ["--epochs=2"]),
        (["7", "--max-steps", "-1", "--quiet"], ["7", "--max_steps=4"]),
        (["--no-progress", "7"], ["7"]),
        (["--no-bar", "7"], ["7"]),
        (["trainer.max_epochs=1"], ["trainer.max_epochs=2", "--trainer.logger", "csv"]),
        (["--verbose", "true"], ["--log-every-n-steps", "5"]),
        (["7"], ["7", "--ckpt", "auto"]),
        (["--resume", "7"], ["7"]),
        (["--ckpt-path=auto", "7"], ["7", "--resume_from_checkpoint", "last"]),
    ],
)
def test_options_that_change_no_training(started, before, after) -> None:
    """Limits of length, bars, loggers and words for a checkpoint make no other run."""
    first = started(*before).checkpoint_callback.best_model_path
    assert started(*after, epochs=2).ckpt_path == first


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["0.1"], ["0.2"]),
        (["--seed", "1"], ["--seed", "2"]),
        (["--epochs", "5", "7"], ["--epochs", "5", "8"]),
        (["--quiet", "7"], ["--quiet", "8"]),
        (["--precision", "32"], ["--precision", "bf16-mixed"]),
        (["--model.epochs", "5"], ["--model.epochs", "6"]),
        ([], ["max_epochs"]),
        (["--resume", "7"], ["--resume", "8"]),
        (["--ckpt", "a.ckpt"], ["--ckpt", "b.ckpt"]),
        (["--ckpt=a.ckpt"], ["--ckpt=b.ckpt"]),
    ],
)
def test_words_that_may_change_the_training(started, before, after, capsys) -> None:
    """Any other word may be a seed or a rate: the run is new, and the message names both lines."""
    first = started(*before).checkpoint_callback.best_model_path
    capsys.readouterr()
    assert started(*after).ckpt_path is None
    told = capsys.readouterr().out
    assert "its command line was 'train.py" in told
    assert f"ckpt_path={first!r})" in told


def test_a_config_without_what_changes_no_training() -> None:
    """Of a config the trainer's options count only if they change the training."""
    config = {"model": {"lr": 1}, "seed_everything": 3, "ckpt_path": "auto", "verbose": True}
    options = {"max_epochs": 3, "logger": "csv", "enable_progress_bar": False}
    assert training_values({**config, "trainer": options}) == {
        "model": {"lr": 1},
        "seed_everything": 3,
    }
    changed = training_values({**config, "trainer": {**options, "gradient_clip_val": 1.0}})
    assert changed["trainer"] == {"gradient_clip_val": 1.0}


@pytest.mark.slow
def test_last_takes_no_other_runs(started) -> None:
    """`"last"` takes its own run's; where there is none an error says whose there are."""
    own, other = started("1"), started("2")
    assert started("1", ckpt_path="last", epochs=2).log_dir == own.log_dir
    newest = own.checkpoint_callback.best_model_path.replace("=0-step=4", "=1-step=8")
    with pytest.raises(CheckpointNotFoundError, match="its command line was") as caught:
        started("3", ckpt_path="last", epochs=3)
    assert f"give its path: ckpt_path={newest!r}." in str(caught.value)
    assert other.log_dir != own.log_dir


def test_a_folder_that_was_named_is_this_runs(started, tmp_path) -> None:
    """Whoever names the folder of the checkpoints goes on with what is there."""
    first = started("--epochs", "1", callbacks=[ModelCheckpoint(tmp_path / "mine")])
    again = started("--epochs", "2", epochs=2, callbacks=[ModelCheckpoint(tmp_path / "mine")])
    assert again.ckpt_path == first.checkpoint_callback.best_model_path


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:dirpath:trainer_hooks.errors.TrainerHooksWarning")
def test_a_run_that_is_still_going_is_left_alone(started, net, batches, quiet_trainer) -> None:
    """A checkpoint of a live process is no leftover; who names it logs to a folder of its own."""
    first = started("1")
    path = first.checkpoint_callback.best_model_path
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        machine = process_identity().split()[0]
        process = f"{machine} {other.pid} {origin_started(other.pid)}"
        assert is_live_elsewhere(process)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "trainer_hooks.trainer.run.checkpoint_saving.process_identity", lambda: process
            )
            path = started("2").checkpoint_callback.best_model_path
        assert started("2").ckpt_path is None
        trainer = quiet_trainer(logger=True, max_epochs=2, enable_checkpointing=None)
        with pytest.warns(TrainerHooksWarning, match="still going in another process"):
            trainer.fit(net(), batches(), ckpt_path=path)
        assert Path(path).parents[1] != Path(trainer.log_dir)
    finally:
        other.communicate(b"\n")
    assert not is_live_elsewhere(process)
    assert started("2", epochs=3).ckpt_path is not None


def origin_started(pid: int) -> str | None:
    from trainer_hooks._system import process_start

    return process_start(pid)


def test_what_tells_a_run_apart(monkeypatch) -> None:
    """The name of the program, its arguments and the hyperparameters; in a notebook these alone."""
    monkeypatch.setattr(sys, "argv", ["a/train.py", "--lr", "1"])
    one = compute_run_origin({"lr": 1.0, "tags": frozenset("ab"), "deep": {"b": 1, "a": [2]}})
    monkeypatch.setattr(sys, "argv", ["b/train.py", "--lr", "1"])
    assert (
        compute_run_origin({"deep": {"a": [2], "b": 1}, "tags": frozenset("ba"), "lr": 1.0}) == one
    )
    assert compute_run_origin({"lr": 2.0}) != one
    assert compute_run_origin(None) == compute_run_origin({})
    assert compute_run_origin({"at": torch.ones(2)}) == compute_run_origin({"at": torch.ones(2)})
    before = compute_run_origin({})
    monkeypatch.setattr(sys, "argv", ["b/train.py", "--lr", "2"])
    assert compute_run_origin({}) != before
    monkeypatch.setitem(sys.modules, "ipykernel", origin)
    first = compute_run_origin({})
    monkeypatch.setattr(sys, "argv", ["ipykernel_launcher.py", "-f", "kernel-1.json"])
    assert compute_run_origin({}) == first


def test_a_file_that_says_nothing_of_itself_is_taken(started, monkeypatch) -> None:
    """A checkpoint of an older version, which does not say whose it is, is gone on with."""
    with monkeypatch.context() as patch:
        saving = "trainer_hooks.trainer.run.checkpoint_saving"
        identity = "trainer_hooks.trainer.identity.run_identity"
        patch.setattr(f"{identity}.compute_run_origin", lambda *_: "")
        patch.setattr(f"{identity}.secrets.token_hex", lambda _: "")
        patch.setattr(f"{saving}.process_identity", lambda: "")
        patch.setattr(f"{saving}.shown_command", lambda *_: "")
        first = started("1")
    assert started("2", epochs=2).ckpt_path == first.checkpoint_callback.best_model_path


def test_no_process_is_at_work_that_is_this_one(started) -> None:
    """What this process saved before it can go on with."""
    summary = summarize(started("1").checkpoint_callback.best_model_path)
    assert summary.process == process_identity()
    assert str(os.getpid()) in summary.process.split()
    assert not is_live_elsewhere(summary.process)


def test_a_process_of_another_machine_is_none_of_this_one() -> None:
    """Its number may be that of a process here; whatever the other machine is called."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as other:
        identity = origin._identity_of(other.pid)
        machine, _, rest = identity.partition(" ")
        assert is_live_elsewhere(identity)
        assert not is_live_elsewhere(f"{'0' * len(machine)} {rest}")
        assert not is_live_elsewhere(f"{'f' * len(machine)} {rest}")
