"""Classes of strategies that have no options here, for `isinstance(trainer.strategy, ...)`.

`DDPStrategy` and `FSDPStrategy` are those of trainer_hooks.
"""

from __future__ import annotations

from typing import Any, NoReturn

from trainer_hooks import DDPStrategy, FSDPStrategy
from trainer_hooks.errors import OptionError
from trainer_hooks.trainer.lightning_attributes import TrainerStrategy

__all__ = ["ParallelStrategy", "SingleDeviceStrategy", "Strategy"]


class _StrategyKind(type):
    """The metaclass: the strategies that are instances of a class."""

    _holds_parallel: bool
    _holds_single: bool

    def __instancecheck__(cls, instance: object) -> bool:
        is_parallel = isinstance(instance, DDPStrategy | FSDPStrategy)
        is_single = isinstance(instance, TrainerStrategy) and not is_parallel
        return (is_parallel and cls._holds_parallel) or (is_single and cls._holds_single)

    def __subclasscheck__(cls, subclass: type) -> bool:
        is_parallel = issubclass(subclass, (DDPStrategy, FSDPStrategy))
        return super().__subclasscheck__(subclass) or (is_parallel and cls._holds_parallel)

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise OptionError(
            f"{cls.__name__}(...): it is there for isinstance(trainer.strategy, {cls.__name__}) "
            "alone. Pass Trainer(strategy='single_device'), or a DDPStrategy or FSDPStrategy."
        )


class Strategy(metaclass=_StrategyKind):
    """Any strategy."""

    _holds_parallel = _holds_single = True


class ParallelStrategy(Strategy):
    """A strategy for several processes: DDP or FSDP."""

    _holds_single = False


class SingleDeviceStrategy(Strategy):
    """The strategy of one process."""

    _holds_parallel = False
