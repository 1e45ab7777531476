"""What `import trainer_hooks` gives, and what it leaves alone."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from for_each import for_each

import trainer_hooks

ROOT = Path(__file__).parents[1]

NAMES = [
    "Band",
    "Callback",
    "Clock",
    "CombinedLoader",
    "DDPStrategy",
    "DataModule",
    "Evaluator",
    "Event",
    "FSDPStrategy",
    "Hooks",
    "Module",
    "Run",
    "StopTraining",
    "StopTrainingError",
    "Time",
    "TimeUnit",
    "Trainer",
    "TrainerCLI",
    "TrainerHooksError",
    "TrainerHooksWarning",
    "Tuner",
    "__version__",
    "after",
    "callbacks",
    "every",
    "loggers",
    "once",
    "profilers",
    "rank_zero_deprecation",
    "rank_zero_info",
    "rank_zero_only",
    "rank_zero_warn",
    "seed_everything",
]
CALLBACKS = [
    "ActivationMonitor",
    "BackboneFinetuning",
    "BaseFinetuning",
    "BasePredictionWriter",
    "BatchSizeFinder",
    "Callback",
    "Checkpoint",
    "ConvertSyncBatchNormCallback",
    "DeviceStatsMonitor",
    "EMAWeightAveraging",
    "EarlyStopping",
    "ExportForInferenceCallback",
    "FreeOutputs",
    "GarbageCollection",
    "Generate",
    "GradientAccumulationScheduler",
    "GradientNormMonitor",
    "ImageVisualizer",
    "LambdaCallback",
    "LearningRateFinder",
    "LearningRateMonitor",
    "LoadCheckpoint",
    "MLPerfCallback",
    "MemorySnapshot",
    "ModelCheckpoint",
    "ModelPruning",
    "ModelSummary",
    "MoveModulesToDeviceCallback",
    "NaNGuard",
    "Notify",
    "OOMObserver",
    "OnExceptionCheckpoint",
    "PredictionWriter",
    "PrintMetricsCallback",
    "PrintProgressCallback",
    "Profiler",
    "ProgressBar",
    "QuantizationAwareTraining",
    "RichModelSummary",
    "RichProgressBar",
    "RunManifest",
    "RuntimeEstimator",
    "SampleInspector",
    "SlowStepDetector",
    "SpikeDetection",
    "StochasticWeightAveraging",
    "StopTraining",
    "TQDMProgressBar",
    "ThroughputMonitor",
    "Timer",
    "WSDCheckpointCallback",
    "WeightAveraging",
    "export_for_inference",
]
MOVED = {
    "CheckpointSaver": "composer",
    "EarlyStopper": "composer",
    "EarlyStoppingCallback": "accelerated",
    "GradMonitor": "composer",
    "LRMonitor": "composer",
    "LimitBatchesCallback": "accelerated",
    "LimitEvalStepsCallback": "accelerated",
    "LogMetricsCallback": "accelerated",
    "MemoryMonitor": "composer",
    "ModelEmaCallback": "accelerated",
    "NaNMonitor": "composer",
    "OptimizerMonitor": "composer",
    "ProgressBarBase": "lightning",
    "ProgressBarCallback": "accelerated",
    "SaveBestModelCallback": "accelerated",
    "SaveTrainingStateCallback": "accelerated",
    "SpeedMonitor": "composer",
    "StepBasedEvaluationCallback": "accelerated",
    "StopTrainingError": "accelerated",
    "SystemMetricsMonitor": "composer",
    "TerminateOnNaNCallback": "accelerated",
    "ThresholdStopper": "composer",
}
"""Second names of a job, and the system whose name it is."""
ALIASES = {
    "StopTrainingError": "StopTraining",
}
TESTING = [
    "ContractError",
    "ContractReport",
    "ContractResult",
    "Defect",
    "HookCall",
    "RecordingCallback",
    "TinyModule",
    "check_callback",
    "examine_callback",
    "run_hooks",
]


PROBE = """
import json, logging, os, random, signal, sys, threading, warnings

def loaded():
    return {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names

def world():
    return {
        "signals": {s: str(signal.getsignal(s)) for s in signal.valid_signals()},
        "random numbers": [
            random.getstate(), numpy.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
        ],
        "warnings": [list(map(str, warnings.filters)), str(warnings.showwarning)],
        "logging": [str(logging.getLogger().handlers), str(log.handlers), log.level],
        "environment": dict(os.environ),
        "hooks of Python": [str(sys.excepthook), str(sys.unraisablehook), threading.active_count()],
        "torch": [
            str(torch.get_default_dtype()), torch.get_num_threads(), torch.is_grad_enabled(),
            torch.are_deterministic_algorithms_enabled(),
        ],
    }

bare = loaded()
log = logging.getLogger("trainer_hooks")
import trainer_hooks
seen = {"with the package": sorted(loaded() - bare)}
trainer_hooks.Callback, trainer_hooks.Hooks, trainer_hooks.Band, trainer_hooks.StopTraining
trainer_hooks.Clock, trainer_hooks.Event, trainer_hooks.Time, trainer_hooks.every("1ep")
seen["with Callback"] = sorted(loaded() - bare)
import numpy, torch
before, with_torch = world(), loaded()
import trainer_hooks.trainer.trainer
trainer_hooks.Trainer
for package in trainer_hooks, trainer_hooks.callbacks, trainer_hooks.loggers:
    for name in package.__all__:
        getattr(package, name)
after = world()
seen["with Trainer"] = sorted(loaded() - with_torch)
seen["changed"] = [what for what in before if before[what] != after[what]]
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def seen() -> dict:
    """What imports did in a fresh interpreter, where every warning is an error."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROBE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_public_names_are_frozen() -> None:
    """The package's names are a promise: to add one is a decision, to take one away a break."""
    assert trainer_hooks.__all__ == NAMES


def test_all_is_sorted_and_complete() -> None:
    """Names are listed in order, and `dir()` shows exactly those."""
    assert sorted(NAMES) == NAMES
    assert dir(trainer_hooks) == NAMES


@for_each(NAMES)
def test_each_name_is_there(name: str) -> None:
    """What is listed can be had, and the same object each time."""
    value = getattr(trainer_hooks, name)
    assert getattr(trainer_hooks, name) is value
    if isinstance(value, type):
        assert value.__name__ == ALIASES.get(name, name)


def test_a_star_import_brings_all_names() -> None:
    """`from trainer_hooks import *` resolves every lazy name."""
    names: dict = {}
    exec("from trainer_hooks import *", names)
    assert set(NAMES) <= set(names)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A name that is not there fails as in any module, so hasattr and getattr defaults work."""
    with pytest.raises(AttributeError, match=r"module 'trainer_hooks' has no attribute 'Trainor'"):
        trainer_hooks.Trainor  # noqa: B018
    assert not hasattr(trainer_hooks, "numpy")


def test_the_callbacks_that_are_promised() -> None:
    """The built-in callbacks have their names in `trainer_hooks.callbacks`."""
    from trainer_hooks import callbacks

    assert sorted(callbacks.__all__) == callbacks.__all__
    assert set(CALLBACKS) <= set(callbacks.__all__)
    for name in callbacks.__all__:
        assert getattr(callbacks, name).__name__ == ALIASES.get(name, name)


@pytest.mark.parametrize("name", MOVED)
def test_a_second_name_of_a_job_says_where_it_is(name: str) -> None:
    """`trainer_hooks.callbacks` has one callback for a job; other systems' names are theirs."""
    from trainer_hooks import callbacks

    home = f"trainer_hooks.compat.{MOVED[name]}.callbacks"
    with pytest.raises(ImportError, match=rf"Write `from {home} import {name}`"):
        exec(f"from trainer_hooks.callbacks import {name}")
    assert name not in dir(callbacks)
    moved = getattr(importlib.import_module(home), name)
    own_names = {
        "LogMetricsCallback": "PrintMetricsCallback",
        "ProgressBarBase": "ProgressBar",
        "StopTrainingError": "StopTraining",
    }
    assert moved.__name__ == own_names.get(name, name)


@pytest.mark.parametrize("system", ["composer", "accelerated"])
def test_a_compatibility_package_hands_out_its_callbacks(system: str) -> None:
    """Each of its names can be had; what has the same name here is that class, or a subclass."""
    theirs = importlib.import_module(f"trainer_hooks.compat.{system}.callbacks")
    assert theirs.__all__ == dir(theirs) == sorted(theirs.__all__)
    for name in theirs.__all__:
        value = getattr(theirs, name)
        assert value is getattr(theirs, name)
        if name in trainer_hooks.callbacks.__all__:
            assert issubclass(value, getattr(trainer_hooks.callbacks, name))


def test_the_names_of_the_test_kit_are_frozen() -> None:
    """Authors' tests stand on the names of `trainer_hooks.testing`: they are a promise, too."""
    from trainer_hooks import testing

    assert sorted(TESTING) == TESTING
    assert testing.__all__ == dir(testing) == TESTING
    for name in TESTING:
        assert getattr(testing, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'check_callbacks'"):
        testing.check_callbacks  # noqa: B018


@pytest.mark.slow
@pytest.mark.slow
def test_importing_the_package_imports_nothing_else(seen: dict) -> None:
    """`import trainer_hooks` costs no torch and no other package, and neither do the hooks."""
    assert seen["with the package"] == ["trainer_hooks"]
    assert seen["with Callback"] == ["trainer_hooks"]


@pytest.mark.slow
def test_importing_the_trainer_imports_torch_alone(seen: dict) -> None:
    """tqdm, rich, importlib_metadata and sklearn are imported where used, and not with Trainer."""
    assert seen["with Trainer"] == []


@pytest.mark.slow
def test_importing_has_no_side_effect(seen: dict) -> None:
    """Signals, random numbers, warning filters, logging and the environment stay as they were."""
    assert seen["changed"] == []
