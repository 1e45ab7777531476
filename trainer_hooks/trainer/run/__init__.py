"""The life of one run: asked for, prepared, saved, resumed, ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.trainer.run.conditions import checked_overrides
    from trainer_hooks.trainer.run.contents import build
    from trainer_hooks.trainer.run.forking import Forks
    from trainer_hooks.trainer.run.job import Job, reload_data
    from trainer_hooks.trainer.run.leaving_out import leave_to_first
    from trainer_hooks.trainer.run.lifecycle import Run
    from trainer_hooks.trainer.run.places import processes_of
    from trainer_hooks.trainer.run.portrait import portrait
    from trainer_hooks.trainer.run.profiling import active_profile, profile_from_start, put_in
    from trainer_hooks.trainer.run.rest import at_rest
    from trainer_hooks.trainer.run.resuming import best_of_fit, find_checkpoint
    from trainer_hooks.trainer.run.session import Session
    from trainer_hooks.trainer.run.snapshot import save, save_in_background, tell_saved
    from trainer_hooks.trainer.run.together import decided_by_zero
    from trainer_hooks.trainer.run.trial import run_trial

__all__ = [
    "Forks",
    "Job",
    "Run",
    "Session",
    "active_profile",
    "at_rest",
    "best_of_fit",
    "build",
    "checked_overrides",
    "decided_by_zero",
    "find_checkpoint",
    "leave_to_first",
    "portrait",
    "processes_of",
    "profile_from_start",
    "put_in",
    "reload_data",
    "run_trial",
    "save",
    "save_in_background",
    "tell_saved",
]

if not TYPE_CHECKING:  # so that a name that is not there is an error to type checkers
    __getattr__ = loader_of(
        __name__,
        {
            "Forks": "forking",
            "Job": "job",
            "Run": "lifecycle",
            "Session": "session",
            "active_profile": "profiling",
            "at_rest": "rest",
            "best_of_fit": "resuming",
            "build": "contents",
            "checked_overrides": "conditions",
            "decided_by_zero": "together",
            "find_checkpoint": "resuming",
            "leave_to_first": "leaving_out",
            "portrait": "portrait",
            "processes_of": "places",
            "profile_from_start": "profiling",
            "put_in": "profiling",
            "reload_data": "job",
            "run_trial": "trial",
            "save": "snapshot",
            "save_in_background": "snapshot",
            "tell_saved": "snapshot",
        },
    )
