"""The loop as it is declared, held against the catalogue and against recorded runs."""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass, field, replace

import pytest
import torch
from quiet_trainers import QUIET_OPTIONS
from torch import nn

from trainer_hooks import Band, Callback, Module, StopTraining, Trainer, TrainerHooksWarning
from trainer_hooks.hooks.loop_tree import (
    ANY_MOMENT,
    FUNCTIONS,
    LOOP,
    LoopBlock,
    Repetition,
    hooks_in,
)
from trainer_hooks.hooks.spec import HOOKS

pytestmark = pytest.mark.filterwarnings(
    "ignore:a checkpoint was saved in the hook"  # what these look at does not depend on the place
)

ASIDE = frozenset(hooks_in([ANY_MOMENT]))
NOWHERE: frozenset[int] = frozenset()


# --- a walk over the tree ---


@dataclass
class Walk:
    """Follows recorded names along a declared part of the loop.

    A set of positions says how many names the steps so far can account for. A run that is resumed
    may enter its first epoch before any of its steps; one that an exception ends may leave from
    any position.
    """

    names: list[str]
    is_resumed: bool = False
    is_cut: bool = False
    reached: set[int] = field(default_factory=set)

    def fits(self, part: LoopBlock) -> bool:
        return len(self.names) in self.after(part, {0})

    def after(self, part: str | LoopBlock, starts, entries=NOWHERE) -> set[int]:
        starts = starts | entries
        self.reached |= starts
        if isinstance(part, str):
            ends = {i + 1 for i in starts if i < len(self.names) and self.names[i] == part}
            self.reached |= ends
            return ends
        if "on_exception" in part.parts:
            return self.after_all(part.parts, set(self.reached)) if self.is_cut else starts
        if "on_train_epoch_start" in part.parts and self.is_resumed:
            entries = starts
        ends = self.after_all(part.parts, starts, entries)
        if part.runs is Repetition.ONCE:
            return ends
        found, fresh = starts | ends, ends
        while part.runs is Repetition.REPEATEDLY and fresh:
            ends = self.after_all(part.parts, fresh)
            found, fresh = found | ends, ends - found
        return found

    def after_all(self, parts, starts, entries=NOWHERE) -> set[int]:
        for part in parts:
            starts = self.after(part, starts, entries)
        return starts


def with_two_parts_swapped(block: LoopBlock):
    """Give every block that differs from `block` in the order of two neighbours."""
    parts = block.parts
    for i in range(len(parts) - 1):
        yield replace(block, parts=(*parts[:i], parts[i + 1], parts[i], *parts[i + 2 :]))
    for i, part in enumerate(parts):
        if isinstance(part, LoopBlock):
            for changed in with_two_parts_swapped(part):
                yield replace(block, parts=(*parts[:i], changed, *parts[i + 1 :]))


def with_one_hook_less(block: LoopBlock):
    """Give every block that differs from `block` in that a hook is missing."""
    parts = block.parts
    for i, part in enumerate(parts):
        if isinstance(part, str):
            yield replace(block, parts=(*parts[:i], *parts[i + 1 :]))
        else:
            for changed in with_one_hook_less(part):
                yield replace(block, parts=(*parts[:i], changed, *parts[i + 1 :]))


# --- recorded runs ---


class Defaulted(Module):
    """A module without steps."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def forward(self, batch):
        return self.layer(batch)

    def loss(self, outputs, batch):
        return outputs.pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Own(Defaulted):
    """A module with steps, whose third batch has no loss."""

    def training_step(self, batch, batch_idx):
        return None if batch_idx == 2 else self.loss(self(batch), batch)

    def validation_step(self, batch, batch_idx):
        pass

    def predict_step(self, batch, batch_idx):
        pass


class Recorder(Callback):
    """Writes down the names of hooks, and reacts to one of them.

    Args:
        hook: where to react.
        react: what to do there, with the hook's arguments.
    """

    band = Band.SAVE

    def __init__(self, hook: str = "", react=None) -> None:
        self.names: list[str] = []
        for name in HOOKS:
            setattr(self, name, self._listener(name, react if name == hook else None))

    def _listener(self, name, react):
        def listen(*args):
            self.names.append(name)
            if react is not None:
                react(*args)

        return listen


class Short:
    """A loader that says that it has four batches and gives three."""

    def __len__(self) -> int:
        return 4

    def __iter__(self):
        return iter(BATCHES[:3])


BATCHES = [torch.full((2, 2), float(number)) for number in range(4)]


def raising(error):
    def react(*args):
        raise error

    return react


@dataclass(frozen=True)
class Recorded:
    """What a run's hooks were, and how it came to them."""

    fn: str
    names: tuple[str, ...]
    is_resumed: bool = False
    is_cut: bool = False

    def fits(self, part: LoopBlock) -> bool:
        flow = [name for name in self.names if name not in ASIDE]
        return Walk(flow, self.is_resumed, self.is_cut).fits(part)


class Lab:
    """Makes recorded runs.

    Attributes:
        runs: the runs so far.
    """

    def __init__(self, folder) -> None:
        self.folder = folder
        self.runs: list[Recorded] = []

    def trainer(self, recorder: Recorder, **options) -> Trainer:
        quiet = {
            **QUIET_OPTIONS, "num_sanity_val_steps": 0, "max_epochs": 1,
            "default_root_dir": self.folder,
        }  # fmt: skip
        return Trainer(callbacks=recorder, **{**quiet, **options})

    def fit(self, module=None, hook="", react=None, loader=BATCHES, ckpt_path=None, **options):
        recorder = Recorder(hook, react)
        trainer = self.trainer(recorder, **options)
        recorder.names.clear()
        is_cut = False
        try:
            trainer.fit(module or Defaulted(), loader, BATCHES[:2], ckpt_path=ckpt_path)
        except (ValueError, KeyboardInterrupt):
            is_cut = True
        run = Recorded("fit", tuple(recorder.names), ckpt_path is not None, is_cut)
        self.runs.append(run)
        return run

    def evaluate(self, fn, module=None, error=None, ckpt_path=None):
        phase = {"validate": "validation"}.get(fn, fn)
        recorder = Recorder(f"on_{phase}_batch_end", raising(error) if error else None)
        trainer = self.trainer(recorder)
        recorder.names.clear()
        quiet = {} if fn == "predict" else {"verbose": False}
        with contextlib.suppress(ValueError, KeyboardInterrupt):
            getattr(trainer, fn)(module or Defaulted(), BATCHES, ckpt_path=ckpt_path, **quiet)
        self.runs.append(Recorded(fn, tuple(recorder.names), is_cut=error is not None))


INSIDE = {
    "max_epochs": 3,
    "iteration_length": 2,
    "num_sanity_val_steps": 1,
    "accumulate_grad_batches": 2,
    "val_check_interval": 0.5,
}


def saving_once(path, when):
    """Return what saves a checkpoint at the first firing for which `when(trainer)` holds."""

    def react(trainer, *args):
        if when(trainer) and not path.exists() and not trainer.sanity_checking:
            trainer.save_checkpoint(path)

    return react


SAVED_AT = {
    "on_train_batch_end": lambda trainer: trainer.progress.batches_in_epoch == 2,
    "on_validation_batch_end": lambda trainer: trainer.progress.batches_in_epoch == 2,
    "on_batch_checkpoint": lambda trainer: trainer.progress.batches_in_epoch == 3,
    "on_train_batches_end": lambda trainer: True,
    "on_train_epoch_end": lambda trainer: True,
    "on_epoch_checkpoint": lambda trainer: True,
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[Recorded]:
    """Runs of all kinds: whole ones, resumed ones, ones that something ends."""
    lab = Lab(tmp_path_factory.mktemp("runs"))
    lab.fit()  # the default steps, validation at the end of the epoch
    with pytest.warns(TrainerHooksWarning, match="training_step returned None"):
        lab.fit(Own(), **INSIDE)
    for hook, when in SAVED_AT.items():
        path = lab.folder / f"{hook}.ckpt"
        lab.fit(hook=hook, react=saving_once(path, when), **INSIDE)
        lab.fit(ckpt_path=path, **INSIDE)
    with pytest.warns(TrainerHooksWarning, match="3"):
        lab.fit(loader=Short(), accumulate_grad_batches=2)
    lab.fit(hook="on_train_batch_start", react=lambda trainer, *args: trainer.skip_batch())
    lab.fit(hook="on_train_batch_end", react=lambda trainer, *args: trainer.end_epoch(), **INSIDE)
    lab.fit(hook="on_train_batch_start", react=raising(StopTraining("enough")), **INSIDE)
    for error in (ValueError(), KeyboardInterrupt()):
        lab.fit(hook="on_before_backward", react=raising(error))
        lab.fit(hook="setup", react=raising(error))
        for fn in ("validate", "test", "predict"):
            lab.evaluate(fn, error=error)
    for fn in ("validate", "test", "predict"):
        lab.evaluate(fn)
        lab.evaluate(fn, Own() if fn != "test" else None)
        lab.evaluate(fn, ckpt_path=path)
    return lab.runs


# --- the tests ---


def test_each_hook_of_the_catalogue_has_a_place() -> None:
    """The tree holds every hook, and nothing that is none."""
    assert set(hooks_in(LOOP)) == set(HOOKS)


@pytest.mark.slow
def test_every_recorded_run_goes_along_the_tree(runs) -> None:
    """Whole, resumed, skipped, stopped, failed: the hooks come in the order that is declared."""
    for run in runs:
        assert run.fits(FUNCTIONS[run.fn]), run
    fired = {name for run in runs for name in run.names}
    around = {"on_init_start", "on_init_end", "on_close", "on_post_close"}
    assert fired == set(HOOKS) - around


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_no_other_order_would_do(fn, runs) -> None:
    """With any two neighbours swapped, some recorded run does not fit the tree any more."""
    own = [run for run in runs if run.fn == fn]
    for changed in with_two_parts_swapped(FUNCTIONS[fn]):
        assert not all(run.fits(changed) for run in own), changed


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_no_hook_could_be_left_out(fn, runs) -> None:
    """Without any one of its hooks, some recorded run does not fit the tree any more."""
    own = [run for run in runs if run.fn == fn]
    for changed in with_one_hook_less(FUNCTIONS[fn]):
        assert not all(run.fits(changed) for run in own), changed


def test_what_has_no_place_comes_in_its_order(runs) -> None:
    """A checkpoint is saved after it was built; metrics and stops come by themselves."""
    saving = next(part for part in ANY_MOMENT.parts if "on_save_checkpoint" in part.parts)
    names = [name for run in runs for name in run.names if name in set(saving.parts)]
    assert len(names) >= 2 * len(SAVED_AT)
    repeated = replace(saving, runs=Repetition.REPEATEDLY)
    assert Walk(names).fits(repeated)
    for changed in with_two_parts_swapped(repeated):
        assert not Walk(names).fits(changed)


def test_a_trainers_life_begins_and_ends_as_declared(tmp_path) -> None:
    """The init hooks come first and the closing ones last."""
    recorder = Recorder()
    trainer = Lab(tmp_path).trainer(recorder)
    begun = list(recorder.names)
    recorder.names.clear()
    trainer.close()
    assert (begun, recorder.names) == (list(LOOP[0].parts), list(LOOP[-1].parts))
    assert [part.text for part in LOOP] == [
        "Trainer(...)", *FUNCTIONS, ANY_MOMENT.text, "trainer.close()"
    ]  # fmt: skip


def test_the_declaration_cannot_be_edited() -> None:
    """Blocks are frozen."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        LOOP[0].text = "x"  # type: ignore[misc]
