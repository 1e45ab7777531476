"""GarbageCollection and FreeOutputs: callbacks that release memory at fixed points."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks._options import one_of, option_rules, whole_number
from trainer_hooks.callback import Callback
from trainer_hooks.hooks.band import Band

if TYPE_CHECKING:
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module


class _CollectorSwitch:
    """The switch of Python's automatic garbage collection, off while at least one holder has it.

    The collector belongs to the process, and trainings may be nested and end in any order, so one
    switch serves all callbacks.
    """

    def __init__(self) -> None:
        # ids and not objects: the switch must not keep a callback alive
        self._holders: set[int] = set()
        self._was_on = False

    def take(self, holder: object) -> None:
        """Switch automatic collection off for a holder."""
        # only the first holder sees the user's own setting
        if not self._holders:
            self._was_on = gc.isenabled()
        self._holders.add(id(holder))
        gc.disable()

    def release(self, holder: object) -> None:
        """Restore automatic collection if this was the last holder; ignore other callers."""
        if id(holder) in self._holders:
            self._holders.discard(id(holder))
            if not self._holders and self._was_on:
                gc.enable()


_collector = _CollectorSwitch()


class GarbageCollection(Callback):
    """Run Python's garbage collection at fixed steps, so that it delays no step at random.

    Python searches for reference cycles whenever enough objects were made, in the middle of any
    step. Where many ranks train together each waits for the one that collects, so nearly every
    step is slow. This callback switches automatic collection off during a training, and collects
    every so many batches, on all ranks at the same ones. Objects without cycles are freed at once,
    as always.

    Every epoch begins with a full collection. Validations inside a fit count their batches too.
    Afterwards automatic collection is as it was, however the fit ended.

    Args:
        every_n_steps: the number of batches between two collections.
        generation: the oldest generation of objects that these collect: 0, 1, or 2 for all, which
            takes longest. Older objects are collected when an epoch begins; choose 2 where epochs
            are so long that memory grows.

    Raises:
        OptionError: an argument is outside its rule.

    Attributes:
        collections: the number of collections in this fit.

    State: none; the trainer's counters determine when it collects.

    Example::

        trainer = Trainer(max_epochs=2, callbacks=[GarbageCollection(every_n_steps=5)])
        trainer.fit(module, train_loader, val_loader)
    """

    # last, so that objects which other callbacks release at a batch's end are collected
    band: ClassVar[Band] = Band.SINK

    volatile_state: ClassVar[frozenset[str]] = frozenset({"collections"})

    @option_rules(every_n_steps=whole_number(1), generation=one_of(0, 1, 2))
    def __init__(self, every_n_steps: int = 50, generation: int = 1) -> None:
        self.every_n_steps = every_n_steps
        self.generation = generation
        self.collections = 0

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Switch automatic collection off."""
        self.collections = 0
        _collector.take(self)

    def on_train_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Collect all generations."""
        # 2 includes the oldest objects, at which a lower `generation` never looks
        self._collect(2)

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Collect after every n-th batch."""
        if trainer.progress.batches_completed % self.every_n_steps == 0:
            self._collect(self.generation)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Collect after every n-th batch of a validation of the fit."""
        # outside of a fit automatic collection is on
        is_inside = trainer.state.fn == "fit" and not trainer.sanity_checking
        if is_inside and (batch_idx + 1) % self.every_n_steps == 0:
            self._collect(self.generation)

    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Restore automatic collection."""
        _collector.release(self)

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Restore automatic collection, whatever ended the fit."""
        _collector.release(self)

    def __del__(self) -> None:
        """Restore automatic collection if the callback was removed in the middle of a run."""
        if _collector is not None:  # module globals may be None while the interpreter ends
            _collector.release(self)

    def _collect(self, generation: int) -> None:
        gc.collect(generation)
        self.collections += 1


class FreeOutputs(Callback):
    """Release the outputs of a training step other than its loss.

    A step that returns `{"loss": loss, "scores": scores}` keeps the scores alive until the next
    batch. With this callback, `on_train_batch_end` of the callbacks after it and of the module
    receives the loss alone, and the other outputs are freed as soon as the batch is done: before a
    validation, before a checkpoint is written, before the next forward. A step that returns the
    loss alone, and the default one made of `forward` and `loss`, have no other outputs.

    Tensors that the graph of the backward needs stay until the backward in any case.

    State: none.

    Example::

        trainer = Trainer(max_epochs=2, callbacks=[FreeOutputs()])
        trainer.fit(module, train_loader)
    """

    # first, so that the callbacks after it receive the loss alone
    band: ClassVar[Band] = Band.TRANSFORM

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Delete all outputs but the loss."""
        for name in [name for name in outputs if name != "loss"]:
            # in place: the callbacks after this one receive the same dict
            del outputs[name]
