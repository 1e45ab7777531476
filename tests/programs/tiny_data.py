"""Tiny data in the memory, which the programs train on in place of a download."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch.utils.data import Dataset, TensorDataset

__all__ = ["Sentences", "digits", "images_and_labels"]


def images_and_labels(count: int = 96) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images of shape (count, 1, 8, 8) between 0 and 1, and their labels."""
    found = load_digits()
    images = torch.as_tensor(found.images[:count], dtype=torch.float32)[:, None] / 16
    return images, torch.as_tensor(found.target[:count])


def digits(count: int = 96) -> TensorDataset:
    """Return a data set of pairs of an image and its label."""
    return TensorDataset(*images_and_labels(count))


class Sentences(Dataset):
    """Sentences of six token ids below 40, as inputs of a transformer, with one of two labels."""

    def __init__(self, count: int) -> None:
        self.ids = torch.randint(1, 40, (count, 6), generator=torch.Generator().manual_seed(count))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = self.ids[index]
        labels = (ids.sum() > 120).long()
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
