"""What a new process does not know, for tests that start a run again without one."""

from __future__ import annotations

from trainer_hooks.trainer.identity.run_identity import TRAININGS, ProcessTrainings


def forget_trainings() -> None:
    """Forget the trainings of this process, as if it had just begun.

    `ckpt_path="auto"` then takes their checkpoints for those of an earlier process.
    """
    ProcessTrainings.__init__(TRAININGS)
