"""A package whose callbacks of ours register in Lightning's Trainer by themselves."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("pytorch_lightning") is None, reason="needs pytorch-lightning"
    ),
    pytest.mark.exhaustive,
]

FACTORIES = """
    import sys
    from trainer_hooks import Callback
    from trainer_hooks.adapters import lightning_factory

    class Batches(Callback):
        def __init__(self):
            self.count = 0

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            self.count += 1
            self.log("batches", self.count)

        def state_dict(self):
            return {"count": self.count}

        def load_state_dict(self, state):
            self.count = state["count"]

    def make():
        return [Batches()]

    for_lightning = lightning_factory(make)
    assert "pytorch_lightning" not in sys.modules
"""

PROGRAM = """
import json, sys, warnings
warnings.simplefilter("ignore")
import in_lightning.factories
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, batch_idx):
        return self.layer(batch).pow(2).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

def fit(epochs, **options):
    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=epochs, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(Net(), DataLoader(torch.rand(8, 4), batch_size=2), **options)
    return trainer

first = fit(1)
first.save_checkpoint(sys.argv[1])
second = fit(2, ckpt_path=sys.argv[1])
import trainer_hooks
ours = trainer_hooks.Trainer(logger=False, enable_checkpointing=False, accelerator="cpu")
print(json.dumps({
    "there": [type(callback).__name__ for callback in first.callbacks],
    "logged": float(second.callback_metrics["batches"]),
    "here": [type(callback).__name__ for callback in ours.callbacks if "Batches" in repr(callback)],
}))
"""


def test_it_takes_part_in_both(installed, run_with_plugins, tmp_path) -> None:
    """One more line in the package's pyproject, and both Trainers find it, with its state."""
    installed.declare(
        "in lightning",
        (
            "in-lightning", "1.0", {"factories": FACTORIES},
            {
                "trainer_hooks.callbacks_factory": {"batches": "factories:make"},
                "pytorch_lightning.callbacks_factory": {"batches": "factories:for_lightning"},
            },
        ),
    )  # fmt: skip
    done = run_with_plugins(PROGRAM, "in lightning", arguments=(str(tmp_path / "cut.ckpt"),))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["there"].count("Batches") == 1
    assert found["logged"] == 8
    assert found["here"] == ["Batches"]


ONLY_OURS = """
    from trainer_hooks import Callback

    class Batches(Callback):
        count = 0

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            self.count += 1

    class Finds(Callback):
        def on_train_start(self, trainer, module):
            trainer.trial_run(3)

    def make():
        return [Batches(), Finds()]
"""

LISTS = """
import json, warnings
import pytorch_lightning as pl
from trainer_hooks.adapters import plugins_for
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
told = [str(warning.message) for warning in caught if "plugin " in str(warning.message)]
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    made = {n: [type(c).__name__ for c in plugins_for(n)] for n in ("lightning", "accelerated")}
there = [type(callback).__name__ for callback in trainer.callbacks]
print(json.dumps({"there": there, "told": told, "made": made}))
"""


def listed(run_with_plugins, **variables) -> dict:
    done = run_with_plugins(LISTS, "only ours", **variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_package_that_registers_here_alone_takes_part_in_lightning(
    installed, run_with_plugins
) -> None:
    """Lightning's Trainer gets its callbacks by our entry point, unless the environment says no."""
    installed.declare(
        "only ours",
        (
            "only-ours", "1.0", {"factories": ONLY_OURS},
            {"trainer_hooks.callbacks_factory": {"batches": "factories:make"}},
        ),
    )  # fmt: skip
    found = listed(run_with_plugins)
    assert found["there"].count("Batches") == 1
    assert found["made"]["lightning"].count("Batches") == 1
    assert found["made"]["accelerated"].count("Batches") == 1
    # the other one cannot run there, and is told like a plugin that fails
    assert "Finds" not in found["there"]
    assert any("only-ours" in line and "trial_run" in line for line in found["told"])
    for switch, value in (
        ("TRAINER_HOOKS_IN_LIGHTNING", "0"),
        ("TRAINER_HOOKS_DISABLE_PLUGINS", "1"),
        ("TRAINER_HOOKS_BLOCK_PLUGINS", "only-ours"),
    ):
        assert "Batches" not in listed(run_with_plugins, **{switch: value})["there"], switch


REPLACED = """
    from trainer_hooks import Callback
    from trainer_hooks.adapters import lightning_factory

    HEARD = []

    class Tally(Callback):
        def __init__(self, name="package's", key="batches"):
            self.name, self.key, self.count = name, key, 0

        @property
        def state_key(self):
            return f"Tally of {self.key}"

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            self.count += 1

        def on_train_end(self, trainer, module):
            HEARD.append([self.name, self.count])

        def state_dict(self):
            return {"count": self.count}

        def load_state_dict(self, state):
            self.count = state["count"]

    class Bell(Callback):
        def __init__(self, name="package's"):
            self.name = name

        def on_train_end(self, trainer, module):
            HEARD.append([self.name, "rings"])

    def make():
        return [Tally(), Bell()]

    for_lightning = lightning_factory(make)
"""

BEGIN = """
import json, warnings
warnings.simplefilter("ignore")
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader
from trainer_hooks.adapters import to_lightning
from {package}.factories import HEARD, Bell, Tally

class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
    def training_step(self, batch, batch_idx):
        return self.layer(batch).pow(2).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
"""

PASSES_ITS_OWN = """
def heard(*callbacks):
    HEARD.clear()
    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
        callbacks=[to_lightning(callback) for callback in callbacks],
    )
    trainer.fit(Net(), DataLoader(torch.rand(6, 3), batch_size=2))
    return sorted(HEARD, key=str)

print(json.dumps([
    heard(), heard(Tally("mine")), heard(Bell("mine")), heard(Tally("mine", "other batches")),
]))
"""


@pytest.mark.parametrize("package", ["replaced", "replaced_there"])
def test_what_the_user_passes_replaces_it(installed, run_with_plugins, package) -> None:
    """One of the same class and state_key, with a state or without, as in our Trainer."""
    groups = {"trainer_hooks.callbacks_factory": {"tally": "factories:make"}}
    if package == "replaced_there":
        groups = {"pytorch_lightning.callbacks_factory": {"tally": "factories:for_lightning"}}
    name = package.replace("_", "-")
    installed.declare(name, (name, "1.0", {"factories": REPLACED}, groups))
    done = run_with_plugins((BEGIN + PASSES_ITS_OWN).replace("{package}", package), name)
    assert done.returncode == 0, done.stderr
    bell, tally = ["package's", "rings"], ["package's", 3]
    assert json.loads(done.stdout.splitlines()[-1]) == [
        sorted(heard, key=str)
        for heard in (
            [tally, bell], [["mine", 3], bell], [["mine", "rings"], tally],
            [["mine", 3], tally, bell],
        )
    ]  # fmt: skip


FROM_THE_MODULE = """
class WithCallbacks(Net):
    def configure_callbacks(self):
        return [to_lightning(Tally("module's")), to_lightning(Bell("module's"))]

trainer = pl.Trainer(
    accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(WithCallbacks(), DataLoader(torch.rand(6, 3), batch_size=2))
names = [type(callback).__name__ for callback in trainer.callbacks]
print(json.dumps([sorted(HEARD, key=str), names.count("Tally"), names.count("Bell")]))
"""


def test_what_the_module_brings_replaces_it(installed, run_with_plugins) -> None:
    """`configure_callbacks` of a LightningModule, as with two callbacks of Lightning itself."""
    groups = {"trainer_hooks.callbacks_factory": {"tally": "factories:make"}}
    package = "brought"
    installed.declare(package, (package, "1.0", {"factories": REPLACED}, groups))
    done = run_with_plugins((BEGIN + FROM_THE_MODULE).replace("{package}", package), package)
    assert done.returncode == 0, done.stderr
    heard = [["module's", "rings"], ["module's", 3]]
    assert json.loads(done.stdout.splitlines()[-1]) == [heard, 1, 1]


ELSEWHERE = """
import contextlib, json, os, sys, tempfile, warnings
warnings.simplefilter("ignore")
folder = tempfile.TemporaryDirectory()
os.chdir(folder.name)
sys.path[:0] = {places!r}
import host_fits
from trainer_hooks import adapters
from {package}.factories import HEARD, Bell, Tally

host = host_fits.{host}()
convert = host.convert
host.convert = lambda callback: callback
told = []
for given in ((), (Tally("mine"),), (Bell("mine"),), (Tally("mine", "other batches"),)):
    HEARD.clear()
    # before and after the package's, which the user may write down in either order
    brought = adapters.plugins_for(host.name)
    mine = [convert(callback) for callback in given]
    passed = [*brought, *mine] if len(told) % 2 else [*mine, *brought]
    with contextlib.redirect_stdout(sys.stderr):
        fit = host.fit(*passed, epochs=1, saves=True)
    assert fit.error is None, fit.error
    told.append(sorted(HEARD, key=str))
print(json.dumps(told))
"""


@pytest.mark.parametrize(
    ("host", "package"),
    [
        ("InTransformers", "transformers"), ("InComposer", "composer"),
        ("InAccelerated", "pytorch_accelerated"),
    ],
)  # fmt: skip
def test_what_the_user_passes_replaces_it_elsewhere(
    installed, run_with_plugins, host, package
) -> None:
    """With `plugins_for` beside it, in either order: one of the same class and state_key runs."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}")
    adapters = Path(__file__).parents[1] / "adapters"
    places = [adapters / "export", adapters.parent / "support", adapters / "composer" / "stand_ins"]
    if package != "composer":
        places.pop()
    groups = {"trainer_hooks.callbacks_factory": {"tally": "factories:make"}}
    name = f"beside_{package}"
    installed.declare(name, (name.replace("_", "-"), "1.0", {"factories": REPLACED}, groups))
    code = ELSEWHERE.replace("{places!r}", repr(list(map(str, places)))).replace("{host}", host)
    done = run_with_plugins(code.replace("{package}", name), name)
    assert done.returncode == 0, done.stderr[-3000:]
    bell, tally = ["package's", "rings"], ["package's", 4]
    assert json.loads(done.stdout.splitlines()[-1]) == [
        sorted(heard, key=str)
        for heard in (
            [tally, bell], [["mine", 4], bell], [["mine", "rings"], tally],
            [["mine", 4], tally, bell],
        )
    ]  # fmt: skip


def test_an_installed_callback_with_a_state_passes_the_check_there(
    installed, run_with_plugins
) -> None:
    """`plugins check --everywhere` runs it in Lightning's Trainer, which finds it as well."""
    groups = {"trainer_hooks.callbacks_factory": {"tally": "factories:make"}}
    installed.declare("checked", ("checked", "1.0", {"factories": REPLACED}, groups))
    code = "import sys\nfrom trainer_hooks.cli.main import main\nsys.exit(main(sys.argv[1:]))\n"
    words = ["plugins", "check", "checked", "--everywhere", "--json"]
    for name in ("in_accelerated", "in_composer", "in_transformers", "costs", "orders"):
        words += ["--skip", name]
    done = run_with_plugins(code, "checked", arguments=tuple(words))
    [record] = json.loads(done.stdout)
    outcomes = {(r["callback"], r["name"]): r for r in record["results"]}
    for kind in ("Tally", "Bell"):
        assert outcomes[kind, "in_lightning"]["outcome"] == "passed", outcomes[kind, "in_lightning"]
