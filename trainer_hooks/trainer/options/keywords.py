"""Give a class the options of another as keyword arguments, and say what is no option."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from trainer_hooks.errors import OptionError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["NOT_YET", "Absent", "takes_options"]


@dataclass(frozen=True, slots=True)
class Absent:
    """An option of Lightning that is not here.

    Attributes:
        advice: what to do instead.
        neutral: values that ask for nothing, so that a script which passes one runs as it is.
    """

    advice: str
    neutral: tuple[object, ...]

    def is_neutral(self, value: object) -> bool:
        """Return whether a value asks for nothing."""
        return any(value == each and type(value) is type(each) for each in self.neutral)


NOT_YET: Mapping[str, Absent] = {
    "barebones": Absent(
        "switch features off one by one; an unused one costs nothing", neutral=(False,)
    ),
    "benchmark": Absent("set torch.backends.cudnn.benchmark", neutral=(None, False)),
    "enable_autolog_hparams": Absent(
        "save_hyperparameters(logger=False) keeps them from the loggers", neutral=(True,)
    ),
    "model_registry": Absent("pass the file as ckpt_path", neutral=(None,)),
    "profiler": Absent("add a Profiler callback, or pass profile_hooks=True", neutral=(None,)),
    "reload_dataloaders_every_n_epochs": Absent(
        "call trainer.reload_dataloaders() in on_train_epoch_start", neutral=(0,)
    ),
}
"""Options of Lightning that are not here."""

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
                if name not in NOT_YET or not NOT_YET[name].is_neutral(kwargs.pop(name)):
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
        return (
            f"Trainer({name}=...): Lightning's option {name!r} is not here: {NOT_YET[name].advice}."
        )
    return (
        f"Trainer({name}=...): there is no option {name!r}.{nearest(name, known)} "
        "help(trainer_hooks.Trainer) lists them."
    )
