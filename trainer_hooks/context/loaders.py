"""The loaders of a run: RunLoaders, and EvalLoaders for each stage of evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.data.attributes import PlainAttributes
from trainer_hooks.data.generators import generator_states, generators_in, restore_generators
from trainer_hooks.data.loaders import (
    CombinedLoader,
    nest_like,
    restore_sampler_seeds,
    sampler_seeds,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trainer_hooks.clock.progress import Progress
    from trainer_hooks.data.evaluator import Evaluator
    from trainer_hooks.data.stream import TrainStream


_SEEDS = "sampler seeds"
_ATTRIBUTES = "plain attributes"
"""Keys of the seeds and attributes among the states of generators, whose keys are paths."""


@dataclass(slots=True)
class EvalLoaders:
    """The loaders of validate, test or predict, with their numbers of batches.

    Attributes:
        loaders: the loaders, which are run one after another.
        num_batches: number of batches of each loader; infinity where the loader has no length.
        evaluators: the evaluator of each loader; empty if the user passed none.
        chosen: indices of the loaders that the running validation uses; None for all.
        most: for each loader the largest number of batches that any rank has; empty with one rank.
        fewest: for each loader the smallest number that any rank has; 0 where it is unknown.
        given: the loaders as the user passed them: one, or a list or dict of them.
        attributes: the plain attributes of the samplers and data sets of each loader.
    """

    loaders: list[Any] = field(default_factory=list)
    num_batches: list[int | float] = field(default_factory=list)
    evaluators: list[Evaluator] = field(default_factory=list)
    chosen: list[int] | None = None
    most: list[int | float] = field(default_factory=list)
    fewest: list[int | float] = field(default_factory=list)
    given: Any = None
    attributes: list[PlainAttributes] = field(init=False)

    def __post_init__(self) -> None:
        self.attributes = [PlainAttributes(loader) for loader in self.loaders]

    def __bool__(self) -> bool:
        return any(self.most_batches)

    @property
    def as_given(self) -> Any:
        """The loaders in the form in which the user passed them; None where there are none."""
        if isinstance(self.given, CombinedLoader):
            return self.given.iterables
        return nest_like(self.given, self.loaders) if self.loaders else None

    @property
    def most_batches(self) -> list[int | float]:
        """Number of batches of each loader, in the rank that has the most."""
        return self.most or self.num_batches

    def shared_batches(self, index: int, limit: int | None = None) -> int | float | None:
        """Return the number of batches that every rank has, if some rank has more; else None.

        Args:
            index: the loader's index.
            limit: largest number of batches to run, or None.
        """
        if not self.fewest:  # one rank, or ranks that did not compare their numbers
            return None
        fewest, most = self.fewest[index], self.most[index]
        if limit is not None:
            fewest, most = min(fewest, limit), min(most, limit)
        return fewest if fewest < most else None

    def is_chosen(self, index: int) -> bool:
        """Return whether the running validation uses a loader."""
        return self.chosen is None or index in self.chosen

    def suffix(self, index: int) -> str:
        """Return the suffix of the names of metrics that are logged for a loader."""
        if self.evaluators:
            return f"/{self.evaluators[index].label}"
        return f"/dataloader_idx_{index}" if len(self.loaders) > 1 else ""

    def replace(self, made: EvalLoaders) -> None:
        """Take over another object's loaders, in place: the loops keep a reference to this one."""
        self.loaders, self.num_batches, self.given = made.loaders, made.num_batches, made.given
        self.evaluators, self.most, self.fewest = made.evaluators, made.most, made.fewest
        self.attributes = made.attributes

    def generator_states(self) -> dict[str, Any]:
        """Return the states of the loaders' generators, their seeds and plain attributes."""
        states = generator_states(generators_in({"loaders": self.loaders}))
        seeds = [sampler_seeds(loader) for loader in self.loaders]
        if any(seeds):
            states[_SEEDS] = seeds
        if any(self.attributes):
            states[_ATTRIBUTES] = [each.changed() for each in self.attributes]
        return states

    def set_generator_states(self, states: Any) -> None:
        """Restore the return value of `generator_states` in the loaders that are still there."""
        restore_generators(generators_in({"loaders": self.loaders}), states)
        for loader, of_loader in zip(self.loaders, states.get(_SEEDS, []), strict=False):
            restore_sampler_seeds(loader, of_loader)
        for each, of_loader in zip(self.attributes, states.get(_ATTRIBUTES, []), strict=False):
            each.restore(of_loader)


@dataclass(slots=True)
class RunLoaders:
    """The training stream and the evaluation loaders of a run, and the functions that load them.

    Attributes:
        stream: the training batches; None outside fit, and before the loaders were made.
        evaluation: loaders by stage: validate, test, predict.
        renew: makes the loaders anew when an epoch begins, if that is due; None if it never is.
        load_training: makes `stream` early, when a `setup` hook asks for the length of the fit;
            None later.
        reload_as_saved: makes the loaders as in the epoch in which those of a checkpoint were made.
        renewed: when the loaders were made anew last, as plain data.
        sharding_seed: seed by which loaders are sharded among ranks; None until one is.
        reopened: the remaining batches of the epoch in which a run is resumed, until the loop takes
            them.
    """

    stream: TrainStream | None = None
    evaluation: dict[str, EvalLoaders] = field(default_factory=dict)
    reopened: Iterator[Any] | None = None
    renew: Callable[[], None] | None = None
    load_training: Callable[[], None] | None = None
    reload_as_saved: Callable[[dict[str, Any], str], None] | None = None
    renewed: dict[str, Any] = field(default_factory=dict)
    sharding_seed: int | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether the loaders were made."""
        return self.stream is not None or bool(self.evaluation)

    @property
    def train_stream(self) -> TrainStream:
        """The training stream of a fit whose loaders were made."""
        assert self.stream is not None
        return self.stream

    def restore_position(self, state: dict[str, Any], progress: Progress) -> None:
        """Restore the training loader's position from a checkpoint.

        Args:
            state: the stream's state.
            progress: the restored counters.
        """
        # empty if no batch of the epoch was requested: it then opens as any other does
        if progress.stage is EpochStage.BATCHES and state["opened_with"]:
            self.reopened = self.train_stream.reopen(
                progress.epochs_completed, progress.batches_in_epoch, state
            )
        else:
            self.train_stream.restore_between(state)

    def batches(self, epoch: int) -> Iterator[Any]:
        """Return an iterator over an epoch's batches, or over the rest of a resumed epoch."""
        if self.reopened is not None:
            # taken once: a later epoch is opened anew
            iterator, self.reopened = self.reopened, None
            return iterator
        return self.train_stream.open(epoch)

    def drop_loaders(self) -> None:
        """Drop the loaders; keep the numbers of batches of the evaluation loaders."""
        # a loader's worker processes live as long as there is a reference to the loader
        if self.stream is not None:
            self.stream.release()
            self.stream = self.reopened = None
        for data in self.evaluation.values():
            data.loaders, data.evaluators, data.chosen, data.given = [], [], None, None
            data.attributes = []
        self.renew = self.reload_as_saved = None
