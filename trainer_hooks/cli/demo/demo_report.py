"""The output of the demo: the callbacks, the comparison of the runs, and the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from trainer_hooks.cli.checkpoint.tensor_comparison import (
    TensorComparison,
    compare_tensors,
    tensors_in,
)
from trainer_hooks.cli.demo import digits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer_hooks.cli.screen import Screen
    from trainer_hooks.trainer.trainer import Trainer

__all__ = [
    "EXAMPLE",
    "LEAST_ACCURACY",
    "NEXT_LINES",
    "PRINTS",
    "StateRow",
    "compare_runs",
    "compare_states",
    "show_callbacks",
    "show_comparison",
    "show_ends",
    "show_result",
]

EXAMPLE = "trainer-hooks-monitoring"
PRINTS = "TRAINER_HOOKS_EVENT_LOG_PRINT"
LEAST_ACCURACY = 0.97
NEXT_LINES = (
    "from trainer_hooks import Trainer",
    "trainer = Trainer(max_epochs=10)",
    "trainer.fit(MyModule(), datamodule=MyData())",
)

_SHOWN = (
    # class of the callback, entry of its state, how it is called, how much more a resume makes it
    ("EventLog", "batches", "batches", 0),
    ("EventLog", "samples", "samples", 0),
    ("EventLog", "epochs", "epochs", 0),
    ("EventLog", "resumes", "resumes", 1),
    ("SmoothedLoss", "value", "value", 0),
    ("ModelCheckpoint", "best_model_score", "best", 0),
    ("ModelCheckpoint", "best_k_models", "files", 0),
)


@dataclass(frozen=True, slots=True)
class StateRow:
    """One entry of one callback's state, at four moments.

    Attributes:
        name: the callback and the entry.
        cut: the value in the checkpoint of the interruption.
        restored: the value in the new process when training starts.
        end: the value at the end of the resumed run.
        uncut: the value at the end of the run that was never interrupted.
        more: by how much a resume changes the value, if it counts resumes.
    """

    name: str
    cut: Any
    restored: Any
    end: Any
    uncut: Any
    more: int = 0

    @property
    def is_right(self) -> bool:
        """Whether the value was restored, and ended as in the uninterrupted run."""
        pairs = ((self.cut, self.restored), (self.uncut, self.end))
        if self.more:
            return all(one + self.more == other for one, other in pairs)
        return all(_is_same(one, other) for one, other in pairs)

    @property
    def verdict(self) -> str:
        """The result in words."""
        if not self.is_right:
            return "WRONG"
        return f"+{self.more}, rightly" if self.more else "same"


def compare_states(
    keys: Mapping[str, str],
    cut: Mapping[str, Any],
    restored: Mapping[str, Any],
    end: Mapping[str, Any],
    uncut: Mapping[str, Any],
) -> list[StateRow]:
    """Return the callbacks' states that the demo shows; a missing entry is None.

    Args:
        keys: the `state_key` of each class of callback that takes part.
        cut: states by `state_key`, from the checkpoint of the interruption.
        restored: likewise, in the new process when training starts.
        end: likewise, at the end of the resumed run.
        uncut: likewise, at the end of the run that was never interrupted.
    """

    def entry(states: Mapping[str, Any], key: str, name: str) -> Any:
        value = states.get(key, {}).get(name)
        return len(value) if isinstance(value, dict) else value

    return [
        StateRow(
            f"{kind} {label}",
            cut=entry(cut, keys[kind], name),
            restored=entry(restored, keys[kind], name),
            end=entry(end, keys[kind], name),
            uncut=entry(uncut, keys[kind], name),
            more=more,
        )
        for kind, name, label, more in _SHOWN
        if kind in keys
    ]


def compare_runs(end: Mapping[str, Any], uncut: Mapping[str, Any]) -> dict[str, TensorComparison]:
    """Return how the ends of two runs compare: weights, optimizer, random numbers.

    Args:
        end: the checkpoint at the end of the resumed run.
        uncut: the one at the end of the run that was never interrupted.
    """

    def training(checkpoint: Mapping[str, Any]) -> dict[str, Tensor]:
        return tensors_in({k: checkpoint[k] for k in ("optimizer_states", "lr_schedulers")})

    def numbers(checkpoint: Mapping[str, Any]) -> dict[str, Tensor]:
        return {"torch": checkpoint["trainer_hooks"]["rng"]["torch"]}

    return {
        "weights": compare_tensors(uncut["state_dict"], end["state_dict"]),
        "optimizer, schedule": compare_tensors(training(uncut), training(end)),
        "random numbers": compare_tensors(numbers(uncut), numbers(end)),
    }


def show_callbacks(screen: Screen, trainer: Trainer) -> None:
    """List the callbacks of a trainer and their distributions."""
    screen.heading("1. The callbacks in play, and who supplied them")
    names = {"default": "the Trainer itself, by default"}
    rows = [(type(c).__name__, names.get(who, who)) for c, who in trainer.callback_origins]
    screen.table(("callback", "supplied by"), rows)
    screen.lines([""])
    for plugin in trainer.plugins:
        taking_part = [c for c in plugin.callbacks if c in trainer.callbacks]
        if plugin.status == "loaded" and taking_part:
            named = " and ".join(type(c).__name__ for c in taking_part)
            screen.text(
                f"Nobody imported {plugin.value.partition('.')[0]}: {named} takes part because "
                f"{plugin.distribution} {plugin.version} is installed and names "
                f"{plugin.value} as an entry point."
            )
    example = next((p for p in trainer.plugins if p.distribution == EXAMPLE), None)
    if example is None:
        screen.text(
            f"No callback of {EXAMPLE} takes part: it is not installed, or plugins are switched "
            "off. To see a plugin at work, run this in a checkout of the repository, and then the "
            "demo again: pip install ./plugins_example/monitoring"
        )
    elif example.status == "loaded":
        screen.text(
            f"{PRINTS}=1 lets the EventLog print here; its lines begin with [event-log]. In your "
            "own runs it counts and says nothing, unless you set that."
        )
    else:
        screen.text(f"{EXAMPLE} is installed, but does not take part: {example.reason}.")


def show_comparison(
    screen: Screen, comparisons: Mapping[str, TensorComparison], rows: list[StateRow], contrast: int
) -> bool:
    """Show whether the resumed run is the same run, and return it.

    Args:
        screen: where.
        comparisons: how the ends compare.
        rows: the callbacks' states.
        contrast: how many of the weights' tensors differed when the run was interrupted.
    """
    screen.heading("5. Is it the same run?")
    _show_states(screen, rows)
    _show_ends(screen, comparisons, contrast)
    is_same = all(c.is_equal for c in comparisons.values()) and all(r.is_right for r in rows)
    screen.verdict(
        "The resumed run is the run that was never interrupted, to the last bit."
        if is_same
        else "The resumed run is NOT the run that was never interrupted. Please report this.",
        is_good=is_same,
    )
    return is_same


def show_result(screen: Screen, accuracy: float, best: str, number: int = 6) -> bool:
    """Print the test accuracy, the best checkpoint and the next steps, in section `number`.

    Returns:
        Whether the net reached the accuracy that it must reach.
    """
    screen.heading(f"{number}. The result")
    is_accurate = accuracy > LEAST_ACCURACY
    bound = "over" if is_accurate else "NOT over"
    screen.verdict(
        f"test accuracy    {accuracy:.2%}, {bound} {LEAST_ACCURACY:.0%} "
        f"({digits.SIZES['test']} images, the best checkpoint's weights)",
        is_good=is_accurate,
    )
    screen.lines([f"best checkpoint  {best}", ""])
    screen.lines(["Your own training, in three lines:", "", *(f"    {n}" for n in NEXT_LINES), ""])
    screen.text(
        "Installed plugins take part by themselves; callbacks=[...] adds your own. With "
        "ckpt_path=... fit goes on where a run was cut. A Module and a DataModule to start from:"
    )
    screen.lines([f"    {digits.__file__}"])
    return is_accurate


def _show_states(screen: Screen, rows: list[StateRow]) -> None:
    screen.text("What the callbacks had counted went on where it was:")
    screen.lines([""])
    screen.table(
        ("callback state", "at Ctrl-C", "restored", "at end", "uncut run", "verdict"),
        [
            (row.name, *map(_shown, (row.cut, row.restored, row.end, row.uncut)), row.verdict)
            for row in rows
        ],
    )
    screen.lines([""])


def _show_ends(screen: Screen, comparisons: Mapping[str, TensorComparison], contrast: int) -> None:
    screen.text("At the end of the resumed run, and of the one that was never interrupted:")
    screen.lines([""])
    width = show_ends(screen, comparisons)
    tensors = comparisons["weights"].tensors
    screen.lines(
        [f"  {''.ljust(width)}  (at the interruption {contrast} of {tensors} still differed)", ""]
    )


def show_ends(screen: Screen, comparisons: Mapping[str, TensorComparison]) -> int:
    """Print each comparison on a line and return the width of the name column."""
    width = max(map(len, comparisons))
    for name, comparison in comparisons.items():
        line = f"  {name.ljust(width)}  {comparison}"
        screen.verdict(line, is_good=comparison.is_equal)
    return width


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return compare_tensors({"": one}, {"": other}).is_equal
    return one is not None and type(one) is type(other) and bool(one == other)


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    number = value.item() if isinstance(value, Tensor) else value
    return f"{number:,}" if isinstance(number, int) else f"{number:.7f}"
