"""What savers show of their books: attributes that read the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NoReturn, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.callbacks.saving.ledger import Ledger

__all__ = [
    "best_k_models",
    "best_model_path",
    "best_model_score",
    "current_score",
    "kth_best_model_path",
    "kth_value",
    "last_model_path",
]

T = TypeVar("T")


class _Keeper(Protocol):
    ledger: Ledger


class _Shown(Generic[T]):
    """An attribute of whatever has a `ledger`: it reads that, and cannot be set."""

    def __init__(self, read: Callable[[Ledger], T], doc: str) -> None:
        self._read = read
        self.__doc__ = doc

    @overload
    def __get__(self, keeper: None, kind: type) -> _Shown[T]: ...

    @overload
    def __get__(self, keeper: _Keeper, kind: type) -> T: ...

    def __get__(self, keeper: _Keeper | None, kind: type) -> T | _Shown[T]:
        return self if keeper is None else self._read(keeper.ledger)

    def __set__(self, keeper: _Keeper, value: T) -> NoReturn:
        raise AttributeError(
            f"value {value!r} for the books of {type(keeper).__name__}: what a saver tells of its "
            "checkpoints can be read only. Change its options instead."
        )


best_model_path = _Shown(
    lambda ledger: ledger.durable.best_model_path,
    "The best checkpoint, without a monitor the newest; empty if there is none.",
)
best_model_score = _Shown(
    lambda ledger: ledger.durable.best_model_score,
    "The monitored value of the best checkpoint.",
)
best_k_models = _Shown(
    lambda ledger: dict(ledger.durable.best_k_models),
    "The best checkpoints and their monitored values.",
)
kth_best_model_path = _Shown(
    lambda ledger: ledger.durable.kth_best_model_path,
    "The worst of the best checkpoints, once there are as many as are kept.",
)
kth_value = _Shown(
    lambda ledger: ledger.durable.kth_value,
    "The monitored value of the worst of the best; infinite until there are as many.",
)
last_model_path = _Shown(
    lambda ledger: ledger.durable.last_model_path,
    "The newest checkpoint that `save_last` wrote; empty if there is none.",
)
current_score = _Shown(
    lambda ledger: ledger.books.current_score,
    "The monitored value that was looked at last, saved or not.",
)
