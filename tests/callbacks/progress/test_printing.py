"""PrintMetricsCallback and PrintProgressCallback in runs."""

from __future__ import annotations

import pytest

from trainer_hooks.callbacks import PrintMetricsCallback, PrintProgressCallback
from trainer_hooks.compat.accelerated import callbacks as accelerated
from trainer_hooks.compat.accelerated.callbacks import LogMetricsCallback


def test_metrics_callback_has_an_older_name() -> None:
    """PrintMetricsCallback of pytorch-accelerated is the same class, and derives from ours."""
    assert accelerated.PrintMetricsCallback is LogMetricsCallback
    assert issubclass(LogMetricsCallback, PrintMetricsCallback)


def test_metrics_are_printed_with_their_epoch(trained, capsys) -> None:
    """Training metrics at an epoch's end, others at a validation's, with the latest values."""
    trainer = trained(LogMetricsCallback(), max_epochs=1, log_every_n_steps=1)
    lines = capsys.readouterr().out.splitlines()
    names = ["val_acc", "val_loss", "train_loss", "train_loss_epoch"]
    assert [line.partition(":")[0] for line in lines] == names
    for line in lines:
        name, _, value = line.partition(": ")
        assert float(value) == pytest.approx(trainer.run_history.get_latest_metric(name), rel=1e-5)


def test_epochs_and_runs_are_printed(trained, capsys) -> None:
    """A line is printed as each run and epoch begins, and as a run ends."""
    trainer = trained(PrintProgressCallback(), max_epochs=2)
    trainer.validate(verbose=False)
    assert capsys.readouterr().out.splitlines() == [
        "training run begins",
        "epoch 1 of 2",
        "epoch 2 of 2",
        "training run is over",
        "evaluation run begins (validate)",
        "evaluation run is over (validate)",
    ]
