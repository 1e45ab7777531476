"""Metrics, layers and files with control characters in their names, on a real pseudo-terminal."""

from __future__ import annotations

import os
import pty
import re
import sys
import threading

import pytest
import torch
from torch.utils.data import DataLoader

from trainer_hooks import Module, Trainer
from trainer_hooks.callbacks import ModelSummary, RichModelSummary, RichProgressBar, TQDMProgressBar
from trainer_hooks.loggers import ConsoleLogger

NAME = "\x1b]0;title\x07\x9b2J\x7f\u202eloss"
ESCAPED = r"\x1b]0;title\x07\x9b2J\x7f\u202eloss"


class Line(Module):
    def __init__(self) -> None:
        super().__init__()
        self.add_module(NAME, torch.nn.Linear(4, 1))

    def training_step(self, batch, batch_idx):
        self.log(NAME, 1.0, prog_bar=True)
        return next(self.children())(batch).square().mean()

    def validation_step(self, batch, batch_idx):
        self.log(f"val{NAME}", 1.0, prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


@pytest.fixture
def pseudo_terminal(monkeypatch):
    """Run a function with a pseudo-terminal as both standard streams; return what it wrote."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "400")

    def written(act) -> str:
        master, slave = pty.openpty()
        parts: list[bytes] = []

        def read() -> None:
            # it ends with an error when the last one who writes has closed
            try:
                while part := os.read(master, 65536):
                    parts.append(part)
            except OSError:
                pass

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        with os.fdopen(slave, "w", encoding="utf-8") as stream, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            patch.setattr(sys, "stderr", stream)
            act()
            stream.flush()
        reader.join(20)
        os.close(master)
        return b"".join(parts).decode()

    return written


@pytest.mark.parametrize(
    ("bar", "summary"), [(TQDMProgressBar, ModelSummary), (RichProgressBar, RichModelSummary)]
)
def test_a_bar_and_a_summary_escape_names(bar, summary, pseudo_terminal, tmp_path) -> None:
    """The bar moves the cursor itself, and no name does; titles and bells are never sent."""

    def act() -> None:
        trainer = Trainer(
            max_epochs=1, callbacks=[bar(), summary()], logger=ConsoleLogger(), plugins=False,
            accelerator="cpu", enable_checkpointing=False, log_every_n_steps=1,
            default_root_dir=tmp_path,
        )  # fmt: skip
        data = DataLoader(torch.ones(4, 4), batch_size=2)
        trainer.fit(Line(), data, data)
        trainer.validate(dataloaders=data)

    text = pseudo_terminal(act)
    assert ESCAPED in text
    assert f"{ESCAPED}=1" in text
    # the bars' own: colours, the cursor, its visibility, and erasing
    rest = re.sub(r"\x1b\[[?\d;]*[A-Za-z]|[\r\n]", "", text)
    assert rest.isprintable(), sorted({char for char in rest if not char.isprintable()})
