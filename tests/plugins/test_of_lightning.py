"""A package for Lightning, built and installed as a wheel: what is advised is what works."""

from __future__ import annotations

import importlib.util
import json

import pytest

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("pytorch_lightning") is None, reason="needs pytorch-lightning"
    ),
    pytest.mark.slow,  # packages are built, and each command has a process of its own
]

GROUPS = ("lightning.pytorch.callbacks_factory", "pytorch_lightning.callbacks_factory")
MAIN = "import sys\nfrom trainer_hooks.cli.main import main\nsys.exit(main(sys.argv[1:]))\n"
FACTORIES = """
    from pytorch_lightning import Callback


    class Flash(Callback):
        def __init__(self):
            self.batches = 0

        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            self.batches += 1

        def on_fit_end(self, trainer, pl_module):
            print("flashed", self.batches, type(trainer).__name__)

        def state_dict(self):
            return {"batches": self.batches}

        def load_state_dict(self, state_dict):
            self.batches = state_dict["batches"]


    def make():
        return [Flash()]
"""
FIT = """
from trainer_hooks import Trainer
from trainer_hooks.testing import TinyModule

trainer = Trainer(
    max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False, plugins=PLUGINS,
    enable_model_summary=False, enable_checkpointing=False, plugin_errors="raise",
)
trainer.fit(TinyModule())
print("taking part:", [type(one).__name__ for one in trainer.callbacks].count("Flash"))
"""


@pytest.fixture(scope="module")
def flash(installed, run_with_plugins, examples_not_asked_for):
    """A function that runs code where a package with callbacks of Lightning is installed."""
    factories = {"factories": FACTORIES}
    entries = {group: {"flash": "factories:make"} for group in GROUPS}
    installed.declare("flash", ("acme-flash", "2.0", factories, entries))
    blocked = ",".join(examples_not_asked_for(("flash",)))

    def run(code: str, *arguments: str):
        return run_with_plugins(
            code, "flash", arguments=arguments, TRAINER_HOOKS_BLOCK_PLUGINS=blocked
        )

    return run


def test_it_is_listed_with_the_advice_to_name_it(flash) -> None:
    """Both groups are read, and the list says how to have it loaded."""
    done = flash(MAIN, "plugins", "list", "--json")
    assert done.returncode == 0, done.stderr
    records = [r for r in json.loads(done.stdout) if r["distribution"] == "acme-flash"]
    assert {record["status"] for record in records} <= {"blocked", "hidden"}
    advised = [record["reason"] for record in records if record["status"] == "blocked"]
    assert advised
    assert all("name it in Trainer(plugins=[...])" in reason for reason in advised)


@pytest.mark.exhaustive
def test_named_it_is_checked_as_one_of_ours(flash) -> None:
    """`plugins check acme-flash` loads it and lets it train, and finds nothing wrong."""
    done = flash(MAIN, "plugins", "check", "acme-flash")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "plugin acme-flash 2.0" in done.stdout
    assert "1 passed" in done.stdout


@pytest.mark.parametrize(
    ("plugins", "found"),
    [
        pytest.param("['acme-flash']", 1, marks=pytest.mark.exhaustive),
        pytest.param("['flash']", 1, marks=pytest.mark.exhaustive),
        ("True", 0),
    ],
)
def test_named_it_runs(flash, plugins: str, found: int) -> None:
    """It takes part where it is named, by its package or its entry point, and nowhere else."""
    done = flash(FIT.replace("PLUGINS", plugins))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"taking part: {found}" in done.stdout
    assert ("flashed" in done.stdout) is bool(found)
