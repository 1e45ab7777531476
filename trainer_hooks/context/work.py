"""What is in work in a run: a batch, a validation inside fit, the step that a method stands for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BatchInWork", "CycleInWork", "OverriddenSteps", "ValidationInWork"]


@dataclass(slots=True)
class BatchInWork:
    """The batch that a loop has taken; the loops keep it.

    Attributes:
        is_taken: whether a training batch is taken or in work, and not yet counted as done.
        is_last: whether the training batch in work is the epoch's last.
        has_scheduled: whether the schedulers that count epochs have stepped for this epoch.
        indices: those of the predict batch's samples, or None where they are not known.
        loader_label: the evaluator whose loader is in use, or an empty text.
    """

    is_taken: bool = False
    is_last: bool = False
    has_scheduled: bool = False
    indices: list[Any] | None = None
    loader_label: str = ""


@dataclass(slots=True)
class CycleInWork:
    """The cycle of epochs that a fit is in.

    Attributes:
        is_open: whether one is begun and not ended; None where a file does not say.
    """

    is_open: bool | None = False


@dataclass(slots=True)
class ValidationInWork:
    """What the validations inside a fit go by, and what the one under way put aside.

    Attributes:
        aside: how the parts that it may change were as it began, while it runs. A checkpoint that
            is saved in it holds those, so that it is run again from there.
        limit: batches of each of its loaders at most, or None.
        evaluators: when evaluators with an interval of their own were asked and run last.
    """

    aside: dict[str, Any] = field(default_factory=dict)
    limit: int | None = None
    evaluators: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class OverriddenSteps:
    """Methods of the trainer that run the module's step in its place.

    Attributes:
        overridden: those that a subclass overrides, by `"train"` and `"eval"`.
        own: the module's own step, while such a method is in its place.
        compiled: what `torch.compile(module)` returned, whose compiler runs the steps; or None.
        watch: returns what calls a step of a name, and looks on; None where nobody does.
    """

    overridden: dict[str, Callable[[Any], Any]] = field(default_factory=dict)
    own: Callable[[Any], Any] | None = None
    compiled: Any = None
    watch: Callable[[str, Callable[..., Any]], Callable[..., Any]] | None = None

    def watched(self, name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        """Return a step as it is to be called."""
        return step if self.watch is None else self.watch(name, step)

    def compile(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """Return a step as it is to be run: compiled, where the module was given so."""
        if self.compiled is None:
            return step
        compiled: Callable[..., Any] = self.compiled.dynamo_ctx(step)
        return compiled

    def forward_of(self, module: Callable[..., Any]) -> Callable[..., Any]:
        """Return what runs a module's forward: it, or what was compiled of it."""
        return module if self.compiled is None else self.compiled
