"""The stages of chains: a process that has imported all that they need, and forks for each.

    python random_stages.py [FRAMEWORK] [tensorboard]

It reads a task a line, a dict as Python writes it, and answers each with a line of how the stage
ended. None as a task ends what earlier stages have left running, such as workers of loaders.

Nothing is run in this process itself: a stage begins as in a fresh one, which has only imported.
"""

from __future__ import annotations

import ast
import contextlib
import faulthandler
import gc
import importlib
import io
import logging
import os
import pickle
import select
import signal
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

import random_plants
import torch
from conftest import scramble
from random_guests import MODULES, prepare
from random_recording import Cut, Recorder, digest, random_numbers
from random_setups import loggers_of, setup_of
from random_space import SPACE, trainer_class

from trainer_hooks import Band, Callback
from trainer_hooks.callbacks import Checkpoint
from trainer_hooks.errors import TrainerHooksError, TrainerHooksWarning

SECONDS = 60
"""Then a stage counts as hanging."""

RAISED, FAILED, REFUSED = 10, 1, 2
"""The exit codes of a stage that the exception of its cut has ended; any other; the package's."""

FILE_CALLS = {
    "fsync": ("fsync",),
    "rename": ("rename", "replace"),
    "link": ("link",),
    "symlink": ("symlink",),
    "unlink": ("unlink", "remove"),
}
"""The calls of the operating system before which a stage can be killed, by their names in `os`."""


class Cutter(Callback):
    """Ends the process, or the run, at the n-th call of a hook."""

    band = Band.SAVE

    def __init__(self, how: str, place: str, number: int, folder: Path) -> None:
        self.how, self.place, self.left = how, place, number
        self.fired = folder / "fired"

    def run_event(self, event: str, *args: Any) -> None:
        if event != self.place:
            return
        self.left -= 1
        if self.left == 0:
            self.fired.touch()
            if self.how == "error":
                raise Cut
            os.kill(os.getpid(), getattr(signal, self.how))


def count_file_calls(cut: tuple[str, str, int] | None) -> None:
    """Kill this process before the n-th call of a kind; and let no call wait for the disk."""
    owner, calls = os.getpid(), 0

    def counted(call: Any, name: str) -> Any:
        def wrapped(*args: Any, **named: Any) -> Any:
            nonlocal calls
            if os.getpid() == owner and cut is not None and name in FILE_CALLS.get(cut[1], ()):
                calls += 1
                if calls == cut[2]:
                    os.kill(owner, signal.SIGKILL)
            return call(*args, **named)

        return wrapped

    os.fsync = lambda descriptor: None
    for name in {name for names in FILE_CALLS.values() for name in names}:
        setattr(os, name, counted(getattr(os, name), name))


def train(task: dict[str, Any], folder: Path) -> int:
    """Run a stage, and write down what it ends with; return the exit code of its process.

    Args:
        task: `options`, `seed` of the global random numbers, `cut` or None, `plant` or None, which
            names a function of `random_plants`.
        folder: the folder of the chain.
    """
    options, cut = task["options"], task["cut"]
    warned = (folder / "warnings.txt").open("a")

    def write_warning(message: Any, category: Any, *_: Any) -> None:
        if issubclass(category, TrainerHooksWarning):
            print(repr(str(message)), file=warned, flush=True)

    warnings.showwarning = write_warning
    warnings.simplefilter("ignore")
    warnings.simplefilter("always", TrainerHooksWarning)
    if task["plant"] is not None:
        getattr(random_plants, task["plant"])()
    scramble(task["seed"])
    run = folder / "run"
    setup = setup_of(options, run / "saved")
    recorder = Recorder()
    cutter = [Cutter(*cut, folder)] if cut is not None and cut[1] not in FILE_CALLS else []
    callbacks = [recorder, *setup.callbacks, *cutter]
    trainer = trainer_class(options)(
        callbacks=callbacks,
        default_root_dir=run,
        accelerator=options["accelerator"],
        logger=loggers_of(options, run / "logs"),
        plugins=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=None,
        **setup.options,
    )
    count_file_calls(cut)
    try:
        trainer.fit(setup.module, setup.train, setup.val, ckpt_path="auto")
    except (Cut, KeyboardInterrupt) as error:
        for one in cutter:
            one.place = ""
        if options["by_hand"]:
            save_by_hand(trainer)
        return RAISED if isinstance(error, Cut) else 128 + signal.SIGINT
    except SystemExit as error:
        return int(error.code or 0)
    for one in cutter:
        one.place = ""  # the save below is no part of the run
    for file in run.rglob(BY_HAND):
        file.unlink()  # the uncut run has none
    both = {**trainer.callback_metrics, **trainer.logged_metrics}
    metrics = {name: digest(value) for name, value in both.items()}
    metrics["weights"] = digest(dict(setup.module.state_dict()))
    end = {
        "calls": recorder.calls,
        "metrics": metrics,
        "random_numbers": random_numbers(),
        "logs": None if trainer.logger is None else trainer.log_dir,
        "saved": [
            path
            for one in trainer.checkpoint_callbacks
            if isinstance(one, Checkpoint)
            for path in one.folders()
        ],
    }
    trainer.save_checkpoint(folder / "end.ckpt")
    (folder / "end.pickle").write_bytes(pickle.dumps(end))
    return 0


BY_HAND = "by_hand.ckpt"
"""The file of a script that saves after an error or Ctrl-C."""


def save_by_hand(trainer: Any) -> None:
    """Save beside the checkpoints of a saver, where the next stage finds it."""
    savers = [saver for saver in trainer.checkpoint_callbacks if isinstance(saver, Checkpoint)]
    folders = [Path(folder) for saver in savers for folder in saver.folders()]
    if folder := next(filter(Path.is_dir, folders), None):
        trainer.save_checkpoint(folder / BY_HAND)


def become_stage(task: dict[str, Any]) -> None:
    """Run a stage in this process, which was forked for it, and end it."""
    code = FAILED
    try:
        folder = Path(task["folder"])
        os.setsid()
        output = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        faulthandler.dump_traceback_later(SECONDS - 10)
        code = train(task, folder)
    except BaseException as error:
        traceback.print_exc()
        code = REFUSED if isinstance(error, TrainerHooksError) else FAILED
        place = traceback.extract_tb(error.__traceback__)[-1]
        told = f"{type(error).__name__}: {error} at {place.filename}:{place.lineno}"
        (Path(task["folder"]) / "error.txt").write_text(told)
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def run_stage(task: dict[str, Any], groups: list[int]) -> int | None:
    """Fork a stage and wait for it; return its exit code, negative for a signal; None if it hangs.

    Args:
        task: the stage.
        groups: gets its process group, which may outlive it.
    """
    child = os.fork()
    if child == 0:
        become_stage(task)
    groups.append(child)
    descriptor = os.pidfd_open(child)
    is_over = bool(select.select([descriptor], [], [], SECONDS)[0])
    os.close(descriptor)
    if not is_over:
        end_groups([child])
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) if is_over else None


def end_groups(groups: list[int]) -> None:
    """Kill what is left of process groups."""
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    groups.clear()


def import_all(needs: list[str]) -> None:
    """Import all that stages need: what a stage of a loaded configuration has imported.

    Args:
        needs: frameworks, and `"tensorboard"`.
    """
    # `torch._dynamo` takes longest, and the first optimizer imports it
    names = ["torch._dynamo"]
    for need in needs:
        prepare(need)
        names += MODULES.get(need, ())
    for name in names:
        importlib.import_module(name)
    options = {name: values[0] for name, values in SPACE.items()}
    options |= {"chain": (("SIGKILL", "teardown", 1),), "data": "stateful map"}
    options |= {"optimizer": "Adam", "scheduler": "one cycle", "metric_objects": True}
    options["logger"] = "both" if "tensorboard" in needs else "csv"
    receiving, sending = os.pipe()
    if os.fork() == 0:
        with tempfile.TemporaryDirectory() as folder:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            with contextlib.redirect_stdout(io.StringIO()):
                task = {"options": options, "seed": 1, "cut": None, "plant": None}
                train(task, Path(folder))
        with os.fdopen(sending, "w") as pipe:
            pipe.write("\n".join(sys.modules))
        os._exit(0)
    os.close(sending)
    with os.fdopen(receiving) as pipe:
        names = pipe.read().split()
    os.wait()
    for name in names:
        if name not in sys.modules:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)


def main() -> None:
    """Run the stages that are asked for on stdin."""
    torch.set_num_threads(1)
    os.environ["TRAINER_HOOKS_DISABLE_PLUGINS"] = "1"
    logging.disable(logging.CRITICAL)
    # the terminal sends Ctrl-C here, too: the process that asks ends this one by its pipe
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import_all(sys.argv[1:])
    gc.freeze()  # so that a collection in a stage copies none of these pages
    groups: list[int] = []
    for line in sys.stdin:
        task = ast.literal_eval(line)
        ended = end_groups(groups) if task is None else run_stage(task, groups)
        print(repr(ended), file=answers, flush=True)
    end_groups(groups)


if __name__ == "__main__":
    main()
