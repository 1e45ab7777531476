"""The loaders of a run: RunData, and EvalData for each stage of evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainer_hooks import data as loading
from trainer_hooks.clock import EpochStage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trainer_hooks.clock import Progress
    from trainer_hooks.data import Evaluator, TrainStream

__all__ = ["EvalData", "RunData"]


@dataclass(slots=True)
class EvalData:
    """The loaders of an evaluation.

    Attributes:
        loaders: run one after another.
        num_batches: how many batches of each; infinity where the loader cannot say.
        evaluators: what they were given in, if in evaluators.
        chosen: the numbers of those that are run in the validation under way; None for all.
        most: the most batches of each that any of several processes has.
        fewest: the fewest that any has; 0 where that is not known.
        given: what they were given in: one, or a list or dict of them.
    """

    loaders: list[Any] = field(default_factory=list)
    num_batches: list[int | float] = field(default_factory=list)
    evaluators: list[Evaluator] = field(default_factory=list)
    chosen: list[int] | None = None
    most: list[int | float] = field(default_factory=list)
    fewest: list[int | float] = field(default_factory=list)
    given: Any = None

    def __bool__(self) -> bool:
        return any(self.most_batches)

    @property
    def as_given(self) -> Any:
        """The loaders in the form in which they were given; None where there are none."""
        if isinstance(self.given, loading.CombinedLoader):
            return self.given.iterables
        return loading.in_form_of(self.given, self.loaders) if self.loaders else None

    @property
    def most_batches(self) -> list[int | float]:
        """How many batches of each, of the process that has the most."""
        return self.most or self.num_batches

    def shared_batches(self, index: int, limit: int | None = None) -> int | float | None:
        """Return how many batches all processes have, if some have more; else None."""
        if not self.fewest:
            return None
        fewest, most = self.fewest[index], self.most[index]
        if limit is not None:
            fewest, most = min(fewest, limit), min(most, limit)
        return fewest if fewest < most else None

    def is_chosen(self, index: int) -> bool:
        """Return whether a loader takes part in the validation under way."""
        return self.chosen is None or index in self.chosen

    def suffix(self, index: int) -> str:
        """Return what is added to the names of what is logged for a loader."""
        if self.evaluators:
            return f"/{self.evaluators[index].label}"
        return f"/dataloader_idx_{index}" if len(self.loaders) > 1 else ""

    def replace(self, made: EvalData) -> None:
        """Take the loaders of another one; the loops know this object."""
        self.loaders, self.num_batches, self.given = made.loaders, made.num_batches, made.given
        self.evaluators, self.most, self.fewest = made.evaluators, made.most, made.fewest

    def generator_states(self) -> dict[str, Any]:
        """Return the states of the loaders' own random generators."""
        return loading.generator_states(loading.generators_in({"loaders": self.loaders}))

    def set_generator_states(self, states: Any) -> None:
        """Take them back, as far as the loaders still have generators."""
        loading.restore_generators(loading.generators_in({"loaders": self.loaders}), states)


@dataclass(slots=True)
class RunData:
    """What a run takes its batches from.

    Attributes:
        stream: the training batches; None outside fit, and before the loaders were found.
        evaluation: loaders by stage: validate, test, predict.
        renew: asks for the loaders anew as an epoch begins, if that is due; None if it never is.
        load_training: makes `stream`, for who asks in `setup` how long the fit is; None later.
        come_back: asks for them as the epoch did in which those of a checkpoint were made.
        renewed: when that was done last, as plain data.
        reopened: what is left of the epoch in which a resumed run goes on, until the loop takes it.
    """

    stream: TrainStream | None = None
    evaluation: dict[str, EvalData] = field(default_factory=dict)
    reopened: Iterator[Any] | None = None
    renew: Callable[[], None] | None = None
    load_training: Callable[[], None] | None = None
    come_back: Callable[[dict[str, Any]], None] | None = None
    renewed: dict[str, Any] = field(default_factory=dict)

    @property
    def is_loaded(self) -> bool:
        """Whether the loaders were found."""
        return self.stream is not None or bool(self.evaluation)

    @property
    def training(self) -> TrainStream:
        """The training batches of a fit whose loaders were found."""
        assert self.stream is not None
        return self.stream

    def take_up(self, state: dict[str, Any], progress: Progress) -> None:
        """Come back to the place of the training loader at which a checkpoint was saved."""
        if progress.stage is EpochStage.BATCHES and state["opened_with"]:
            self.reopened = self.training.reopen(
                progress.epochs_completed, progress.batches_in_epoch, state
            )
        else:
            self.training.restore_between(state)

    def batches(self, epoch: int) -> Iterator[Any]:
        """Return the iterator over an epoch's batches, opened anew or where a resume left it."""
        if self.reopened is not None:
            iterator, self.reopened = self.reopened, None
            return iterator
        return self.training.open(epoch)

    def let_go(self) -> None:
        """Forget the loaders, and keep how many batches those of the evaluations have.

        Who holds on to a loader decides when its workers end, so the run is not to.
        """
        if self.stream is not None:
            self.stream.let_go()
            self.stream = self.reopened = None
        for data in self.evaluation.values():
            data.loaders, data.evaluators, data.chosen, data.given = [], [], None, None
        self.renew = self.come_back = None
