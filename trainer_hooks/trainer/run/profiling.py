"""Profiling: puts a hook profile in for a trainer, and reports at the end of a run.

The profile itself is imported only where one is asked for.
"""

from __future__ import annotations

import io
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from trainer_hooks._log import warn
from trainer_hooks.errors import OptionError, TrainerHooksWarning
from trainer_hooks.trainer.options import SHARE_RULE, as_share

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer
    from trainer_hooks.hooks import HookProfile, HookRelay
    from trainer_hooks.trainer.options import TrainerConfig
    from trainer_hooks.trainer.run.session import Session

__all__ = [
    "active_profile",
    "begin_run",
    "profile_from_start",
    "put_in",
    "report_run",
]


def profile_from_start(config: TrainerConfig, relay: HookRelay) -> HookProfile | None:
    """Put a profile in if an option asks for one."""
    if not config.profile_hooks and config.hook_budget is None:
        return None
    from trainer_hooks.hooks import HookProfile

    return HookProfile(budget=as_share(config.hook_budget)).start(relay)


def active_profile(session: Session) -> HookProfile | None:
    """Return the profile that is in, or None."""
    profile = session.hook_profile
    return profile if profile is not None and profile.is_active else None


def put_in(session: Session, budget: str | float | None) -> HookProfile:
    """Return the profile that is in; put one in if there is none.

    Raises:
        OptionError: the budget is no share.
    """
    share = as_share(budget)
    if budget is not None and share is None:
        raise OptionError(f"trainer.profile_hooks(budget={budget!r}): must be {SHARE_RULE}.")
    profile = active_profile(session)
    if profile is None:
        from trainer_hooks.hooks import HookProfile

        profile = session.hook_profile = HookProfile().start(session.connector.relay)
    if share is not None:
        profile.budget = share
    return profile


def begin_run(session: Session) -> None:
    """Let a profile that is reported run by run forget what the runs before took."""
    profile = active_profile(session)
    if session.config.profile_hooks and profile is not None and session.has_run:
        profile.clear()


def report_run(session: Session, trainer: Trainer) -> None:
    """Print what the callbacks cost in the run and write its trace, if that is asked for."""
    profile = active_profile(session)
    if not session.config.profile_hooks or profile is None or not trainer.is_global_zero:
        return
    text = io.StringIO()
    profile.table(file=text)
    trainer.print(text.getvalue().rstrip())
    if session.config.fast_dev_run:
        return
    path = _free_path(Path(trainer.log_dir or trainer.default_root_dir))
    try:
        written = profile.export_chrome_trace(path)
    except OSError as error:
        warn(
            f"the trace of the hooks could not be written to {str(path)!r}: {error}. Check that "
            "the folder is writable and has room. The run itself is not affected.",
            TrainerHooksWarning,
        )
    else:
        trainer.print(f"trace: {written} (open it in ui.perfetto.dev or chrome://tracing)")


def _free_path(folder: Path) -> Path:
    """Return where a trace overwrites no other."""
    names = (f"hook_trace{f'-v{number}' if number else ''}.json" for number in count())
    return next(path for path in map(folder.joinpath, names) if not path.exists())
