"""What the first of several processes alone does."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from trainer_hooks._log import log, warn
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.runtime.topology import read_topology

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "rank_zero_debug",
    "rank_zero_deprecation",
    "rank_zero_info",
    "rank_zero_only",
    "rank_zero_warn",
]

_P = ParamSpec("_P")
_R = TypeVar("_R")


class RankZeroOnly:
    """What `rank_zero_only` is: a decorator that knows which process this is."""

    @property
    def rank(self) -> int:
        """This process's number among all."""
        return read_topology().global_rank

    def __call__(self, fn: Callable[_P, _R], default: _R | None = None) -> Callable[_P, _R | None]:
        """Return a function that does nothing in all processes but the first.

        Args:
            fn: what the first process calls.
            default: what the others return.
        """

        @functools.wraps(fn)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R | None:
            return fn(*args, **kwargs) if read_topology().is_global_zero else default

        return call


rank_zero_only = RankZeroOnly()


@rank_zero_only
def rank_zero_debug(message: str, *args: Any, stacklevel: int = 4) -> None:
    """Log at level DEBUG in the first process; the arguments are `rank_zero_info`'s."""
    log.debug(message, *args, stacklevel=stacklevel - 1)


@rank_zero_only
def rank_zero_info(message: str, *args: Any, stacklevel: int = 4) -> None:
    """Log at level INFO in the first process.

    Args:
        message: it.
        args: what is put into the message, as by `logging`.
        stacklevel: whose line it is said to be: 4 is the one that calls, 5 the one that calls that.
    """
    log.info(message, *args, stacklevel=stacklevel - 1)


@rank_zero_only
def rank_zero_warn(
    message: str, stacklevel: int = 4, category: type[Warning] = TrainerHooksWarning
) -> None:
    """Warn in the first process.

    Args:
        message: what of.
        stacklevel: whose line it is: 4 is the one that calls, 5 the one that calls that.
        category: the class of the warning.
    """
    if stacklevel == 4:
        warn(message, category)
    else:
        warnings.warn(message, category, stacklevel=stacklevel - 1)


@rank_zero_only
def rank_zero_deprecation(
    message: str, stacklevel: int = 4, category: type[Warning] = FutureWarning
) -> None:
    """Warn in the first process of what will not be there any more.

    It is a FutureWarning, which Python shows wherever it comes from. The arguments are
    `rank_zero_warn`'s.
    """
    if stacklevel == 4:
        warn(message, category)
    else:
        warnings.warn(message, category, stacklevel=stacklevel - 1)
