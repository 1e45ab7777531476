"""Chains: a run that is cut several times, resumed with `"auto"` in a new process each time.

Each stage is a process of its own (`random_stages.py`). It begins with other random numbers than
the one before, unless nothing was saved that it could be resumed from. The uncut run is a process,
too, in the same folder, so that all paths are the same.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from random_folders import End, compare_ends, read_end
from random_guests import framework_of
from random_runs import INEXACT, Result

from trainer_hooks.checkpoint.file import summarize
from trainer_hooks.errors import CheckpointError

if TYPE_CHECKING:
    import random

Options = dict[str, Any]
Cut = tuple[str, str, int]
"""How a stage is cut, at which hook or before which call of the system, and at which of them."""

HERE = Path(__file__).parent
MOST_CUTS = 6
SIGNALS = ("SIGKILL", "SIGTERM", "SIGUSR1", "SIGINT")
HOWS = (*SIGNALS, "error")

HOOKS: dict[str, int] = {
    "on_train_batch_end": 9,
    "on_train_batch_start": 9,
    "on_before_backward": 9,
    "on_before_optimizer_step": 6,
    "on_before_zero_grad": 6,
    "on_batch_checkpoint": 9,
    "on_save_checkpoint": 5,
    "on_checkpoint_saved": 5,
    "on_validation_start": 3,
    "on_validation_batch_end": 6,
    "on_validation_end": 3,
    "on_train_batches_end": 2,
    "on_train_epoch_start": 3,
    "on_train_epoch_end": 2,
    "on_epoch_checkpoint": 2,
    "on_epoch_end": 2,
    "setup": 1,
    "on_fit_start": 1,
    "on_train_start": 1,
    "on_load_checkpoint": 1,
    "on_train_end": 1,
    "on_fit_end": 1,
    "teardown": 1,
}
"""The hooks in which a chain is cut, and how many of their calls are considered."""

BEFORE = ("setup", "on_load_checkpoint", "on_fit_start")
"""Those of them that fire before the training begins."""

CALLS = {"fsync": 12, "rename": 9, "unlink": 9, "symlink": 4, "link": 2}
"""The calls of the system before which a stage is killed, and how many are considered."""

RUN = "run"
"""The name of a run's folder, the same for the uncut run and for the chain."""


RAISED, FAILED, REFUSED = 10, 1, 2  # those of `random_stages.py`, which only a process imports

# --- drawing and shrinking ---


def draw_chain(chosen: random.Random) -> tuple[Cut, ...]:
    """Draw one to six cuts."""
    return tuple(_draw_cut(chosen) for _ in range(chosen.randint(1, MOST_CUTS)))


def _draw_cut(chosen: random.Random) -> Cut:
    if chosen.random() < 0.35:
        call = chosen.choice(tuple(CALLS))
        return "SIGKILL", call, chosen.randint(1, CALLS[call])
    hook = chosen.choice(tuple(HOOKS))
    return chosen.choice(HOWS), hook, chosen.randint(1, HOOKS[hook])


def simpler_chains(chain: tuple[Cut, ...]) -> list[tuple[Cut, ...]]:
    """Return chains that are a little simpler than one: with fewer cuts, or simpler ones."""
    shorter = [chain[:at] + chain[at + 1 :] for at in range(len(chain)) if len(chain) > 1]
    found = [simpler for simpler in shorter if simpler]
    for at, (how, place, number) in enumerate(chain):
        cuts: list[Cut] = []
        if place in HOOKS:
            first = next(iter(HOOKS))
            cuts += [(how, first, number)] if place != first else []
            cuts += [(simpler, place, number) for simpler in HOWS[: HOWS.index(how)]]
        cuts += [
            (how, place, fewer)
            for fewer in sorted({1, number // 2, number - 1})
            if 0 < fewer < number
        ]
        found += [(*chain[:at], cut, *chain[at + 1 :]) for cut in cuts]
    return found


# --- running ---


class Zygote:
    """A process that forks a stage at a time.

    Args:
        needs: the frameworks whose modules it has imported, perhaps with `"tensorboard"`.
    """

    def __init__(self, needs: tuple[str, ...]) -> None:
        path = os.pathsep.join([str(HERE.parents[1]), *filter(None, sys.path)])
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "random_stages.py"), *needs],
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, task: Any) -> Any:
        """Return the answer to a task."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(repr(task), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        assert answer, "the process that forks the stages has ended"
        return int(answer) if answer.strip() != "None" else None

    def close(self) -> None:
        """End the process, with all that it has started."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(30)


@cache
def zygote_for(needs: tuple[str, ...]) -> Zygote:
    """Return the zygote of this process for such stages; it ends with this process."""
    zygote = Zygote(needs)
    atexit.register(zygote.close)
    return zygote


def needs_of(options: Options) -> tuple[str, ...]:
    """Return what the zygote of a configuration must have imported beside the rest."""
    has_events = options["logger"] in ("tensorboard", "both")
    needs = (framework_of(options["guest"]), "tensorboard" if has_events else "")
    return tuple(filter(None, needs))


@dataclass
class Stages:
    """What the stages of a chain have told.

    Attributes:
        told: each stage in words.
        error: the error that has ended one by itself, or that it hangs.
        is_refused: whether that is an error of the package's own.
        warned: the warnings of the package.
        end: what the last one left; None where there is an error.
    """

    told: list[str] = field(default_factory=list)
    error: str = ""
    is_refused: bool = False
    warned: list[str] = field(default_factory=list)
    end: End | None = None


def is_resumable(folder: Path) -> bool:
    """Return whether a checkpoint lies in a folder that a fit can be resumed from."""
    for path in [*folder.rglob("*.ckpt"), *folder.rglob("*.pt")]:
        if not path.name.startswith("."):
            with suppress(CheckpointError):
                if summarize(path).is_resumable:
                    return True
    return False


def run_stages(
    options: Options, cuts: tuple[Cut, ...], folder: Path, plant: str | None = None
) -> Stages:
    """Run a configuration in an empty folder, with these cuts, and then to its end."""
    shutil.rmtree(folder, ignore_errors=True)
    run = folder / RUN
    run.mkdir(parents=True)
    stages = Stages()
    zygote = zygote_for(needs_of(options))
    for number, cut in enumerate([*cuts, None]):
        resumes = is_resumable(run)
        # with nothing to resume from it is the first start again, with the first start's numbers
        seed = 100 + number if resumes else 3
        (folder / "fired").unlink(missing_ok=True)
        task = {"options": options, "folder": str(folder), "seed": seed, "cut": cut, "plant": plant}
        code = zygote.ask(task)
        start = "resumed" if resumes else "from the start"
        stages.told.append(f"{start}, cut by {cut}: code {code}" if cut else f"{start}, to the end")
        stages.error = _error_of(code, cut, folder)
        stages.is_refused = code == REFUSED
        if stages.error or code == 0:
            break
    zygote.ask(None)
    warnings_file = folder / "warnings.txt"
    stages.warned = warnings_file.read_text().splitlines() if warnings_file.exists() else []
    if not stages.error:
        stages.end = read_end(folder)
    return stages


def _error_of(code: int | None, cut: Cut | None, folder: Path) -> str:
    """Return the reason for which a stage has ended otherwise than its cut says; empty if none."""
    if code is None:
        return f"hangs: {_output(folder)}"
    if code in (FAILED, REFUSED):
        return (folder / "error.txt").read_text()
    if code == 0:
        return "the cut did not end it" if (folder / "fired").exists() else ""
    how, place, _ = cut or ("", "", 0)
    expected = {"error": RAISED, "SIGKILL": -signal.SIGKILL}.get(how, 0)
    if not expected and how:
        expected = 128 + getattr(signal, how)
    # a signal that comes before the training may act as in any program
    is_killed = place in BEFORE and code == 128 - expected
    if code == expected or is_killed:
        return ""
    return f"the stage cut by {cut} ended with the code {code}, not {expected}: {_output(folder)}"


def _output(folder: Path) -> str:
    """Return the last that a stage has printed."""
    output = folder / "output.txt"
    return output.read_text(errors="replace")[-1500:] if output.exists() else ""


_uncut: dict[tuple[str, str | None], Stages] = {}
"""The run without cuts of the latest configuration."""


def uncut_run(options: Options, folder: Path, plant: str | None) -> Stages:
    """Return the run without cuts; the latest is kept, for other chains of the configuration."""
    key = repr({**options, "chain": ()}), plant
    if key not in _uncut:
        _uncut.clear()
        _uncut[key] = run_stages(options, (), folder, plant)
    return _uncut[key]


def examine_chain(options: Options, folder: Path, plant: str | None = None) -> Result:
    """Run a configuration uncut and as a chain; compare what they have left.

    Args:
        options: the configuration, with its `chain`.
        folder: a folder for the runs.
        plant: a function of `random_plants` that each stage calls first.
    """
    # one folder for both, since states and links hold paths
    folder = folder / "stages"
    uncut = uncut_run(options, folder, plant)
    if uncut.end is None:
        return Result("refused" if uncut.is_refused else "differs", [f"uncut: {uncut.error}"])
    chain = run_stages(options, options["chain"], folder, plant)
    wrong = [chain.error] if chain.end is None else compare_ends(uncut.end, chain.end, chain.told)
    reasons = [text for text in chain.warned if any(word in text for word in INEXACT)]
    if wrong and reasons and not chain.error:
        return Result("warned", reasons)
    told = [f"stage {number}: {text}" for number, text in enumerate(chain.told)]
    return Result("differs", [*told, *wrong, *chain.warned[:4]]) if wrong else Result("same")


def without_particulars(message: str) -> str:
    """Return a message without paths and numbers, so that equal causes are counted as one."""
    return re.sub(r"\d+(\.\d+)?", "N", re.sub(r"'?/[^\s']*'?", "PATH", message))
