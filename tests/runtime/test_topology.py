"""A process that a launcher started as one of several is refused, since it would train apart."""

from __future__ import annotations

import pytest

from trainer_hooks import Trainer
from trainer_hooks.errors import UsageError
from trainer_hooks.runtime import require_single_process


@pytest.mark.parametrize(
    "environ",
    [
        {"WORLD_SIZE": "2", "RANK": "0"},
        {"SLURM_NTASKS": "4"},
        {"SLURM_NTASKS": "4", "SLURM_JOB_NAME": "train"},
        {"WORLD_SIZE": "2", "SLURM_JOB_NAME": "bash"},
    ],
)
def test_one_of_several_processes(environ) -> None:
    """The message has the variable that was found, the rule, and what to do."""
    name = next(iter(environ))
    with pytest.raises(UsageError) as caught:
        require_single_process(environ)
    for word in (
        f"{name}={environ[name]}",
        "several processes is not available yet",
        "Start one process",
        f"take {name} out of its environment",
    ):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"WORLD_SIZE": "1"},
        {"WORLD_SIZE": ""},
        {"WORLD_SIZE": "many"},
        {"SLURM_NTASKS": "1"},
        {"SLURM_NTASKS": "4", "SLURM_JOB_NAME": "bash"},
        {"SLURM_NTASKS": "4", "SLURM_JOB_NAME": "interactive"},
    ],
)
def test_the_only_process(environ) -> None:
    """One process, a value that is no number, and a shell inside a SLURM job are let through."""
    require_single_process(environ)


def test_the_trainer_asks(monkeypatch) -> None:
    """A Trainer under torchrun is an error before anything is made."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="WORLD_SIZE=2"):
        Trainer()
