"""The Trainer and its hook profile: options, method, and what a run reports."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
import torch

from trainer_hooks import Callback, StopTraining, Trainer
from trainer_hooks.errors import OptionError, TrainerHooksWarning
from trainer_hooks.hooks.profile import HookProfile
from trainer_hooks.loggers.csv import CSVLogger
from trainer_hooks.trainer.run.hook_profiling import as_share

ROOT = Path(__file__).parents[3]


class Listens(Callback):
    """Listens at a hook in a batch and at one outside, and writes down what fired."""

    def __init__(self) -> None:
        self.seen = []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.seen.append(("on_train_batch_end", batch_idx, outputs["loss"].item()))

    def on_train_epoch_end(self, trainer, module):
        self.seen.append(("on_train_epoch_end", trainer.global_step))

    def on_save_checkpoint(self, trainer, module, checkpoint):
        self.seen.append(("on_save_checkpoint", trainer.global_step))


class Slow(Callback):
    """Takes a millisecond after every batch, far more than a batch of these tests."""

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        until = time.perf_counter() + 0.001
        while time.perf_counter() < until:
            pass


class Jittered(Listens):
    """Draws a random number at each batch."""

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self.seen.append(torch.rand(()).item())


def traces(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("hook_trace*"))


# --- the method ---


def test_profile_a_fit(quiet_trainer, Tiny, batches) -> None:
    """`trainer.profile_hooks()` times what fires from then on, by callback and hook."""
    trainer = quiet_trainer(callbacks=[Listens()])
    with trainer.profile_hooks() as profile:
        assert trainer.hook_profile is profile
        trainer.fit(Tiny(), batches(4))
    assert trainer.hook_profile is None
    found = {(r.name, r.hook): r for r in profile.records}
    assert found[("Listens", "on_train_batch_end")].calls == 4
    assert 0 < found[("Listens", "on_train_batch_end")].share < 1
    assert found[("Listens", "on_train_epoch_end")].share is None
    assert profile.batches == 4


def test_the_one_that_is_in_is_given_again(quiet_trainer) -> None:
    """A second call gives the same profile, and after a stop another one."""
    trainer = quiet_trainer()
    profile = trainer.profile_hooks()
    assert trainer.profile_hooks() is profile
    profile.stop()
    assert trainer.hook_profile is None
    assert trainer.profile_hooks() is not profile


def test_a_second_call_may_set_the_budget(quiet_trainer) -> None:
    """A budget is taken over by the profile that is in; without one, it keeps its own."""
    trainer = quiet_trainer(hook_budget="2%")
    profile = trainer.hook_profile
    assert profile.budget == pytest.approx(0.02)
    assert trainer.profile_hooks().budget == pytest.approx(0.02)
    assert trainer.profile_hooks(budget="5 %") is profile
    assert profile.budget == pytest.approx(0.05)


@pytest.mark.parametrize("value", ["2", "0%", "100%", 1, 0.0, 1.0, "x%", "-1%", True])
def test_a_bad_budget_is_refused(quiet_trainer, value) -> None:
    """A budget that is no share is an OptionError with the rule, and no profile is put in."""
    trainer = quiet_trainer()
    with pytest.raises(OptionError, match=r"profile_hooks\(budget=.* over 0% and under 100%"):
        trainer.profile_hooks(budget=value)
    assert trainer.hook_profile is None


@pytest.mark.parametrize(
    ("value", "share"),
    [("2%", 0.02), ("0.5%", 0.005), (" 12. % ", 0.12), (".5%", 0.005), (0.25, 0.25), ("99%", 0.99)],
)
def test_shares(value, share) -> None:
    """A share is a percentage in words or a float."""
    assert as_share(value) == pytest.approx(share)


@pytest.mark.parametrize("value", ["", "%", "2", "1e1%", "٢%", "nan%", 2, None, float("nan"), []])
def test_no_shares(value) -> None:
    """Anything else is none."""
    assert as_share(value) is None


def test_put_in_inside_of_a_run(quiet_trainer, Tiny, batches) -> None:
    """A profile that comes in inside of a batch times whole batches from the next one on."""

    class PutsIn(Listens):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            if batch_idx == 1:
                trainer.profile_hooks()

    trainer = quiet_trainer(callbacks=[PutsIn()])
    trainer.fit(Tiny(), batches(4))
    profile = trainer.hook_profile
    found = {r.hook: r for r in profile.records}
    assert profile.batches == 2
    assert found["on_train_batch_end"].calls == 3
    assert found["on_train_batch_start"].calls == 2


def test_it_outlives_an_error(quiet_trainer, Tiny, batches) -> None:
    """A run that dies keeps its notes; the profile goes on in the next run."""

    class Fails(Callback):
        fails = True

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if self.fails and batch_idx == 1:
                raise RuntimeError("broken")

    callback = Fails()
    trainer = quiet_trainer(callbacks=[callback])
    profile = trainer.profile_hooks()
    with pytest.raises(RuntimeError) as caught:
        trainer.fit(Tiny(), batches(4))
    assert any("'on_train_batch_end' of callback" in note for note in caught.value.__notes__)
    assert profile.batches == 1
    callback.fails = False
    trainer.fit(Tiny(), batches(4))
    assert profile.batches == 5


def test_a_stop_is_no_error(quiet_trainer, Tiny, batches) -> None:
    """`StopTraining` ends a profiled run in order."""

    class Stops(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            raise StopTraining("enough")

    trainer = quiet_trainer(callbacks=[Stops()], max_epochs=3)
    with trainer.profile_hooks() as profile:
        trainer.fit(Tiny(), batches(4))
    assert trainer.global_step == 1
    assert profile.records[0].calls == 1


def test_validation_inside_of_an_epoch_is_left_out(quiet_trainer, Tiny, batches) -> None:
    """The time of a validation that is due on a batch belongs to no batch, nor does its share."""
    now = 0

    def passes(seconds):
        nonlocal now
        now += seconds * 1_000_000_000

    class Validated(Tiny):
        def training_step(self, batch, batch_idx):
            passes(3)
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch, batch_idx):
            passes(50)

    class Takes(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            passes(1)

        def on_validation_end(self, trainer, module):
            passes(7)

    trainer = quiet_trainer(callbacks=[Takes()], val_check_interval=1)
    with HookProfile(clock=lambda: now).start(trainer._core.connector.relay) as profile:
        trainer.fit(Validated(), batches(2), batches(2))
    assert (profile.batches, profile.batch_seconds) == (2, 8.0)
    found = {record.hook: (record.total, record.share) for record in profile.records}
    assert found == {"on_validation_end": (14.0, None), "on_train_batch_end": (2.0, 0.25)}


# --- nothing changes by it ---


def trained(quiet_trainer, Tiny, batches, tmp_path, **options):
    """Return the weights and what the callbacks saw of a fit with validation and checkpoints."""

    class RandomLoss(Tiny):
        def __init__(self) -> None:
            torch.manual_seed(3)
            super().__init__()

        def training_step(self, batch, batch_idx):
            loss = (self.layer(batch) * torch.rand(1)).pow(2).mean()
            self.log("loss", loss)
            return loss

        def validation_step(self, batch, batch_idx):
            self.log("val", self.layer(batch).mean())

    torch.manual_seed(5)
    callbacks = [Jittered(), Listens()]
    callbacks[1].on_log = lambda *args: callbacks[1].seen.append(args[2:])
    trainer = quiet_trainer(
        callbacks=callbacks, max_epochs=2, val_check_interval=2, enable_checkpointing=True,
        default_root_dir=tmp_path / str(len(options)), log_every_n_steps=1, **options
    )  # fmt: skip
    module = RandomLoss()
    trainer.fit(module, batches(4), batches(2))
    return module.state_dict(), [callback.seen for callback in callbacks]


def test_results_are_the_same_to_the_bit(
    quiet_trainer, Tiny, batches, tmp_path, monkeypatch, capsys
) -> None:
    """With a profile the weights, the order of the hooks and what they are given are the same."""
    plain, seen = trained(quiet_trainer, Tiny, batches, tmp_path)
    watched, seen_when_watched = trained(quiet_trainer, Tiny, batches, tmp_path, profile_hooks=True)
    assert "on_train_batch_end" in capsys.readouterr().out
    assert seen_when_watched == seen
    assert len(seen[1]) > 12
    for name, weight in plain.items():
        assert torch.equal(watched[name], weight)


@pytest.mark.slow
def test_the_profile_is_imported_when_it_is_used() -> None:
    """A trainer without a profile does not load it."""
    code = (
        "import sys\n"
        "from trainer_hooks import Trainer\n"
        "trainer = Trainer(logger=False, accelerator='cpu', plugins=False)\n"
        "name = 'trainer_hooks.hooks.profile'\n"
        "print(name in sys.modules)\n"
        "trainer.profile_hooks()\n"
        "print(name in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.split() == ["False", "True"]


# --- the options ---


def test_a_run_prints_its_table_and_writes_its_trace(
    quiet_trainer, Tiny, batches, tmp_path, capsys
) -> None:
    """`Trainer(profile_hooks=True)` reports at the end of a run, from the first hook on."""

    class Early(Listens):
        def on_init_start(self, trainer):
            pass

    trainer = quiet_trainer(callbacks=[Early()], profile_hooks=True)
    trainer.fit(Tiny(), batches(4))
    printed = capsys.readouterr().out
    assert "share of 4 training batches" in printed
    assert "on_init_start" in printed
    path = tmp_path / "hook_trace.json"
    assert f"trace: {path} (" in printed
    events = json.loads(path.read_text())["traceEvents"]
    assert sum(event["name"] == "on_train_batch_end" for event in events) == 4
    assert trainer.hook_profile.batches == 4


def test_each_run_has_a_report_of_its_own(quiet_trainer, Tiny, batches, tmp_path, capsys) -> None:
    """A second run's table and trace are about that run, and its file overwrites none."""
    trainer = quiet_trainer(callbacks=[Listens()], profile_hooks=True, max_epochs=1)
    module = Tiny()
    trainer.fit(module, batches(4))
    first = (tmp_path / "hook_trace.json").read_text()
    capsys.readouterr()
    trainer.max_epochs = 3
    trainer.fit(module, batches(4))
    assert "share of 8 training batches" in capsys.readouterr().out
    assert traces(tmp_path) == ["hook_trace-v1.json", "hook_trace.json"]
    assert (tmp_path / "hook_trace.json").read_text() == first
    second = json.loads((tmp_path / "hook_trace-v1.json").read_text())
    assert second["otherData"]["training_batches"] == 8
    names = [event["name"] for event in second["traceEvents"]]
    assert names.count("on_train_epoch_end") == 2


def test_the_trace_goes_into_the_log_folder(quiet_trainer, Tiny, batches, tmp_path, capsys) -> None:
    """With a logger the trace lies beside what that wrote."""
    trainer = quiet_trainer(
        callbacks=[Listens()], profile_hooks=True, logger=CSVLogger(tmp_path / "logs")
    )
    trainer.fit(Tiny(), batches(2))
    capsys.readouterr()
    assert (Path(trainer.log_dir) / "hook_trace.json").is_file()
    assert len(traces(tmp_path)) == 1


def test_a_dry_run_writes_no_file(quiet_trainer, Tiny, batches, tmp_path, capsys) -> None:
    """With `fast_dev_run` the table is printed, and nothing is written."""
    trainer = quiet_trainer(callbacks=[Listens()], profile_hooks=True, fast_dev_run=True)
    trainer.fit(Tiny(), batches(2))
    printed = capsys.readouterr().out
    assert "share of 1 training batches" in printed
    assert "trace" not in printed
    assert traces(tmp_path) == []


def test_a_run_that_dies_is_reported_too(quiet_trainer, Tiny, batches, tmp_path, capsys) -> None:
    """The table of a run that an error ended is there, and the error is raised as it was."""

    class Fails(Callback):
        def on_train_epoch_end(self, trainer, module):
            raise RuntimeError("broken")

    trainer = quiet_trainer(callbacks=[Fails()], profile_hooks=True)
    with pytest.raises(RuntimeError, match="broken"):
        trainer.fit(Tiny(), batches(2))
    assert "share of 2 training batches" in capsys.readouterr().out
    assert traces(tmp_path) == ["hook_trace.json"]


def test_a_trace_that_cannot_be_written_does_not_end_the_run(
    quiet_trainer, Tiny, batches, tmp_path, capsys
) -> None:
    """A log folder that is a file is warned of; the training is done and its table printed."""
    (tmp_path / "file").write_text("")
    trainer = quiet_trainer(profile_hooks=True, default_root_dir=tmp_path / "file")
    with pytest.warns(TrainerHooksWarning, match="trace of the hooks could not be written"):
        trainer.fit(Tiny(), batches(2))
    assert trainer.state.status == "finished"
    assert "share of 2 training batches" in capsys.readouterr().out


def test_a_profile_that_was_stopped_reports_nothing(quiet_trainer, Tiny, batches, capsys) -> None:
    """Who takes the profile out has taken its report out too."""
    trainer = quiet_trainer(profile_hooks=True)
    trainer.hook_profile.stop()
    trainer.fit(Tiny(), batches(2))
    assert "share of" not in capsys.readouterr().out


def test_a_budget_alone_prints_and_writes_nothing(
    quiet_trainer, Tiny, batches, tmp_path, capsys
) -> None:
    """`hook_budget` times the callbacks on its own, without table and trace."""
    trainer = quiet_trainer(callbacks=[Listens()], hook_budget=0.99)
    trainer.fit(Tiny(), batches(2))
    assert trainer.hook_profile.batches == 2
    assert "share of" not in capsys.readouterr().out
    assert traces(tmp_path) == []


def test_over_the_budget_is_warned_of(quiet_trainer, Tiny, batches) -> None:
    """A slow callback is warned of by name, once, over all fits of a trainer."""
    trainer = quiet_trainer(callbacks=[Slow()], hook_budget="5%", max_epochs=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.fit(Tiny(), batches(15))
        trainer.fit(Tiny(), batches(15))
    (message,) = [str(w.message) for w in caught if issubclass(w.category, TrainerHooksWarning)]
    assert message.startswith("callback Slow (state_key 'Slow', from Trainer(callbacks=...)) takes")
    assert "'on_train_batch_end': the hook budget is 5%" in message


def test_neither_option_nor_method_no_profile(quiet_trainer) -> None:
    """By default nothing is timed."""
    assert quiet_trainer().hook_profile is None
    assert isinstance(quiet_trainer(profile_hooks=False), Trainer)
