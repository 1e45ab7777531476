"""Callbacks of ours in Composer's Trainer."""

from __future__ import annotations

import pytest
import torch

from trainer_hooks import Callback
from trainer_hooks.adapters import to_composer
from trainer_hooks.adapters.export.composer import COMPOSER_EVENTS
from trainer_hooks.callbacks import EarlyStopping
from trainer_hooks.hooks.spec import HOOKS

pytest.importorskip("composer", reason="needs tests/adapters/composer/requirements.txt")

import composer
from composer.callbacks import LRMonitor
from running import Program, Theirs, Written, loader, raised

pytestmark = [pytest.mark.exhaustive, pytest.mark.filterwarnings("ignore")]

IMPORTS = ("tests/adapters/composer/stand_ins", "composer")


class Recording(Callback):
    """Keep the hooks with the counters, and what they are given."""

    def __init__(self):
        self.calls = []


def _hook(name):
    def call(self, trainer, *arguments):
        self.calls.append([name, trainer.current_epoch, trainer.global_step, len(arguments)])

    return call


for _name in COMPOSER_EVENTS:
    setattr(Recording, _name, _hook(_name))


class Counting(Callback):
    """Count batches, log, and stop."""

    def __init__(self, stop_at=None):
        self.batches, self.stop_at, self.losses = 0, stop_at, []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.batches += 1
        self.losses.append(float(outputs["loss"]))
        self.log("batches", float(self.batches))
        if self.batches == self.stop_at:
            trainer.stop("enough")

    def state_dict(self):
        return {"batches": self.batches}

    def load_state_dict(self, state_dict):
        self.batches = state_dict["batches"]


def there(callback, duration="2ep", evaluates=True, **options):
    """Train with Composer's Trainer."""
    return Program(lambda: to_composer(callback), evaluates=evaluates).train_there(
        duration, **options
    )


def test_hooks_come_in_order_with_their_arguments():
    recording = Recording()
    trainer, _, _ = there(recording)
    trainer.close()
    names = [name for name, *_ in recording.calls]
    begun = [name for name in names if name != "on_after_dataloader"]
    assert begun[:9] == [
        "on_init_end", "setup", "on_configure_model", "on_after_configure_model",
        "on_before_load", "on_after_load", "on_fit_start", "on_train_start", "on_iteration_start",
    ]  # fmt: skip
    assert names[-5:] == ["on_train_end", "on_fit_end", "teardown", "on_close", "on_post_close"]
    end = names.index("on_train_batches_end")
    assert names[end + 1 : end + 5] == [
        "on_validation_run_start", "on_validation_start", "on_epoch_start",
        "on_validation_epoch_start",
    ]  # fmt: skip
    order = names[names.index("on_validation_run_end") :]
    assert order[:4] == [
        "on_validation_run_end", "on_train_epoch_end", "on_epoch_end", "on_epoch_checkpoint",
    ]  # fmt: skip
    for name, *_, given in recording.calls:
        required = len(HOOKS[name].arguments) - ("dataloader_idx" in HOOKS[name].arguments)
        assert given == required - 1, (name, given, HOOKS[name].arguments)
    epochs = [epoch for name, epoch, *_ in recording.calls if name == "on_train_epoch_end"]
    assert epochs == [0, 1]
    steps = [step for name, _, step, _ in recording.calls if name == "on_train_batch_end"]
    assert steps == [1, 2, 3, 4, 5, 6, 7, 8]


def test_it_logs_stops_and_keeps_its_state():
    counting = Counting()
    trainer, _, written = there(counting, "1ep")
    assert [line for line in written.lines if line[0] == "batches"][-1] == ["batches", 4, 4.0]
    assert abs(counting.losses[-1] - trainer.state.total_loss_dict["loss/train/total"]) < 1e-6
    trainer.save_checkpoint("cut.pt")
    trainer.close()
    resumed = Counting(stop_at=6)
    trainer, _, _ = there(resumed, "3ep", load_path="cut.pt")
    assert resumed.batches == 6
    assert trainer.state.timestamp.batch == 6


def test_our_early_stopping_stops_there():
    stopping = EarlyStopping("MulticlassAccuracy", mode="max", patience=1, stopping_threshold=0.0)
    trainer, _, _ = there(stopping, "5ep")
    assert trainer.state.timestamp.epoch == 1
    assert stopping.stopping_reason_message


def test_hooks_that_composer_lacks_are_refused():
    class Zero(Callback):
        def on_before_zero_grad(self, trainer, module, optimizer):
            pass

    error = raised(lambda: to_composer(Zero()))
    assert "Composer has no hook 'on_before_zero_grad'" in str(error), error


def test_an_attribute_that_is_lacking_is_named():
    class Looks(Callback):
        def on_fit_start(self, trainer, module):
            trainer.weather  # noqa: B018 - is to raise

    error = raised(lambda: to_composer(Looks()))
    assert "Composer's trainer has no 'weather', which" in str(error), error
    assert "Composer" in str(error)


def test_two_of_one_class_keep_two_states():
    class Keyed(Counting):
        def __init__(self, key):
            super().__init__()
            self.key = key

        @property
        def state_key(self):
            return f"Keyed{self.key}"

    model = Theirs()
    pair = [to_composer(Keyed("a")), to_composer(Keyed("b"))]
    trainer = composer.Trainer(
        model=model, train_dataloader=loader(), max_duration="1ba", device="cpu",
        optimizers=torch.optim.SGD(model.parameters(), 0.1), callbacks=[*pair, LRMonitor()],
        loggers=[Written()], progress_bar=False, run_name="run", auto_log_hparams=False,
    )  # fmt: skip
    trainer.fit()
    kept = trainer.state.state_dict()["callbacks"]
    assert {"trainer_hooks:Keyeda", "trainer_hooks:Keyedb"} <= set(kept)
