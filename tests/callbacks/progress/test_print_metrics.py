"""LogMetricsCallback in runs."""

from __future__ import annotations

import pytest

from trainer_hooks.callbacks import PrintMetricsCallback
from trainer_hooks.compat.accelerated.callbacks import LogMetricsCallback


def test_it_has_an_older_name() -> None:
    """PrintMetricsCallback is the same class."""
    assert PrintMetricsCallback is LogMetricsCallback


def test_metrics_are_printed_with_their_epoch(trained, capsys) -> None:
    """Training metrics at an epoch's end, others at a validation's, with the latest values."""
    trainer = trained(LogMetricsCallback(), max_epochs=1, log_every_n_steps=1)
    lines = capsys.readouterr().out.splitlines()
    names = ["val_acc", "val_loss", "train_loss", "train_loss_epoch"]
    assert [line.partition(":")[0] for line in lines] == names
    for line in lines:
        name, _, value = line.partition(": ")
        assert float(value) == pytest.approx(trainer.run_history.get_latest_metric(name), rel=1e-5)
