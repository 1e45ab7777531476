"""Functions that act on rank 0 only: a decorator, logging and warnings."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from trainer_hooks._log import log, warn
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.runtime.topology import read_topology

if TYPE_CHECKING:
    from collections.abc import Callable

_P = ParamSpec("_P")
_R = TypeVar("_R")


class RankZeroOnly:
    """Decorator of functions that run on rank 0 only; `rank` is the rank of this process.

    `rank` may be set, for processes that the program starts itself. What is set holds until the
    process gets another rank, as when its process group is initialised.
    """

    _set_rank: tuple[int, int] | None = None
    """The rank that was set, and the process's own at that time; None if none was set."""

    @property
    def rank(self) -> int:
        """This process's global rank, or the rank that was set."""
        process_rank = read_topology().global_rank
        return (
            self._set_rank[0]
            if self._set_rank and self._set_rank[1] == process_rank
            else process_rank
        )

    @rank.setter
    def rank(self, rank: int) -> None:
        self._set_rank = (rank, read_topology().global_rank)

    def __call__(self, fn: Callable[_P, _R], default: _R | None = None) -> Callable[_P, _R | None]:
        """Return a function that calls `fn` on rank 0 and returns `default` on the others.

        Args:
            fn: function to call on rank 0.
            default: return value on the other ranks.
        """

        @functools.wraps(fn)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R | None:
            return fn(*args, **kwargs) if rank_zero_only.rank == 0 else default

        return call


rank_zero_only = RankZeroOnly()


@rank_zero_only
def rank_zero_debug(message: str, *args: Any, stacklevel: int = 4) -> None:
    """Log at level DEBUG on rank 0; the arguments are those of `rank_zero_info`."""
    log.debug(message, *args, stacklevel=stacklevel - 1)


@rank_zero_only
def rank_zero_info(message: str, *args: Any, stacklevel: int = 4) -> None:
    """Log at level INFO on rank 0.

    Args:
        message: format string.
        args: values for the format string, as in `logging`.
        stacklevel: frame that the message is attributed to: 4 is the caller, 5 the caller's caller.
    """
    log.info(message, *args, stacklevel=stacklevel - 1)


@rank_zero_only
def rank_zero_warn(
    message: str, stacklevel: int = 4, category: type[Warning] = TrainerHooksWarning
) -> None:
    """Warn on rank 0.

    Args:
        message: text of the warning.
        stacklevel: frame that the warning is attributed to: 4 is the caller, 5 the caller's caller.
        category: class of the warning.
    """
    if stacklevel == 4:
        warn(message, category)
    else:
        warnings.warn(message, category, stacklevel=stacklevel - 1)


@rank_zero_only
def rank_zero_deprecation(
    message: str, stacklevel: int = 4, category: type[Warning] = FutureWarning
) -> None:
    """Warn on rank 0 that something is deprecated.

    The default category is FutureWarning, which Python shows wherever it comes from. The arguments
    are those of `rank_zero_warn`.
    """
    if stacklevel == 4:
        warn(message, category)
    else:
        warnings.warn(message, category, stacklevel=stacklevel - 1)
