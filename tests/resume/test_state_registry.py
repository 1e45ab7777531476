"""Every entry of the state registry is needed: a resume without it is not exact."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Band, Callback, Module, StopTraining
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.context.state_registry import RegisteredState
from trainer_hooks.errors import CheckpointError
from trainer_hooks.loggers import CSVLogger


class Net(Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class SaveAt(Callback):
    """Saves once after so many batches."""

    band = Band.SAVE

    def __init__(self, path, batches: int) -> None:
        self.path, self.batches = path, batches

    def on_batch_checkpoint(self, trainer, module):
        if trainer.progress.batches_completed == self.batches:
            trainer.save_checkpoint(self.path)


def numbers(count: int, batch_size: int = 1) -> DataLoader:
    return DataLoader(TensorDataset(torch.arange(float(count))[:, None]), batch_size=batch_size)


@pytest.fixture
def cut(bare, tmp_path):
    """Fit a module whole and once more from a checkpoint after so many batches; return both."""

    def run(make, loader, batches: int, epochs: int = 2, callbacks=(), **options):
        path, modules = tmp_path / "cut.ckpt", []
        for ckpt_path in (None, path):
            torch.manual_seed(0)
            random.seed(0)
            module = make()
            trainer = bare(
                SaveAt(path, batches), *(c() for c in callbacks), max_epochs=epochs, **options
            )
            trainer.fit(module, loader(), ckpt_path=ckpt_path)
            modules.append(module)
        return modules

    return run


class MetricNet(Net):
    """Logs a metric object in its validation."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = pytest.importorskip("torchmetrics").MeanMetric()

    def validation_step(self, batch, batch_idx):
        self.mean(batch[0])
        self.log("mean", self.mean)


class CountsValidation(Callback):
    def __init__(self) -> None:
        self.batches = 0

    def on_validation_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.batches += 1

    def state_dict(self):
        return {"batches": self.batches}

    def load_state_dict(self, state_dict):
        self.batches = state_dict["batches"]


class TermIn(Callback):
    """Sends SIGTERM to this process in the second batch of a validation."""

    def on_validation_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if batch_idx == 1 and not trainer.sanity_checking:
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_validation_that_is_broken_off_is_counted_once(bare, tmp_path) -> None:
    """Metric objects and callbacks are saved as they were when that validation began."""

    def validated(*more, **options):
        counts = CountsValidation()
        saver = ModelCheckpoint(tmp_path / "saved", save_last=True)
        trainer = bare(saver, counts, *more, enable_checkpointing=None)
        trainer.fit(MetricNet(), numbers(4), numbers(4), **options)
        return trainer.callback_metrics["mean"].item(), counts.batches

    uncut = validated()
    for file in (tmp_path / "saved").iterdir():
        file.unlink()
    with pytest.raises(SystemExit):
        validated(TermIn())
    assert validated(ckpt_path=tmp_path / "saved" / "last.ckpt") == uncut == (1.5, 4)


class CountingNet(Net):
    """Counts its validation batches in a buffer, and logs each."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("validated", torch.zeros(1))

    def validation_step(self, batch, batch_idx):
        self.validated += 1
        self.log("seen", batch[0].sum(), on_step=True, on_epoch=False)


@pytest.mark.slow
def test_buffers_and_rows_of_a_validation_that_is_broken_off_are_there_once(bare, tmp_path) -> None:
    """Buffers are saved as they were when it began, and loggers write nothing a second time."""

    def validated(name, *more, **options):
        module = CountingNet()
        saver = ModelCheckpoint(tmp_path / name / "saved", save_last=True)
        logger = CSVLogger(tmp_path / name, version=0)
        trainer = bare(saver, *more, enable_checkpointing=None, logger=logger, max_epochs=2)
        trainer.fit(module, numbers(4), numbers(4), **options)
        rows = Path(logger.log_dir, "metrics.csv").read_text()
        return module.validated.item(), rows

    uncut = validated("uncut")
    with pytest.raises(SystemExit):
        validated("cut", TermIn())
    last = tmp_path / "cut" / "saved" / "last.ckpt"
    assert validated("cut", ckpt_path=last) == uncut
    assert uncut[0] == 8  # of the sanity check nothing is left


@pytest.mark.parametrize("precision", ["32-true", "16-mixed"])
@pytest.mark.parametrize("error", [ValueError, StopTraining])
def test_a_fit_that_fails_in_a_step_leaves_no_scaled_gradient(bare, precision, error) -> None:
    """After it the next fit steps as far as ever, whatever the loss scaler was about to do."""

    class Even(Net):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def training_step(self, batch, batch_idx):
            return (self.weight * 1e-3 * batch).sum()

        def configure_optimizers(self):
            return torch.optim.SGD([self.weight], lr=1.0)

    class Boom(Callback):
        def on_before_optimizer_step(self, trainer, module, optimizer):
            if trainer.global_step == 3:
                trainer.remove_callback(self)
                raise error("now")

    module, trainer = Even(), bare(Boom(), precision=precision)
    if error is ValueError:
        with pytest.raises(ValueError, match="now"):
            trainer.fit(module, [torch.ones(1)] * 6)
    else:
        trainer.fit(module, [torch.ones(1)] * 6)
        trainer.max_epochs = 2
    before = module.weight.item()
    trainer.fit(module, [torch.ones(1)])
    assert before - module.weight.item() == pytest.approx(1e-3, rel=1e-3)


def test_the_scale_of_the_loss_belongs_to_one_module(bare) -> None:
    """Another module starts from nothing: also with the scale that torch starts with."""

    class Huge(Net):
        def training_step(self, batch, batch_idx):
            return super().training_step(batch, batch_idx) * 1e30

    def scale_after(*modules) -> float:
        trainer = bare(precision="16-mixed")
        for module in modules:
            trainer.fit(module, [(torch.ones(1, 1),)] * 3)
        return trainer.precision_plugin.scaler.get_scale()

    assert scale_after(Huge()) < scale_after(Net()) == scale_after(Huge(), Net())


def test_a_window_is_resumed_whose_last_batch_has_no_loss(cut) -> None:
    """In 16-mixed the gradients that a file holds are unscaled though no loss was scaled since."""

    class Skips(Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            if batch_idx == 1:
                trainer.skip_batch()

    uncut, resumed = cut(
        Net, lambda: [(torch.ones(1, 1),)] * 4, 1, epochs=1, callbacks=[Skips],
        precision="16-mixed", accumulate_grad_batches=2,
    )  # fmt: skip
    assert torch.equal(uncut.layer.weight, resumed.layer.weight)


class FrozenNorm(Net):
    """Keeps its BatchNorm in eval mode, set where users of Lightning set it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.BatchNorm1d(1)

    def on_train_epoch_start(self) -> None:
        self.layer.eval()


class Unfreezes(Net):
    """Begins to train its first layer with the second epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(1, 1)
        self.layer.requires_grad_(False)

    def training_step(self, batch, batch_idx):
        return self.head(self.layer(batch[0])).square().mean()

    def on_train_epoch_start(self) -> None:
        if self.current_epoch == 1:
            self.layer.requires_grad_(True)


class StopsTracking(Net):
    """Keeps the statistics of its BatchNorm as they are in the second epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(1)

    def training_step(self, batch, batch_idx):
        return self.norm(self.layer(batch[0])).square().mean()

    def on_train_epoch_start(self) -> None:
        self.norm.track_running_stats = self.current_epoch != 1


class SetsWindow(Net):
    """Accumulates two batches in the second epoch, and one in the others."""

    def on_train_epoch_start(self) -> None:
        self.trainer.accumulate_grad_batches = 2 if self.current_epoch == 1 else 1


@pytest.mark.parametrize("make", [FrozenNorm, Unfreezes, StopsTracking, SetsWindow])
def test_modes_and_frozen_parameters_are_kept(cut, make) -> None:
    """What a hook set as the epoch began holds in a run that is resumed inside it."""
    uncut, resumed = cut(make, lambda: numbers(8, batch_size=2), 6)
    assert {name: part.training for name, part in uncut.named_modules()} == {
        name: part.training for name, part in resumed.named_modules()
    }
    for name, value in uncut.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


class SetsWindowInside(Net):
    """Asks for windows of two batches inside the first epoch, and of one inside the second."""

    def on_train_batch_end(self, outputs, batch, batch_idx) -> None:
        if batch_idx == 1:
            self.trainer.accumulate_grad_batches = 2 if self.current_epoch == 0 else 1


@pytest.mark.parametrize("batches", [2, 3, 4, 6, 7, 8])
def test_a_window_set_inside_an_epoch_counts_from_the_next_one(cut, batches) -> None:
    """So it does in a run that is resumed in the same epoch."""
    uncut, resumed = cut(SetsWindowInside, lambda: numbers(8, batch_size=2), batches, epochs=3)
    assert [module.trainer.global_step for module in (uncut, resumed)] == [4 + 2 + 4] * 2
    for name, value in uncut.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


@pytest.mark.parametrize(("batches", "refused"), [(3, True), (4, False)])
def test_a_window_of_the_options_counts_for_more(bare, tmp_path, batches, refused) -> None:
    """A run whose option is another takes it, with a warning; inside a window it is refused."""
    path = tmp_path / "cut.ckpt"
    bare(SaveAt(path, 4 + batches), max_epochs=2).fit(SetsWindow(), numbers(4))
    trainer = bare(max_epochs=2, accumulate_grad_batches=4)
    if refused:
        with pytest.raises(CheckpointError, match=r"window of 2 .*accumulate_grad_batches=4"):
            trainer.fit(Net(), numbers(4), ckpt_path=path)
    else:
        with pytest.warns(UserWarning, match="accumulate_grad_batches=2, and this run has 4"):
            trainer.fit(Net(), numbers(4), ckpt_path=path)


def test_a_module_built_otherwise_stays_as_it_is_built(bare, tmp_path) -> None:
    """Who freezes other layers for the resume means it: one warning, and it is done."""

    class Frozen(Net):
        def __init__(self) -> None:
            super().__init__()
            self.layer.bias.requires_grad_(False)

    path = tmp_path / "cut.ckpt"
    bare(SaveAt(path, 2)).fit(Net(), numbers(4))
    module = Frozen()
    with pytest.warns(UserWarning, match="other parameters that require gradients"):
        bare().fit(module, numbers(4), ckpt_path=path)
    assert not module.layer.bias.requires_grad


class Noisy(Net):
    """Draws from a generator of its own in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.noise = torch.Generator().manual_seed(1)
        self.drawn: list[float] = []

    def training_step(self, batch, batch_idx):
        self.drawn.append(torch.rand(1, generator=self.noise).item())
        return super().training_step(batch, batch_idx)


class Draws(Callback):
    """Keeps a generator of Python's, and moves the weights by what it draws."""

    def __init__(self) -> None:
        self.dice = random.Random(3)

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        with torch.no_grad():
            module.layer.weight.add_(self.dice.random())


def test_generators_of_modules_and_callbacks_are_kept(cut) -> None:
    """They go on where they were, as those of loaders do."""
    uncut, resumed = cut(Noisy, lambda: numbers(4), 4, callbacks=[Draws])
    assert uncut.drawn[-4:] == resumed.drawn
    assert torch.equal(uncut.layer.weight, resumed.layer.weight)


class Moving:
    """Something that moves in a run and that nobody has thought of."""

    def __init__(self) -> None:
        self.value = 0

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


class Registers(Callback):
    """Adds a part to the list, and moves it with each batch of any kind."""

    band = Band.TRANSFORM

    def __init__(self) -> None:
        self.part = Moving()

    def on_init_end(self, trainer):
        state = RegisteredState("counted", self.part.state_dict, self.part.load_state_dict)
        trainer._core.extra_states.append(state)

    def _move(self, *arguments):
        self.part.value += 1

    on_train_batch_end = on_validation_batch_end = _move


class Watches(Callback):
    """Notes how the part stands after each of what leaves no trace."""

    def __init__(self, registers: Registers) -> None:
        self.part = registers.part
        self.noted: dict[str, int] = {}

    def on_train_start(self, trainer, module):
        self.noted["sanity check"] = self.part.value

    def on_fit_start(self, trainer, module):
        if trainer.progress.batches_completed:  # inside an epoch nothing can be tried
            return
        trainer.trial_run(Moves(self.part), steps=2)
        self.noted["trial run"] = self.part.value

    def on_train_epoch_end(self, trainer, module):
        before = self.part.value
        trainer.validate_again("again_", Moves(self.part))
        self.noted["second validation"] = self.part.value - before

    def on_train_end(self, trainer, module):
        if trainer.is_leaving:
            return
        before = self.part.value
        module.moved_in_step = self.part
        trainer.replay_training_data()
        self.noted["replay"] = self.part.value - before


class Moves(Callback):
    def __init__(self, part: Moving) -> None:
        self.part = part

    def _move(self, *arguments):
        self.part.value += 1

    on_train_batch_end = on_validation_batch_end = _move


class Steps(MetricNet):
    """Moves the part in its training step, if it was given it."""

    moved_in_step: Moving | None = None

    def training_step(self, batch, batch_idx):
        if self.moved_in_step is not None:
            self.moved_in_step.value += 1
        return super().training_step(batch, batch_idx)


def test_a_part_that_is_registered_comes_back_from_everywhere(bare, tmp_path) -> None:
    """One line puts it into the checkpoint, the restore and all that is undone."""

    def run(*more, **options):
        registers = Registers()
        watches = Watches(registers)
        saver = ModelCheckpoint(tmp_path / "saved", save_last=True)
        trainer = bare(registers, watches, saver, *more, enable_checkpointing=None,
                       num_sanity_val_steps=2)  # fmt: skip
        trainer.fit(Steps(), numbers(3), numbers(4), **options)
        return registers.part.value, watches.noted

    total, noted = run()
    assert total == 3 + 4
    assert noted == {"sanity check": 0, "trial run": 0, "second validation": 0, "replay": 0}
    for file in (tmp_path / "saved").iterdir():
        file.unlink()
    with pytest.raises(SystemExit):  # a validation that is broken off
        run(TermIn())
    path = tmp_path / "saved" / "last.ckpt"
    saved = torch.load(path, weights_only=True)["trainer_hooks"]["counted"]
    assert saved == {"value": 3}
    assert run(ckpt_path=path)[0] == total


@pytest.mark.parametrize("hook", ["on_train_end", "on_fit_end"])
def test_a_signal_at_the_end_of_a_fit_saves(bare, tmp_path, hook) -> None:
    """SIGTERM when the training is over is heeded once the hook is done, and saves."""

    class Kill(Callback):
        ended = 0

        def on_fit_end(self, trainer, module):
            self.ended += 1

        def teardown(self, trainer, module, stage):
            self.torn_down = True

    def kill(trainer, module):
        os.kill(os.getpid(), signal.SIGTERM)

    class Sends(Callback):
        pass

    sends, kill_counts = Sends(), Kill()
    setattr(sends, hook, kill)
    saver = ModelCheckpoint(tmp_path / "saved", every_n_epochs=10)
    trainer = bare(sends, kill_counts, saver, max_epochs=2, enable_checkpointing=None)
    with pytest.raises(SystemExit) as left:
        trainer.fit(Net(), numbers(4))
    assert left.value.code == 128 + signal.SIGTERM
    assert [file.name for file in (tmp_path / "saved").iterdir()] == [
        "preempted-epoch=2-step=8.ckpt"
    ]
    assert (kill_counts.ended, kill_counts.torn_down) == (1, True)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


class CountsEpochs(Callback):
    def __init__(self) -> None:
        self.epochs = 0

    def on_train_epoch_end(self, trainer, module):
        self.epochs += 1

    def state_dict(self):
        return {"epochs": self.epochs}

    def load_state_dict(self, state_dict):
        self.epochs = state_dict["epochs"]


@pytest.mark.parametrize("asks", [False, True])
def test_a_save_in_a_hook_that_is_no_slot_says_so(bare, tmp_path, asks) -> None:
    """It is warned of once, by the hook's name; what to call instead resumes exactly."""

    class Saves(Callback):
        def on_train_epoch_end(self, trainer, module):
            if asks:
                trainer.request_checkpoint()
            else:
                trainer.save_checkpoint(tmp_path / f"{trainer.current_epoch}.ckpt")

    def run(*callbacks, **options):
        counts = CountsEpochs()
        bare(counts, *callbacks, max_epochs=2, **options).fit(Net(), numbers(2))
        return counts.epochs

    if not asks:
        with pytest.warns(UserWarning, match=r"in the hook on_train_epoch_end.*request_checkpoint"):
            run(Saves())
        return
    saver = ModelCheckpoint(tmp_path, every_n_epochs=5)
    assert run(Saves(), saver, enable_checkpointing=None) == 2
    first = min(tmp_path.glob("*step=2*.ckpt"))
    counts = CountsEpochs()
    again = ModelCheckpoint(tmp_path, every_n_epochs=5)
    bare(counts, again, max_epochs=2, enable_checkpointing=None).fit(
        Net(), numbers(2), ckpt_path=first
    )
    assert counts.epochs == 2
