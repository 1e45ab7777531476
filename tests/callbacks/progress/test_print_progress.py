"""PrintProgressCallback in runs."""

from __future__ import annotations

from trainer_hooks.callbacks import PrintProgressCallback


def test_epochs_and_runs_are_printed(trained, capsys) -> None:
    """A line as each begins, and as a run ends."""
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
