"""ModelCheckpoint(async_save=True): the training goes on, and every promise holds."""

from __future__ import annotations

import os
import re
import signal
import sys
import textwrap
import threading
from pathlib import Path

import pytest
import torch
import warm_python
from small_modules import LinearWithAdam
from torch.utils.data import DataLoader

from trainer_hooks import Callback
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.checkpoint.file import write_checkpoint
from trainer_hooks.errors import CheckpointError, OptionError, UsageError
from trainer_hooks.trainer.run import checkpoint_saving

pytestmark = pytest.mark.filterwarnings(
    "ignore:a checkpoint was saved in the hook"  # what these look at does not depend on the place
)


class SeededRegression(LinearWithAdam):
    """Regression on the number 1; the same first weights in each run."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__()

    def training_step(self, batch, batch_idx):
        return (self.layer(batch) - 1).square().mean()


class Gate:
    """Lets files be written only when it is open, and notes who writes what."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.begun = threading.Event()
        self.threads: list[threading.Thread] = []
        self.places: list[int] = []
        self.failing: set[str] = set()

    def __call__(self, checkpoint, path, **options) -> str:
        self.threads.append(threading.current_thread())
        self.places.append(checkpoint["state_dict"]["layer.weight"].data_ptr())
        self.begun.set()
        assert self.open.wait(30)
        if Path(path).name in self.failing:
            raise CheckpointError(f"checkpoint {path!r} could not be written: the disk is full")
        return write_checkpoint(checkpoint, path, **options)


@pytest.fixture
def gate(monkeypatch):
    gate = Gate()
    monkeypatch.setattr(checkpoint_saving, "write_checkpoint", gate)
    yield gate
    gate.open.set()
    for thread in gate.threads:
        if thread is not threading.current_thread():
            thread.join(30)


class At(Callback):
    """Does something after a batch, before the savers have their turn."""

    def __init__(self, actions) -> None:
        self.actions = actions
        self.told: list[tuple[int, str, bool]] = []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.actions.get(trainer.global_step, lambda trainer: None)(trainer)

    def on_checkpoint_saved(self, trainer, module, path):
        in_main = threading.current_thread() is threading.main_thread()
        self.told.append((trainer.global_step, Path(path).name, in_main and Path(path).exists()))


@pytest.fixture
def fit_inputs():
    return SeededRegression, fit_samples(), 1


def fit_samples() -> torch.Tensor:
    return torch.arange(16.0).reshape(8, 2)


def saver(folder, every=2, **options) -> ModelCheckpoint:
    return ModelCheckpoint(
        folder,
        "{step}",
        every_n_train_steps=every,
        **{"save_top_k": -1, "async_save": True, **options},
    )


def names(folder) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def visible(folder) -> list[str]:
    return [name for name in names(folder) if not name.startswith(".")]


def test_the_file_holds_the_moment_of_the_save(fit, tmp_path, gate):
    """Batches trained while the file is written do not reach it; a blocking save is the same."""
    states = {}

    class Note(Callback):
        def on_batch_checkpoint(self, trainer, module):
            states[trainer.global_step] = module.layer.weight.detach().clone()

    def at_three(trainer) -> None:
        assert gate.begun.wait(30)
        assert visible(tmp_path / "bg") == []
        gate.open.set()

    fit(At({3: at_three}), Note(), saver(tmp_path / "bg"))
    assert states[2].ne(states[3]).any()
    saved = torch.load(tmp_path / "bg" / "step=2.ckpt", weights_only=True)
    assert torch.equal(saved["state_dict"]["layer.weight"], states[2])

    fit(Note(), saver(tmp_path / "blocking", async_save=False))
    expected = torch.load(tmp_path / "blocking" / "step=2.ckpt", weights_only=True)
    assert str(saved["optimizer_states"]) == str(expected["optimizer_states"])
    assert saved["loops"] == expected["loops"]


def test_the_main_thread_writes_nothing_and_memory_is_used_again(fit, tmp_path, gate):
    """All files are written by other threads, from one copy of the state."""
    gate.open.set()
    fit(saver(tmp_path, every=1, save_last=True))
    assert len(gate.places) == 8
    assert len(set(gate.places)) == 1
    assert threading.main_thread() not in gate.threads
    assert names(tmp_path) == ["last.ckpt", *(f"step={n}.ckpt" for n in (1, 2, 3, 4))]


def test_callbacks_hear_of_a_file_in_the_main_thread(fit, tmp_path, gate):
    """`on_checkpoint_saved` fires in a slot once the file is durable, or at the end of fit."""

    def at_four(trainer) -> None:
        gate.open.set()
        saving.wait_for_it()

    class Waiting(ModelCheckpoint):
        def wait_for_it(self) -> None:
            self.store.pending.save.wait()

    saving = Waiting(tmp_path, "{step}", every_n_train_steps=2, save_top_k=-1, async_save=True)
    listener = At({4: at_four})
    fit(listener, saving, max_epochs=2, max_steps=7)
    assert listener.told[0] == (4, "step=2.ckpt", True)
    assert [name for _, name, _ in listener.told] == [f"step={n}.ckpt" for n in (2, 4, 6)]
    assert all(is_right for _, _, is_right in listener.told)


def test_what_is_under_way_is_not_named_yet(fit, tmp_path, gate):
    """best_model_path names the last durable file, until the next one is; old ones stay so long."""
    seen = []

    def at(step):
        def look(trainer) -> None:
            seen.append((Path(saving.best_model_path).name, visible(tmp_path)))
            gate.open.set()

        return look

    saving = saver(tmp_path, every=1, save_top_k=1, save_last=True)
    gate.open.set()

    class Close(Callback):
        def on_batch_checkpoint(self, trainer, module):
            if trainer.global_step == 2:
                trainer.finish_saves()
                gate.open.clear()

    fit(Close(), At({3: at(3)}), saving)
    # step=2 is under way while the third batch is trained
    assert seen == [("step=1.ckpt", ["last.ckpt", "step=1.ckpt"])]
    assert names(tmp_path) == ["last.ckpt", "step=4.ckpt"]
    assert Path(saving.best_model_path).name == "step=4.ckpt"


def test_a_failure_ends_the_run_at_the_next_save(fit, tmp_path, gate):
    """The next save says which file failed and why; the books go back to what is durable."""
    gate.open.set()
    gate.failing = {"step=2.ckpt"}
    saving = saver(tmp_path, every=1, save_top_k=1)
    with pytest.raises(CheckpointError, match=r"step=2.ckpt' in the background.*disk is full") as e:
        fit(saving)
    assert isinstance(e.value.__cause__, CheckpointError)
    assert names(tmp_path) == ["step=1.ckpt"]
    assert Path(saving.best_model_path).name == "step=1.ckpt"
    assert Path(saving.state_dict()["best_model_path"]).name == "step=1.ckpt"


def test_a_failure_of_the_last_save_is_raised_at_the_end_of_fit(fit, tmp_path, gate):
    """A fit does not end well if its last checkpoint is not there."""
    gate.open.set()
    gate.failing = {"step=4.ckpt"}
    saving = saver(tmp_path)
    with pytest.raises(CheckpointError, match=r"step=4.ckpt"):
        fit(saving)
    assert Path(saving.best_model_path).name == "step=2.ckpt"


END = r"newest checkpoint: .*{}' \(saved {} earlier\); .*to go on: .*{}'\)"


@pytest.mark.parametrize("every", [1, 2], ids=["next save", "end"])
def test_a_failed_save_is_not_the_newest_checkpoint(fit, tmp_path, gate, caplog, every):
    """The end of the fit names the file before it, and the call that goes on from there."""
    caplog.set_level("INFO", "trainer_hooks")
    gate.open.set()
    last = {1: 3, 2: 4}[every]
    gate.failing = {f"step={last}.ckpt"}
    with pytest.raises(CheckpointError, match=f"step={last}.ckpt"):
        fit(saver(tmp_path, every))
    line = END.format("step=2.ckpt", "2 batches", "step=2.ckpt")
    assert re.search(line, "; ".join(caplog.messages))


def test_of_two_files_of_a_failed_save_the_written_one_is_the_newest(fit, tmp_path, gate, caplog):
    """The first of its files is whole, though the second could not be written."""
    caplog.set_level("INFO", "trainer_hooks")
    gate.open.set()
    gate.failing = {"last.ckpt"}
    with pytest.raises(CheckpointError, match=r"last.ckpt"):
        fit(saver(tmp_path, save_last=True))
    line = END.format("step=2.ckpt", "2 batches", "step=2.ckpt")
    assert re.search(line, "; ".join(caplog.messages))


def test_a_save_of_before_a_resume_is_not_its_newest_checkpoint(fit, tmp_path, gate, caplog):
    """A file that becomes durable in the resumed fit is older than the checkpoint of that."""
    caplog.set_level("INFO", "trainer_hooks")
    gate.open.set()

    class Breaks(Callback):
        is_armed = False

        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            if self.is_armed:
                gate.open.set()
                trainer.finish_saves()
                raise ValueError("broken")

    breaks = Breaks()
    trainer = fit(breaks, saver(tmp_path / "own", every=1, async_save=False))
    gate.open.clear()
    trainer.save_in_background(tmp_path / "late.ckpt")
    breaks.is_armed = True
    start = tmp_path / "own" / "step=2.ckpt"
    with pytest.raises(ValueError, match="broken"):
        trainer.fit(trainer.module, DataLoader(fit_samples(), 2), ckpt_path=start)
    assert (tmp_path / "late.ckpt").exists()
    assert re.search(
        r"newest checkpoint: .*step=2.ckpt' \(saved at that", "; ".join(caplog.messages)
    )


def test_a_blocking_save_is_written_although_the_one_before_failed(fit, tmp_path, gate):
    """What a callback saves itself comes after what is under way, and before its failure."""
    gate.open.set()
    gate.failing = {"step=2.ckpt"}
    by_hand = tmp_path / "by_hand.ckpt"
    with pytest.raises(CheckpointError, match=r"step=2.ckpt"):
        fit(At({3: lambda trainer: trainer.save_checkpoint(by_hand)}), saver(tmp_path / "bg"))
    saved = torch.load(by_hand, weights_only=True)
    assert saved["global_step"] == 3
    (state,) = saved["callbacks"].values()
    assert state["best_model_path"] == ""


@pytest.mark.parametrize("saves_own", [True, False])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_waits_for_what_is_under_way(fit, tmp_path, gate, error, saves_own):
    """A run that breaks leaves the file whole before it is torn down, and its own one too."""
    found = []

    def fail(trainer) -> None:
        threading.Thread(target=gate.open.set).start()
        raise error("broken")

    class Last(Callback):
        def teardown(self, trainer, module, stage):
            # before the savers have their turn
            found.append(names(tmp_path))

    with pytest.raises(error, match="broken"):
        fit(At({3: fail}), Last(), saver(tmp_path, save_on_exception=saves_own))
    own = ["step=3.ckpt"] if saves_own else []
    assert found == [["step=2.ckpt", *own]]


@pytest.mark.parametrize("failing", [set(), {"step=2.ckpt"}], ids=["whole", "failed"])
def test_a_signal_saves_after_what_is_under_way(fit, tmp_path, gate, failing, handlers):
    """The save before a preemption is waited for and written, whatever became of the one before."""
    gate.failing = failing

    def terminate(trainer) -> None:
        threading.Thread(target=gate.open.set).start()
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(CheckpointError if failing else SystemExit) as stopped:
        fit(At({3: terminate}), saver(tmp_path, save_top_k=1))
    if not failing:
        assert stopped.value.code == 128 + signal.SIGTERM
    found = [torch.load(path, weights_only=True)["global_step"] for path in tmp_path.glob("*.ckpt")]
    assert sorted(found) == ([3] if failing else [2, 3])


def test_the_name_of_a_file_under_way_is_taken(fit, tmp_path, gate):
    """Two saves with one name get two files, though the first is not there yet at the second."""
    gate.open.set()
    fit(ModelCheckpoint(tmp_path, "same", every_n_train_steps=2, save_top_k=-1, async_save=True))
    assert names(tmp_path) == ["same-v1.ckpt", "same.ckpt"]


def test_two_savers_never_write_at_once(fit, tmp_path, monkeypatch):
    """Savers share one writer: files are written one after another, in the order of the saves."""
    active, order = [0], []

    def write(checkpoint, path, **options) -> str:
        active[0] += 1
        assert active[0] == 1
        written = write_checkpoint(checkpoint, path, **options)
        order.append(Path(path).parent.name)
        active[0] -= 1
        return written

    monkeypatch.setattr(checkpoint_saving, "write_checkpoint", write)
    fit(
        saver(tmp_path / "a", every=1),
        ModelCheckpoint(tmp_path / "b", every_n_epochs=1, async_save=True),
    )
    assert order == ["a", "a", "a", "a", "b"]


def test_a_resume_is_that_from_a_blocking_save(fit, tmp_path):
    """Trained on from either kind of file, the weights and the optimizer's state are the same."""
    ends = []
    for kind in (False, True):
        folder = tmp_path / str(kind)
        fit(saver(folder, async_save=kind))
        trainer = fit(
            saver(folder, async_save=False), ckpt_path=folder / "step=2.ckpt", max_epochs=3
        )
        trainer.save_checkpoint(folder / "end.ckpt")
        ends.append(torch.load(folder / "end.ckpt", weights_only=True))
    assert torch.equal(*(end["state_dict"]["layer.weight"] for end in ends))
    assert str(ends[0]["optimizer_states"]) == str(ends[1]["optimizer_states"])
    assert ends[0]["loops"] == ends[1]["loops"]


def test_the_memory_of_the_copy_is_let_go(fit, tmp_path):
    """A trainer that is kept does not keep a copy of the state."""
    trainer = fit(saver(tmp_path))
    assert trainer._core.background._copier._buffers == {}


def test_the_option_is_checked():
    """`async_save` is True or False."""
    with pytest.raises(OptionError, match="async_save 1 of ModelCheckpoint"):
        ModelCheckpoint(async_save=1)


def test_what_is_saved_after_a_fit_is_finished_by_close(fit, tmp_path, gate):
    """`save_in_background` can be called by hand; close() waits, tells, and raises its error."""
    gate.open.set()
    listener = At({})
    trainer = fit(listener, enable_checkpointing=False)
    trainer.save_in_background(tmp_path / "a.ckpt", tmp_path / "b.ckpt", weights_only=True)
    trainer.finish_saves()
    assert [name for _, name, _ in listener.told] == ["a.ckpt", "b.ckpt"]
    assert "optimizer_states" not in torch.load(tmp_path / "b.ckpt", weights_only=True)
    gate.failing = {"c.ckpt"}
    trainer.save_in_background(tmp_path / "c.ckpt")
    with pytest.raises(CheckpointError, match=r"c.ckpt"):
        trainer.close()


def test_the_format_goes_by_the_name_in_the_background_too(fit, tmp_path):
    """What cannot be written is refused at once, and not by the other thread."""
    trainer = fit(enable_checkpointing=False)
    with pytest.raises(UsageError, match="weights alone"):
        trainer.save_in_background(tmp_path / "a.safetensors")
    with pytest.raises(UsageError, match="no path"):
        trainer.save_in_background()


SCRIPT = textwrap.dedent(
    """
    import os, signal, sys, threading
    from pathlib import Path
    import torch
    from torch.utils.data import DataLoader
    from trainer_hooks import Callback, Module, Trainer
    from trainer_hooks.callbacks import ModelCheckpoint

    folder, kill_at = Path(sys.argv[1]), int(sys.argv[2])

    class Net(Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer = torch.nn.Linear(2, 1)
        def training_step(self, batch, batch_idx):
            return (self.layer(batch) - 1).square().mean()
        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.1)

    real, count, reached = os.fsync, [0], threading.Event()
    def fsync(descriptor):
        # of a file that is written, but has not its place yet
        if threading.current_thread() is not threading.main_thread():
            if any(folder.glob(".*[0-9a-f].trainer_hooks.part")):
                count[0] += 1
            if count[0] == kill_at:
                reached.set()
                threading.Event().wait()
        real(descriptor)
    os.fsync = fsync

    class Kill(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if trainer.global_step == kill_at + 1:
                reached.wait()
                os.kill(os.getpid(), signal.SIGKILL)

    saver = ModelCheckpoint(
        folder, "{step}", every_n_train_steps=1, save_top_k=1, async_save=True
    )
    trainer = Trainer(
        callbacks=[Kill(), saver], max_epochs=2, accelerator="cpu", logger=False, plugins=False,
        enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(Net(), DataLoader(torch.arange(16.0).reshape(8, 2), batch_size=2))
    """
)


@pytest.mark.slow
def test_a_kill_in_mid_write_leaves_the_file_before(fit, tmp_path):
    """SIGKILL while the third file is half done: the second is whole, knows itself, and resumes."""
    folder = tmp_path / "saved"
    done = warm_python.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, str(folder), "3"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert sorted(path.name for path in folder.glob("*.ckpt")) == ["step=2.ckpt"]
    again = saver(folder, every=1, save_top_k=1)
    trainer = fit(again, ckpt_path=folder / "step=2.ckpt", max_epochs=2)
    assert trainer.global_step == 8
    # the one that the run was resumed from is left alone
    found = sorted(path.name for path in folder.glob("*.ckpt"))
    assert found == ["step=2.ckpt", "step=8.ckpt"]

    uncut = fit(enable_checkpointing=False, max_epochs=2)
    assert torch.equal(uncut.module.layer.weight, trainer.module.layer.weight)
