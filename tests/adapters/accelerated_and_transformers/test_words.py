"""The words of transformers mean the same there as what the table has for them here."""

from __future__ import annotations

import re

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Callback, Module
from trainer_hooks._words import advice, instead_of
from trainer_hooks.callbacks import ModelCheckpoint

pytestmark = [pytest.mark.slow, pytest.mark.adapters]

X = torch.randn(24, 3, generator=torch.Generator().manual_seed(5))
Y = X.sum(1, keepdim=True) * 3
WORDS = {
    "num_train_epochs": 2, "gradient_accumulation_steps": 2, "max_grad_norm": 0.1,
    "save_total_limit": 2,
}  # fmt: skip
HOOKS = ("on_train_begin", "on_epoch_begin", "on_step_end", "on_evaluate", "on_train_end")


def net() -> torch.nn.Module:
    layer = torch.nn.Linear(3, 1)
    with torch.no_grad():
        layer.weight.fill_(0.5)
        layer.bias.zero_()
    return layer


def there(folder) -> tuple[list, list, list]:
    """Weights, moments with their step, and steps of the files, of transformers' Trainer."""
    transformers = pytest.importorskip("transformers")

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = net()

        def forward(self, x, labels):
            return {"loss": (self.layer(x) - labels).square().mean()}

    seen: list = []

    def note(name):
        return lambda self, args, state, control, **more: seen.append((name, state.global_step))

    noting = type("Noting", (transformers.TrainerCallback,), {name: note(name) for name in HOOKS})
    model = Wrapped()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    arguments = transformers.TrainingArguments(
        str(folder), **WORDS, save_strategy="steps", save_steps=2, eval_strategy="epoch",
        per_device_train_batch_size=4, per_device_eval_batch_size=4, use_cpu=True, report_to=[],
        disable_tqdm=True, train_sampling_strategy="sequential",
        average_tokens_across_devices=False,
    )  # fmt: skip
    rows = [{"x": x, "labels": y} for x, y in zip(X, Y, strict=True)]
    constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    transformers.Trainer(
        model, arguments, train_dataset=rows, eval_dataset=rows[:4], callbacks=[noting()],
        optimizers=(optimizer, constant),
    ).train()  # fmt: skip
    steps = sorted(int(path.name.partition("-")[2]) for path in folder.glob("checkpoint-*"))
    return model.layer.weight.flatten().tolist(), seen, steps


def here(folder, quiet_trainer) -> tuple[list, list, list]:
    """The same with what the table has for the words."""

    class Net(Module):
        def __init__(self):
            super().__init__()
            self.layer = net()

        def training_step(self, batch, batch_idx):
            return (self.layer(batch[0]) - batch[1]).square().mean()

        def validation_step(self, batch, batch_idx):
            pass

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    seen: list = []

    def note(name):
        return lambda self, trainer, *more: seen.append((name, trainer.global_step))

    ours = {instead_of("hooks", name) or name: name for name in HOOKS if name != "on_train_end"}
    ours["on_train_end"] = "on_train_end"
    noting = type("Noting", (Callback,), {hook: note(name) for hook, name in ours.items()})
    options: dict = {}
    for name, value in WORDS.items():
        text = advice(instead_of("options", name), value)
        code = re.fullmatch(r" Write (.*) instead\.", text)[1]
        options |= eval(f"dict({code})", {"ModelCheckpoint": ModelCheckpoint})
    (saver,) = options.pop("callbacks")
    saver = ModelCheckpoint(
        folder, "{step}", every_n_train_steps=2,
        monitor=saver.monitor, mode=saver.mode, save_top_k=saver.save_top_k,
    )  # fmt: skip
    module = Net()
    data = TensorDataset(X, Y)
    trainer = quiet_trainer(
        saver, noting(), enable_checkpointing=True, num_sanity_val_steps=0, **options
    )
    trainer.fit(module, DataLoader(data, 4), DataLoader(data, 4))
    steps = sorted(int(path.stem.partition("=")[2]) for path in folder.iterdir())
    return module.layer.weight.flatten().tolist(), seen, steps


@pytest.mark.filterwarnings("ignore")
def test_a_training_by_the_table_is_the_same(tmp_path, quiet_trainer) -> None:
    """Epochs, accumulation, clipping, kept files, and the moments of the hooks with their step."""
    theirs, ours = there(tmp_path / "there"), here(tmp_path / "here", quiet_trainer)
    assert ours[0] == pytest.approx(theirs[0], rel=1e-6)
    assert ours[1] == theirs[1]
    assert ours[2] == theirs[2] == [4, 6]
