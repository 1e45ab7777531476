"""Fixtures and settings of all tests."""

from __future__ import annotations

import atexit
import gc
import importlib.util
import itertools
import logging
import os
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import drawn_cases
import pytest
import rerun_failures
import touched_rooms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainer_hooks import Trainer

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"

# The models are tiny, and the workers of pytest share the cores: a second thread in each only waits
# in a loop for a core that another worker uses. Fresh interpreters inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Collecting makes millions of objects that stay. Looking through them for cycles takes a third of
# the collection, and later a fifth of a second for each full look during the tests.
gc.disable()
# nor does the interpreter look through them as it ends
atexit.register(gc.freeze)


PLUGINS = (drawn_cases, touched_rooms, rerun_failures)
"""The parts of this file: which tests run, and what becomes of those that fail."""


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the plugins with options, whose hooks of this name are called then."""
    for plugin in PLUGINS:
        pluginmanager.register(plugin, plugin.__name__)


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin for tests that need a process of their own."""
    spec = importlib.util.spec_from_file_location("isolated", TESTS / "isolated.py")
    assert spec is not None
    assert spec.loader is not None
    plugin = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plugin)
    config.pluginmanager.register(plugin, "isolated")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Return three workers for two cores: many slow tests wait for processes that they started."""
    if config.option.markexpr == "not slow":
        return None
    return (os.cpu_count() or 2) * 3 // 2


WINGS = ("adapters", "compat", "lightning")
"""Folders of tests that compare with other frameworks, each with a marker of its name."""


@pytest.hookimpl(tryfirst=True)  # before `-m`, which looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of each folder in `WINGS` with its name, for `-m "not compat"`."""
    for item in items:
        if item.path.is_relative_to(TESTS):
            wing = item.path.relative_to(TESTS).parts[0]
            if wing in WINGS:
                item.add_marker(wing)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Restore the handlers of signals that an import of a test's file replaces, as Composer's."""
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        return (yield)
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Enable garbage collection, and exempt the objects that the collection of tests made."""
    gc.freeze()
    gc.enable()
    # after each 700 objects, as Python has it, collecting takes a tenth of the tests' time
    gc.set_threshold(10_000, 10, 10)
    # pytest gives its handlers to each logger that passes nothing on, six times a test: torch has
    # fifty of them
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("torch.") and isinstance(logger, logging.Logger):
            logger.propagate = True
            logger.handlers.clear()


@pytest.fixture(autouse=True)
def _without_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep callbacks of installed plugins out of the tests' trainers."""
    monkeypatch.setenv("TRAINER_HOOKS_DISABLE_PLUGINS", "1")


@pytest.fixture(autouse=True)
def _without_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the seed of `seed_everything` back, by which later tests would share their data."""
    for name in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS"):
        monkeypatch.setenv(name, "0")  # so that the end of the test removes it again
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _without_earlier_trainings() -> None:
    """Forget the trainings of earlier tests, which a new training of the process is told from."""
    if "trainer_hooks.trainer.identity.run_identity" in sys.modules:
        from new_processes import forget_trainings

        forget_trainings()


@pytest.fixture(scope="session", autouse=True)
def _no_power_cut() -> Iterator[None]:
    """Make `os.fsync` do nothing: files of tests need not survive a power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="module")
def browser():
    """A chromium without a window."""
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new folder, as pytest's: without its look at all folders there are, and without its link.

    Half of the tests take one, most by way of `quiet_trainer`.
    """
    name = re.sub(r"\W", "_", request.node.name)[:30]
    folder = tmp_path_factory.getbasetemp() / f"{name}-{next(_FOLDERS)}"
    folder.mkdir(mode=0o700)
    return folder


_FOLDERS = itertools.count()


class Distribution:
    """Fake installed distribution with entry points: (name, value, group)."""

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
    """The list of installed distributions, empty until a test appends to it.

    `installed_distributions.make(...)` makes a distribution to append.
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
def quiet_trainer(tmp_path: Path):
    """Factory of trainers of one epoch on the CPU that print, log and save nothing by default."""
    from trainer_hooks import Trainer

    def make(*callbacks, **options) -> Trainer:
        quiet = {
            "accelerator": "cpu",
            "max_epochs": 1,
            "num_sanity_val_steps": 0,
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "default_root_dir": tmp_path,
        }
        if callbacks:
            quiet["callbacks"] = callbacks
        return Trainer(**{**quiet, **options})

    return make


@pytest.fixture
def bare(quiet_trainer):
    """Second name of `quiet_trainer`."""
    return quiet_trainer


@pytest.fixture
def Tiny():
    """Module class of three parameters, to be subclassed; expected messages contain its name."""
    from small_modules import LinearModule

    class Tiny(LinearModule):
        pass

    return Tiny


@pytest.fixture
def batches():
    """Factory of lists of batches: tensors of shape (size, 2), all different."""
    import torch

    def make(count: int = 4, size: int = 2):
        return [torch.full((size, 2), float(number + 1)) for number in range(count)]

    return make


@pytest.fixture
def MemoryLogger():
    """Logger class that keeps all logged metrics: `seen` is a list of (step, metrics)."""
    from trainer_hooks.loggers.base import Logger

    class MemoryLogger(Logger):
        def __init__(self) -> None:
            self.seen: list[tuple[int | None, dict]] = []

        def log_metrics(self, metrics, step=None):
            self.seen.append((step, dict(metrics)))

    return MemoryLogger


@pytest.fixture
def handlers():
    """Install Python's own signal handlers, and restore the test runner's afterwards."""
    own = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    own[signal.SIGUSR1] = signal.SIG_DFL
    before = {signum: signal.signal(signum, handler) for signum, handler in own.items()}
    yield own
    assert {signum: signal.getsignal(signum) for signum in own} == own
    for signum, handler in before.items():
        signal.signal(signum, handler)
