"""What every test stands on."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from trainer_hooks import Trainer

ROOT = Path(__file__).parents[1]

# The models are tiny, and the workers of pytest share the cores: a second thread in each only waits
# in a loop for a core that another worker uses. Fresh interpreters inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Collecting makes millions of objects that stay. Looking through them for cycles takes a third of
# the collection, and later a fifth of a second for each full look during the tests.
gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Collect garbage from now on, but leave what the collection of tests made out of it."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _without_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep callbacks of packages that happen to be installed here out of the tests' trainers."""
    monkeypatch.setenv("TRAINER_HOOKS_DISABLE_PLUGINS", "1")


@pytest.fixture(scope="session", autouse=True)
def _no_power_cut() -> Iterator[None]:
    """Do not wait for the disk at each checkpoint: files of tests need not survive a power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], Any]], Any]:
    """Make something once, also where several workers of pytest ask for it."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent  # the folder of all workers

    def made(name: str, make: Callable[[Path], Any]) -> Any:
        """Return what `make(folder)` returns as plain data; it stands in the folder for later."""
        folder = shared / name
        result = folder / "once.json"
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not result.exists():
                folder.mkdir(exist_ok=True)
                result.write_text(json.dumps(make(folder)), encoding="utf-8")
        return json.loads(result.read_text(encoding="utf-8"))

    return made


@pytest.fixture(scope="session")
def results_of(once) -> Callable[..., dict]:
    """What a script writes, which is run once, also where several workers of pytest ask for it."""

    def run(script: Path, *path: str | Path, words: Iterable[str] = ()) -> dict:
        """Run `script TARGET WORDS`; it imports from this checkout and from `path`."""

        def results(folder: Path) -> dict:
            target = folder / "results.json"
            done = subprocess.run(
                [sys.executable, script, target, *words],
                cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT)))},
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            return json.loads(target.read_text(encoding="utf-8"))

        return once("-".join((*script.relative_to(ROOT).with_suffix("").parts, *words)), results)

    return run


class Distribution:
    """Stands for an installed distribution with entry points: (name, value, group)."""

    def __init__(self, name, version="1.0", entries=(), place="site-packages") -> None:
        self.name = name
        self.version = version
        self.place = place
        self.entries = list(entries)

    @property
    def metadata(self):
        return {"Name": self.name, "Version": self.version}

    def read_text(self, filename):
        assert filename == "entry_points.txt"
        return "".join(f"[{group}]\n{name} = {value}\n" for name, value, group in self.entries)

    def locate_file(self, path):
        return self.place


@pytest.fixture
def installed_distributions(monkeypatch):
    """The distributions of an interpreter in which none is installed but those that a test adds.

    It is a list to append to, and its class makes what is to be appended.
    """
    import importlib_metadata

    class Distributions(list):
        make = Distribution
        looked_up = 0

        def __call__(self):
            self.looked_up += 1
            return iter(self)

    found = Distributions()
    monkeypatch.setattr(importlib_metadata, "distributions", found)
    return found


@pytest.fixture
def bare(tmp_path: Path):
    """A function that makes a trainer of one epoch on the CPU, without anything on by default."""
    from trainer_hooks import Trainer

    def make(*callbacks, **options) -> Trainer:
        defaults = {
            "accelerator": "cpu",
            "max_epochs": 1,
            "num_sanity_val_steps": 0,
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "default_root_dir": tmp_path,
        }
        return Trainer(callbacks=callbacks, **{**defaults, **options})

    return make


@pytest.fixture
def quiet_trainer(tmp_path):
    """Make trainers of one epoch that print, log and save nothing unless told to."""
    from trainer_hooks import Trainer

    def make(**options):
        quiet = {
            "accelerator": "cpu",
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "num_sanity_val_steps": 0,
            "max_epochs": 1,
            "default_root_dir": tmp_path,
        }
        return Trainer(**{**quiet, **options})

    return make


@pytest.fixture
def Tiny():
    """A module of three parameters, to be subclassed."""
    import torch

    from trainer_hooks import Module

    class Tiny(Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch, batch_idx):
            return self.layer(batch).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Tiny


@pytest.fixture
def batches():
    """Make a list of batches: tensors of shape (size, 2), all different."""
    import torch

    def make(count: int = 4, size: int = 2):
        return [torch.full((size, 2), float(number + 1)) for number in range(count)]

    return make


@pytest.fixture
def MemoryLogger():
    """A logger that remembers what it was given: `seen` holds (step, metrics)."""
    from trainer_hooks.loggers.base import Logger

    class MemoryLogger(Logger):
        def __init__(self) -> None:
            self.seen: list[tuple[int | None, dict]] = []

        def log_metrics(self, metrics, step=None):
            self.seen.append((step, dict(metrics)))

    return MemoryLogger


@pytest.fixture
def handlers():
    """The handlers of Python itself, whatever the test runner has set; put back afterwards."""
    own = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    own[signal.SIGUSR1] = signal.SIG_DFL
    before = {signum: signal.signal(signum, handler) for signum, handler in own.items()}
    yield own
    assert {signum: signal.getsignal(signum) for signum in own} == own
    for signum, handler in before.items():
        signal.signal(signum, handler)
