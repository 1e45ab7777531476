"""Every start hook has its end hook in every way a run can end, over all callbacks and the module.

A run that goes through, is stopped, or has nothing to run closes what it opened. One that an
exception breaks off fires nothing more that would look like success: all are told, tear down, and
close.
"""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace

import pytest
from samples import one_in

from trainer_hooks import Band, StopTraining
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.errors import DataError, TerminationSignal, TrainerHooksWarning
from trainer_hooks.hooks.spec import HOOKS


class Fault(Exception):
    """What the tests raise."""


CLOSE = ["on_close", "on_post_close"]
BROKEN_OFF = ["on_exception", "teardown", *CLOSE]
LEFT = ["on_fit_end", "teardown", *CLOSE]
INTERRUPTED = ["on_keyboard_interrupt", *BROKEN_OFF]
COMMON = {"setup", "on_configure_model", "on_after_configure_model", "on_before_load"}
COMMON |= {"on_after_load", "on_epoch_start"}
COMMON |= {"on_epoch_end", "teardown", *CLOSE}
RARE = {"on_exception", "on_keyboard_interrupt", "on_stop_training_error", "on_load_checkpoint"}
RARE |= {"on_init_start", "on_init_end", "on_before_restore"}


def fired_in(*prefixes: str) -> set[str]:
    return {hook for hook in HOOKS if hook.startswith(prefixes)}


OUTSIDE_FIT = {"on_evaluation_run_start", "on_evaluation_run_end"}
ONLY_IN_FIT = {"on_validation_run_start", "on_validation_run_end"}
FIRED = {
    "fit": set(HOOKS) - RARE - OUTSIDE_FIT - fired_in("on_test", "on_predict"),
    "validate": COMMON | OUTSIDE_FIT | {"on_log"} | (fired_in("on_validation") - ONLY_IN_FIT),
    "test": COMMON | OUTSIDE_FIT | {"on_log"} | fired_in("on_test"),
    "predict": COMMON | fired_in("on_predict"),
}
CASES = [(fn, hook) for fn in FIRED for hook in HOOKS if hook in FIRED[fn]]
BEFORE_THE_CLOSE = [pytest.param(*case) for case in CASES if case[1] not in {"teardown", *CLOSE}]


@pytest.fixture
def stage(bare, defaulted, recorder, batches, tmp_path):
    """A function that runs an entry point among recorders, and closes; it returns the recorders.

    `odd` is the callback that reacts to hooks; `first` and `before` have their turn before it,
    `after`, `module` and `last` after it. `trainer`, and `error` that left the entry point, come
    with them.
    """

    def play(fn, reactions=None, *, data=None, ckpt_path=None, **options):
        seen = {
            "first": recorder(name="first", band=Band.TRANSFORM),
            "before": recorder(name="before"),
            "odd": recorder(name="odd"),
            "after": recorder(name="after"),
            "last": recorder(name="last", band=Band.SAVE),
        }
        seen["odd"].at.update(reactions or {})
        inner = recorder(name="module")
        module = defaulted()
        for name, spec in HOOKS.items():
            if spec.takes_module:
                setattr(module, name, _without_trainer(getattr(inner, name)))
        fitting = {
            "max_epochs": 2,
            "num_sanity_val_steps": 1,
            "val_check_interval": 2,
            "iteration_length": 1,
            "log_every_n_steps": 1,
        }
        options = {**(fitting if fn == "fit" else {}), **options}
        saver = ModelCheckpoint(tmp_path / "saved", enable_version_counter=False)
        callbacks = [*seen.values(), *([saver] if fn == "fit" else [])]
        data = batches(3) if data is None else data
        args = [data, batches(2)] if fn == "fit" else [data]
        error = None
        trainer = bare(*callbacks, enable_checkpointing=fn == "fit", **options)
        extra = {} if fn in ("fit", "predict") else {"verbose": False}
        if ckpt_path is not None:
            extra["ckpt_path"] = ckpt_path
        try:
            with trainer:
                getattr(trainer, fn)(module, *args, **extra)
        except BaseException as caught:
            error = caught
        seen["module"] = inner
        for one in seen.values():
            one.calls = [call for call in one.calls if "_init_" not in call[0]]
        return SimpleNamespace(**seen, all=list(seen.values()), trainer=trainer, error=error)

    return play


def _without_trainer(listen):
    return lambda *args: listen(None, None, *args)


def raising(error):
    """Return a reaction that raises the first time."""
    left = [error]

    def react(*args):
        if left:
            raise left.pop()

    return react


def sending(signum, times=1):
    """Return a reaction that sends a signal to this process, the first time so many."""
    left = [times]

    def react(*args):
        for _ in range(left.pop() if left else 0):
            os.kill(os.getpid(), signum)

    return react


def assert_closed(played) -> None:
    """All saw one teardown and one close each, in this order, and nothing else after them."""
    for one in played.all:
        assert one.names[-3:] == ["teardown", *CLOSE], one.name
        for hook in ("teardown", *CLOSE):
            assert one.count(hook) == 1, (one.name, hook)


def assert_in_order(played) -> None:
    """The run ended in order: no exception, all paired and closed, and all saw the same."""
    assert played.error is None
    assert_closed(played)
    for one in played.all:
        one.assert_paired()
        assert one.names == played.first.names, one.name
        assert one.count("on_exception") == 0


# --- ways to end in order ---


@pytest.mark.parametrize("fn", FIRED)
def test_a_run_that_goes_through(fn, stage) -> None:
    """Everything is paired, all see the same hooks, and those are all that belong to the run."""
    played = stage(fn)
    assert_in_order(played)
    assert set(played.first.names) == FIRED[fn]


@pytest.mark.parametrize(
    "options",
    [
        {"max_steps": 2},
        {"max_steps": 4},
        {"max_steps": 2, "accumulate_grad_batches": 2},
        {"limit_val_batches": 0},
        {"check_val_every_n_epoch": 2, "val_check_interval": 1.0},
        {"iteration_length": 3},
        {"max_epochs": 3, "iteration_length": 2},
    ],
    ids=str,
)
def test_a_fit_of_another_shape(options, stage) -> None:
    """Likewise where max_steps ends it inside an epoch, a cycle is cut, nothing is validated."""
    assert_in_order(stage("fit", **options))


@pytest.mark.parametrize("hook", [hook for hook in HOOKS if hook in FIRED["fit"] - {*CLOSE}])
def test_a_stop_asked_for_in_each_hook(hook, stage) -> None:
    """trainer.stop() in any hook ends the run in order."""
    played = stage("fit", {hook: lambda trainer, *args: trainer.stop("enough")})
    assert_in_order(played)
    assert played.odd.count(hook) > 0


@pytest.mark.parametrize(("fn", "hook"), one_in(3, BEFORE_THE_CLOSE))
def test_stop_training_raised_in_each_hook(fn, hook, stage) -> None:
    """StopTraining ends every entry point in order; each callback gets its hook once."""
    played = stage(fn, {hook: raising(StopTraining("enough"))})
    assert_in_order(played)
    assert [one.count("on_stop_training_error") for one in played.all] == [1] * 6


class Ragged:
    """A loader whose length differs from its number of batches; None for no length."""

    def __init__(self, items, length=None, error=None) -> None:
        self.items, self.error = items, error
        if length is not None:
            self.length = length

    def __iter__(self):
        yield from self.items
        if self.error is not None:
            raise self.error


class Sized(Ragged):
    def __len__(self):
        return self.length


def test_an_epoch_without_batches_by_the_limit(stage) -> None:
    """limit_train_batches=0 trains no epoch, warns, and calls the end hooks."""
    with pytest.warns(TrainerHooksWarning, match="the limit on training batches leaves none"):
        played = stage("fit", limit_train_batches=0, val_check_interval=1.0)
    assert_in_order(played)
    assert played.first.count("on_train_start") == 1
    assert played.first.count("on_train_epoch_start") == 0


@pytest.mark.parametrize("lacking", [1, 2])
def test_a_loader_shorter_than_its_length(lacking, stage, batches) -> None:
    """The last fetch, which gives no batch, is paired too, and so is the epoch."""
    with pytest.warns(TrainerHooksWarning, match="but its length is 3"):
        played = stage("fit", data=Sized(batches(3 - lacking), 3))
    assert_in_order(played)
    fetched = [
        args[2] is None for name, args in played.first.calls if name == "on_after_dataloader"
    ]
    assert fetched == [*[False] * (3 - lacking), True] * 2


def test_batches_that_are_all_skipped(stage) -> None:
    """An epoch whose batches are all left out is closed as any other."""
    played = stage("fit", {"on_train_batch_start": lambda trainer, *args: trainer.skip_batch()})
    assert_in_order(played)
    assert played.trainer.global_step == 0


# --- exceptions ---


def assert_broken_off(played, error, expected, tail) -> None:
    """`error` left the entry point; all saw `expected`, then `tail` and nothing else."""
    assert isinstance(played.error, error), played.error
    assert_closed(played)
    for one in played.all:
        assert one.names == [*expected, *tail], one.name


@pytest.mark.parametrize(("fn", "hook"), one_in(3, BEFORE_THE_CLOSE))
def test_an_exception_in_each_hook(fn, hook, stage) -> None:
    """Later callbacks do not get the hook; all get on_exception, teardown and close."""
    through = stage(fn).first.names
    played = stage(fn, {hook: raising(Fault("on purpose"))})
    assert isinstance(played.error, Fault)
    assert any(f"in hook {hook!r} of " in note for note in played.error.__notes__)
    assert_closed(played)
    until = through[: through.index(hook)]
    for one in (played.first, played.before, played.odd):
        assert one.names == [*until, hook, *BROKEN_OFF], one.name
    for one in (played.after, played.module, played.last):
        assert one.names == [*until, *BROKEN_OFF], one.name


@pytest.mark.parametrize(
    ("fn", "hook"), [(fn, hook) for fn in FIRED for hook in ("teardown", *CLOSE)]
)
def test_an_exception_in_a_hook_that_closes(fn, hook, stage) -> None:
    """It is raised, and all the others have their turn all the same, once."""
    through = stage(fn).first.names
    played = stage(fn, {hook: raising(Fault("on purpose"))})
    assert_broken_off(played, Fault, through, [])


def test_an_exception_in_a_checkpoint_being_loaded(stage, tmp_path) -> None:
    """on_load_checkpoint is called on a resume alone; an error in it ends the run as well."""
    path = tmp_path / "cut.ckpt"
    stage("fit", {"on_train_end": lambda trainer, *args: trainer.save_checkpoint(path)})
    played = stage("fit", {"on_load_checkpoint": raising(Fault("no"))}, ckpt_path=path)
    expected = ["setup", "on_configure_model", "on_after_configure_model", "on_before_load"]
    expected.append("on_before_restore")
    assert played.first.names == [*expected, "on_load_checkpoint", *BROKEN_OFF]
    assert played.last.names == [*expected, *BROKEN_OFF]
    assert_closed(played)


def test_an_exception_in_on_exception(stage) -> None:
    """It is a note on the first error, of which on_exception is called once."""
    first = Fault("first")
    reactions = {"on_train_batch_start": raising(first), "on_exception": raising(Fault("second"))}
    played = stage("fit", reactions)
    assert played.error is first
    assert any("second" in note for note in first.__notes__)
    assert_closed(played)
    assert [one.count("on_exception") for one in played.all] == [1] * 6


def test_an_exception_in_on_stop_training_error(stage) -> None:
    """It breaks off the run that was about to end in order."""
    stop = raising(StopTraining("enough"))
    reactions = {"on_train_batch_start": stop, "on_stop_training_error": raising(Fault("no"))}
    through = stage("fit").first.names
    played = stage("fit", reactions)
    expected = through[: through.index("on_train_batch_start") + 1]
    assert isinstance(played.error, Fault)
    assert_closed(played)
    assert played.first.names == [*expected, "on_stop_training_error", *BROKEN_OFF]
    assert played.last.names == [*expected, *BROKEN_OFF]


@pytest.mark.parametrize("hook", ["on_init_start", "on_init_end"])
def test_an_exception_in_an_init_hook(hook, bare, recorder) -> None:
    """It comes out of the constructor, with the hook and the callback in a note."""
    seen = recorder().on(hook, raising(Fault("no")))
    with pytest.raises(Fault) as caught:
        bare(seen)
    assert [note for note in caught.value.__notes__ if f"in hook {hook!r} of " in note]
    assert seen.names[-1] == hook


# --- the loader ---


@pytest.mark.parametrize("given", [0, 1, 2])
@pytest.mark.parametrize("kind", [Ragged, Sized])
@pytest.mark.parametrize("error", [Fault("disk"), KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_a_loader_that_raises(given, kind, error, stage, batches) -> None:
    """The failed fetch is closed with None before on_exception; the batches are not."""
    if kind is Ragged:
        given += 1  # one without a length is asked for the next batch before it hands one out
    played = stage("fit", data=kind(batches(given), 3, error), val_check_interval=1.0)
    assert played.error is error
    assert_closed(played)
    tail = INTERRUPTED if isinstance(error, KeyboardInterrupt) else BROKEN_OFF
    for one in played.all:
        end = ["on_before_dataloader", "on_after_dataloader", *tail]
        assert one.names[-len(end) :] == end, one.name
        fetched = [args[2] for name, args in one.calls if name == "on_after_dataloader"]
        assert fetched[-1] is None
        assert (
            len(fetched) == one.count("on_before_dataloader") == one.count("on_train_batch_end") + 1
        )
        assert one.count("on_train_epoch_end") == one.count("on_train_end") == 0


def test_a_hook_that_fails_after_the_loader(stage, batches) -> None:
    """What on_after_dataloader raises for a loader that failed is a note on the loader's error."""
    error = Fault("disk")
    later = raising(Fault("later"))

    def react(trainer, module, batch):
        if batch is None:
            later()

    played = stage("fit", {"on_after_dataloader": react}, data=Sized(batches(1), 3, error))
    assert played.error is error
    assert any("later" in note for note in error.__notes__)
    assert_closed(played)


def test_an_epoch_without_batches_by_its_loader(stage) -> None:
    """An iterable that gives none is an error; the fetch is closed, the rest is broken off."""
    played = stage("fit", data=Ragged([]), val_check_interval=1.0)
    assert isinstance(played.error, DataError)
    assert_closed(played)
    end = ["on_train_epoch_start", "on_before_dataloader", "on_after_dataloader", *BROKEN_OFF]
    for one in played.all:
        assert one.names[-len(end) :] == end, one.name


def test_a_loader_of_length_none(stage) -> None:
    """A loader that says it is empty is refused before fit starts; setup is torn down."""
    played = stage("fit", data=[])
    assert isinstance(played.error, DataError)
    for one in played.all:
        assert one.names == [
            "setup",
            "on_configure_model",
            "on_after_configure_model",
            *BROKEN_OFF,
        ], one.name


@pytest.mark.parametrize("fn", ["validate", "test", "predict"])
def test_a_loader_that_raises_in_an_evaluation(fn, stage, batches) -> None:
    """Open hooks stay open, and all callbacks get on_exception, teardown and close."""
    phase = {"validate": "validation"}.get(fn, fn)
    played = stage(fn, data=Sized(batches(1), 3, Fault("disk")))
    assert isinstance(played.error, Fault)
    assert_closed(played)
    for one in played.all:
        assert one.names[-5:] == [f"on_{phase}_batch_end", *BROKEN_OFF], one.name


# --- Ctrl-C and SIGTERM ---

SIGNALS = pytest.mark.parametrize(
    ("signum", "error", "tail"),
    [
        (signal.SIGINT, KeyboardInterrupt, INTERRUPTED),
        (signal.SIGTERM, TerminationSignal, BROKEN_OFF),
    ],
    ids=["SIGINT", "SIGTERM"],
)


@SIGNALS
@pytest.mark.parametrize(
    ("hook", "following"),
    [
        ("on_train_batch_start", "on_before_dataloader"),
        ("on_before_backward", "on_before_dataloader"),
        ("on_validation_batch_start", "on_validation_batch_start"),
        ("on_validation_batch_end", "on_validation_batch_start"),
        ("on_epoch_checkpoint", "on_before_dataloader"),
    ],
)
def test_a_signal_in_fit(hook, following, signum, error, tail, stage, handlers) -> None:
    """The batch in work is done and closed, in training and validation; then the run breaks off.

    SIGTERM has the training saved and ended in order; the epoch goes on in another process.
    """
    if signum == signal.SIGTERM:
        tail = ["on_save_checkpoint", "on_checkpoint_saved", "on_train_end", *LEFT]
    through = stage("fit", num_sanity_val_steps=0).first.names
    played = stage("fit", {hook: sending(signum)}, num_sanity_val_steps=0)
    place = through.index(hook)
    assert_broken_off(played, error, through[: through.index(following, place + 1)], tail)


@SIGNALS
@pytest.mark.parametrize("fn", ["validate", "test", "predict"])
def test_a_signal_in_an_evaluation(fn, signum, error, tail, stage, handlers) -> None:
    """Likewise in the other entry points."""
    hook = f"on_{ {'validate': 'validation'}.get(fn, fn) }_batch_start"
    through = stage(fn).first.names
    played = stage(fn, {hook: sending(signum)})
    place = through.index(hook)
    assert_broken_off(played, error, through[: through.index(hook, place + 1)], tail)


@SIGNALS
@pytest.mark.parametrize("hook", ["on_train_batch_start", "on_validation_batch_start"])
def test_a_second_signal(hook, signum, error, tail, stage, handlers) -> None:
    """It ends the run inside the batch: no end hook is called, and all get on_exception."""
    through = stage("fit", num_sanity_val_steps=0).first.names
    played = stage("fit", {hook: sending(signum, times=2)}, num_sanity_val_steps=0)
    assert isinstance(played.error, error)
    assert_closed(played)
    until = through[: through.index(hook)]
    assert played.first.names == [*until, hook, *tail]
    assert played.last.names == [*until, *tail]


@pytest.mark.slow
@SIGNALS
def test_a_signal_after_the_last_batch(signum, error, tail, stage, handlers) -> None:
    """It takes effect when the training has ended, before fit returns; SIGTERM saves."""
    if signum == signal.SIGTERM:
        tail = ["on_save_checkpoint", "on_checkpoint_saved", *LEFT]
    through = stage("fit").first.names
    played = stage("fit", {"on_train_end": sending(signum)})
    assert_broken_off(played, error, through[: through.index("on_fit_end")], tail)
