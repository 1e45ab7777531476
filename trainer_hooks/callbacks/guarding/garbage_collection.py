"""GarbageCollection: collect garbage at fixed steps instead of whenever Python likes."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitoring import check_choice, check_count
from trainer_hooks.hooks import Band

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["GarbageCollection"]

_WHERE = "GarbageCollection"


class _Hold:
    """Keeps Python's own collecting off as long as anybody holds it.

    It is the process's, and so is this: trainings may lie inside one another, and end in any order.
    """

    def __init__(self) -> None:
        self._holders: set[int] = set()
        self._was_on = False

    def take(self, holder: object) -> None:
        """Switch it off."""
        if not self._holders:
            self._was_on = gc.isenabled()
        self._holders.add(id(holder))
        gc.disable()

    def release(self, holder: object) -> None:
        """Put it back as it was, if nobody else holds it; nothing if this holder does not."""
        if id(holder) in self._holders:
            self._holders.discard(id(holder))
            if not self._holders and self._was_on:
                gc.enable()


_hold = _Hold()


class GarbageCollection(Callback):
    """Collect garbage at fixed steps, so that no step is held up by it at random.

    Python looks for objects that hold one another whenever enough were made, in the middle of any
    step. Where many processes train together each waits for the one that does, so that nearly every
    step is slow. With this callback that is switched off in a training, and done every so many
    batches, in all processes at the same ones. What no cycle holds is freed at once, as always.

    Every epoch begins with a whole collection. Validations inside a fit count their batches, too.
    Afterwards Python's own collecting is as it was, however the fit ended.

    Args:
        every_n_steps: how many batches lie between two collections.
        generation: how old the objects may be that these look at: 0, 1, or 2 for all, which takes
            longest. What has survived is looked at when an epoch begins; choose 2 where epochs are
            so long that memory grows.

    Raises:
        OptionError: an argument is outside its rule.

    Attributes:
        collections: how often it collected in this fit.

    State: none; when it collects follows from the trainer's counters.

    Example::

        trainer = Trainer(max_epochs=2, callbacks=[GarbageCollection(every_n_steps=5)])
        trainer.fit(module, train_loader, val_loader)
    """

    band: ClassVar[Band] = Band.SINK  # what the others let go of in a batch is found

    volatile_state: ClassVar[frozenset[str]] = frozenset({"collections"})

    def __init__(self, every_n_steps: int = 50, generation: int = 1) -> None:
        self.every_n_steps = check_count("every_n_steps", every_n_steps, _WHERE, least=1)
        self.generation: int = check_choice("generation", generation, _WHERE, (0, 1, 2))
        self.collections = 0

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Switch Python's own collecting off."""
        self.collections = 0
        _hold.take(self)

    def on_train_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Collect all there is."""
        self._collect(2)

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Collect if it is time."""
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
        """Collect if it is time, in a validation of the fit."""
        is_inside = trainer.state.fn == "fit" and not trainer.sanity_checking
        if is_inside and (batch_idx + 1) % self.every_n_steps == 0:
            self._collect(self.generation)

    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Put everything back."""
        _hold.release(self)

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Put everything back, whatever ended the fit."""
        _hold.release(self)

    def __del__(self) -> None:
        """Put everything back if it was taken out of a run, and so was never told of its end."""
        if _hold is not None:  # it is while the interpreter ends
            _hold.release(self)

    def _collect(self, generation: int) -> None:
        gc.collect(generation)
        self.collections += 1
