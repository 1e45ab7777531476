"""The small modules and data sets with which Lightning's users show a bug."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from trainer_hooks.compat.lightning.base_classes import LightningDataModule, LightningModule

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "BoringDataModule",
    "BoringDataModuleNoLen",
    "BoringModel",
    "DemoModel",
    "IterableBoringDataModule",
    "ManualOptimBoringModel",
    "Net",
    "RandomDataset",
    "RandomDictDataset",
    "RandomIterableDataset",
    "RandomIterableDatasetWithLen",
    "Transformer",
]

_SIZE, _LENGTH = 32, 64


class RandomDataset(Dataset[Tensor]):
    """Normally distributed samples, drawn when it is made.

    Args:
        size: the numbers of each sample.
        length: how many samples there are.
    """

    def __init__(self, size: int, length: int) -> None:
        self.len = length
        self.data = torch.randn(length, size)

    def __getitem__(self, index: int) -> Tensor:
        return self.data[index]

    def __len__(self) -> int:
        return self.len


class RandomDictDataset(Dataset[dict[str, Tensor]]):
    """The samples of a `RandomDataset` as `a`, and `b`, which is larger by 2."""

    def __init__(self, size: int, length: int) -> None:
        self.len = length
        self.data = torch.randn(length, size)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        sample = self.data[index]
        return {"a": sample, "b": sample + 2}

    def __len__(self) -> int:
        return self.len


class RandomIterableDataset(IterableDataset[Tensor]):
    """Normally distributed samples, drawn as it is iterated over.

    Args:
        size: the numbers of each sample.
        count: how many samples there are.
    """

    def __init__(self, size: int, count: int) -> None:
        self.count, self.size = count, size

    def __iter__(self) -> Iterator[Tensor]:
        for _ in range(self.count):
            yield torch.randn(self.size)


class RandomIterableDatasetWithLen(RandomIterableDataset):
    """A `RandomIterableDataset` that knows its length."""

    def __len__(self) -> int:
        return self.count


class BoringModel(LightningModule):
    """A linear layer that learns to return ones: override the method that shows the bug."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(_SIZE, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's outputs."""
        outputs: Tensor = self.layer(x)
        return outputs

    def loss(self, preds: Tensor, labels: Tensor | None = None) -> Tensor:
        """Return the mean squared error of the outputs, by default from ones."""
        return functional.mse_loss(preds, torch.ones_like(preds) if labels is None else labels)

    def step(self, batch: Any) -> Tensor:
        """Return the loss of a batch."""
        return self.loss(self(batch))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """Return the loss under `loss`."""
        return {"loss": self.step(batch)}

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        """Return the loss under `x`."""
        return {"x": self.step(batch)}

    def test_step(self, batch: Any, batch_idx: int) -> Any:
        """Return the loss under `y`."""
        return {"y": self.step(batch)}

    def configure_optimizers(self) -> Any:
        """Return SGD with a rate of 0.1, which falls by a factor of 10 at each epoch."""
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)]

    def train_dataloader(self) -> Any:
        """Return a loader of 64 samples."""
        return DataLoader(RandomDataset(_SIZE, _LENGTH))

    val_dataloader = test_dataloader = predict_dataloader = train_dataloader


class ManualOptimBoringModel(BoringModel):
    """A `BoringModel` in manual optimization."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """Make an optimizer step, and return the loss."""
        optimizer: Any = self.optimizers()
        loss = self.step(batch)
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()
        return loss


class _PartsDataModule(LightningDataModule):
    """A loader for each part of the data, which `setup` makes."""

    random_train: Any
    random_val: Any
    random_test: Any
    random_predict: Any

    def train_dataloader(self) -> Any:
        """Return the loader for training."""
        return DataLoader(self.random_train)

    def val_dataloader(self) -> Any:
        """Return the loader for validation."""
        return DataLoader(self.random_val)

    def test_dataloader(self) -> Any:
        """Return the loader for tests."""
        return DataLoader(self.random_test)

    def predict_dataloader(self) -> Any:
        """Return the loader for prediction."""
        return DataLoader(self.random_predict)


class BoringDataModule(_PartsDataModule):
    """64 samples each for training, validation, test and prediction."""

    def __init__(self) -> None:
        super().__init__()
        self.random_full = RandomDataset(_SIZE, _LENGTH * 4)

    def setup(self, stage: str) -> None:
        """Divide the samples."""
        if stage == "fit":
            self.random_train = self._part(0)
        if stage in ("fit", "validate"):
            self.random_val = self._part(1)
        if stage == "test":
            self.random_test = self._part(2)
        if stage == "predict":
            self.random_predict = self._part(3)

    def _part(self, index: int) -> Subset[Tensor]:
        return Subset(self.random_full, range(_LENGTH * index, _LENGTH * (index + 1)))


class BoringDataModuleNoLen(_PartsDataModule):
    """Samples from iterable data sets, whose loaders have no length; they are there after setup."""

    def setup(self, stage: str) -> None:
        """Make the data sets: 512 samples to train, 128 to validate, 256 to test, 64 to predict."""
        if stage == "fit":
            self.random_train = RandomIterableDataset(_SIZE, 512)
        if stage in ("fit", "validate"):
            self.random_val = RandomIterableDataset(_SIZE, 128)
        if stage == "test":
            self.random_test = RandomIterableDataset(_SIZE, 256)
        if stage == "predict":
            self.random_predict = RandomIterableDataset(_SIZE, 64)


class IterableBoringDataModule(LightningDataModule):
    """Two loaders for each stage, one with a length and one without; they are there after setup."""

    def setup(self, stage: str) -> None:
        """Make the data sets: 16 samples to train, 32 to validate, 64 to test, 128 to predict."""
        if stage == "fit":
            self.train_datasets = self._data_sets(16)
        if stage in ("fit", "validate"):
            self.val_datasets = self._data_sets(32)
        if stage == "test":
            self.test_datasets = self._data_sets(64)
        if stage == "predict":
            self.predict_datasets = self._data_sets(128)

    @staticmethod
    def _data_sets(length: int) -> list[Any]:
        return [RandomDataset(4, length), RandomIterableDataset(4, length)]

    def train_dataloader(self) -> Any:
        """Return the loaders for training."""
        return [DataLoader(data) for data in self.train_datasets]

    def val_dataloader(self) -> Any:
        """Return the loaders for validation."""
        return [DataLoader(data) for data in self.val_datasets]

    def test_dataloader(self) -> Any:
        """Return the loaders for tests."""
        return [DataLoader(data) for data in self.test_datasets]

    def predict_dataloader(self) -> Any:
        """Return the loaders for prediction."""
        return [DataLoader(data) for data in self.predict_datasets]


class DemoModel(LightningModule):
    """A linear layer of 32 inputs, trained by Adam; it has no loaders.

    Args:
        out_dim: the number of outputs.
        learning_rate: the rate of the optimizer.
    """

    def __init__(self, out_dim: int = 10, learning_rate: float = 0.02) -> None:
        super().__init__()
        self.l1 = nn.Linear(_SIZE, out_dim)
        self.learning_rate = learning_rate

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs, with those below 0 as 0."""
        return torch.relu(self.l1(x.flatten(1)))

    def training_step(self, batch: Any, batch_nb: int) -> Any:
        """Return the sum of the outputs."""
        return self(batch).sum()

    def configure_optimizers(self) -> Any:
        """Return Adam."""
        return torch.optim.Adam(self.parameters(), lr=self.learning_rate)


class Net(nn.Module):
    """A small convolutional network for images of 28 x 28 pixels and 10 classes, as of MNIST."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(64 * 12 * 12, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logarithms of the classes' probabilities."""
        features = functional.relu(self.conv2(functional.relu(self.conv1(x))))
        features = self.dropout1(functional.max_pool2d(features, 2)).flatten(1)
        hidden = self.dropout2(functional.relu(self.fc1(features)))
        return functional.log_softmax(self.fc2(hidden), dim=1)


class _Positions(nn.Module):
    """Add sines and cosines of a position, and drop some of the sum.

    As in Lightning all tokens get those of one position, the length of the sequence. They are no
    buffer there, either, so that checkpoints have no entry for them.
    """

    def __init__(self, size: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.size = size

    def forward(self, tokens: Tensor) -> Tensor:
        pairs = torch.arange(0, self.size, 2, device=tokens.device, dtype=torch.float)
        angles = tokens.size(1) * torch.exp(pairs * (-math.log(10_000.0) / self.size))
        position = torch.stack((angles.sin(), angles.cos()), dim=1).flatten()
        return self.dropout(tokens + position)  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """A small language model around `torch.nn.Transformer`.

    Args:
        vocab_size: the number of words.
        ninp: the numbers of each word's embedding; even.
        nhead: the heads of each attention.
        nhid: the width of the feedforward layers.
        nlayers: the layers of the encoder, and of the decoder.
        dropout: the share of values that are dropped.
    """

    def __init__(
        self,
        vocab_size: int = 33278,
        ninp: int = 200,
        nhead: int = 2,
        nhid: int = 200,
        nlayers: int = 2,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.ninp, self.vocab_size = ninp, vocab_size
        # in this order, which decides on the first weights for a seed, as the names do for files
        self.pos_encoder = _Positions(ninp, dropout)
        self.embedding = nn.Embedding(vocab_size, ninp)
        self.transformer = nn.Transformer(
            ninp, nhead, nlayers, nlayers, nhid, dropout=dropout, batch_first=True
        )
        self.decoder = nn.Linear(ninp, vocab_size)

    def forward(self, inputs: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the logarithms of the words' probabilities, of shape (batch * length, words).

        Args:
            inputs: the numbers of the words, of shape (batch, length).
            target: those of the words to predict, of the same shape.
            mask: the mask of the decoder; by default no word sees later ones.
        """
        if mask is None:
            mask = nn.Transformer.generate_square_subsequent_mask(
                inputs.size(1), device=inputs.device
            )
        source, wanted = (
            self.pos_encoder(self.embedding(words) * math.sqrt(self.ninp))
            for words in (inputs, target)
        )
        words = self.decoder(self.transformer(source, wanted, tgt_mask=mask))
        return functional.log_softmax(words, dim=-1).view(-1, self.vocab_size)
