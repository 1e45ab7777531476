"""BatchSizeFinder: try growing batch sizes, and use the largest one that fits into memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torch.utils.data import DataLoader

from trainer_hooks._log import log, warn
from trainer_hooks._names import ours
from trainer_hooks._options import Rule, finite_number, is_text, one_of, option_rules, whole_number
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.tuning.tuned_attribute import TunedAttribute, find_tuned_attribute
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.data.loaders import loaders_in
from trainer_hooks.errors import TrainerHooksWarning, UsageError
from trainer_hooks.hooks.band import Band
from trainer_hooks.hooks.spec import keeps_optimizers
from trainer_hooks.runtime.device import free_memory, is_out_of_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.datamodule import DataModule
    from trainer_hooks.module.module import Module

_WHERE = "BatchSizeFinder"


class BatchSizeFinder(Callback):
    """Try growing batch sizes for a few batches each, and run with the largest that fits.

    The size is an attribute or hyperparameter of the module or data module, whose dataloader
    methods use it. The finder sets it, makes the loaders with it, and runs some batches: in a fit
    it trains and validates them, else it validates, tests or predicts. Where memory runs out, it is
    freed and a smaller size is tried. Only a size that was tried is chosen. Afterwards everything
    else is as it was, to the last random number, and the loaders of the run are made with the
    chosen size.

    A resumed run does not try again: it goes on with the size of the earlier run. To try at other
    times, call `scale_batch_size` in `on_train_epoch_start` of a subclass, with an `on_fit_start`
    that does nothing.

    Args:
        mode: `"power"`: double the size until memory runs out; `"binsearch"`: then try the middle
            between the largest fitting and the smallest failing size, and so on.
        steps_per_trial: the number of batches of each size.
        init_val: the first size.
        max_trials: the largest number of sizes to try.
        batch_arg_name: the name of the attribute or hyperparameter.
        margin: the share by which the result is reduced, with `"binsearch"`.
        max_val: the upper limit of sizes.

    Attributes:
        optimal_batch_size: the chosen size, or None before.

    State: the chosen size.

    Raises:
        OptionError: an argument is outside its rule.
        UsageError: in a run, the loaders were passed to it, there is no such attribute, no size
            fits, or in a fit, the loaders do not use it (a warning elsewhere).

    Example::

        class Sized(type(module)):
            batch_size = 2

            def train_dataloader(self):
                return torch.utils.data.DataLoader(train_loader.dataset, self.batch_size)

        finder = BatchSizeFinder(max_val=16)
        Trainer(max_epochs=2, callbacks=[finder]).fit(Sized())
        print(finder.optimal_batch_size)
    """

    needs_steps: ClassVar[bool] = True
    SUPPORTED_MODES: ClassVar[tuple[str, ...]] = ("power", "binsearch")

    band: ClassVar[Band] = Band.TRANSFORM

    @option_rules(
        mode=one_of(*SUPPORTED_MODES),
        steps_per_trial=whole_number(1),
        init_val=whole_number(1),
        max_trials=whole_number(1),
        max_val=whole_number(1),
        batch_arg_name=Rule("the name of an attribute", is_text, "Pass it as a text."),
        margin=(
            finite_number(0),
            Rule("below 1", lambda share: share < 1, "Pass a share such as 0.05."),
        ),
    )
    def __init__(
        self,
        mode: str = "power",
        steps_per_trial: int = 3,
        init_val: int = 2,
        max_trials: int = 25,
        batch_arg_name: str = "batch_size",
        margin: float = 0.05,
        max_val: int = 8192,
    ) -> None:
        self.mode = mode
        self.steps_per_trial = steps_per_trial
        self.init_val = init_val
        self.max_trials = max_trials
        self.batch_arg_name = batch_arg_name
        self.margin = margin
        self.max_val = max_val
        self.optimal_batch_size: int | None = None

    @property
    def state_key(self) -> str:
        """The class name with the name of the attribute."""
        return self._generate_state_key(batch_arg_name=self.batch_arg_name)

    def state_dict(self) -> dict[str, Any]:
        """Return the chosen size."""
        return {"batch_size": self.optimal_batch_size}

    @checks_state({"batch_size": int | None})
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the chosen size."""
        self.optimal_batch_size = state_dict["batch_size"]

    def on_before_restore(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Make the loaders of a resumed fit with its earlier size, before they are compared."""
        state = checkpoint.get("callbacks", {}).get(self.state_key, {})
        size = state.get("batch_size")
        if trainer.state.fn == "fit" and size is not None:
            # first, as the loaders are made from it
            ours(self).tuned_attribute(module, trainer.datamodule).write(size)
            trainer.reload_dataloaders()

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Find the size for a new training."""
        if trainer.progress.is_new_training:
            self.scale_batch_size(trainer, module)

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Find the size for a validation outside fit."""
        if trainer.state.fn == "validate":
            self.scale_batch_size(trainer, module)

    def on_test_start(self, trainer: Trainer, module: Module) -> None:
        """Find the size for a test or a prediction."""
        self.scale_batch_size(trainer, module)

    on_predict_start = on_test_start

    def scale_batch_size(self, trainer: Trainer, module: Module) -> None:
        """Try the sizes now, and make the run's loaders with the chosen one.

        Raises:
            UsageError: the run is inside an epoch, there is no attribute to set, or no size fits.
        """
        if trainer.fast_dev_run:
            log.info("%s: nothing is tried in a dry run (fast_dev_run)", _WHERE)
            return
        if not trainer.makes_dataloaders:
            raise UsageError(
                f"{_WHERE} in a {trainer.state.fn} whose loaders were passed to it: it cannot "
                "change their batch size. Define the dataloader methods of the module or a data "
                "module, and pass none."
            )
        attribute = ours(self).tuned_attribute(module, trainer.datamodule)
        size_before = attribute.read()
        trial = _BatchSizeTrial(trainer, attribute, self.steps_per_trial)
        try:
            size = find_largest_fitting_size(
                trial.fits,
                mode=self.mode,
                start=self.init_val,
                # a larger batch than the data set is never full, so that it fits would prove little
                largest=min(self.max_val, _largest_dataset_size(trainer) or self.max_val),
                max_trials=self.max_trials,
            )
        except _WithoutEffectError as error:
            attribute.write(size_before)
            if trainer.state.fn == "fit":
                raise UsageError(str(error)) from None
            warn(f"{error} The size stays {size_before!r}.", TrainerHooksWarning)
            return
        except BaseException:
            attribute.write(size_before)
            raise
        if self.mode == "binsearch":
            size = max(1, int(size * (1 - self.margin)))
        attribute.write(size)
        self.optimal_batch_size = size
        trainer.reload_dataloaders()
        log.info("%s: %s is set to %d", _WHERE, attribute.name, size)

    def tuned_attribute(self, module: Module, datamodule: DataModule | None) -> TunedAttribute:
        """Return the attribute that this finder sets.

        Raises:
            UsageError: neither the module nor the data module has it.
        """
        names = (self.batch_arg_name,)
        return find_tuned_attribute(names, module, datamodule, _WHERE, "batch_arg_name=")


class _WithoutEffectError(UsageError):
    """Raised where the loaders' batch size does not follow the attribute."""


class _BatchSizeTrial(Callback):
    """A trial run of a few batches of one size, which checks that the loaders use that size."""

    def __init__(self, trainer: Trainer, attribute: TunedAttribute, steps: int) -> None:
        self._trainer = trainer
        self._attribute = attribute
        self._steps = steps
        self._sizes: dict[int, list[Any]] = {}

    def fits(self, size: int) -> bool:
        """Return whether batches of a size fit into memory.

        Raises:
            UsageError: the loaders' batch size does not follow the attribute.
        """
        self._attribute.write(size)
        is_fitting = True
        try:
            # a fit must be able to validate with this size too
            self._trainer.trial_run(self, steps=self._steps, validates=True)
        # torch's own error for it is a RuntimeError
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            is_fitting = False
        if not is_fitting:
            # outside the except block: the error's traceback keeps the frames' tensors alive
            free_memory()
        log.info("%s: %d %s", _WHERE, size, "fits" if is_fitting else "does not fit")
        return is_fitting

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Check the training loader."""
        self._check_loaders(_loaders_of_run(trainer))

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Check the loaders of an evaluation outside fit."""
        if trainer.state.fn != "fit":
            self._check_loaders(_loaders_of_run(trainer))

    on_test_start = on_predict_start = on_validation_start

    def _check_loaders(self, loaders: list[Any]) -> None:
        # a subclass or another loader may make batches of other sizes than its `batch_size`
        sizes = [loader.batch_size for loader in loaders if type(loader) is DataLoader]
        wanted = self._attribute.read()
        self._sizes[wanted] = sizes
        earlier = [size for size in self._sizes if size != wanted]
        # loaders that have the same other size in two trials do not follow the attribute
        if sizes and earlier and wanted not in sizes and self._sizes[earlier[-1]] == sizes:
            raise _WithoutEffectError(
                f"{_WHERE}: {self._attribute.name} was set to {earlier[-1]} and to {wanted}, but "
                f"the loaders have batches of {', '.join(map(str, sizes))} each time. Use "
                f"{self._attribute.name} in the dataloader methods."
            )


def find_largest_fitting_size(
    fits: Callable[[int], bool], *, mode: str, start: int, largest: int, max_trials: int
) -> int:
    """Return the largest tried size that fits.

    Args:
        fits: tries a size and returns whether it fits.
        mode: `"power"`: double the size until one does not fit; `"binsearch"`: then try the middle
            between the largest fitting and the smallest failing size, until they are neighbours.
        start: the first size.
        largest: the upper limit of sizes.
        max_trials: the upper limit of tries.

    Raises:
        UsageError: not even a size of 1 fits, or no tried size.
    """
    # `largest + 1` counts as the smallest failing size: it is never tried
    best, failed, size = 0, largest + 1, min(start, largest)
    for _ in range(max_trials):
        if fits(size):
            best = size
        else:
            failed = size
        if failed - best <= 1 or (mode == "power" and best and failed <= largest):
            break
        if failed > largest:
            size = min(2 * best, largest)
        elif best:
            size = (best + failed) // 2
        else:
            size = failed // 2
    if not best:
        smallest = "of 1" if failed == 1 else f"down to {failed}"
        raise UsageError(
            f"batch sizes {smallest}: none fits into memory. Use a smaller model or precision, or "
            "more trials (max_trials) or a smaller init_val."
        )
    return best


def _loaders_of_run(trainer: Trainer) -> list[Any]:
    """Return the loaders whose batch size a run tries: of a fit that of the training."""
    return {
        "fit": lambda: [trainer.train_dataloader],
        "validate": lambda: loaders_in(trainer.val_dataloaders),
        "test": lambda: loaders_in(trainer.test_dataloaders),
        "predict": lambda: loaders_in(trainer.predict_dataloaders),
    }[str(trainer.state.fn)]()


def _largest_dataset_size(trainer: Trainer) -> int | None:
    """Return the size of the run's largest data set, or None if one is unknown."""
    counts = []
    for loader in _loaders_of_run(trainer):
        dataset = getattr(loader, "dataset", None)
        # an iterable data set: any size may be full
        if not hasattr(dataset, "__len__"):
            return None
        counts.append(len(dataset))  # type: ignore[arg-type]
    return max(counts, default=None)
