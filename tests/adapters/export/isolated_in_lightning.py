"""The built-in callbacks in Lightning's Trainer: each has the effect that it has here."""

from __future__ import annotations

import pytest
from default_fits import NAMES, run_beside_defaults
from host_fits import InLightning
from pairs import (
    PAIRS,
    REFUSED,
    differences,
    order_differences,
    resumed_differences,
    runs_in,
)

from trainer_hooks import Callback
from trainer_hooks.adapters import to_lightning
from trainer_hooks.adapters.export.lightning import LIGHTNING_EVENTS
from trainer_hooks.callbacks import EarlyStopping
from trainer_hooks.errors import CallbackError

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.exhaustive]

IMPORTS = ("pytorch_lightning",)


@pytest.mark.parametrize("name", runs_in("lightning"))
def test_it_has_the_same_effect(name, tmp_path):
    assert differences(PAIRS[name], InLightning(), tmp_path) == []


@pytest.mark.parametrize("name", [n for n in runs_in("lightning") if PAIRS[n].resumes])
def test_it_goes_on_after_a_resume(name, tmp_path):
    assert resumed_differences(PAIRS[name], InLightning(), tmp_path) == []


@pytest.mark.parametrize("accumulate", [1, 2])
def test_hooks_come_in_the_order_of_our_trainer(accumulate, tmp_path):
    events = LIGHTNING_EVENTS
    assert order_differences(InLightning(), events, tmp_path, accumulate=accumulate) == ""


@pytest.mark.parametrize("name", [n for n, row in REFUSED.items() if "lightning" in row[1]])
def test_it_is_refused_as_it_is_converted(name):
    make, _, reason = REFUSED[name]
    with pytest.raises(CallbackError, match=reason):
        InLightning().convert(make(InLightning()))


@pytest.mark.parametrize("hook", ["on_log", "on_checkpoint_saved"])
def test_a_hook_that_lightning_never_calls_is_refused(hook):
    """A callback that has no other would do nothing."""
    callback = type("Listens", (Callback,), {hook: lambda *_: None})()
    with pytest.raises(CallbackError, match=f"none of its hooks '{hook}' is called in Lightning"):
        to_lightning(callback)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_it_runs_beside_the_defaults_or_is_refused(name, tmp_path, monkeypatch):
    """With validation, sanity check, bars and loggers on; none dies in the run."""
    monkeypatch.chdir(tmp_path)
    run_beside_defaults(name, "lightning")


@pytest.mark.parametrize("kind", ["Counts", "CountsMore"])
def test_a_callback_of_the_module_replaces_that_of_its_class_and_its_bases(kind, tmp_path):
    """One that is passed to Lightning's Trainer leaves, as a callback of Lightning does."""
    import pytorch_lightning as pl
    from pytorch_lightning.demos.boring_classes import BoringModel

    class Counts(Callback):
        started = 0

        def on_train_start(self, trainer, module):
            self.started += 1

    class CountsMore(Counts):
        pass

    passed = Counts()
    brought = {"Counts": Counts, "CountsMore": CountsMore}[kind]()

    class Net(BoringModel):
        def configure_callbacks(self):
            return to_lightning(brought)

        def training_step(self, batch, batch_idx):
            outputs = super().training_step(batch, batch_idx)
            self.log("train_loss", outputs["loss"])
            return outputs

    trainer = pl.Trainer(
        callbacks=[to_lightning(passed), to_lightning(EarlyStopping("train_loss"))], logger=False,
        max_epochs=1, limit_train_batches=1, limit_val_batches=0, enable_progress_bar=False,
        enable_checkpointing=False, enable_model_summary=False, accelerator="cpu",
        default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(Net())
    assert (passed.started, brought.started) == (0, 1)
    assert any(type(one).__name__ == "EarlyStopping" for one in trainer.callbacks)
