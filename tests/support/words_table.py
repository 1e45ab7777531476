"""A training by the table of words, to compare with the trainer that the words are of."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Callback, Module
from trainer_hooks._words import advice, instead_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

X = torch.randn(24, 3, generator=torch.Generator().manual_seed(5))
Y = X.sum(1, keepdim=True) * 3
RATE = 0.1


def net() -> torch.nn.Linear:
    """Return the layer that each trainer trains."""
    layer = torch.nn.Linear(3, 1)
    with torch.no_grad():
        layer.weight.fill_(0.5)
        layer.bias.zero_()
    return layer


def loader(count: int = 24) -> DataLoader:
    """Return batches of four of the first rows, in their order."""
    return DataLoader(TensorDataset(X[:count], Y[:count]), 4)


def noted(weight: Any) -> float:
    """Return the weights as one number, by which a moment of a training is known."""
    return round(float(weight.sum()), 4)


class Layer(Module):
    """A module with the layer, and its optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = net()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), RATE)


class Net(Layer):
    """The layer with the mean squared error, in steps."""

    def training_step(self, batch, batch_idx):
        return (self.layer(batch[0]) - batch[1]).square().mean()

    def validation_step(self, batch, batch_idx):
        pass


def options_of(words: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of Trainer, and of a saver, that the table has for another's words."""
    options: dict[str, Any] = {}
    saving: dict[str, Any] = {}
    for name, value in words.items():
        text = advice(instead_of("options", name), value)
        match = re.match(r" Write (.*?)(?: instead\.$|; )", text)
        assert match, (name, text)
        options |= eval(f"dict({match[1]})", {"ModelCheckpoint": dict})
        for saver in options.pop("callbacks", []):
            saving |= saver
    return options, saving


def train_here(
    quiet_trainer: Callable[..., Any],
    hooks: Iterable[str],
    *callbacks: Callback,
    module: Module | None = None,
    **options: Any,
) -> tuple[list[float], list[tuple[str, float]]]:
    """Return the trained weights, and the weights in each of another trainer's hooks.

    A word of several hooks is called in each of them; a name that the table lacks is ours.
    """
    seen: list[tuple[str, float]] = []

    def note(names: list[str]) -> Callable[..., None]:
        return lambda self, trainer, module, *more: seen.extend(
            (name, noted(module.layer.weight)) for name in names
        )

    ours: dict[str, list[str]] = {}
    for name in hooks:
        for hook in re.findall(r"on_\w+", instead_of("hooks", name) or name):
            ours.setdefault(hook, []).append(name)
    noting = type("Noting", (Callback,), {hook: note(names) for hook, names in ours.items()})
    module = Net() if module is None else module
    trainer = quiet_trainer(*callbacks, noting(), num_sanity_val_steps=0, **options)
    trainer.fit(module, loader(), loader(8))
    return module.layer.weight.flatten().tolist(), seen
