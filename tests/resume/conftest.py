"""A laboratory for resumes: run a training uncut, cut it, go on, and compare."""

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from trainer_hooks import Band, Callback, Module, Trainer
from trainer_hooks.callbacks import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EPOCHS = 3
SAMPLES = 18
BATCH_SIZE = 4  # five batches an epoch, the last one smaller


class Samples(Dataset):
    """Numbered samples; `augment` makes of the same sample another one each time."""

    def __init__(
        self, count: int = SAMPLES, augment: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        self.inputs = torch.arange(count * 3, dtype=torch.float32).reshape(count, 3).sin()
        self.targets = self.inputs.sum(dim=1, keepdim=True)
        self.augment = augment

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, int]:
        inputs = self.inputs[index]
        return (self.augment(inputs) if self.augment else inputs), self.targets[index], index


class Net(Module):
    """Two layers with dropout, which logs in every way that there is."""

    def __init__(self, optimizers: Callable[[Any], Any] | None = None) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.4), nn.Linear(4, 1)
        )
        self.make_optimizers = optimizers
        self.seen: list[Any] = []

    def loss_of(self, batch: Any) -> Tensor:
        inputs, targets, _ = batch
        return (self.layers(inputs) - targets).square().mean()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        self.seen.append((batch_idx, batch[2].tolist(), batch[0].tolist()))
        loss = self.loss_of(batch)
        self.log("loss", loss, on_step=True, on_epoch=True, prog_bar=True)
        self.log("worst", loss, on_step=False, on_epoch=True, reduce_fx="max")
        if batch_idx % 2 == 0:
            self.log("now_and_then", loss, on_step=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.seen.append(("val", batch_idx, batch[2].tolist()))
        self.log("val_loss", self.loss_of(batch), prog_bar=True)
        self.log("val_noise", torch.rand(()))

    def configure_optimizers(self) -> Any:
        if self.make_optimizers is not None:
            return self.make_optimizers(self)
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


class PairNet(Net):
    """Takes batches of several loaders, of which one may have ended."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        parts = batch.values() if isinstance(batch, dict) else batch
        parts = [part for part in parts if part is not None]
        joined = [torch.cat(items) for items in zip(*parts, strict=True)]
        return super().training_step(joined, batch_idx)


class Recorder(Callback):
    """Note every hook call with the counters, and what loggers are given."""

    own = frozenset({"on_save_checkpoint", "on_checkpoint_saved"})

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def run_event(self, event: str, *args: Any) -> None:
        if event in self.own:
            return
        trainer = args[0]
        call: tuple[Any, ...] = (event,)
        if event not in ("on_init_start", "on_init_end"):
            progress = trainer.progress
            call += (
                progress.epochs_completed,
                progress.batches_completed,
                progress.steps_completed,
                trainer.is_last_batch,
                trainer.num_training_batches,
            )
        if event == "on_log":
            call += (dict(args[2]), args[3])
        if event == "on_train_batch_end":
            call += (args[2]["loss"].item() if "loss" in args[2] else None, args[4])
        self.calls.append(call)

    def after(self, event: str) -> list[Any]:
        place = [call[0] for call in self.calls].index(event)
        return self.calls[place + 1 :]


class Cutter(Callback):
    """Save at each slot, and at the end."""

    band = Band.SAVE

    def __init__(self, folder: Path, recorder: Recorder, *, at_slots: bool) -> None:
        self.folder = folder
        self.recorder = recorder
        self.at_slots = at_slots
        self.cuts: list[tuple[Path, int]] = []

    def save(self, trainer: Trainer, name: str) -> None:
        path = self.folder / f"{name}.ckpt"
        trainer.save_checkpoint(path)
        self.cuts.append((path, len(self.recorder.calls)))

    def on_batch_checkpoint(self, trainer, module) -> None:
        if self.at_slots:
            self.save(trainer, f"batch-{trainer.progress.batches_completed:02}")

    def on_epoch_checkpoint(self, trainer, module) -> None:
        if self.at_slots:
            self.save(trainer, f"epoch-{trainer.current_epoch:02}")

    def on_train_end(self, trainer, module) -> None:
        trainer.save_checkpoint(self.folder / "end.ckpt")


@dataclass
class Setup:
    """What a run is made of; made anew for each."""

    module: Module
    train: Any
    val: Any = None
    options: dict[str, Any] = field(default_factory=dict)
    callbacks: list[Callback] = field(default_factory=list)
    ignores: list[str] = field(default_factory=list)
    """Keys of callbacks whose states differ from run to run."""


@dataclass
class Outcome:
    """What a run left behind."""

    trainer: Trainer
    module: Any
    recorder: Recorder
    cutter: Cutter
    end: dict[str, Any]

    @property
    def metrics(self) -> dict[str, Any]:
        return {name: value.item() for name, value in self.trainer.callback_metrics.items()}

    @property
    def logged(self) -> dict[str, Any]:
        return {name: value.item() for name, value in self.trainer.logged_metrics.items()}


def scramble(number: int = 99) -> None:
    """Leave the global random numbers in another state than any run does.

    torch's seed is one of those that it draws in a process without a seed, in which a run goes on
    with what a process with another one has saved. A user's seed tells two runs apart.
    """
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(2**40 + number)
    torch.rand(number)


def differences(first: Any, second: Any, path: str = "") -> list[str]:
    """Return where two nested values differ, bit for bit."""
    if type(first) is not type(second):
        return [f"{path}: {first!r} and {second!r}"]
    if isinstance(first, Tensor):
        first, second = first.cpu(), second.cpu()  # a file's tensors lie there
        same = first.dtype == second.dtype and first.shape == second.shape
        same = same and torch.equal(torch.isnan(first), torch.isnan(second))
        same = same and torch.equal(torch.nan_to_num(first), torch.nan_to_num(second))
        return [] if same else [f"{path}: {first} and {second}"]
    if isinstance(first, dict):
        found = [f"{path}[{key!r}]: on one side" for key in first.keys() ^ second.keys()]
        for key in first.keys() & second.keys():
            found += differences(first[key], second[key], f"{path}[{key!r}]")
        return found
    if isinstance(first, list | tuple):
        if len(first) != len(second):
            return [f"{path}: {len(first)} and {len(second)} items"]
        found = []
        for place, pair in enumerate(zip(first, second, strict=True)):
            found += differences(*pair, f"{path}[{place}]")
        return found
    same = first == second or (first != first and second != second)
    return [] if same else [f"{path}: {first!r} and {second!r}"]


class Laboratory:
    """Run a setup uncut, go on from some of its slots, and compare.

    Attributes:
        folder: the folder of all files.
        name: the name of the test and the seed of the run, which draw the slots.
        loop: who goes through the batches: the Trainer; a loop by `Run` that is given its loader
            before, or only in the loop.
    """

    def __init__(self, folder: Path, name: str, loop: str = "trainer") -> None:
        self.folder = folder
        self.name = name
        self.loop = loop

    def run(
        self,
        make: Callable[[], Setup],
        name: str,
        resume_from: Path | str | None = None,
        *,
        at_slots: bool = False,
        seed: int = 3,
    ) -> Outcome:
        # here: the command of random configurations imports this file without pytest's path
        from new_processes import forget_trainings

        forget_trainings()
        scramble(seed)
        setup = make()
        recorder = Recorder()
        cutter = Cutter(self.folder / name, recorder, at_slots=at_slots)
        options: dict[str, Any] = {
            "accelerator": "cpu",
            "max_epochs": EPOCHS,
            "logger": False,
            "plugins": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "enable_checkpointing": any(isinstance(c, Checkpoint) for c in setup.callbacks),
            "default_root_dir": self.folder,
            "log_every_n_steps": 2,
            **setup.options,
        }
        callbacks = [recorder, *setup.callbacks, cutter]
        if self.loop == "trainer":
            trainer = Trainer(callbacks=callbacks, **options)
            fit = partial(trainer.fit, setup.module, setup.train, setup.val, ckpt_path=resume_from)
        else:
            # here: the programs that import this file have another path than pytest
            from own_loops import run_like_fit

            run, fit = run_like_fit(
                setup.module, setup.train, setup.val, callbacks=callbacks, ckpt_path=resume_from,
                is_known=self.loop == "run", **options,
            )  # fmt: skip
            trainer = run.trainer
        if resume_from is not None:
            is_word = isinstance(resume_from, str)
            scramble(77 if is_word else resume_from.stat().st_size % 1000)
        with warnings.catch_warnings():
            # a cut at the end of the last epoch leaves nothing to train
            warnings.filterwarnings("ignore", "(fit|Run) has nothing to do")
            fit()
        end = torch.load(self.folder / name / "end.ckpt", weights_only=True)
        assert end["trainer_hooks"].pop("wall_times")
        # a loader that keeps its own position can be led to the end of its last epoch from several
        end["trainer_hooks"].get("stream", {}).pop("last_epoch", None)
        for state_key in setup.ignores:
            assert end["callbacks"].pop(state_key), state_key
        return Outcome(trainer, setup.module, recorder, cutter, end)

    def compare(self, uncut: Outcome, resumed: Outcome, calls_before: int, name: str) -> None:
        """Fail unless a resumed run is what is left of the uncut one."""
        calls = uncut.recorder.calls[calls_before:]
        assert differences(calls, resumed.recorder.after("on_train_start")) == [], name
        seen = resumed.module.seen
        expected = uncut.module.seen[len(uncut.module.seen) - len(seen) :]
        assert differences(expected, seen) == [], name
        assert differences(uncut.end, resumed.end) == [], name
        assert differences(uncut.metrics, resumed.metrics) == [], name
        assert differences(uncut.logged, resumed.logged) == [], name

    def check(
        self,
        make: Callable[[], Setup],
        *,
        cuts: Callable[[str], bool] | None = None,
        drawn: int | None = 4,
    ) -> int:
        """Save at every slot of a run, compare resumed runs; return how many slots there were.

        Args:
            make: makes the setup of each run.
            cuts: whether to resume from the slot of a name; all such slots are the run's.
            drawn: how many slots to resume from: the end of an epoch, the others inside of epochs.
                None takes all.
        """
        uncut = self.run(make, "uncut", at_slots=True)
        slots = [cut for cut in uncut.cutter.cuts if cuts is None or cuts(cut[0].stem)]
        assert slots, "nothing was cut"
        for path, calls_before in slots if cuts or drawn is None else self._draw(slots, drawn):
            name = f"resumed-{path.stem}"
            resumed = self.run(make, name, path, seed=77)
            self.compare(uncut, resumed, calls_before, name)
        return len(slots)

    def _draw(self, slots: list[tuple[Path, int]], drawn: int) -> list[tuple[Path, int]]:
        chance = random.Random(self.name)
        ends = [slot for slot in slots if slot[0].stem.startswith("epoch")]
        inside = [slot for slot in slots if slot not in ends]
        chosen = chance.sample(ends, min(1, len(ends)))
        return chosen + chance.sample(inside, min(drawn - len(chosen), len(inside)))


@pytest.fixture
def lab(tmp_path, request, draw_seed) -> Laboratory:
    """A laboratory that keeps its files in a folder of its own."""
    return Laboratory(tmp_path, f"{request.node.name}, seed {draw_seed}")


@pytest.fixture(params=["run", "run, loader in the loop"])
def own_lab(tmp_path, request, draw_seed) -> Laboratory:
    """A laboratory whose trainings are loops by `Run`."""
    return Laboratory(tmp_path, f"{request.node.name}, seed {draw_seed}", request.param)


@pytest.fixture
def kit(tmp_path) -> Any:
    """The parts that setups are made of."""

    class Kit:
        pass

    for part in (Samples, Net, PairNet, Setup, Recorder, Cutter, scramble, differences):
        setattr(Kit, part.__name__, staticmethod(part))
    Kit.BATCH_SIZE = BATCH_SIZE
    Kit.EPOCHS = EPOCHS
    Kit.SAMPLES = SAMPLES
    Kit.folder = tmp_path
    return Kit
