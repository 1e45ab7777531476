"""Every documented name of Lightning is there, or says what to use instead."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from for_each import for_each
from named_paths import NamedPaths, outcome

from trainer_hooks.compat.lightning.modules import MODULES, exports_of
from trainer_hooks.compat.not_offered import NotOfferedError

PACKAGE = "trainer_hooks.compat.lightning"
PATHS = NamedPaths(PACKAGE)
NAMES = json.loads(
    (Path(__file__).parents[3] / "docs/lightning_names.json").read_text(encoding="utf-8")
)


@for_each(NAMES["modules"])
def test_a_module_of_lightning_has_its_names(module):
    """Each can be imported from where Lightning has it, or names what to use instead."""
    found = importlib.import_module(f"{PACKAGE}.{module}".rstrip("."))
    for name in NAMES["modules"][module]:
        told = ""
        try:
            assert getattr(found, name) is not None
        except NotOfferedError as error:
            told = str(error)
        assert not told or f"{name} is not in trainer_hooks: " in told


def test_what_is_not_offered_says_so_where_it_is_imported():
    """The line that imports it names it as Lightning does, and the other way."""
    line = "from trainer_hooks.compat.lightning.strategies import DeepSpeedStrategy"
    with pytest.raises(
        ImportError, match=r"^lightning.pytorch.strategies.DeepSpeedStrategy is not"
    ):
        exec(line)
    with pytest.raises(ImportError, match="pass Trainer\\(precision="):
        from trainer_hooks.compat.lightning.plugins import DeepSpeedPrecision  # noqa: F401
    with pytest.raises(AttributeError, match="has no attribute 'Trainr'"):
        importlib.import_module(PACKAGE).Trainr  # noqa: B018


def test_each_public_path_of_lightning_is_there_or_says_what_to_use():
    """Modules and names of `lightning.pytorch` and of Fabric, by attributes and by imports."""
    there, missing = PATHS.outcomes(
        (module, name)
        for module, names in NAMES["paths"].items()
        for name in ["", *names]
        if module or name
    )
    assert not missing
    # so that names do not become refusals unseen
    assert there >= 450


@pytest.mark.parametrize(
    "path",
    [
        "callbacks.base.Callback",
        "callbacks.progress.base.ProgressBarBase",
        "callbacks.quantization.QuantizationAwareTraining",
        "core.lightning.LightningModule",
        "core.mixins.HyperparametersMixin",
        "core.saving.save_hparams_to_yaml",
        "demos.boring_classes.BoringModel",
        "fabric.utilities.rank_zero.rank_zero_only",
        "fabric.utilities.types._PATH",
        "loggers.base.LightningLoggerBase",
        "profiler.SimpleProfiler",
        "pytorch.utilities.types.STEP_OUTPUT",
        "strategies.ParallelStrategy",
        "trainer.supporters.CombinedLoader",
        "utilities.apply_func.apply_to_collection",
        "utilities.cli.LightningCLI",
        "utilities.distributed.rank_zero_only",
        "utilities.imports._TORCHVISION_AVAILABLE",
        "utilities.model_helpers.get_torchvision_model",
        "utilities.types._METRIC",
        "utilities.warnings.PossibleUserWarning",
    ],
)
def test_a_name_that_programs_use_is_there(path):
    """Also those of older releases, and a few with an underscore."""
    module, _, name = path.rpartition(".")
    assert outcome(lambda: PATHS.by_attributes(path)) == "there"
    assert PATHS.by_attributes(path) is PATHS.by_import(module, name)


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("metrics.Accuracy", "import torchmetrics"),
        ("metrics.functional.accuracy", "import torchmetrics"),
        ("loops.fit_loop._FitLoop", "trainer.fit_loop"),
        ("trainer.connectors.data_connector._DataConnector", "the Trainer's attributes"),
        ("overrides.distributed.IndexBatchSamplerWrapper", "trainer.predict"),
        ("plugins.DDPPlugin", "strategy='ddp'"),
        ("callbacks.GPUStatsMonitor", "DeviceStatsMonitor"),
        ("fabric.Fabric", "manual optimization"),
        ("LightningLite", "manual optimization"),
        ("data.StreamingDataset", "import litdata"),
        ("utilities.argparse.add_argparse_args", "LightningCLI"),
    ],
)
def test_a_name_that_is_gone_says_what_to_use(path, advice):
    """By attributes and by the line that imports it; dunder names stay unknown, as Python asks."""
    module, _, name = path.rpartition(".")
    with pytest.raises(AttributeError, match=rf"\.{name} is not in trainer_hooks: .*{advice}"):
        PATHS.by_attributes(path)
    with pytest.raises(ImportError, match=rf"\.{name} is not in trainer_hooks: .*{advice}"):
        exec(f"from {PACKAGE}{'.' * bool(module)}{module} import {name}")
    assert not hasattr(PATHS.by_import(module, ""), "__wrapped__")


def test_a_program_may_ask_for_a_name_that_is_not_offered():
    """`hasattr` and `getattr` with a default answer as for any other name that is not there."""
    strategies = PATHS.by_import("strategies", "")
    assert not hasattr(strategies, "DeepSpeedStrategy")
    assert getattr(strategies, "DeepSpeedStrategy", None) is None


def test_a_name_that_is_elsewhere_says_where():
    """A path that Lightning never had names the module that has it."""
    with pytest.raises(AttributeError, match=rf"It is in {PACKAGE}.utilities.distributed, "):
        PATHS.by_attributes("utilities.rank_zero_debug")


@pytest.mark.exhaustive
def test_any_chain_of_attributes_is_there_in_a_new_interpreter():
    """Whatever was imported before: paths are drawn, in an order that is drawn."""
    paths = [f"{m}.{n}".strip(".") for m, names in NAMES["paths"].items() for n in ["", *names]]
    chosen = random.Random(5).sample([path for path in paths if path], 60)
    program = f"""
import importlib
import {PACKAGE} as pl
for path in {chosen!r}:
    value = pl
    try:
        for name in path.split("."):
            value = getattr(value, name)
    except AttributeError as error:
        assert "is not in trainer_hooks" in str(error), path
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_version_is_that_of_the_names():
    """Programs compare it before they use a name; ours is `trainer_hooks.__version__`."""
    assert importlib.import_module(PACKAGE).__version__ == NAMES["version"]


def test_the_package_is_also_its_attribute_pytorch():
    """`import lightning as L` has `L.pytorch`, whose modules are the same objects."""
    import trainer_hooks.compat.lightning.pytorch.utilities.types as types
    from trainer_hooks.compat.lightning.pytorch.callbacks import EarlyStopping

    import trainer_hooks.compat.lightning as L

    assert L.pytorch is L
    assert types is L.utilities.types
    assert EarlyStopping is L.callbacks.EarlyStopping


@pytest.mark.slow
def test_only_what_is_used_is_loaded():
    """Importing the package loads its table alone, and importing trainer_hooks none of it.

    Nor does a dotted path to a module load another; a class loads what it is made of.
    """
    program = f"""
import sys
from trainer_hooks import Trainer
assert not any(name.startswith("{PACKAGE}") for name in sys.modules)
def files():
    loaded = {{getattr(module, "__file__", None) for module in sys.modules.values()}}
    return {{file for file in loaded if file}}
def loaded_by(line):
    before, modules = files(), len(sys.modules)
    exec(line)
    assert len(sys.modules) - modules <= 12, line  # modules without a file are made when used
    return sorted(file.partition("site-packages/")[2] or file for file in files() - before)
import trainer_hooks.compat
for line in (
    "import {PACKAGE} as pl",
    "import {PACKAGE}.utilities.types, {PACKAGE}.pytorch.loggers.wandb",
    "import {PACKAGE} as pl; pl.callbacks.model_checkpoint, pl.strategies.ddp, pl.fabric.utilities",
    "import {PACKAGE} as pl; pl.utilities.imports._RICH_AVAILABLE",
):
    print(",".join(file.rpartition("trainer_hooks/compat/")[2] for file in loaded_by(line)))
import torch
before = set(sys.modules)
exec("from {PACKAGE} import Trainer, LightningModule, Callback")
print(",".join(sorted({{name.partition(".")[0] for name in set(sys.modules) - before}})))
print(len([name for name in set(sys.modules) - before if name.startswith("trainer_hooks")]))
"""
    command = [sys.executable, "-c", program]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    package, modules, attributes, flags, classes, count = told.stdout.splitlines()
    assert package == (
        "lightning/__init__.py,lightning/modules.py,not_offered.py,virtual_modules.py"
    )
    assert (modules, attributes, flags) == ("", "", "lightning/package_flags.py")
    # lightning_utilities, whose rank is set, needs packaging
    others = set(classes.split(",")) - sys.stdlib_module_names
    assert others <= {"trainer_hooks", "lightning_utilities", "packaging"}
    assert int(count) <= 70


@pytest.mark.exhaustive
def test_the_rank_is_set_for_packages_around_lightning():
    """They decorate functions with lightning_utilities' `rank_zero_only`, which needs it."""
    program = f"""
import {PACKAGE} as pl
from {PACKAGE} import Trainer
from lightning_utilities.core.rank_zero import rank_zero_only
print(rank_zero_only(lambda: "called")(), rank_zero_only.rank, pl.utilities.rank_zero_only.rank)
"""
    for rank, told in (("0", "called 0 0"), ("1", "None 1 1")):
        environ = {**os.environ, "RANK": rank, "WORLD_SIZE": "2", "LOCAL_RANK": rank}
        environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "LOCAL_WORLD_SIZE": "2"}
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env=environ
        )
        assert done.stdout.strip() == told, done.stderr


@for_each(MODULES.paths)
def test_a_module_without_a_file_is_imported_as_any_other(module):
    """Its parent has it as an attribute, its names are listed and loaded, and others are errors."""
    name = f"{PACKAGE}.{module}"
    exec(f"import {name}", scope := {})
    found = importlib.import_module(name)
    assert eval(name, scope) is found
    assert importlib.util.find_spec(name) is found.__spec__
    public = sorted(name for name in exports_of(module) if name[0] != "_")
    assert dir(found) == found.__all__ == public
    exec(f"from {name} import *", names := {})
    assert {n for n in names if n != "__builtins__"} == set(found.__all__)
    refused = "*" in MODULES.refused(module)
    error, told = (
        (NotOfferedError, "nothing is not in trainer_hooks: ")
        if refused
        else (AttributeError, f"module '{name}' has no attribute 'nothing'")
    )
    with pytest.raises(error, match=told):
        found.nothing  # noqa: B018


def test_an_alias_is_the_object_that_it_names():
    """`Lightning's=ours` in the table gives our object under Lightning's name."""
    from trainer_hooks.compat.lightning.core.optimizer import LightningOptimizer
    from trainer_hooks.module.optimization import ManualOptimizer

    assert LightningOptimizer is ManualOptimizer
