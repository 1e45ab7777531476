"""A run's beginning and end: exceptions, signals, one run after another, closing."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import sys
import threading
from pathlib import Path

import pytest
import torch
import warm_python
from torch import nn
from torch.utils.data import DataLoader

from trainer_hooks import Callback, DataModule, Module, Run, StopTraining, Trainer
from trainer_hooks.callbacks import EarlyStopping, ModelCheckpoint
from trainer_hooks.errors import DataError, TrainerHooksWarning, UsageError
from trainer_hooks.loggers.base import Logger

ROOT = Path(__file__).parents[3]
DATA = list(torch.arange(8.0).view(4, 1, 2))


class Line(Module):
    """A frozen and a trained layer; logs its losses."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.frozen = nn.Sequential(nn.Linear(2, 2), nn.Dropout()).eval()
        self.layer = nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        loss = self.layer(self.frozen(batch)).pow(2).mean() * 1e-3
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.layer(self.frozen(batch)).pow(2).mean(), prog_bar=True)

    def test_step(self, batch, batch_idx):
        self.log("test_loss", self.layer(self.frozen(batch)).pow(2).mean())

    def predict_step(self, batch, batch_idx):
        return self.layer(self.frozen(batch))

    def configure_optimizers(self):
        return torch.optim.SGD(self.layer.parameters(), lr=0.1, momentum=0.9)


class Batches(DataModule):
    def train_dataloader(self):
        return DATA

    val_dataloader = test_dataloader = predict_dataloader = train_dataloader


def noting(events, name, base, **methods):
    """Return an instance of `base` that notes on_exception and teardown under `name`."""

    def on_exception(self, *args):
        events.append(f"{name} {type(args[-1]).__name__}")

    def teardown(self, *args):
        events.append(f"{name} teardown {args[-1]}")

    return type(name, (base,), {"on_exception": on_exception, "teardown": teardown, **methods})()


class Fault(Exception):
    """What the tests raise."""


def fail(self, *args, **kwargs):
    raise Fault("on purpose")


def conditions(module: Module) -> dict[str, object]:
    """Return what a run must leave as it was."""
    return {
        "modes": [part.training for part in module.modules()],
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "dtype": torch.get_default_dtype(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "signals": [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)],
    }


PLACES = [
    *(
        ("Line", method)
        for method in (
            "prepare_data",
            "configure_callbacks",
            "setup",
            "configure_model",
            "configure_optimizers",
            "on_fit_start",
            "on_train_start",
            "training_step",
            "backward",
            "validation_step",
            "on_validation_model_eval",
            "on_validation_epoch_end",
            "on_train_epoch_end",
            "on_fit_end",
        )
    ),
    *(("Batches", method) for method in ("prepare_data", "setup", "train_dataloader")),
    *(
        ("Callback", hook)
        for hook in (
            "setup",
            "on_before_load",
            "on_fit_start",
            "on_sanity_check_start",
            "on_validation_start",
            "on_validation_batch_end",
            "on_train_start",
            "on_after_backward",
            "on_train_batch_end",
            "on_epoch_checkpoint",
            "on_train_end",
            "on_fit_end",
        )
    ),
]


@pytest.mark.parametrize(("owner", "place"), PLACES)
def test_after_an_exception(owner, place, bare) -> None:
    """All hear of it and tear down, and everything is as it was before; the trainer goes on."""
    events: list[str] = []
    parts = {
        base.__name__: noting(
            events, base.__name__, base, **({place: fail} if owner == base.__name__ else {})
        )
        for base in (Callback, Line, Batches)
    }
    module = parts["Line"]
    before = conditions(module)
    trainer = bare(
        parts["Callback"],
        num_sanity_val_steps=1,
        deterministic=True,
        detect_anomaly=True,
        precision="64-true",
    )
    with pytest.raises(Fault, match="on purpose"):
        trainer.fit(module, datamodule=parts["Batches"])
    assert events == [
        "Callback Fault",
        "Line Fault",
        "Batches Fault",
        "Batches teardown fit",
        "Callback teardown fit",
        "Line teardown fit",
    ]
    assert conditions(module) == before
    assert trainer.interrupted
    assert (trainer.state.fn, trainer.state.stage) == ("fit", None)
    if owner != "Callback":
        trainer.fit(Line(), DATA)
        assert not trainer.interrupted
        assert trainer.global_step == 4


@pytest.mark.parametrize("fn", ["validate", "test", "predict"])
def test_after_an_exception_in_an_evaluation(fn, bare) -> None:
    """Likewise for the other entry points."""
    events: list[str] = []
    phase = {"validate": "validation"}.get(fn, fn)
    module = noting(events, "Line", Line, **{f"{phase}_step": fail})
    before = conditions(module)
    trainer = bare(noting(events, "Callback", Callback))
    with pytest.raises(Fault):
        getattr(trainer, fn)(module, datamodule=noting(events, "Batches", Batches))
    assert events == [
        "Callback Fault",
        "Line Fault",
        "Batches Fault",
        f"Batches teardown {fn}",
        f"Callback teardown {fn}",
        f"Line teardown {fn}",
    ]
    assert conditions(module) == before


def test_anomaly_detection_ends_with_the_run(bare) -> None:
    """detect_anomaly is on during the run and as before afterwards."""
    seen = []
    module = noting([], "Line", Line)
    module.on_train_batch_end = lambda *args: seen.append(torch.is_anomaly_enabled())
    bare(detect_anomaly=True).fit(module, DATA)
    assert set(seen) == {True}
    assert not torch.is_anomaly_enabled()


@pytest.mark.parametrize("wish", [True, "warn"])
def test_determinism_ends_with_the_run(wish, bare) -> None:
    """deterministic is on during the run and as before afterwards."""
    seen = []
    module = noting([], "Line", Line)
    module.on_train_batch_end = lambda *args: seen.append(
        (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        )
    )
    bare(deterministic=wish).fit(module, DATA)
    assert set(seen) == {(True, wish == "warn")}
    assert not torch.are_deterministic_algorithms_enabled()


def test_modes_inside_and_after_a_run(bare) -> None:
    """Validation evaluates every part; training finds each in the mode that the user chose."""
    seen = []

    class Modes(Line):
        def training_step(self, batch, batch_idx):
            seen.append(("train", [part.training for part in self.modules()]))
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch, batch_idx):
            seen.append(("validate", [part.training for part in self.modules()]))
            assert not torch.is_grad_enabled()
            assert not torch.is_inference_mode_enabled()

    module = Modes()
    chosen = [part.training for part in module.modules()]
    assert not all(chosen)
    bare(val_check_interval=1).fit(module, DATA[:2], DATA[:1])
    off = [False] * len(chosen)
    assert seen == [("train", chosen), ("validate", off)] * 2
    assert [part.training for part in module.modules()] == chosen


@pytest.mark.parametrize("verb", ["fit", "validate", "test", "predict"])
def test_a_module_keeps_a_part_in_training_mode_in_an_evaluation(verb, bare) -> None:
    """Its on_..._model_eval sets the modes; afterwards each part is as it was before."""
    stage = {"fit": "validation", "validate": "validation"}.get(verb, verb)
    seen = []

    class Dropping(Line):
        def __init__(self):
            super().__init__()
            self.drop = torch.nn.Dropout(0.5)
            self.frozen = torch.nn.Dropout(0.5).eval()

    def evaluate(self):
        getattr(Line, f"on_{stage}_model_eval")(self)
        self.drop.train()

    def step(self, batch, batch_idx):
        seen.append([part.training for part in (self, self.drop, self.frozen)])

    def back(self):
        seen.append(["back", *(part.training for part in (self, self.drop, self.frozen))])

    setattr(Dropping, f"on_{stage}_model_eval", evaluate)
    setattr(Dropping, f"{stage}_step", step)
    setattr(Dropping, f"on_{stage}_model_train", back)
    module = Dropping()
    loaders = (DATA[:1], DATA[:1]) if verb == "fit" else (DATA[:1],)
    getattr(bare(), verb)(module, *loaders)
    assert seen == [[False, True, False], ["back", True, True, False]]


@pytest.mark.parametrize("inference", [True, False])
def test_evaluation_outside_fit_runs_in_inference_mode(inference, bare) -> None:
    """validate, test and predict use inference mode unless that is switched off."""
    seen = []

    class Looks(Line):
        def test_step(self, batch, batch_idx):
            seen.append((torch.is_inference_mode_enabled(), torch.is_grad_enabled()))

    bare(inference_mode=inference).test(Looks(), DATA, verbose=False)
    assert set(seen) == {(inference, False)}


def test_a_failing_on_exception_hides_nothing(bare) -> None:
    """The error that ended the run is raised; others in on_exception and teardown are its notes."""
    events: list[str] = []

    class Clumsy(Callback):
        def on_exception(self, trainer, module, exception):
            raise ValueError("clumsy")

        def teardown(self, trainer, module, stage):
            raise KeyError("clumsier")

    class Data(Batches):
        def on_exception(self, exception):
            raise OSError("data")

        def teardown(self, stage):
            raise RuntimeError("more data")

    module = noting(events, "Line", Line, training_step=fail)
    trainer = bare(Clumsy(), noting(events, "Callback", Callback))
    with pytest.raises(Fault, match="on purpose") as caught:
        trainer.fit(module, datamodule=Data())
    assert events == [
        "Callback Fault",
        "Line Fault",
        "Callback teardown fit",
        "Line teardown fit",
    ]
    notes = "\n".join(caught.value.__notes__)
    for said in ("ValueError: clumsy", "OSError: data", "clumsier", "RuntimeError: more data"):
        assert said in notes


class MutedError(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        return self.args[0].missing


def test_an_error_that_cannot_be_told_leaves_the_trainer_usable(bare) -> None:
    """The first error is raised, teardown runs for all, and the trainer can be used again."""
    seen: list[str] = []

    class Ends(Callback):
        def on_train_start(self, trainer, module):
            raise ValueError("first")

        def teardown(self, trainer, module, stage):
            seen.append("teardown")
            raise MutedError(1)

    class Late(Callback):
        def teardown(self, trainer, module, stage):
            seen.append("late")

    trainer = bare(Ends(), Late())
    for _ in range(2):
        with pytest.raises(ValueError, match="first") as caught:
            trainer.fit(Line(), DATA)
        assert any("MutedError: <str() of it raised" in note for note in caught.value.__notes__)
    assert seen == ["teardown", "late"] * 2


def test_an_error_in_teardown_comes_after_on_exception(bare) -> None:
    """The run has been torn down, so no hook is told of it."""
    told: list[BaseException] = []

    class Ends(Callback):
        def teardown(self, trainer, module, stage):
            raise ValueError("late")

        def on_exception(self, trainer, module, exception):
            told.append(exception)

    with pytest.raises(ValueError, match="late"):
        bare(Ends()).fit(Line(), DATA)
    assert told == []


def test_a_run_is_let_go_of_whatever_fails(bare) -> None:
    """A fault in the tidying itself does not keep the trainer from its next run."""

    class Clings(Callback):
        is_stuck = True

        def attach_module(self, module):
            if module is None and self.is_stuck:
                self.is_stuck = False
                raise OSError("stuck")

    trainer = bare(Clings())
    with pytest.raises(OSError, match="stuck"):
        trainer.fit(Line(), DATA)
    trainer.fit(Line(), DATA)
    assert trainer.global_step > 0


def test_an_error_that_is_raised_again_and_again_keeps_each_note_once(bare) -> None:
    """One exception instance that ends ten fits does not grow."""
    error = ValueError("shared")

    class Raises(Callback):
        def on_train_start(self, trainer, module):
            raise error

        def teardown(self, trainer, module, stage):
            raise OSError("every time")

    trainer = bare(Raises())
    for _ in range(10):
        with pytest.raises(ValueError, match="shared"):
            trainer.fit(Line(), DATA)
    assert len(error.__notes__) == len(set(error.__notes__)) == 2


@pytest.mark.parametrize("fails", [False, True])
def test_a_stop_asked_for_in_teardown_does_not_escape(fails, bare) -> None:
    """`StopTraining` is no error where nothing is left to stop, and hides none of the others."""

    class Stops(Callback):
        def teardown(self, trainer, module, stage):
            raise StopTraining("too late")

    class Fails(Callback):
        def teardown(self, trainer, module, stage):
            if fails:
                raise OSError("real")

    class Data(Batches):
        def teardown(self, stage):
            raise StopTraining("too late as well")

    trainer = bare(Stops(), Fails())
    if fails:
        with pytest.raises(OSError, match="real"):
            trainer.fit(Line(), datamodule=Data())
    else:
        trainer.fit(Line(), datamodule=Data())
    assert trainer.global_step > 0


def test_a_failing_teardown_is_raised(bare) -> None:
    """Where nothing else failed, an error in teardown is raised, and all are torn down."""
    events: list[str] = []

    class Clumsy(Callback):
        def teardown(self, trainer, module, stage):
            raise ValueError("clumsy")

    trainer = bare(Clumsy(), noting(events, "Callback", Callback))
    with pytest.raises(ValueError, match="clumsy"):
        trainer.fit(noting(events, "Line", Line), datamodule=noting(events, "Batches", Batches))
    assert events == ["Batches teardown fit", "Callback teardown fit", "Line teardown fit"]
    assert trainer.state.finished


class Noting(Logger):
    """A logger that notes how it was finalized."""

    def __init__(self) -> None:
        self.statuses: list[str] = []

    name = version = log_dir = None

    def log_metrics(self, metrics, step=None):
        pass

    def log_hyperparams(self, params):
        pass

    def save(self):
        pass

    def finalize(self, status):
        self.statuses.append(status)


def test_loggers_are_told_how_a_run_ended(bare) -> None:
    """finalize is given success after a run, also a stopped one, and failed after an exception."""
    logger = Noting()
    trainer = bare(logger=logger)
    trainer.fit(Line(), DATA)
    with pytest.raises(Fault):
        trainer.fit(noting([], "Line", Line, training_step=fail), DATA)
    assert logger.statuses == ["success", "failed"]


# --- signals ---


def sending(*signals, at: int = 1):
    """Return a module that sends signals to this process in a training step, and its events."""
    events: list[str] = []

    class Sends(Line):
        def training_step(self, batch, batch_idx):
            if batch_idx == at:
                for signum in signals:
                    os.kill(os.getpid(), signum)
                    events.append("went on")
            return super().training_step(batch, batch_idx)

        def on_train_batch_end(self, outputs, batch, batch_idx):
            events.append(f"end {batch_idx}")

        def on_keyboard_interrupt(self):
            events.append("on_keyboard_interrupt")

        def on_exception(self, exception):
            events.append(f"on_exception {type(exception).__name__}")

        def on_train_end(self):
            events.append("on_train_end")

        def on_fit_end(self):
            events.append("on_fit_end")

        def teardown(self, stage):
            events.append("teardown")

    return Sends(), events


def test_ctrl_c(bare, handlers) -> None:
    """Ctrl-C lets the batch end, then leaves fit as KeyboardInterrupt, told in this order."""
    module, events = sending(signal.SIGINT)
    trainer = bare()
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(module, DATA)
    assert events == [
        "end 0",
        "went on",
        "end 1",
        "on_keyboard_interrupt",
        "on_exception KeyboardInterrupt",
        "teardown",
    ]
    assert trainer.interrupted
    assert trainer.global_step == 2


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGUSR1, 138)])
def test_a_signal_of_a_scheduler(signum, code, bare, handlers) -> None:
    """SIGTERM and SIGUSR1 let the batch end, end fit in order, and leave it as SystemExit."""
    module, events = sending(signum)
    trainer = bare()
    with (
        pytest.raises(SystemExit) as caught,
        pytest.warns(TrainerHooksWarning, match=f"{signum.name}: this trainer has no checkpoint"),
    ):
        trainer.fit(module, DATA)
    assert caught.value.code == code
    assert events == ["end 0", "went on", "end 1", "on_train_end", "on_fit_end", "teardown"]
    assert trainer.interrupted


@pytest.mark.parametrize(
    ("signals", "error"),
    [
        ((signal.SIGINT, signal.SIGINT), KeyboardInterrupt),
        ((signal.SIGTERM, signal.SIGTERM), SystemExit),
        ((signal.SIGTERM, signal.SIGINT), KeyboardInterrupt),
        ((signal.SIGINT, signal.SIGTERM), SystemExit),
        ((signal.SIGUSR1, signal.SIGTERM), SystemExit),
    ],
)
def test_a_second_signal_acts_at_once(signals, error, bare, handlers) -> None:
    """The batch in work is not waited for, and the interrupt is told of once."""
    module, events = sending(*signals)
    with pytest.raises(error) as caught:
        bare().fit(module, DATA)
    assert "end 1" not in events
    assert events.count("went on") == 1
    assert not any("and then" in note for note in getattr(caught.value, "__notes__", ()))


def test_a_signal_in_the_last_batch(bare, handlers) -> None:
    """A signal that comes when no batch follows is not lost."""
    module, events = sending(signal.SIGINT, at=3)
    with pytest.raises(KeyboardInterrupt):
        bare().fit(module, DATA)
    assert events[-3:] == ["on_keyboard_interrupt", "on_exception KeyboardInterrupt", "teardown"]


@pytest.mark.parametrize("fn", ["validate", "test", "predict"])
def test_ctrl_c_in_an_evaluation(fn, bare, handlers) -> None:
    """Evaluations heed it between two batches as well."""
    done = []

    def step(self, batch, batch_idx):
        if batch_idx == 1:
            os.kill(os.getpid(), signal.SIGINT)
        done.append(batch_idx)

    phase = {"validate": "validation"}.get(fn, fn)
    with pytest.raises(KeyboardInterrupt):
        getattr(bare(), fn)(noting([], "Line", Line, **{f"{phase}_step": step}), DATA)
    assert done == [0, 1]


class SendingPath(os.PathLike):
    """A path that sends a signal when it is read, which `fit` does before it has a run."""

    def __init__(self, signum) -> None:
        self.signum = signum

    def __fspath__(self) -> str:
        os.kill(os.getpid(), self.signum)
        return "never.ckpt"


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize(
    "place",
    ["configure_callbacks", "prepare_data", "setup", "configure_model", "train_dataloader",
     "configure_optimizers", "on_fit_start"],
)  # fmt: skip
def test_a_signal_while_a_fit_is_set_up(place, signum, bare, handlers, capfd) -> None:
    """It acts at once: the run is torn down, and leaves `fit` as the exit of 128 + n."""
    events = []

    def send(self, *args):
        os.kill(os.getpid(), signum)
        events.append("not reached")

    module = noting(events, "Line", Line, **{place: send})
    trainer = bare()
    with pytest.raises(SystemExit) as caught:
        trainer.fit(module, None if place == "train_dataloader" else DATA)
    assert caught.value.code == 128 + signum
    assert events == ["Line TerminationSignal", "Line teardown fit"]
    assert trainer.interrupted
    assert f"{signum.name}: stopping, before the first batch" in capfd.readouterr().err
    # and the trainer is free for its next run
    trainer.fit(Line(), DATA)
    assert trainer.global_step == 4


def test_a_signal_in_the_teardown(bare, handlers, capfd) -> None:
    """There is no batch any more: the run is torn down first."""
    events = []
    sends = {"teardown": lambda self, stage: os.kill(os.getpid(), signal.SIGTERM)}
    with pytest.raises(SystemExit) as caught:
        bare().fit(noting(events, "Line", Line, **sends), DATA)
    assert caught.value.code == 128 + signal.SIGTERM
    assert "SIGTERM: stopping when the run is torn down;" in capfd.readouterr().err


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("fn", ["fit", "validate", "test", "predict"])
def test_a_signal_before_there_is_a_run(fn, signum, bare, handlers) -> None:
    """From the first line of an entry point on, nobody dies of it."""
    with pytest.raises(SystemExit) as caught:
        getattr(bare(), fn)(Line(), DATA, ckpt_path=SendingPath(signum))
    assert caught.value.code == 128 + signum


@pytest.mark.parametrize("fn", ["validate", "test", "predict"])
def test_a_signal_while_an_evaluation_is_set_up(fn, bare, handlers) -> None:
    """Evaluations are torn down as a fit is."""
    events = []
    sends = {"setup": lambda self, stage: os.kill(os.getpid(), signal.SIGTERM)}
    phase = {"validate": "validation"}.get(fn, fn)
    sends[f"{phase}_step"] = lambda self, batch, batch_idx: None
    with pytest.raises(SystemExit):
        getattr(bare(), fn)(noting(events, "Line", Line, **sends), DATA)
    assert events == ["Line TerminationSignal", f"Line teardown {fn}"]


@pytest.mark.parametrize("place", ["setup", "on_fit_start"])
def test_a_signal_while_an_own_loop_is_set_up(place, handlers) -> None:
    """`with run:` is torn down; one that was opened has the handlers that defer."""
    events = []
    hook = {place: lambda self, trainer, module, *args: os.kill(os.getpid(), signal.SIGTERM)}
    hook["teardown"] = lambda self, trainer, module, stage: events.append("teardown")
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    module = Line()
    with pytest.raises(SystemExit) as caught:
        Run(module, callbacks=[type("Sends", (Callback,), hook)()], **options).open()
    assert caught.value.code == 143
    assert events == ["teardown"]
    run = Run(Line(), **options).open()
    assert signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, None)
    run.close()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("mine", [signal.SIG_IGN, lambda signum, frame: None])
def test_a_handler_of_the_users_stays(mine, signum, bare, handlers) -> None:
    """A signal that is ignored, or handled by the program itself, is not taken over."""
    signal.signal(signum, mine)
    try:
        module, events = sending(signum)
        bare().fit(module, DATA)
        assert signal.getsignal(signum) is mine
    finally:
        signal.signal(signum, handlers[signum])
    assert events[-4:] == ["end 3", "on_train_end", "on_fit_end", "teardown"]


def test_no_handlers_in_another_thread(bare, handlers) -> None:
    """A run in another thread leaves signals alone, as Python asks."""
    seen = []
    module = noting([], "Line", Line)
    module.on_train_start = lambda: seen.append(
        {signum: signal.getsignal(signum) for signum in handlers}
    )
    thread = threading.Thread(target=bare().fit, args=(module, DATA))
    thread.start()
    thread.join(timeout=60)
    assert seen == [handlers]


SCRIPT = """
import os, signal, sys
import torch
from trainer_hooks import Module, Trainer
torch.set_num_threads(1)
# a shell starts what runs in its background without Ctrl-C
signal.signal(signal.SIGINT, signal.default_int_handler)

class Sends(Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        os.kill(os.getpid(), getattr(signal, sys.argv[1]))
        return self.layer(batch).mean()

    def on_train_batch_end(self, outputs, batch, batch_idx):
        print("end", batch_idx, flush=True)

    def teardown(self, stage):
        print("teardown", flush=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

if "dynamo" in sys.argv:
    import torch._dynamo  # its handler for the exit is the first

Trainer(max_epochs=1, accelerator="cpu", logger=False, default_root_dir="run",
        enable_progress_bar=False, enable_model_summary=False).fit(Sends(), [torch.ones(1, 2)] * 3)
print("not reached")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "code", "saved"),
    [
        ("SIGTERM", 128 + signal.SIGTERM, ["preempted-epoch=0-step=1.ckpt"]),
        ("SIGUSR1", 128 + signal.SIGUSR1, ["preempted-epoch=0-step=1.ckpt"]),
        ("SIGINT", -signal.SIGINT, []),
        ("SIGINT dynamo", -signal.SIGINT, []),
    ],
)
def test_the_exit_code_of_a_process(name, code, saved, tmp_path) -> None:
    """A process ends with 128 + n after SIGTERM and SIGUSR1, and dies of SIGINT after Ctrl-C."""
    done = warm_python.run(
        [sys.executable, "-c", SCRIPT, *name.split()],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if "SIGINT" in name:
        assert done.stderr.rstrip().endswith("\nKeyboardInterrupt")
        assert "Traceback" not in done.stderr
    assert done.returncode == code, done.stderr
    assert done.stdout.split("\n") == ["end 0", "teardown", ""]
    assert f"{name.split()[0]}: stopping after this batch" in done.stderr
    assert [path.name for path in tmp_path.glob("run/checkpoints/*")] == saved


SETTING_UP = """
import multiprocessing, os, signal, sys, time
import torch
from trainer_hooks import Callback, Module, Trainer
torch.set_num_threads(1)

def rest(pipe):
    pipe.send("ready")
    while True:
        time.sleep(0.01)

class Ends(Callback):
    def teardown(self, trainer, module, stage):
        print("teardown", flush=True)

class Sends(Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).mean()

    def send(self):
        if sys.argv[3:]:
            # a process that was forked meanwhile dies of it as if nobody handled it
            ready, pipe = multiprocessing.Pipe()
            worker = multiprocessing.get_context("fork").Process(target=rest, args=(pipe,))
            worker.start()
            ready.recv()
            os.kill(worker.pid, getattr(signal, sys.argv[1]))
            worker.join()
            print("worker", worker.exitcode, flush=True)
        os.kill(os.getpid(), getattr(signal, sys.argv[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.2)

setattr(Sends, sys.argv[2], lambda self, *args: self.send())
Trainer(max_epochs=1, accelerator="cpu", logger=False, callbacks=[Ends()],
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False).fit(
            Sends(), [torch.ones(1, 3)] * 2)
print("not reached")
"""


@pytest.mark.slow
@pytest.mark.parametrize("place", ["setup", "on_fit_start"])
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGUSR1])
def test_a_process_that_is_set_up_ends_with_a_teardown(signum, place, tmp_path) -> None:
    """A real signal in a real process: teardown of every callback, and 128 + n."""
    done = warm_python.run(
        [sys.executable, "-c", SETTING_UP, signum.name, place],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 128 + signum, done.stderr
    assert done.stdout == "teardown\n"


@pytest.mark.slow
def test_a_fork_of_a_set_up_dies_of_its_signal(tmp_path) -> None:
    """A process that a hook forks is no run: SIGTERM kills it as it kills any other."""
    done = warm_python.run(
        [sys.executable, "-c", SETTING_UP, "SIGTERM", "setup", "forks"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 143, done.stderr
    assert done.stdout == f"worker {-signal.SIGTERM}\nteardown\n"


# --- one run after another ---


def test_a_fit_goes_on(bare) -> None:
    """A second fit of the same module trains on to a higher max_epochs as one fit would have."""
    whole, parts = Line(), Line()
    bare(max_epochs=3).fit(whole, DATA)
    trainer = bare(max_epochs=1)
    trainer.fit(parts, DATA)
    optimizer = trainer.optimizers[0]
    trainer.max_epochs = 3
    trainer.fit(parts, DATA)
    assert trainer.optimizers[0] is optimizer
    assert (trainer.current_epoch, trainer.global_step) == (3, 12)
    assert torch.equal(whole.layer.weight, parts.layer.weight)


def test_a_fit_goes_on_to_more_steps(bare) -> None:
    """Likewise with max_steps; the epoch that it cut off is over."""
    trainer = bare(max_epochs=-1, max_steps=3)
    module = Line()
    trainer.fit(module, DATA)
    trainer.max_steps = 5
    trainer.fit(module, DATA)
    assert (trainer.current_epoch, trainer.global_step) == (2, 5)


def test_another_module_starts_anew(bare, tmp_path) -> None:
    """With another module counters, metrics, optimizers and callbacks start from nothing."""
    stopping = EarlyStopping("val_loss", patience=1, min_delta=1e9)
    saver = ModelCheckpoint(tmp_path, monitor="val_loss")
    trainer = bare(stopping, saver, max_epochs=5, enable_checkpointing=True)
    trainer.fit(Line(), DATA, DATA)
    assert (trainer.current_epoch, trainer.should_stop) == (2, True)
    first = saver.best_model_path
    events: list[object] = []

    class Second(Line):
        def on_fit_start(self):
            events.append((self.trainer.current_epoch, self.trainer.global_step))
            events.append((dict(self.trainer.callback_metrics), self.trainer.should_stop))
            events.append(self.trainer.optimizers[0].param_groups[0]["params"][0] is self.weight)

        @property
        def weight(self):
            return self.layer.weight

        def on_train_start(self):
            events.append((stopping.wait_count, saver.best_model_path, saver.best_model_score))

    trainer.fit(Second(), DATA, DATA)
    assert events == [(0, 0), ({}, False), True, (0, "", None)]
    assert (trainer.current_epoch, trainer.global_step) == (2, 8)
    assert Path(first).exists()
    assert saver.best_model_path != first


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_epochs": 0}, "max_epochs=0 epochs are done"),
        ({"max_steps": 0}, "max_steps=0 optimizer steps are done"),
        ({"limit_train_batches": 0}, "the limit on training batches leaves none"),
    ],
)
def test_nothing_to_do(options, reason, bare) -> None:
    """A fit that has nothing to train says why, and does so in order."""
    trainer = bare(**options)
    with pytest.warns(TrainerHooksWarning, match=f"nothing to do: {reason}") as caught:
        trainer.fit(Line(), DATA)
    assert caught[0].filename == __file__
    assert trainer.global_step == 0
    assert trainer.state.status == "finished"


def test_a_finished_fit_has_nothing_to_do(bare) -> None:
    """A second fit with the same module and max_epochs trains nothing and says why."""
    trainer, module = bare(max_epochs=2), Line()
    trainer.fit(module, DATA)
    with pytest.warns(TrainerHooksWarning, match=r"max_epochs=2 epochs are done \(epoch 2"):
        trainer.fit(module, DATA)
    assert trainer.global_step == 8


def test_a_fit_after_a_stop_goes_on(bare) -> None:
    """A stop ends the fit in which it was asked for, not the next one."""
    stop = Callback()
    stop.on_train_epoch_end = lambda trainer, module: trainer.stop("enough")
    trainer, module = bare(stop, max_epochs=3), Line()
    trainer.fit(module, DATA)
    assert (trainer.current_epoch, trainer.stop_reason) == (1, "enough")
    trainer.fit(module, DATA)
    assert trainer.current_epoch == 2


def test_a_fit_after_an_exception_begins_the_epoch_anew(bare) -> None:
    """An epoch that was broken off is trained from its start; completed ones are not repeated."""
    seen, failures = [], [Fault("once")]

    class Breaks(Line):
        def on_train_epoch_start(self):
            seen.append(f"epoch {self.current_epoch}")

        def training_step(self, batch, batch_idx):
            if self.current_epoch == 1 and batch_idx == 2 and failures:
                raise failures.pop()
            seen.append(batch_idx)
            return super().training_step(batch, batch_idx)

    trainer, module = bare(max_epochs=2), Breaks()
    with pytest.raises(Fault):
        trainer.fit(module, DATA)
    trainer.fit(module, DATA)
    assert seen == ["epoch 0", 0, 1, 2, 3, "epoch 1", 0, 1, "epoch 1", 0, 1, 2, 3]
    assert trainer.current_epoch == 2


def test_evaluating_another_module_keeps_the_training(bare) -> None:
    """fit goes on with the module of the last fit, even if another one was tested in between."""
    whole, module = Line(), Line()
    bare(max_epochs=2).fit(whole, DATA)
    trainer = bare(max_epochs=1)
    trainer.fit(module, DATA)
    trainer.test(Line(), DATA, verbose=False)
    trainer.predict(Line(), DATA)
    assert trainer.global_step == 4
    trainer.max_epochs = 2
    trainer.fit(module, DATA)
    assert (trainer.current_epoch, trainer.global_step) == (2, 8)
    assert torch.equal(whole.layer.weight, module.layer.weight)


def test_fitting_another_module_ends_the_training(bare) -> None:
    """Only the last fit is gone on with: an earlier module starts anew."""
    trainer, module = bare(), Line()
    trainer.fit(module, DATA)
    trainer.fit(Line(), DATA)
    trainer.fit(module, DATA)
    assert (trainer.current_epoch, trainer.global_step) == (1, 4)


RUNS = ("fit", "validate", "test", "predict")


@pytest.mark.parametrize("order", list(itertools.permutations(RUNS)))
def test_any_order_of_runs(order, bare) -> None:
    """fit, validate, test and predict work in any order, again and again, and agree."""
    trainer, module = bare(), Line()
    found: dict[str, list] = {fn: [] for fn in RUNS}
    for fn in (*order, *order):
        if fn == "fit":
            trainer.max_epochs = trainer.current_epoch + 1
            trainer.fit(module, DATA, DATA[:1])
            found[fn].append(trainer.global_step)
        else:
            options = {} if fn == "predict" else {"verbose": False}
            found[fn].append((getattr(trainer, fn)(module, DATA, **options), trainer.global_step))
        assert trainer.state.status == "finished"
    assert found["fit"] == [4, 8]
    with torch.no_grad():
        expected = torch.stack([module.layer(module.frozen(b)).pow(2).mean() for b in DATA])
    for (results, steps), name in zip(
        (found["validate"][-1], found["test"][-1]), ("val_loss", "test_loss"), strict=True
    ):
        if steps == 8:
            assert results == [{name: pytest.approx(expected.mean().item())}]
    assert all(len(predictions) == 4 for predictions, _ in found["predict"])


@pytest.mark.parametrize("inner", RUNS)
@pytest.mark.parametrize("outer", RUNS)
def test_a_run_inside_a_run(outer, inner, bare) -> None:
    """An entry point that is called from inside a run is an error that names both."""
    trainer = bare()
    module = noting([], "Line", Line)
    module.setup = lambda stage: getattr(trainer, inner)(Line(), DATA)
    with pytest.raises(UsageError, match=f"{inner} was called inside {outer}"):
        getattr(trainer, outer)(module, DATA)
    assert trainer.state.stopped


@pytest.mark.parametrize("inner", RUNS)
def test_a_refused_run_leaves_the_named_checkpoint(inner, bare, tmp_path) -> None:
    """The running fit still knows the path that it was given, which no saver may delete."""
    first, trainer, path = bare(), bare(max_epochs=2), str(tmp_path / "named.ckpt")
    first.fit(Line(), DATA)
    first.save_checkpoint(path)
    module, other = noting([], "Line", Line), str(tmp_path / "other.ckpt")

    def call(stage: str) -> None:
        with pytest.raises(UsageError, match=f"{inner} was called inside fit"):
            getattr(trainer, inner)(Line(), DATA, ckpt_path=other)

    module.setup = call
    trainer.fit(module, DATA, ckpt_path=path)
    assert trainer.named_ckpt_path == trainer.ckpt_path == path


def test_the_module_of_the_last_run(bare) -> None:
    """The other entry points take the last run's module and data module, or say that none is."""
    trainer, module = bare(), Line()
    with pytest.raises(UsageError, match="no model was given"):
        trainer.test(verbose=False)
    trainer.fit(module, datamodule=Batches())
    assert trainer.validate(verbose=False)[0].keys() == {"val_loss"}
    assert len(trainer.predict()) == 4
    assert trainer.test(dataloaders=DATA[:1], verbose=False)
    assert trainer.module is module


def test_no_data(bare) -> None:
    """A run without data says what to pass."""
    with pytest.raises(DataError, match="fit was given no training data"):
        bare().fit(Line())
    with pytest.raises(DataError, match="test was given no data"):
        bare().test(Line())
    with pytest.raises(DataError, match="limit_test_batches is 0"):
        bare(limit_test_batches=0).test(Line(), DATA)


# --- closing ---


class Closing(Callback):
    def __init__(self, events, name, error=None) -> None:
        self.events, self.name, self.error = events, name, error

    @property
    def state_key(self):
        return self.name

    def on_close(self, trainer, module):
        self.events.append(f"{self.name} close")
        if self.error:
            raise self.error

    def on_post_close(self, trainer, module):
        self.events.append(f"{self.name} post")
        if self.error:
            raise ValueError("post")


def test_close_is_once(bare) -> None:
    """close() lets all close and then all back up; a second time it does nothing."""
    events: list[str] = []
    trainer = bare(Closing(events, "a"), Closing(events, "b"))
    trainer.fit(Line(), DATA)
    trainer.close()
    trainer.close()
    assert events == ["a close", "b close", "a post", "b post"]


def test_an_unused_trainer_closes(bare) -> None:
    """A trainer that ran nothing can be closed, any number of times."""
    events: list[str] = []
    trainer = bare(Closing(events, "a"))
    trainer.close()
    trainer.close()
    assert events == ["a close", "a post"]


def test_a_failing_close(bare) -> None:
    """One that fails to close stops no other; the first error is raised, the rest are notes."""
    events: list[str] = []
    trainer = bare(Closing(events, "a", KeyError("first")), Closing(events, "b"))
    with pytest.raises(KeyError, match="first") as caught:
        trainer.close()
    assert events == ["a close", "b close", "a post", "b post"]
    assert "ValueError: post" in "\n".join(caught.value.__notes__)


def test_a_trainer_as_a_context(bare) -> None:
    """Leaving the context closes, and an error in that hides none from inside."""
    events: list[str] = []
    with bare(Closing(events, "a")) as trainer:
        trainer.fit(Line(), DATA)
        assert events == []
    assert events == ["a close", "a post"]
    with (
        pytest.raises(Fault, match="inside") as caught,
        bare(Closing(events, "a", KeyError("closing"))),
    ):
        raise Fault("inside")
    assert "closing" in "\n".join(caught.value.__notes__)
    with pytest.raises(KeyError), bare(Closing(events, "a", KeyError("closing"))):
        pass


# --- arguments ---


def test_arguments_are_not_changed(bare, tmp_path) -> None:
    """Lists and dicts that the user passes stay the user's: nothing is added or replaced."""
    callbacks = [Closing([], "a"), ModelCheckpoint(tmp_path), EarlyStopping("val_loss")]
    loggers = [Noting()]
    max_time = {"minutes": 5}
    loaders = [DataLoader(torch.ones(4, 2)), DataLoader(torch.ones(2, 2), shuffle=True)]
    train = {"a": loaders[0], "b": loaders[1]}
    before = (list(callbacks), list(loggers), dict(max_time), list(loaders), dict(train))

    class Several(Line):
        def training_step(self, batch, batch_idx):
            return super().training_step(batch["a"], batch_idx)

        def validation_step(self, batch, batch_idx, dataloader_idx):
            self.log("val_loss", batch.mean(), add_dataloader_idx=dataloader_idx > 0)

    with Trainer(
        callbacks=callbacks,
        logger=loggers,
        max_time=max_time,
        max_epochs=1,
        accelerator="cpu",
        overfit_batches=1,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    ) as trainer:
        trainer.add_callback(Callback())
        trainer.fit(Several(), train, loaders)
    assert (callbacks, loggers, max_time, loaders, train) == before
    assert trainer.max_epochs == 1


def test_stop_training_before_the_loop(bare) -> None:
    """StopTraining in a method that comes before the loop ends the run in order."""

    class Stops(Line):
        def prepare_data(self):
            raise StopTraining("no data today")

    trainer = bare()
    trainer.fit(Stops(), DATA)
    assert trainer.state.status == "finished"
    assert trainer.global_step == 0


def test_a_forked_child_can_be_told_to_end(bare) -> None:
    """A process that was forked during fit ignores Ctrl-C, but ends on SIGTERM as any other."""
    codes = []

    class Forking(Callback):
        def on_train_start(self, trainer, module) -> None:
            context = multiprocessing.get_context("fork")
            here, there = context.Pipe()
            child = context.Process(target=_answer, args=(there,))
            child.start()
            os.kill(child.pid, signal.SIGINT)
            here.send("are you there?")
            assert here.recv() == "are you there?"
            child.terminate()
            child.join()
            codes.append(child.exitcode)

    bare(Forking()).fit(Line(), DATA)
    assert codes == [-signal.SIGTERM]


def _answer(connection) -> None:
    while True:
        connection.send(connection.recv())


def test_a_mode_that_a_hook_sets_outlasts_the_fit(bare) -> None:
    """As in Lightning; a run that fails, and an evaluation, put the modes back."""

    class Freezes(Line):
        fails = False

        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(2)

        def on_train_start(self) -> None:
            self.norm.eval()
            if self.fails:
                raise ZeroDivisionError

    module = Freezes()
    bare().fit(module, DATA)
    assert not module.norm.training
    module.norm.train()
    module.fails = True
    with pytest.raises(ZeroDivisionError):
        bare().fit(module, DATA)
    assert module.norm.training
