"""What callbacks of transformers read of the state and the arguments, beside Trainer's own."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import trainer_hooks

pytestmark = [pytest.mark.filterwarnings("ignore::FutureWarning"), pytest.mark.slow]


class Net(trainer_hooks.Module):
    """A layer that logs the loss of each step."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.25)


class Stream(IterableDataset):
    """Data without a length."""

    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return iter(self.items)


def looking(transformers, stop_after):
    """Make a callback that stops after some steps, and notes what it sees."""

    class Look(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == stop_after:
                control.should_training_stop = True

        def on_train_begin(self, args, state, control, **kwargs):
            self.args = [
                args.learning_rate, args.per_device_train_batch_size, args.max_steps,
                args.gradient_accumulation_steps, args.num_train_epochs,
            ]  # fmt: skip

        def on_train_end(self, args, state, control, **kwargs):
            self.end = state.epoch, state.global_step
            self.steps = [one["step"] for one in state.log_history if "loss" in one]

    return Look()


def there(transformers, look, folder, window, max_steps=None):
    """Train in their Trainer, with `max_steps` on data without a length."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def forward(self, x):
            return {"loss": self.layer(x).square().mean()}

    options = {"max_steps": max_steps} if max_steps else {}
    args = transformers.TrainingArguments(
        output_dir=folder, num_train_epochs=3, learning_rate=0.25, per_device_train_batch_size=2,
        logging_steps=1, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True,
        gradient_accumulation_steps=window, **options,
    )  # fmt: skip
    items = [{"x": torch.ones(1)} for _ in range(16)]
    data = Stream(items) if max_steps else items
    transformers.Trainer(Model(), args, train_dataset=data, callbacks=[look]).train()


def here(look, folder, window, max_steps=None):
    """Train in ours, with `max_steps` on data without a length."""
    trainer = trainer_hooks.Trainer(
        callbacks=[look], max_epochs=3, log_every_n_steps=1, default_root_dir=folder,
        accelerator="cpu", enable_progress_bar=False, enable_model_summary=False,
        enable_checkpointing=False, accumulate_grad_batches=window, max_steps=max_steps or -1,
    )  # fmt: skip
    data = Stream(torch.ones(16, 1)) if max_steps else torch.ones(16, 1)
    trainer.fit(Net(), DataLoader(data, batch_size=2))


@pytest.mark.parametrize(("window", "stop_after"), [(1, 11), (2, 6), (1, None), (1, 8)])
def test_state_and_arguments_are_as_at_home(tmp_path, window, stop_after) -> None:
    """The steps of the history, the epoch where a training ends, and the run's own arguments."""
    transformers = pytest.importorskip("transformers")
    theirs, ours = looking(transformers, stop_after), looking(transformers, stop_after)
    there(transformers, theirs, tmp_path / "there", window)
    here(ours, tmp_path / "here", window)
    assert ours.end == theirs.end
    assert ours.args == theirs.args
    assert ours.steps == theirs.steps


@pytest.mark.parametrize(("window", "max_steps"), [(1, 11), (1, 16), (2, 6)])
def test_the_epoch_of_data_without_a_length(tmp_path, window, max_steps) -> None:
    """It is the same at each step and at the ends of epochs, also of one that is broken off."""
    transformers = pytest.importorskip("transformers")

    class Epochs(transformers.TrainerCallback):
        def __init__(self):
            self.seen = []

        def note(self, args, state, control, **kwargs):
            self.seen.append(state.epoch)

        on_step_end = on_epoch_end = on_train_end = note

    theirs, ours = Epochs(), Epochs()
    there(transformers, theirs, tmp_path / "there", window, max_steps)
    here(ours, tmp_path / "here", window, max_steps)
    assert ours.seen == theirs.seen
