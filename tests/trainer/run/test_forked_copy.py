"""A process that is forked inside a run ends without a trace in the run."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pytest
import torch
from samples import spread

from trainer_hooks import Callback, StopTraining
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.loggers import CSVLogger

pytestmark = pytest.mark.posix


def fork(child, *arguments) -> int:
    """Fork; call `child` in the child, and return its exit code in the parent."""
    process = os.fork()
    if process == 0:
        child(*arguments)
        return -1
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def raises(error):
    raise error


ENDS = {
    "exit": (lambda trainer: sys.exit(7), 7, ""),
    "exit without a code": (lambda trainer: sys.exit(), 0, ""),
    "exit with a text": (lambda trainer: sys.exit("no more"), 1, "no more"),
    "an error": (lambda trainer: raises(ValueError("bad")), 1, "ValueError: bad"),
    "a stop": (lambda trainer: raises(StopTraining("enough")), 1, "StopTraining: enough"),
    "a return": (lambda trainer: None, 1, "went on with it: only the process that called fit"),
    "a save": (lambda trainer: trainer.save_checkpoint("child.ckpt"), 1, "only the process that"),
    "a copy": (lambda trainer: trainer.dump_checkpoint(), 1, "only the process that"),
    "a background save": (lambda trainer: trainer.save_in_background("x.ckpt"), 1, "Save there"),
    "a close": (lambda trainer: trainer.close(), 1, "only the process that called fit"),
}  # fmt: skip
"""What a child does, its exit code, and what it prints."""


class Forks(Callback):
    """Forks in one hook, and keeps the child's exit code."""

    def __init__(self, hook, child) -> None:
        self.codes: list[int] = []
        self.ended: list[str] = []

        def forks(trainer, *_) -> None:
            if not self.codes:
                files = digests()
                self.codes.append(fork(child, trainer))
                self.is_untouched = files.items() <= digests().items()

        setattr(self, hook, forks)

    def teardown(self, trainer, module, stage):
        self.ended.append("teardown")

    def on_exception(self, trainer, module, exception):
        self.ended.append("on_exception")


def digests() -> dict[str, str]:
    """Return a digest of each file below the working directory that is no part file."""
    files = (p for p in Path().rglob("*") if p.is_file() and not p.name.startswith("."))
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize(("end", "policy"), spread(ENDS, ["raise", "disable"]))
def test_a_child_ends_by_itself(
    end, policy, bare, Tiny, batches, tmp_path, monkeypatch, capfd
) -> None:
    """With a save in the background, whose thread the child lacks, and open loggers."""
    monkeypatch.chdir(tmp_path)
    child, code, text = ENDS[end]
    forks = Forks("on_train_batch_end", child)
    forks.on_error = policy
    saver = ModelCheckpoint("saved", every_n_train_steps=1, async_save=True, save_top_k=-1)
    trainer = bare(
        forks, saver, enable_checkpointing=None, logger=CSVLogger("logs"), log_every_n_steps=1
    )
    trainer.fit(Tiny(), batches(3))
    assert forks.codes == [code]
    assert forks.is_untouched
    assert text in capfd.readouterr().err
    assert (trainer.global_step, forks.ended) == (3, ["teardown"])
    assert len(list(Path("saved").iterdir())) == 3
    assert not Path("child.ckpt").exists()


@pytest.mark.parametrize(
    "hook", ["setup", "on_fit_start", "on_save_checkpoint", "on_validation_batch_end", "teardown"]
)
def test_in_any_hook(hook, bare, Tiny, batches, tmp_path, monkeypatch) -> None:
    """Also in hooks that every member hears, and in those that are fired while saving."""
    monkeypatch.chdir(tmp_path)
    forks = Forks(hook, lambda _: sys.exit(3))
    module = Tiny()
    module.validation_step = lambda batch, batch_idx: None
    trainer = bare(forks, ModelCheckpoint("saved"), enable_checkpointing=None)
    trainer.fit(module, batches(2), batches(1))
    assert (forks.codes, trainer.global_step) == ([3], 2)
    assert [path.suffix for path in Path("saved").iterdir()] == [".ckpt"]


@pytest.mark.linux  # workers that are spawned cannot import this file
def test_in_a_step_with_workers(bare, Tiny, tmp_path, monkeypatch) -> None:
    """A step is no hook; and a child that let go of the loader would end the run's workers."""
    monkeypatch.chdir(tmp_path)
    codes = []

    class Net(Tiny):
        def training_step(self, batch, batch_idx):
            if batch_idx == 1:
                codes.append(fork(sys.exit, 4))
            return super().training_step(batch, batch_idx)

    loader = torch.utils.data.DataLoader(torch.randn(12, 2), batch_size=2, num_workers=1)
    trainer = bare(watcher := Forks("on_close", print), limit_train_batches=6)
    trainer.fit(Net(), loader)
    assert (codes, trainer.global_step, watcher.ended) == ([4], 6, ["teardown"])


@pytest.mark.slow
def test_a_child_may_train_for_itself(bare, Tiny, batches) -> None:
    """A trainer that a child makes is its own, with its error policy and its errors."""

    def child(_) -> None:
        broken = Callback()
        broken.on_fit_start = lambda *_: sys.exit(5)
        trainer = bare(broken, callback_errors={"Callback": "disable"})
        with pytest.warns(TrainerHooksWarning, match="SystemExit: 5"):
            trainer.fit(Tiny(), batches(2))
        with pytest.raises(ZeroDivisionError):
            bare(Forks("on_fit_start", lambda _: None), max_epochs=1).fit(
                type("Broken", (Tiny,), {"training_step": lambda *_: 1 / 0})(), batches(1)
            )
        sys.exit(10 + trainer.global_step)

    forks = Forks("on_train_start", child)
    bare(forks).fit(Tiny(), batches(1))
    assert forks.codes == [12]


def test_a_fork_between_runs_is_free(bare, Tiny, batches, tmp_path) -> None:
    """After a fit the child may use the trainer, also where a save was pending at the fork."""
    trainer = bare(accelerator="cpu")  # a fork cannot use CUDA
    trainer.fit(Tiny(), batches(2))

    def child() -> None:
        code = 99
        try:
            trainer.save_checkpoint(tmp_path / "child.ckpt")
            trainer.fit(Tiny(), batches(2))
            trainer.close()
            code = trainer.global_step
        finally:
            os._exit(code)

    trainer.save_in_background(tmp_path / "parent.ckpt")
    assert fork(child) == 2
    trainer.finish_saves()
    assert sorted(path.name for path in tmp_path.glob("*.ckpt")) == ["child.ckpt", "parent.ckpt"]
