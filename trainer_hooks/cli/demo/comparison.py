"""Compare two trainings: their tensors bit for bit, and the states of their callbacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer_hooks._text import count_with_noun
from trainer_hooks.runtime.nested_tensors import bytes_of

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class TensorComparison:
    """The result of comparing two sets of named tensors.

    Attributes:
        tensors: the number of distinct names in both sets.
        numbers: the total number of elements in the first set.
        differing: for each name whose tensors differ, a description of the difference.
    """

    tensors: int
    numbers: int
    differing: Mapping[str, str]

    @property
    def is_equal(self) -> bool:
        """Whether at least one tensor was compared and all of them are bit-identical."""
        return self.tensors > 0 and not self.differing

    def __str__(self) -> str:
        if self.is_equal:
            tensors = count_with_noun(self.tensors, "tensor")
            size = f"{tensors}, {count_with_noun(self.numbers, 'number')}"
            return f"equal, bit for bit ({size})"
        if not self.tensors:
            return "NOT EQUAL: there is nothing to compare"
        name, how = next(iter(self.differing.items()))
        return (
            f"NOT EQUAL: {len(self.differing)} of {self.tensors} tensors differ; "
            f"the first is {name}: {how}"
        )


def compare_tensors(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> TensorComparison:
    """Compare tensors of the same names; equal means the same dtype, shape and bits."""
    names = list(dict.fromkeys([*one, *other]))
    descriptions = {name: _difference(one.get(name), other.get(name)) for name in names}
    return TensorComparison(
        tensors=len(names),
        numbers=sum(tensor.numel() for tensor in one.values()),
        differing={name: how for name, how in descriptions.items() if how},
    )


def tensors_in(tree: Any, prefix: str = "") -> dict[str, Tensor]:
    """Return every tensor and number in nested dicts, lists and tuples, by its path."""
    # not torch.utils._pytree, which is private
    if isinstance(tree, Tensor):
        return {prefix: tree}
    if isinstance(tree, float | int):
        return {prefix: torch.tensor(tree)}
    items: Any = ()
    if isinstance(tree, dict):
        items = tree.items()
    elif isinstance(tree, list | tuple):
        items = enumerate(tree)
    tensors: dict[str, Tensor] = {}
    for key, value in items:
        tensors.update(tensors_in(value, f"{prefix}.{key}" if prefix else str(key)))
    return tensors


def _difference(one: Tensor | None, other: Tensor | None) -> str:
    """Return a description of how two tensors differ, or an empty string."""
    if one is None or other is None:
        return "only one of the two has it"
    if one.dtype != other.dtype or one.shape != other.shape:
        return f"{one.dtype} {tuple(one.shape)} and {other.dtype} {tuple(other.shape)}"
    # as bytes, because 0.0 == -0.0 and nan != nan, also for torch.testing.assert_close
    if torch.equal(bytes_of(one.cpu()), bytes_of(other.cpu())):
        return ""
    return f"by up to {(one.double() - other.double()).abs().max().item():.3g}"


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
        # the paths in it differ between the two runs, their number does not
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


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return compare_tensors({"": one}, {"": other}).is_equal
    # None on both sides is an entry that both lack; types, because 1 equals True
    return one is not None and type(one) is type(other) and bool(one == other)
