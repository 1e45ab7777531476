"""Data, models and set-up that programs of other frameworks share; it imports none of them."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import Dataset

if TYPE_CHECKING:
    from collections.abc import Iterator


class Rows(Dataset):
    """Eight samples and their targets."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        row = torch.arange(4.0) / 4 + index / 8
        return row, row.sum().reshape(1) / 4


class Named(Rows):
    """The same as dicts."""

    def __getitem__(self, index):
        row, target = super().__getitem__(index)
        return {"x": row, "labels": target}


class HuggingFaceModel(torch.nn.Module):
    """A linear model for Hugging Face's Trainer."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x, labels=None):
        out = self.layer(x)
        return {"loss": torch.nn.functional.mse_loss(out, labels), "logits": out}


def prepare_process() -> None:
    """Log nothing, and compute in one thread: the results are compared."""
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)


@contextlib.contextmanager
def quiet_folder(folder: str | Path | None = None) -> Iterator[Path]:
    """Work in a folder, a temporary one unless given, and print nothing."""
    silent = io.StringIO()
    with contextlib.ExitStack() as stack:
        place = folder or stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(contextlib.chdir(place))
        stack.enter_context(contextlib.redirect_stdout(silent))
        stack.enter_context(contextlib.redirect_stderr(silent))
        yield Path(place)


def write_results(target: str | Path, results: Any) -> None:
    """Write results as JSON for the test that has started the program."""
    Path(target).write_text(json.dumps(results), encoding="utf-8")
