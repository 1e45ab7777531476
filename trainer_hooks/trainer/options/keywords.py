"""Give a class the options of another as keyword arguments, and say what is no option."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from trainer_hooks.errors import OptionError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["takes_options"]


_P = ParamSpec("_P")
_C = TypeVar("_C")
_S = TypeVar("_S")


def takes_options(
    config: Callable[_P, _C],
) -> Callable[[Callable[[_S, _C], None]], Callable[Concatenate[_S, _P], None]]:
    """Give an `__init__(self, config)` the options of a config class as its keyword arguments.

    So each option is declared once, and is seen by type checkers, `help` and editors all the same.
    """

    def decorate(init: Callable[[_S, _C], None]) -> Callable[Concatenate[_S, _P], None]:
        options = inspect.signature(config)

        @functools.wraps(init)
        def accept(self: _S, *args: _P.args, **kwargs: _P.kwargs) -> None:
            if args:
                raise OptionError(
                    f"Trainer({args[0]!r}, ...): options are given by keyword, as in "
                    "Trainer(max_epochs=3)."
                )
            for name in [name for name in kwargs if name not in options.parameters]:
                raise OptionError(
                    f"Trainer({name}=...): there is no option {name!r}."
                    f"{nearest(name, options.parameters)} help(trainer_hooks.Trainer) lists them."
                )
            init(self, config(*args, **kwargs))

        parameters = [
            inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
            *options.parameters.values(),
        ]
        accept.__dict__["__signature__"] = options.replace(
            parameters=parameters, return_annotation=None
        )
        return accept  # type: ignore[return-value]

    return decorate
