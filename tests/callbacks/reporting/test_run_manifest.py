"""RunManifest: the journal of a run, and the manifest in its checkpoints."""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from pathlib import Path

import pytest
import torch
import warm_python

from trainer_hooks import Callback, Trainer, TrainerHooksWarning
from trainer_hooks.callbacks import RunManifest
from trainer_hooks.errors import OptionError
from trainer_hooks.loggers import CSVLogger

pytestmark = pytest.mark.filterwarnings(
    "ignore:a checkpoint was saved in the hook"  # what these look at does not depend on the place
)

ROOT = Path(__file__).parents[3]


def journal_of(folder) -> list[dict]:
    return [json.loads(line) for line in Path(folder, "run.jsonl").read_text().splitlines()]


def events_of(folder) -> list[str]:
    return [record["event"] for record in journal_of(folder)]


@pytest.fixture
def logged(quiet_trainer, tmp_path):
    """Make trainers that log to a folder `logs/run` and have no callbacks by default but one."""

    def make(*callbacks, **options):
        logger = CSVLogger(tmp_path, name="logs", version="run")
        return quiet_trainer(**{"logger": logger, "callbacks": list(callbacks), **options})

    return make


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "logs" / "run"


@pytest.mark.parametrize("value", [3, b"x", "", "s3://bucket/x", True])
def test_a_dirpath_that_is_no_local_folder_is_refused(value) -> None:
    """The journal grows line by line, which only a local folder can."""
    with pytest.raises(OptionError, match=r"dirpath .* of RunManifest: it must be a local folder"):
        RunManifest(value)


@pytest.mark.parametrize("value", [1, None, "yes"])
def test_in_checkpoint_must_be_a_switch(value) -> None:
    """Nothing but True and False is taken."""
    with pytest.raises(OptionError, match=r"in_checkpoint .* of RunManifest: it must be one of"):
        RunManifest(in_checkpoint=value)


def test_a_default_run_is_journaled(logged, folder, Tiny, batches) -> None:
    """A trainer with a logger keeps a journal without being told to, and no state for it."""
    trainer = logged()
    trainer.fit(Tiny(), batches())
    first, *_, last = journal_of(folder)
    assert events_of(folder)[0] == "start"
    assert first["stage"] == "fit"
    assert first["pid"] == os.getpid()
    assert first["module"].endswith("Tiny")
    assert first["resumed_from"] is None
    assert first["versions"]["torch"] == torch.__version__
    assert {"name": "RunManifest", "supplier": "default", "band": "OBSERVE"} in first["callbacks"]
    assert (last["event"], last["status"], last["step"]) == ("end", "finished", 4)
    [manifest] = [c for c in trainer.callbacks if isinstance(c, RunManifest)]
    assert not manifest.is_stateful
    path = folder / "x.ckpt"
    trainer.save_checkpoint(path)
    saved = torch.load(path, weights_only=True)["callbacks"]
    assert "RunManifest" not in saved


@pytest.mark.parametrize(
    "options", [{"logger": False}, {"logger": []}, {"enable_run_manifest": False}]
)
def test_a_default_run_is_not_journaled_without_a_folder_or_a_wish(
    options, logged, tmp_path, Tiny, batches
) -> None:
    """Without a logger, or switched off, there is none, and nothing is written."""
    trainer = logged(**options)
    trainer.fit(Tiny(), batches())
    assert not [c for c in trainer.callbacks if isinstance(c, RunManifest)]
    assert not list(tmp_path.rglob("run.jsonl"))


def test_fast_dev_run_writes_nothing(logged, tmp_path, Tiny, batches) -> None:
    """A dry run leaves no journal, even with a RunManifest of the user's own."""
    logged(RunManifest(), fast_dev_run=True).fit(Tiny(), batches())
    assert not list(tmp_path.rglob("run.jsonl"))


def test_the_option_and_a_callback_contradict_each_other() -> None:
    """One that was given is not silently switched off."""
    with pytest.raises(OptionError, match=r"enable_run_manifest=False.* contradict each other"):
        Trainer(callbacks=[RunManifest()], enable_run_manifest=False)


@pytest.mark.slow
def test_one_of_the_users_own_takes_the_defaults_place(logged, folder, Tiny, batches) -> None:
    """There is one journal, and each record in it once."""
    logged(RunManifest()).fit(Tiny(), batches())
    assert events_of(folder).count("start") == events_of(folder).count("end") == 1


def test_an_exception_is_told_as_the_end(logged, folder, Tiny, batches) -> None:
    """How a run failed, and where, is in the journal."""

    class Fails(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if batch_idx == 2:
                raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        logged(Fails()).fit(Tiny(), batches())
    last = journal_of(folder)[-1]
    assert (last["event"], last["status"]) == ("end", "failed")
    assert last["error"] == {"type": "RuntimeError", "message": "no more"}
    assert last["batches"] == 3


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_is_told_as_the_end(name, logged, folder, Tiny, batches, handlers) -> None:
    """A fit that made way for a signal says for which."""

    class Sends(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if batch_idx == 1:
                os.kill(os.getpid(), getattr(signal, name))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainerHooksWarning)  # nothing saves here
        with pytest.raises((SystemExit, KeyboardInterrupt)):
            logged(Sends()).fit(Tiny(), batches())
    last = journal_of(folder)[-1]
    assert (last["event"], last["status"], last["signal"]) == ("end", "signal", name)
    assert last["batches"] == 2


def test_a_stop_is_told_with_its_reason(logged, folder, Tiny, batches) -> None:
    """A run that was stopped in order is finished, and says why."""

    class Stops(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            trainer.stop("it is good enough")

    logged(Stops()).fit(Tiny(), batches())
    last = journal_of(folder)[-1]
    assert (last["status"], last["stop_reason"]) == ("finished", "it is good enough")


def test_a_callback_that_was_disabled_is_told(logged, folder, Tiny, batches) -> None:
    """What was taken out on the way stands in the last record."""

    class Weak(Callback):
        on_error = "disable"

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            raise ValueError("weak")

    with pytest.warns(TrainerHooksWarning, match="weak"):
        logged(Weak()).fit(Tiny(), batches())
    [lost] = journal_of(folder)[-1]["disabled"]
    assert lost["hook"] == "on_train_batch_end"
    assert "weak" in lost["error"]


def test_a_resume_is_told_with_its_checkpoint_and_place(logged, folder, Tiny, batches) -> None:
    """The second start of a journal says where it goes on."""
    first = logged(max_epochs=1)
    first.fit(Tiny(), batches())
    path = str(folder / "x.ckpt")
    first.save_checkpoint(path)
    logged(max_epochs=2).fit(Tiny(), batches(), ckpt_path=path)
    starts = [record for record in journal_of(folder) if record["event"] == "start"]
    assert [(s["resumed_from"], s["step"]) for s in starts] == [(None, 0), (path, 4)]
    assert starts[0]["run"] != starts[1]["run"]
    saved = [record for record in journal_of(folder) if record["event"] == "saved"]
    assert [(record["path"], record["step"]) for record in saved] == []


def test_what_is_saved_in_a_run_is_told(logged, folder, Tiny, batches) -> None:
    """Each checkpoint that is durable stands in the journal, with its place."""

    class Saves(Callback):
        def on_train_epoch_end(self, trainer, module):
            trainer.save_checkpoint(Path(trainer.log_dir, f"{trainer.current_epoch}.ckpt"))

    logged(Saves(), max_epochs=2).fit(Tiny(), batches())
    saved = [record for record in journal_of(folder) if record["event"] == "saved"]
    assert [(Path(r["path"]).name, r["step"]) for r in saved] == [("0.ckpt", 4), ("1.ckpt", 8)]


class _Clock:
    """A clock that a test moves on."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    perf_counter = monotonic

    def time(self) -> float:
        return self.now


def test_samples_come_seldom_and_leave_validation_out(
    logged, folder, Tiny, batches, monkeypatch
) -> None:
    """At most one sample a second; the time of validations is told apart; batches have a size."""
    clock = _Clock()
    monkeypatch.setattr("trainer_hooks.callbacks.reporting.run_manifest.time", clock)
    monkeypatch.setattr("trainer_hooks.clock.pausable_timer.time", clock)

    class Logs(Tiny):
        def training_step(self, batch, batch_idx):
            clock.now += 0.4
            loss = super().training_step(batch[0], batch_idx)
            self.log("loss", loss)
            return loss

        def validation_step(self, batch, batch_idx):
            clock.now += 10.0

    data = torch.utils.data.TensorDataset(torch.ones(24, 2))
    loader = torch.utils.data.DataLoader(data, batch_size=3)
    logged(log_every_n_steps=1, max_epochs=1).fit(Logs(), loader, [torch.ones(1)])
    samples = [record for record in journal_of(folder) if record["event"] == "sample"]
    assert [s["batches"] for s in samples] == [0, 3, 6, 8, 8]
    assert samples[0]["batch_size"] == 3
    assert [s["seconds"] for s in samples] == pytest.approx([0.0, 1.2, 2.4, 13.2, 13.2])
    assert [s["validation_seconds"] for s in samples] == [0.0, 0.0, 0.0, 10.0, 10.0]


def test_long_runs_are_sampled_at_a_share_of_their_time() -> None:
    """The journal of a week has thousands of lines and not a million."""
    manifest = RunManifest()
    told = []
    manifest._record = lambda trainer, event, values: told.append(values)

    class Progress:
        epochs_completed = batches_completed = steps_completed = batches_stepped = 0

    class Runner:
        progress = Progress()

    clock = _Clock()
    manifest._started_at = clock.now
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainer_hooks.callbacks.reporting.run_manifest.time", clock)
        manifest._next_progress_at = 0.0
        for _ in range(7 * 24 * 3600 // 10):
            clock.now += 10.0
            manifest.on_log(Runner(), None, {}, 0)
    assert 500 < len(told) < 3000


def test_it_does_nothing_at_a_batch() -> None:
    """None of the hooks that fire for each batch is overridden, so a step costs what it did."""
    from trainer_hooks.hooks.spec import HOOKS

    own = {name for name in vars(RunManifest) if name in HOOKS}
    assert not {name for name in own if "batch" in name or "step" in name or "zero_grad" in name}
    assert own == {
        "on_checkpoint_saved", "on_evaluation_run_start", "on_exception", "on_fit_start",
        "on_log", "on_predict_start", "on_train_end", "on_train_epoch_end", "on_train_start",
        "on_validation_run_end", "on_validation_run_start", "teardown",
    }  # fmt: skip


def test_evaluations_add_to_a_journal_and_begin_none(logged, folder, Tiny, batches) -> None:
    """A prediction on its own makes no folder; after a fit it stands in the journal."""

    class Predicts(Tiny):
        def predict_step(self, batch, batch_idx):
            return self.layer(batch)

    module = Predicts()
    logged().predict(module, batches())
    assert not folder.exists()
    trainer = logged()
    trainer.fit(module, batches())
    trainer.predict(module, batches())
    starts = [record["stage"] for record in journal_of(folder) if record["event"] == "start"]
    assert starts == ["fit", "predict"]
    assert events_of(folder)[-1] == "end"


def test_a_journal_that_cannot_be_written_is_warned_of_once(logged, folder, Tiny, batches) -> None:
    """The run goes on, and says once what is wrong."""
    (folder / "run.jsonl").mkdir(parents=True)
    with pytest.warns(
        TrainerHooksWarning, match="the journal of the run could not be written"
    ) as w:
        logged(max_epochs=2).fit(Tiny(), batches())
    assert len([one for one in w if "journal" in str(one.message)]) == 1


def test_it_follows_a_logger_that_had_to_move(quiet_trainer, tmp_path, Tiny, batches) -> None:
    """Where another run took the number that the logger was promised, the journal goes along."""
    logger = CSVLogger(tmp_path, name="logs")
    promised = Path(logger.log_dir)
    promised.mkdir(parents=True)
    (promised / "metrics.csv").write_text("step\n")
    trainer = quiet_trainer(logger=logger)
    with pytest.warns(TrainerHooksWarning, match="which another logger took"):
        trainer.fit(Tiny(), batches())
    assert Path(logger.log_dir) != promised
    found = events_of(logger.log_dir)
    assert (found[0], found[-1]) == ("start", "end")


def test_a_dirpath_of_its_own(logged, tmp_path, folder, Tiny, batches) -> None:
    """The journal can lie elsewhere, also without a logger."""
    logged(RunManifest(tmp_path / "own"), logger=False).fit(Tiny(), batches())
    assert events_of(tmp_path / "own")[0] == "start"
    assert not folder.exists()


@pytest.mark.slow
def test_the_manifest_and_all_starts_are_in_the_checkpoint(
    logged, folder, Tiny, batches, tmp_path
) -> None:
    """A checkpoint says what made it, and through which starts, as plain data."""
    first = logged(RunManifest())
    first.fit(Tiny(), batches())
    path = tmp_path / "x.ckpt"
    first.save_checkpoint(path)
    manifest = RunManifest()
    second = logged(manifest, max_epochs=2)
    second.fit(Tiny(), batches(), ckpt_path=path)
    second.save_checkpoint(path)
    state = torch.load(path, weights_only=True)["callbacks"]["RunManifest"]
    assert state["manifest"]["versions"]["torch"] == torch.__version__
    assert state["manifest"]["hardware"]["device"] == "cpu"
    assert [start["step"] for start in state["starts"]] == [0, 4]
    assert state["starts"][1]["resumed_from"] == str(path)
    assert manifest.starts == state["starts"]


def test_a_new_training_starts_a_new_list(logged, Tiny, batches) -> None:
    """A second fit of another module knows nothing of the first one's starts."""
    manifest = RunManifest()
    trainer = logged(manifest)
    trainer.fit(Tiny(), batches())
    trainer.fit(Tiny(), batches())
    assert len(manifest.starts) == 1


SCRIPT = """
import os, signal, sys
import torch
from trainer_hooks import Module, Trainer

class Dies(Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        if batch_idx == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

Trainer(max_epochs=1, accelerator="cpu", enable_progress_bar=False).fit(
    Dies(), [torch.ones(1, 2)] * 4
)
"""


@pytest.mark.slow
def test_a_killed_process_leaves_its_start(tmp_path) -> None:
    """SIGKILL leaves every line that was written, and no end."""
    done = warm_python.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert events_of(tmp_path / "trainer_logs" / "version_0") == ["start", "sample"]
