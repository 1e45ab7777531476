"""What was logged, under the names that Composer has for metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["LabelledMetrics", "Logged", "LoggedMetrics", "Losses"]


class Logged:
    """A metric that was logged: `compute()` returns its value, as that of a metric object.

    Args:
        value: a tensor.
    """

    def __init__(self, value: Any) -> None:
        self._value = value

    def compute(self) -> Any:
        """Return the value."""
        return self._value


class LoggedMetrics(Mapping[str, Any]):
    """The metrics that were logged last, by name.

    Args:
        trainer: whose.
        label: of an evaluation whose own metrics come first: `acc` is then also found as
            `acc/label` and `metrics/label/acc`, as evaluators log it.
        are_values: whether they are values, and not something that computes them.
    """

    def __init__(self, trainer: Any, label: str = "", *, are_values: bool = False) -> None:
        self._trainer = trainer
        self._label = label
        self._are_values = are_values

    def __getitem__(self, name: str) -> Any:
        known = self._trainer.callback_metrics
        index = self._label.removeprefix("eval_")
        names = (
            f"{name}/{self._label}",
            f"metrics/{self._label}/{name}",
            f"{name}/dataloader_idx_{index}",
            name,
        )
        found = next((known[one] for one in names if one in known), None)
        if found is None:
            raise KeyError(name)
        return found if self._are_values else Logged(found)

    def __contains__(self, name: object) -> bool:
        try:
            self[str(name)]
        except KeyError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._trainer.callback_metrics)

    def __len__(self) -> int:
        return len(self._trainer.callback_metrics)


class LabelledMetrics(Mapping[str, LoggedMetrics]):
    """The same by the label of an evaluation; each label has those that were logged.

    Args:
        trainer: whose.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def __getitem__(self, label: str) -> LoggedMetrics:
        return LoggedMetrics(self._trainer, label)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class Losses(Mapping[str, float]):
    """The losses of the last batch, as Composer's trainer logs them.

    Args:
        state: which has the loss.
    """

    def __init__(self, state: Any) -> None:
        self._state = state

    def __getitem__(self, name: str) -> float:
        if name != "loss/train/total":
            raise KeyError(name)
        return float(self._state.loss)

    def __iter__(self) -> Iterator[str]:
        return iter(("loss/train/total",) if self._state.loss.numel() == 1 else ())

    def __len__(self) -> int:
        return int(self._state.loss.numel() == 1)
