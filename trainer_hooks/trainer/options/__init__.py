"""What a Trainer takes: its options, their rules and their defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.trainer.options.config import TrainerConfig, option_docs
    from trainer_hooks.trainer.options.defaults import (
        check_switches,
        default_callbacks,
        make_loggers,
        root_dir,
    )
    from trainer_hooks.trainer.options.keywords import takes_options
    from trainer_hooks.trainer.options.length import steps_in, why_endless
    from trainer_hooks.trainer.options.limits import (
        check_duration,
        check_limit,
        with_duration,
        with_limits,
        with_number,
    )
    from trainer_hooks.trainer.options.shares import SHARE_RULE, as_share

__all__ = [
    "SHARE_RULE",
    "TrainerConfig",
    "as_share",
    "check_duration",
    "check_limit",
    "check_switches",
    "default_callbacks",
    "make_loggers",
    "option_docs",
    "root_dir",
    "steps_in",
    "takes_options",
    "why_endless",
    "with_duration",
    "with_limits",
    "with_number",
]

if not TYPE_CHECKING:  # so that a name that is not there is an error to type checkers
    __getattr__ = loader_of(
        __name__,
        {
            "SHARE_RULE": "shares",
            "TrainerConfig": "config",
            "as_share": "shares",
            "check_duration": "limits",
            "check_limit": "limits",
            "check_switches": "defaults",
            "default_callbacks": "defaults",
            "make_loggers": "defaults",
            "option_docs": "config",
            "root_dir": "defaults",
            "steps_in": "length",
            "takes_options": "keywords",
            "why_endless": "length",
            "with_duration": "limits",
            "with_limits": "limits",
            "with_number": "limits",
        },
    )
