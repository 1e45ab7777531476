from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import nn

from trainer_hooks import Trainer
from trainer_hooks.callbacks import (
    ModelSummary,
    RichModelSummary,
    RichProgressBar,
    TQDMProgressBar,
)


class Bracketed(nn.Linear):
    """A layer whose class has a name that rich would read as markup."""


Bracketed.__name__ = "[bold]Linear"


def test_table_on_a_terminal(terminal):
    """On a terminal the table is drawn, names as they are, and its headers have their style."""
    model = nn.Sequential(Bracketed(2, 3), nn.Linear(3, 4))
    model.example_input_array = torch.ones(5, 2)
    summary = RichModelSummary(header_style="cyan")
    summary.on_fit_start(SimpleNamespace(is_global_zero=True), model)
    lines = terminal.screen
    [header] = [line for line in lines if "Name" in line]
    assert [cell.strip() for cell in header.split("┃")][2:-1] == [
        "Name",
        "Type",
        "Params",
        "Mode",
        "FLOPs",
        "In sizes",
        "Out sizes",
    ]
    [row] = [line for line in lines if "[bold]Linear" in line]
    cells = [cell.strip() for cell in row.split("│")][1:-1]
    assert cells == ["0", "0", "[bold]Linear", "9", "train", "60", "[5, 2]", "[5, 3]"]
    assert [line.split() for line in lines if "total params" in line] == [["25", "total", "params"]]
    row_of_header = terminal.lines.index(header)
    assert terminal.buffer[row_of_header][header.index("Name")].fg == "cyan"


def test_summary_that_goes_with_the_bar():
    """With a rich bar the default summary is a rich one; one that was given stays what it is."""

    def summary(*callbacks):
        trainer = Trainer(callbacks=callbacks, logger=False, plugins=False)
        [found] = [c for c in trainer.callbacks if isinstance(c, ModelSummary)]
        return type(found)

    assert summary(RichProgressBar()) is RichModelSummary
    assert summary(TQDMProgressBar()) is ModelSummary
    assert summary() is ModelSummary
    assert summary(RichProgressBar(), ModelSummary()) is ModelSummary
    assert summary(TQDMProgressBar(), RichModelSummary()) is RichModelSummary
    one = Trainer(callbacks=RichProgressBar(), logger=False, plugins=False)
    assert any(isinstance(callback, RichModelSummary) for callback in one.callbacks)
