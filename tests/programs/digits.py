"""Tiny data of scikit-learn, in the memory: what the programs train on in place of a download."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

__all__ = ["digits", "images_and_labels"]


def images_and_labels(count: int = 96) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images of shape (count, 1, 8, 8) between 0 and 1, and their labels."""
    found = load_digits()
    images = torch.as_tensor(found.images[:count], dtype=torch.float32)[:, None] / 16
    return images, torch.as_tensor(found.target[:count])


def digits(count: int = 96) -> TensorDataset:
    """Return a data set of pairs of an image and its label."""
    return TensorDataset(*images_and_labels(count))
