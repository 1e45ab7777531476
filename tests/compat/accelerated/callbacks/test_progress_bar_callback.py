"""ProgressBarCallback in runs."""

from __future__ import annotations

from trainer_hooks.callbacks import TQDMProgressBar
from trainer_hooks.compat.accelerated.callbacks import ProgressBarCallback


def test_it_is_a_tqdm_bar() -> None:
    """It is that callback, with other arguments."""
    assert issubclass(ProgressBarCallback, TQDMProgressBar)


def test_the_bar_is_drawn(trained, capsys) -> None:
    """Its lines show the epochs."""
    trained(ProgressBarCallback(), enable_progress_bar=True)
    assert "Epoch 1" in capsys.readouterr().out
