"""The loop of a training that the user writes: the fit loop's work between the user's lines.

`OwnLoop` is made of the pieces of `FitLoop`, and keeps in its attributes where the user's loop is.
So it does not matter how a `for` is left: the next call closes what is open.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks._names import ours
from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.data.stream import AwaitedStream
from trainer_hooks.errors import (
    OptimizationError,
    StopTraining,
    TrainerHooksWarning,
    UsageError,
    add_note,
)
from trainer_hooks.hooks.relay import HookRelay
from trainer_hooks.loops.batch_fetcher import END
from trainer_hooks.loops.fit import FitLoop, connect_step, ending_in_order
from trainer_hooks.loops.module_steps import hook_outputs
from trainer_hooks.loops.own_evaluation import (
    HandedOverLoaders,
    OwnEvaluation,
    OwnValidation,
)
from trainer_hooks.loops.own_step import OwnStep
from trainer_hooks.metrics.store import LogScope
from trainer_hooks.runtime import rng
from trainer_hooks.runtime.precision import OpenForward

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    from torch import Tensor

    from trainer_hooks.context.context import RunContext
    from trainer_hooks.context.loaders import EvalLoaders
    from trainer_hooks.loops.loop_position import LoopPosition

_KEPT_BY_CATCH_UP = frozenset(
    {
        "scaler", "metrics", "metric_objects", "evaluated", "user", "buffers", "gradients", "modes",
        "generators", "own_loaders", "rng",
    }
)  # fmt: skip
"""The states that lines of the user may change while a resumed run returns to its position."""


@dataclass(slots=True)
class OwnBatch:
    """A training batch that the user's loop works on.

    Attributes:
        batch: the batch, on its device.
        index: its index in the epoch.
        closes_window: whether it is the last of its accumulation window.
        samples: its number of samples.
        tokens: its number of tokens.
        loss: the loss of its backward, for hooks.
        backwards: backwards that no step followed yet.
        has_backward: whether a backward was made or skipped by a hook.
        has_step: whether `run.step` was called.
        is_ended: whether it was counted and `on_train_batch_end` was called.
        is_flushed: whether its metrics were flushed, which a validation comes after.
        offers_checkpoint: whether `on_batch_checkpoint` is still to be called.
        extra_outputs: what hooks get besides the loss.
        is_cut: whether it ends without its step, as a `StopTraining` or the user's loop has left
            it in the middle.
    """

    batch: Any
    index: int
    closes_window: bool
    samples: int = 0
    tokens: int = 0
    loss: Tensor | None = None
    backwards: int = 0
    has_backward: bool = False
    has_step: bool = False
    is_ended: bool = False
    is_flushed: bool = False
    offers_checkpoint: bool = True
    extra_outputs: dict[str, Any] = field(default_factory=dict)
    is_cut: bool = False


@dataclass(slots=True)
class CatchUp:
    """A resumed run's replay of the user's loop up to its position, with the run's calls disabled.

    Attributes:
        restore: sets the states of the checkpoint once more.
        stops: the validations and saves that the interrupted run had begun there.
        num_seen: those that this run has come by.
        counters: while the last batch is gone through again, the counters with that batch counted.
    """

    restore: Callable[[], None]
    stops: int
    num_seen: int = 0
    counters: dict[str, Any] = field(default_factory=dict)


class OwnLoop(FitLoop):
    """A fit whose epochs, batches and validations the user's own loop goes through.

    ::

        with loop:                                  as FitLoop.run around its epochs
            for epoch in loop.epochs():             _begin_epoch ... _end_epoch
                for batch in loop.batches(loader):  fetch, on_train_batch_start ... BatchEnd
                    loop.backward(loss)
                    loop.step(optimizer)
                loop.enter_validation(...), loop.leave_validation()

    A resume goes through the user's lines from the start of the epoch, or of the last batch, to
    the position of the checkpoint (`CatchUp`). Until then calls have no effect; then the random
    state, metrics and the user's own state are set as they were.

    Args:
        context: the run context.
        take_loader: makes the training stream of a loader that is handed over.
        load_evaluation: returns the loaders of a validation loader that is handed over.
        position: the position in the user's loop.
        given: the training loader that was passed to `Run`, or None.

    Attributes:
        goes_on: whether a `for` over epochs or batches that was left goes on where it was when
            another one is begun, as in the cells of a notebook; else it is closed.
    """

    _step: OwnStep
    _validation: OwnValidation

    def __init__(
        self,
        context: RunContext,
        take_loader: Callable[[Any], None],
        load_evaluation: Callable[[Any], EvalLoaders],
        position: LoopPosition,
        given: Any = None,
    ) -> None:
        self._take_loader = take_loader
        self._load_evaluation = load_evaluation
        self._position = position
        self._given = given
        self._source: Any = None
        self._outputs: dict[str, Any] = {}
        self._progress = context.training.progress
        self._is_plain = context.precision.is_plain
        self._batch: OwnBatch | None = None
        self._evaluation: OwnEvaluation | None = None
        self._catch_up: CatchUp | None = None
        self._forward = OpenForward(context.precision)
        self.goes_on = False
        self._has_batches = self._are_batches_left = self._is_epoch_entered = False
        self._is_in_closure = False
        if counts := position.counts.get(""):
            context.data.evaluation["validate"] = HandedOverLoaders(num_batches=list(counts))
        super().__init__(context)
        # as the user's loop knows them; a callback may put others in their place
        self._optimizers = list(context.training.optimization.optimizers)

    # --- the training ---

    def __enter__(self) -> Self:
        with ending_in_order(self.context), self._stopping_in_order():
            self._open_training()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        self._forward.leave()
        if isinstance(error, Exception) and self._batch is not None and not self._batch.is_ended:
            add_note(error, f"in {self._describe_batch(self._batch)}")
        self._position.drop_loaders()
        with ending_in_order(self.context):
            with self._stopping_in_order():
                if error is not None:
                    raise error
                self.close_epoch()
                self.context.requests.raise_pending_signal()
            self._cycles.close()
        self._close_training()
        return True

    def _open_training(self) -> None:
        super()._open_training()
        self._step.gather_weights()
        if self._progress.stage in (EpochStage.BATCHES, EpochStage.VALIDATING) and (
            self._position.epoch_random_state or self._progress.batches_in_epoch
        ):
            restore = self.context.state_registry.backup(
                lambda state: state.name in _KEPT_BY_CATCH_UP, deepcopy
            )
            self._catch_up = CatchUp(restore, self._position.stops)

    def _finish_open_batch(self) -> None:
        """Do nothing: the batch is finished when the user's loop comes to its end again."""

    def _make_step(self) -> OwnStep:
        """Return the parts of a step.

        Raises:
            OptimizationError: gradients are to be accumulated for several optimizers.
        """
        step, plan = OwnStep(self.context), self.context.plan
        if plan.accumulate_grad_batches > 1 and len(step.optimizers) > 1:
            raise OptimizationError(
                f"Run(accumulate_grad_batches={plan.accumulate_grad_batches}) with "
                f"{len(step.optimizers)} optimizers: the gradients of one loss would be added to "
                "those of the others. Leave it out, and use larger batches."
            )
        connect_step(step, self.context, is_manual=not step.reduces_windows)
        return step

    def _make_validation(self) -> OwnValidation:
        return OwnValidation(self.context, self._reach_consensus)

    # --- epochs ---

    def epochs(self) -> Iterator[int]:
        """Yield the index of each epoch, with its start hooks before and its end hooks after it."""
        # left by `break`, although its generator may be there still
        if self._is_epoch_entered and not self.goes_on:
            self.close_epoch()
        progress = self._progress
        while self._enter_epoch():
            if progress.stage in (EpochStage.CLOSING, EpochStage.ENDED):
                # of a resumed run, whose checkpoint was saved after the user's lines
                self._finish_epoch()
                continue
            self.context.training.metrics.enter(LogScope.TRAIN_EPOCH)
            # with this random state a resume goes through the epoch's first lines again
            if not self._position.epoch_random_state:
                self._position.epoch_random_state = rng.capture()
            elif self._catch_up is not None:
                rng.restore(self._position.epoch_random_state)
            self._is_epoch_entered = True
            yield progress.epochs_completed
            self.close_epoch()

    def close_epoch(self) -> None:
        """Close the epoch with all that is open in it, if there is one.

        Raises:
            UsageError: it has trained no batch, or a batch lacks its step.
        """
        progress, self._is_epoch_entered = self._progress, False
        if progress.stage is EpochStage.BETWEEN:
            return
        self._leave_batches()
        if self._catch_up is not None:
            self._end_catch_up()
        if (
            progress.stage is EpochStage.BATCHES
            and not self._has_batches
            and not self.context.should_stop
        ):
            raise UsageError(
                f"epoch {progress.epochs_completed} ended without training: it must go through "
                "its batches. Write `for batch in run.batches(loader):` in the loop of run.epochs()"
                ", or run.stop() to end the training."
            )
        self._finish_epoch()

    def _begin_epoch(self) -> None:
        position = self._position
        # before the start hooks: a resume from a save in one of them begins with the first line
        position.stops, position.kept, position.epoch_random_state = 0, {}, {}
        super()._begin_epoch()
        self._has_batches = self._are_batches_left = False

    def steps(self, loader: Any) -> Iterator[Any]:
        """Yield batches without epochs: when the loader ends, it begins again."""
        # also in a resume, which begins inside an epoch
        if not self._is_epoch_entered:
            # validations lie between the steps, and callbacks that monitor act at each
            self.context.plan = replace(self.context.plan, check_val_every_n_epoch=None)
        source = UpdateNumbers() if loader is None else loader
        for _ in self.epochs():
            yield from self.batches(source)

    # --- batches ---

    def batches(self, loader: Any) -> Iterator[Any]:
        """Yield the batches of a loader: of the training, or of the validation that is open.

        Raises:
            UsageError: there is no epoch and no validation.
        """
        if self._evaluation is not None:
            return self._evaluation.batches(loader)
        if self._progress.stage is EpochStage.BETWEEN:
            raise UsageError(
                "run.batches(loader) was called outside of an epoch: it must be in the loop of "
                "run.epochs(), or in a validation. Write `for epoch in run.epochs():` around it, "
                "`with run.validation():` for validation data, or `for batch in run.steps(loader):`"
                " for a training without epochs."
            )
        return self._train(loader)

    def _train(self, loader: Any) -> Iterator[Any]:
        """Yield the training batches that the epoch has left."""
        progress = self._progress
        if self._are_batches_left or (self._batch is not None and not self.goes_on):
            self._leave_batches()
        elif self._batch is not None:
            batch = self._batch
            self._close_batch(is_left=True)
            if batch.is_cut:
                progress.abandon_window()
        if progress.stage is EpochStage.BATCHES and not self._has_batches:
            yield from self._open_batches(loader)
        elif progress.stage is EpochStage.BATCHES and loader in (None, self._source):
            self.context.training.metrics.enter(LogScope.TRAIN_BATCH)
        elif self._has_batches:
            raise UsageError(
                f"run.batches(loader) was called a second time in epoch {progress.epochs_completed}"
                ": an epoch has one training loader. Hand over run.batches(CombinedLoader([...])) "
                "for several at once, begin another epoch for the next one, or write "
                "`with run.validation():` around the batches of validation data."
            )
        else:
            self._pass_batches(loader)
            return
        while (batch := self._fetcher.fetch()) is not END:
            if batch is None:
                self._batch_end.skip_none_batch()
                continue
            if self._begin_batch(batch):
                try:
                    yield batch
                except GeneratorExit:
                    self._are_batches_left = not self.goes_on
                    raise
            self._close_batch()
        self._batch_end.loss_check.check(self._outputs)
        self._close_batches()

    def _begin_batch(self, batch: Any) -> bool:
        """Begin a batch that was fetched; return whether the user's lines have their turn."""
        context, progress, step = self.context, self._progress, self._step
        context.training.metrics.batch = batch
        samples, tokens = self._sizes_of(batch)
        index = progress.batches_in_epoch
        closes_window = context.closes_window
        current = self._batch = OwnBatch(batch, index, closes_window, samples, tokens)
        try:
            context.hooks.on_train_batch_start(context.trainer, context.module, batch, index)
            if context.requests.skips_batch:
                context.requests.skips_batch = False
                step.skip(index, closes_window)
                current.has_step = True
                return False
            step.begin(index, closes_window)
        except StopTraining as request:
            self._cut(current, request)
            return False
        if not self._is_plain:
            self._forward.enter()
        return True

    def _open_batches(self, loader: Any) -> Iterator[Any]:
        """Open the epoch's batches; yield the last one again if a resume has to go through it."""
        context, progress = self.context, self._progress
        self._use_loader(loader)
        self._has_batches = True
        self._step.set_window(context.fix_window())
        self._fetcher.open()
        context.training.metrics.enter(LogScope.TRAIN_BATCH)
        if self._catch_up is None:
            return
        stream = context.data.train_stream
        batch, stream.reloaded = stream.reloaded, None
        if not progress.is_batch_open or batch is None:
            self._end_catch_up()
        if not progress.is_batch_open:
            return
        if batch is not None and context.transfer.is_needed:
            batch = context.transfer(batch)
        closes_window = progress.batches_in_window == 0
        self._batch = OwnBatch(batch, progress.batches_in_epoch - 1, closes_window)
        self._batch.has_step = self._batch.is_ended = True
        if self._catch_up is not None:
            # its lines may have a validation or a save in which the checkpoint was saved, and see
            # the counters that they saw
            self._catch_up.counters = progress.state_dict()
            progress.uncount_batch(closes_window, *self._sizes_of(batch))
            self._forward.enter()
            try:
                yield batch
            except GeneratorExit:
                self._are_batches_left = not self.goes_on
                raise
        self._close_batch()

    def _pass_batches(self, loader: Any) -> None:
        """Take the loader of an epoch whose batches a resumed run has behind it."""
        self._use_loader(loader)
        self._has_batches = True
        if self._catch_up is not None and self._catch_up.stops == 0:
            self._end_catch_up()

    def _use_loader(self, loader: Any) -> None:
        """Make the training stream of a loader, at the position of a checkpoint if there is one.

        Raises:
            UsageError: there is no loader.
            DataError: it has no batch, or is another one than that of the checkpoint.
        """
        context, stream = self.context, self.context.data.train_stream
        awaited = stream if isinstance(stream, AwaitedStream) else None
        if loader is None and awaited is not None:
            raise UsageError(
                "run.batches() was given no loader, and Run none either: write "
                "run.batches(loader), or Run(train_dataloaders=loader)."
            )
        if loader is None or loader is self._source:
            return
        if awaited is None and loader is self._given:
            self._source = loader
            return
        self._take_loader(loader)
        self._source = loader
        if awaited is not None and awaited.position:
            stream = context.data.train_stream
            if self._progress.stage is EpochStage.BATCHES:
                stream.require_same(awaited.position)
            # what it draws is drawn anew: the run's random state is restored already
            with rng.isolated():
                context.data.restore_position(awaited.position, self._progress)

    def _close_batch(self, *, is_left: bool = False, ends_epoch: bool = False) -> None:
        """End the open batch, if there is one, and offer a checkpoint unless the epoch ends there.

        Args:
            is_left: whether the user's lines were left in the middle, so that the batch is dropped
                unless it has made its step.
            ends_epoch: whether the loop over the batches was left. As after `trainer.end_epoch()`,
                a resume from a checkpoint of this batch would train the batches that are left.
        """
        batch, self._batch = self._batch, None
        if batch is None:
            return
        if not self._is_plain:
            self._forward.leave()
        if self._catch_up is not None:
            self._end_catch_up()
        if not batch.is_ended:
            batch.is_cut |= is_left and (batch.backwards > 0 or not batch.has_step)
            self._end_own_batch(batch)
        if not batch.is_flushed:
            batch.offers_checkpoint = self._batch_end.flush(batch.closes_window, self._outputs)
        self._position.stops = 0
        if ends_epoch:
            self._progress.is_batch_open = False
        elif batch.offers_checkpoint:
            self._batch_end.offer_checkpoint()

    def _end_own_batch(self, batch: OwnBatch) -> None:
        """Count a batch and call `on_train_batch_end`.

        Raises:
            UsageError: its step was left out.
        """
        if batch.is_cut:
            # it has no complete gradients, so its window must not step
            batch.closes_window, batch.loss = False, None
        elif batch.backwards or (batch.has_backward and not batch.has_step):
            raise UsageError(
                f"{self._describe_batch(batch)} ended after run.backward(loss) without its step: "
                "the weights would never change. Write run.step() after it, in each batch; with "
                "Run(accumulate_grad_batches=n) only every n-th one steps."
            )
        elif not batch.has_step:
            self._step.leave_out(batch.index, batch.closes_window)
        self._step.end()
        self._outputs = {}
        if batch.loss is not None and (
            "on_train_batch_end" in self.context.hooks.listened
            or self.context.batch.is_last
            or self.context.trainer.loggers
        ):
            self._outputs = hook_outputs({"loss": None, **batch.extra_outputs}, batch.loss)
        self._end_batch(
            batch.batch, batch.index, self._outputs, batch.closes_window, batch.samples,
            batch.tokens,
        )  # fmt: skip
        batch.is_ended = True

    def _cut(self, batch: OwnBatch, request: StopTraining) -> None:
        """Let a batch end without its step, as a `StopTraining` cuts it off.

        Raises:
            UsageError: there are several ranks, of which the others wait for its gradients.
        """
        self.context.stop_by(request)
        self.context.requests.skips_batch = False
        if self._consensus is not None:
            self._step.refuse_to_skip()
        batch.is_cut = True

    def stop_between_hooks(self, request: StopTraining) -> None:
        """Close the open batch and epoch after a `StopTraining` of the user's lines."""
        if self._batch is not None and not self._batch.is_ended:
            self._batch.is_cut = True
        if self._progress.stage is EpochStage.BATCHES:
            self._close_batch()
        super().stop_between_hooks(request)

    def _leave_batches(self) -> None:
        """End the epoch's batches where the user's loop has left them."""
        self._are_batches_left = False
        batch, progress = self._batch, self._progress
        self._close_batch(is_left=True, ends_epoch=True)
        if progress.stage is EpochStage.BATCHES and self._has_batches:
            if progress.batches_in_epoch:
                # as `trainer.end_epoch()` does: the epoch has as many batches as were trained
                self.context.data.train_stream.end_epoch_after(progress.batches_in_epoch)
            if batch is None or not batch.is_cut:
                self._batch_end.step_open_window()
            self._close_batches()

    def _close_batches(self) -> None:
        super()._close_batches()
        self._position.stops = 0

    # --- the parts of a step ---

    def backward(self, loss: Tensor, *, accumulate: bool = False, **options: Any) -> None:
        """Run the backward of a loss, with its hooks.

        Raises:
            UsageError: there is no training batch, or a backward without a step before it.
        """
        batch = self._open_batch("run.backward(loss)")
        if batch is None:
            return
        if batch.backwards and not (accumulate or self._is_in_closure):
            raise UsageError(
                f"run.backward was called twice in {self._describe_batch(batch)} without a step in "
                "between: the second would be added to the first. Write run.step() between them, "
                "run.backward(loss_1 + loss_2) once, or run.backward(loss_2, accumulate=True) if "
                "the sum is meant."
            )
        if not self._is_plain:
            self._forward.leave()
        try:
            returned = self._step.backward(loss, batch.index, **options)
        except StopTraining as request:
            self._cut(batch, request)
            return
        batch.backwards += 1
        batch.has_backward = True
        batch.loss = (
            batch.loss + returned
            if accumulate and batch.loss is not None and returned is not None
            else returned
        )
        if not self._is_plain:
            self._forward.enter()

    def step(self, optimizer: Any = None, closure: Callable[[], Any] | None = None) -> None:
        """Step an optimizer at the end of an accumulation window; inside one do nothing.

        Raises:
            UsageError: there is no training batch, no backward before it, or several optimizers and
                none is named.
        """
        batch = self._open_batch("run.step()")
        if batch is None:
            return
        chosen = self._choose_optimizer(optimizer)
        if closure is None and (not batch.has_backward or self._step.has_stepped(chosen)):
            raise UsageError(
                f"run.step() was called in {self._describe_batch(batch)} without a backward since "
                "the last step: there is no gradient to step with. Write run.backward(loss) before "
                "it, in the place of loss.backward()."
            )
        batch.has_step, batch.backwards = True, 0
        if not batch.closes_window:
            return
        if not self._is_plain:
            self._forward.leave()
        self._is_in_closure = closure is not None
        try:
            if closure is not None or self._progress.has_gradients:
                self._step.step(chosen, closure)
        except StopTraining as request:
            self._cut(batch, request)
            return
        finally:
            self._is_in_closure = False
            if not self._is_plain:
                self._forward.leave()
        batch.backwards = 0
        if not self._is_plain:
            self._forward.enter()

    def zero_grad(self, optimizer: Any = None) -> None:
        """Clear the gradients of one optimizer, or of all, with the hook before it."""
        batch = self._open_batch("run.zero_grad()")
        if batch is None:
            return
        chosen = self._step.optimizers if optimizer is None else [self._choose_optimizer(optimizer)]
        for present in chosen:
            self._step.clear_gradients(present, batch.index)

    def _open_batch(self, call: str) -> OwnBatch | None:
        """Return the batch that is open; None if the call is to have no effect.

        It has none while a resumed run returns to its position, and in a batch that was cut off.

        Raises:
            UsageError: there is none.
        """
        batch = self._batch
        if self._evaluation is None:
            if self._catch_up is not None:
                return None
            if batch is not None and not batch.is_ended:
                return None if batch.is_cut else batch
        if self._evaluation is not None:
            raise UsageError(
                f"{call} was called in a validation, in which nothing is trained: leave it out, or "
                "close the `with run.validation():` before it."
            )
        if batch is not None:
            raise UsageError(
                f"{call} was called in {self._describe_batch(batch)} after its validation or save, "
                "with which it has ended: write it before."
            )
        raise UsageError(
            f"{call} was called outside of a training batch: write it in the loop of "
            "`for batch in run.batches(loader):` or `for batch in run.steps(loader):`."
        )

    def _choose_optimizer(self, optimizer: Any) -> Any:
        """Return the present optimizer that is meant.

        Raises:
            UsageError: it is none of the run's, or there are several and none is named, or none.
        """
        present = self._step.optimizers
        if not present:
            raise UsageError(
                "run.step() was called in a Run without an optimizer: pass Run(optimizer=...), or "
                "leave run.step() out."
            )
        if optimizer is None and len(present) == 1:
            return present[0]
        for given, now in zip(self._optimizers, present, strict=False):
            if optimizer is given or optimizer is now:
                return now
        names = ", ".join(type(candidate).__qualname__ for candidate in present) or "none"
        if optimizer is None:
            raise UsageError(
                f"run.step() with {len(present)} optimizers ({names}): name the one to step, as in "
                "run.step(optimizer)."
            )
        raise UsageError(
            f"run.step({type(optimizer).__qualname__}) is not an optimizer of this run, which has "
            f"{names}: pass it to Run(optimizer=...), which saves and restores it."
        )

    def output(self, outputs: Any) -> None:
        """Set the `outputs` of the open batch's end hook: in a training batch besides the loss.

        Raises:
            UsageError: there is no batch, or the outputs of a training batch are no dict.
        """
        if self._evaluation is not None:
            self._evaluation.output = outputs
            return
        batch = self._open_batch("run.output(...)")
        if batch is None:
            return
        if not isinstance(outputs, dict):
            raise UsageError(
                f"run.output({type(outputs).__qualname__}) was called in a training batch, whose "
                "hooks get a dict with the loss in it: pass a dict of the other values."
            )
        batch.extra_outputs = outputs

    # --- metrics ---

    def log(self, name: str, value: Any, **options: Any) -> None:
        """Log a value; while a resumed run returns to its position it was logged already."""
        if self._catch_up is None:
            self.context.module.log(name, value, **options)

    @property
    def is_catching_up(self) -> bool:
        """Whether a resumed run is on its way to its position."""
        return self._catch_up is not None

    # --- validation ---

    def enter_validation(self, name: str, num_dataloaders: int) -> dict[str, float]:
        """Begin a validation; return the dict that holds its metrics when it is over.

        Raises:
            UsageError: one is open, or a training batch lacks its step.
        """
        if self._evaluation is not None:
            raise UsageError(
                "run.validation() was entered in a validation that is open: close that one first, "
                "or write run.validation(num_dataloaders=2) for several loaders."
            )
        if self._are_batches_left:
            self._leave_batches()
        batch = self._batch
        self._forward.leave()
        if batch is not None and not batch.is_ended:
            if batch.backwards or not batch.has_step:
                missing = "run.step()" if batch.backwards else "run.backward(loss) and run.step()"
                raise UsageError(
                    f"run.validation() was entered in {self._describe_batch(batch)} before its "
                    f"step: write {missing} before it, or the validation after the batches."
                )
            self._end_own_batch(batch)
        has_effect = self._come_to_stop()
        if batch is not None and has_effect and not batch.is_flushed:
            batch.is_flushed = True
            batch.offers_checkpoint = self._batch_end.flush(batch.closes_window, self._outputs)
        context = self.context
        context.data.evaluation["validate"] = HandedOverLoaders(
            num_batches=list(self._position.counts.get(name, ())) or [math.inf] * num_dataloaders
        )
        # without listeners where the validation was done already
        hooks = None if has_effect else HookRelay((), context.connector.hooks)
        if has_effect:
            self._position.is_validating = True
            self._validation.begin()
        self._evaluation = OwnEvaluation(
            context, self._load_evaluation, self._position, name, num_dataloaders, hooks
        )
        return self._evaluation.enter()

    def leave_validation(self, error: BaseException | None) -> None:
        """End the validation, unless an error ends it, so that a resume runs it again."""
        evaluation, self._evaluation = self._evaluation, None
        assert evaluation is not None
        evaluation.leave(error)
        if error is not None:
            return
        data = self.context.data.evaluation["validate"]
        self._position.counts[evaluation.name] = list(data.num_batches)
        if evaluation.has_effect:
            self._validation.end()
            self._position.is_validating = False
            # they learn only now that the loop validates, and whether it does between steps
            for saver in self.context.trainer.checkpoint_callbacks:
                ours(saver).follow_validations(self.context.trainer)
        if self._batch is not None:
            self.context.training.metrics.batch = self._batch.batch
            if not self._is_plain:
                self._forward.enter()

    # --- where the run is ---

    def before_save(self) -> bool:
        """End the batch that has made its step; return whether a save has an effect.

        Raises:
            UsageError: the batch has not made its step yet.
        """
        if self._are_batches_left:
            self._leave_batches()
        batch = self._batch
        if self._evaluation is not None:
            return self._catch_up is None
        if batch is not None and not batch.is_ended:
            if batch.backwards or not batch.has_step:
                raise UsageError(
                    f"run.save_checkpoint(path) was called in {self._describe_batch(batch)} before "
                    "its step, where no run can go on: write it after run.step()."
                )
            self._forward.leave()
            self._end_own_batch(batch)
        has_effect = self._come_to_stop()
        if batch is not None and has_effect and not batch.is_flushed:
            batch.is_flushed = True
            batch.offers_checkpoint = self._batch_end.flush(batch.closes_window, self._outputs)
        return has_effect

    def keep(self, name: str, make: Callable[[], Any]) -> Any:
        """Return a value that is made once an epoch, and that checkpoints in the epoch hold.

        Raises:
            UsageError: there is no epoch, or nothing to call.
        """
        if not callable(make):
            raise UsageError(
                f"run.keep({name!r}, {type(make).__qualname__}): pass the function that makes the "
                f"value, as in run.keep({name!r}, collect), so that a resume need not call it."
            )
        if self._progress.stage is EpochStage.BETWEEN:
            raise UsageError(
                f"run.keep({name!r}, ...) was called outside of an epoch, where no checkpoint "
                "would hold the value: write it in the loop of run.epochs() or run.steps(). An "
                "object of the whole run is kept by run.register(name, object)."
            )
        values = self._position.kept
        if name not in values:
            values[name] = make()
        return values[name]

    def _come_to_stop(self) -> bool:
        """Count a validation or a save; return whether it has an effect.

        It has none if the interrupted run had it behind it when its checkpoint was saved.
        """
        if self._progress.stage is EpochStage.BETWEEN:
            return True
        if self._catch_up is not None:
            self._catch_up.num_seen += 1
            if self._catch_up.num_seen < self._catch_up.stops:
                return False
            self._position.stops = self._catch_up.num_seen
            self._end_catch_up()
            return True
        self._position.stops += 1
        return True

    def _end_catch_up(self) -> None:
        """Set the states of the checkpoint once more: the run is at its position."""
        catch_up, self._catch_up = self._catch_up, None
        assert catch_up is not None
        if self._position.is_validating and catch_up.num_seen < catch_up.stops:
            warn(
                "the checkpoint was saved inside a validation, to which the loop did not come when "
                "it was gone through again: this run is not exactly the one that was cut. Let the "
                "`if` before it depend on counters, as run.progress, and not on the loss.",
                TrainerHooksWarning,
            )
        if catch_up.counters:
            self._progress.load_state_dict(catch_up.counters)
        metrics = self.context.training.metrics
        scope, batch = metrics.scope, metrics.batch
        catch_up.restore()
        metrics.enter(scope)
        metrics.batch = batch

    def _describe_batch(self, batch: OwnBatch) -> str:
        return self._progress.describe_batch(batch.index)


class UpdateNumbers:
    """A loader without data, for loops whose batches are no more than numbers: 0, 1, 2, and on."""

    def __iter__(self) -> Iterator[int]:
        return count()
