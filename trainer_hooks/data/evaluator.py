"""Evaluator: a validation loader with its own name and interval."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainer_hooks._options import answers_keywords_of_init
from trainer_hooks.clock.schedules import DueCondition, parse_when
from trainer_hooks.clock.timing import TimeUnit
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from trainer_hooks.clock.clock import Clock
    from trainer_hooks.clock.timing import Time


@answers_keywords_of_init
@dataclass(frozen=True, slots=True)
class Evaluator:
    """An evaluation on one loader, with its own name and interval.

    Metrics logged for it get its label behind their name: `val_loss/clean`. Pass one or several
    where validation or test loaders are expected: `fit(..., val_dataloaders=[Evaluator(...),
    ...])`.

    Args:
        label: name of the evaluator, without a slash.
        dataloader: the loader.
        metric_names: regular expressions; a metric is dropped if none of them matches a part of its
            name. None keeps all metrics.
        subset_num_batches: largest number of batches; None or -1 for all.
        eval_interval: when it is due in a fit: a text such as `"500ba"`, a `Time`, a number of
            epochs, a condition, or a function of the clock. None follows the Trainer's options. An
            evaluator with an interval is also evaluated at the end of the training.

    Raises:
        OptionError: an argument breaks its rule.
    """

    label: str
    dataloader: Any
    metric_names: Sequence[str] | None = None
    subset_num_batches: int | None = None
    eval_interval: str | int | Time | DueCondition | Callable[[Clock], bool] | None = None
    when: DueCondition | None = field(init=False, default=None)
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
        # the dataclass is frozen, so its own __setattr__ raises
        set_ = object.__setattr__
        if self.eval_interval is not None:
            where = f"Evaluator {label!r}"
            when = parse_when(self.eval_interval, "eval_interval", where, bare=TimeUnit.EPOCH)
            set_(self, "when", when)
        if self.metric_names is None:
            return
        # a string is iterable, too: each of its letters would be taken for an expression
        if isinstance(self.metric_names, str) or not isinstance(self.metric_names, Iterable):
            raise OptionError(
                f"metric_names {self.metric_names!r} of Evaluator {label!r}: it must be a list of "
                'regular expressions, as in ["acc", "loss"].'
            )
        patterns = []
        for name in self.metric_names:
            try:
                patterns.append(re.compile(name))
            except (re.error, TypeError) as error:
                raise OptionError(
                    f"metric_names of Evaluator {label!r}: {name!r} is no regular expression "
                    f"({error}). Escape what is special in it with re.escape."
                ) from None
        set_(self, "patterns", tuple(patterns))

    def keeps(self, name: str) -> bool:
        """Return whether a metric of this name is kept."""
        return self.patterns is None or any(p.search(name) for p in self.patterns)


def evaluators_in(source: Any) -> list[Evaluator]:
    """Return the evaluators passed in place of loaders, or an empty list without any.

    Raises:
        OptionError: two have the same label, or evaluators and loaders are mixed.
    """
    if isinstance(source, Evaluator):
        return [source]
    if not isinstance(source, Mapping | list | tuple):
        return []
    items = list(source.values() if isinstance(source, Mapping) else source)
    evaluators = [item for item in items if isinstance(item, Evaluator)]
    if evaluators and len(evaluators) < len(items):
        raise OptionError(
            "evaluators and loaders were given together: give each loader as an "
            'Evaluator("a label", loader), or none.'
        )
    labels = [evaluator.label for evaluator in evaluators]
    repeated = next((label for i, label in enumerate(labels) if label in labels[:i]), None)
    if repeated is not None:
        raise OptionError(
            f"label {repeated!r} of Evaluator: two of them have it, and their metrics would have "
            "one name. Give each a label of its own."
        )
    return evaluators
