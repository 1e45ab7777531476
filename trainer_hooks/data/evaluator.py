"""Evaluator: a validation loader with a name and an interval of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainer_hooks.clock import Filter, Time, TimeUnit, parse_when
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainer_hooks.clock import Clock

__all__ = ["Evaluator", "evaluators_in"]


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Evaluate on one loader, under a name, when it is due.

    What is logged for it gets its label behind the name: `val_loss/clean`. Give one or several
    where a validation or test loader is taken: `fit(..., val_dataloaders=[Evaluator(...), ...])`.

    Args:
        label: its name.
        dataloader: the loader.
        metric_names: regular expressions; what is logged for it under a name in which none of them
            is found is left out. None keeps everything.
        subset_num_batches: at most so many batches of it; None or -1 for all.
        eval_interval: when it is due in a fit: a text such as `"500ba"`, a `Time`, a number of
            epochs, a filter, or a function of the clock. None: whenever the Trainer's options say.
            One with an interval is evaluated at the end of the training, too.

    Raises:
        OptionError: an argument is outside its rule.
    """

    label: str
    dataloader: Any
    metric_names: Sequence[str] | None = None
    subset_num_batches: int | None = None
    eval_interval: str | int | Time | Filter | Callable[[Clock], bool] | None = None
    when: Filter | None = field(init=False, default=None)
    patterns: tuple[re.Pattern[str], ...] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Check the arguments."""
        label, subset = self.label, self.subset_num_batches
        if not isinstance(label, str) or not label or "/" in label:
            raise OptionError(
                f"label {label!r} of Evaluator: it must be a text without a slash, and not empty."
            )
        is_number = isinstance(subset, int) and not isinstance(subset, bool)
        if subset is not None and not (is_number and (subset == -1 or subset > 0)):
            raise OptionError(
                f"subset_num_batches {subset!r} of Evaluator {label!r}: it must be a whole number "
                "above zero, or -1 or None for all batches."
            )
        set_ = object.__setattr__
        if self.eval_interval is not None:
            where = f"Evaluator {label!r}"
            when = parse_when(self.eval_interval, "eval_interval", where, bare=TimeUnit.EPOCH)
            set_(self, "when", when)
        if self.metric_names is not None:
            set_(self, "patterns", tuple(map(self._pattern, self._names())))

    def keeps(self, name: str) -> bool:
        """Return whether what is logged under a name is kept."""
        return self.patterns is None or any(p.search(name) for p in self.patterns)

    def _names(self) -> list[str]:
        names = self.metric_names
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise OptionError(
                f"metric_names {names!r} of Evaluator {self.label!r}: it must be a list of regular "
                'expressions, as in ["acc", "loss"].'
            )
        return list(names)

    def _pattern(self, name: str) -> re.Pattern[str]:
        try:
            return re.compile(name)
        except (re.error, TypeError) as error:
            raise OptionError(
                f"metric_names of Evaluator {self.label!r}: {name!r} is no regular expression "
                f"({error}). Escape what is special in it with re.escape."
            ) from None


def evaluators_in(source: Any) -> list[Evaluator]:
    """Return the evaluators that were given in place of loaders; an empty list if none was.

    Raises:
        OptionError: two have one label, or loaders stand between them.
    """
    if isinstance(source, Evaluator):
        return [source]
    if isinstance(source, Mapping):
        items = list(source.values())
    elif isinstance(source, list | tuple):
        items = list(source)
    else:
        return []
    found = [item for item in items if isinstance(item, Evaluator)]
    if found and len(found) < len(items):
        raise OptionError(
            "evaluators and loaders were given together: give each loader as an "
            'Evaluator("a label", loader), or none.'
        )
    labels = [evaluator.label for evaluator in found]
    for label in _repeated(labels):
        raise OptionError(
            f"label {label!r} of Evaluator: two of them have it, and their metrics would have one "
            "name. Give each a label of its own."
        )
    return found


def _repeated(labels: list[str]) -> Iterator[str]:
    return (label for place, label in enumerate(labels) if label in labels[:place])
