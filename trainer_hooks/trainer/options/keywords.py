"""Give a class the options of another as keyword arguments, and say what is no option."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from trainer_hooks.errors import OptionError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["NOT_YET", "takes_options"]

NOT_YET: Mapping[str, str] = {
    "barebones": "leave features off one by one; an unused one costs nothing",
    "benchmark": "set torch.backends.cudnn.benchmark",
    "enable_autolog_hparams": "save_hyperparameters(logger=False) keeps them from the loggers",
    "model_registry": "give ckpt_path a file",
    "profiler": "not available yet; use torch.profiler around fit",
    "reload_dataloaders_every_n_epochs": "not available yet; call fit once an epoch",
}
"""Options of Lightning that are not here, and what to do instead."""

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
            for name in kwargs:
                if name not in options.parameters:
                    raise OptionError(_unknown(name, options.parameters))
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


def _unknown(name: str, known: Iterable[str]) -> str:
    if name in NOT_YET:
        return f"Trainer({name}=...): Lightning's option {name!r} is not here: {NOT_YET[name]}."
    return (
        f"Trainer({name}=...): there is no option {name!r}.{nearest(name, known)} "
        "help(trainer_hooks.Trainer) lists them."
    )
