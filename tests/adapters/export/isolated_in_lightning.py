"""The built-in callbacks in Lightning's Trainer: each has the effect that it has here."""

from __future__ import annotations

from collections import deque
from datetime import date
from pathlib import Path

import pytest
from every_host import (  # noqa: F401
    events,
    host,
    pytest_generate_tests,
    test_hooks_come_in_the_order_of_our_trainer,
    test_it_goes_on_after_a_resume,
    test_it_has_the_same_effect,
    test_it_is_refused_as_it_is_converted,
    test_it_runs_beside_the_defaults_or_is_refused,
)
from host_fits import InLightning

from trainer_hooks import Callback
from trainer_hooks.adapters import to_lightning
from trainer_hooks.adapters.export.lightning import LIGHTNING_EVENTS
from trainer_hooks.callbacks import EarlyStopping
from trainer_hooks.errors import CallbackError

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.exhaustive]

IMPORTS = ("pytorch_lightning",)

HOST, EVENTS = InLightning, LIGHTNING_EVENTS


@pytest.mark.parametrize("hook", ["on_log", "on_checkpoint_saved"])
def test_a_hook_that_lightning_never_calls_is_refused(hook):
    """A callback that has no other would do nothing."""
    callback = type("Listens", (Callback,), {hook: lambda *_: None})()
    with pytest.raises(CallbackError, match=f"none of its hooks '{hook}' is called in Lightning"):
        to_lightning(callback)


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


class Window(Callback):
    """Its state holds values that torch opens by running code."""

    def __init__(self):
        self.seen = deque(maxlen=3)
        self.loaded = None

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.seen.append(batch_idx)

    def state_dict(self):
        return {"seen": deque(self.seen, 3), "day": date(2020, 1, 2), "place": Path("a")}

    def load_state_dict(self, state_dict):
        self.loaded = state_dict


def test_a_state_of_plain_data_comes_back_from_a_file_that_runs_no_code(tmp_path):
    """With the types that the docs list, and `fit` as Lightning has it by default."""
    import pytorch_lightning as pl
    from pytorch_lightning.demos.boring_classes import BoringModel

    def fit(callback, epochs, **how):
        trainer = pl.Trainer(
            callbacks=[to_lightning(callback)], logger=False, max_epochs=epochs,
            limit_train_batches=4, limit_val_batches=0, enable_progress_bar=False,
            enable_checkpointing=False, enable_model_summary=False, accelerator="cpu",
            default_root_dir=tmp_path,
        )  # fmt: skip
        trainer.fit(BoringModel(), **how)
        return trainer

    first, second = Window(), Window()
    fit(first, 1).save_checkpoint(tmp_path / "x.ckpt")
    fit(second, 2, ckpt_path=tmp_path / "x.ckpt")
    assert second.loaded == {"seen": deque([1, 2, 3]), "day": date(2020, 1, 2), "place": Path("a")}
    assert second.loaded["seen"].maxlen == 3
