"""Profiling of hooks: start a hook profile for a trainer, and report it at the end of a run.

The module of the profile itself is imported only where a profile is requested.
"""

from __future__ import annotations

import io
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from trainer_hooks._log import warn
from trainer_hooks._text import printable
from trainer_hooks.errors import OptionError, TrainerHooksWarning
from trainer_hooks.trainer.options.limits import SHARE_RULE, as_share

if TYPE_CHECKING:
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.hooks.profile import HookProfile
    from trainer_hooks.hooks.relay import HookRelay
    from trainer_hooks.trainer.core.trainer_core import TrainerCore
    from trainer_hooks.trainer.options.config import TrainerConfig


def profile_from_options(config: TrainerConfig, relay: HookRelay) -> HookProfile | None:
    """Start a hook profile if an option requests one."""
    if not config.profile_hooks and config.hook_budget is None:
        return None
    from trainer_hooks.hooks.profile import HookProfile

    return HookProfile(budget=as_share(config.hook_budget)).start(relay)


def active_profile(core: TrainerCore) -> HookProfile | None:
    """Return the active profile, or None."""
    profile = core.hook_profile
    return profile if profile is not None and profile.is_active else None


def start_hook_profile(core: TrainerCore, budget: str | float | None) -> HookProfile:
    """Return the active profile; start one if there is none.

    Raises:
        OptionError: the budget is no share.
    """
    share = as_share(budget)
    if budget is not None and share is None:
        raise OptionError(f"trainer.profile_hooks(budget={budget!r}): must be {SHARE_RULE}.")
    profile = active_profile(core)
    if profile is None:
        from trainer_hooks.hooks.profile import HookProfile

        profile = core.hook_profile = HookProfile().start(core.connector.relay)
    if share is not None:
        profile.budget = share
    return profile


def begin_profiled_run(core: TrainerCore) -> None:
    """Reset a profile that is reported per run."""
    profile = active_profile(core)
    if core.config.profile_hooks and profile is not None and core.has_run:
        profile.clear()


def report_hook_profile(core: TrainerCore, trainer: Trainer) -> None:
    """Print the callbacks' costs in the run and write its trace, if an option requests that."""
    profile = active_profile(core)
    if not core.config.profile_hooks or profile is None or not trainer.is_global_zero:
        return
    text = io.StringIO()
    profile.table(file=text)
    trainer.print(text.getvalue().rstrip())
    # such a run leaves no files
    if core.config.fast_dev_run:
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
        trainer.print(
            f"trace: {printable(written)} (open it in ui.perfetto.dev or chrome://tracing)"
        )


def _free_path(folder: Path) -> Path:
    """Return a path for a trace that no file has yet."""
    names = (f"hook_trace{f'-v{number}' if number else ''}.json" for number in count())
    return next(path for path in map(folder.joinpath, names) if not path.exists())
