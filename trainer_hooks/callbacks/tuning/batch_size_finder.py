"""BatchSizeFinder: try growing batch sizes, and use the largest that fits into memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torch.utils.data import DataLoader

from trainer_hooks._log import log, warn
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitoring import check_choice, check_count, check_number
from trainer_hooks.callbacks.tuning.attributes import Setting, find_setting
from trainer_hooks.callbacks.tuning.size_search import largest_fitting
from trainer_hooks.data import loaders_in
from trainer_hooks.errors import OptionError, TrainerHooksWarning, UsageError
from trainer_hooks.hooks import Band
from trainer_hooks.runtime import free_memory, is_out_of_memory

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import DataModule, Module

__all__ = ["BatchSizeFinder"]

_WHERE = "BatchSizeFinder"


class BatchSizeFinder(Callback):
    """Try growing batch sizes for a few batches each, and run with the largest that fits.

    The size is an attribute or hyperparameter of the module or data module, whose dataloader
    methods use it. It is set, the loaders are made with it, and some batches are run: in a fit
    trained and validated, else validated, tested or predicted. Where memory runs out, it is freed
    and a smaller size is tried. Only a size that was tried is chosen. Afterwards everything else is
    as it was, to the last random number, and the loaders of the run are made with the size found.

    A resumed run does not try again: it goes on with the size that was found. To try at other
    times, call `scale_batch_size` in `on_train_epoch_start` of a subclass, with an `on_fit_start`
    that does nothing.

    Args:
        mode: `"power"`: double the size until memory runs out; `"binsearch"`: and then go on with
            the middle between what fits and what does not.
        steps_per_trial: how many batches of each size are run.
        init_val: the first size.
        max_trials: how many sizes are tried.
        batch_arg_name: the name of the attribute or hyperparameter.
        margin: the share that the size found is made smaller by, with `"binsearch"`.
        max_val: no size over it is tried.

    Attributes:
        optimal_batch_size: the size that was found, or None before.

    State: the size that was found.

    Raises:
        OptionError: an argument is outside its rule.
        UsageError: in a run, the loaders were passed to it, there is no such attribute, no size
            fits, or in a fit, the loaders do not follow it (a warning elsewhere).

    Example::

        class Sized(type(module)):
            batch_size = 2

            def train_dataloader(self):
                return torch.utils.data.DataLoader(train_loader.dataset, self.batch_size)

        finder = BatchSizeFinder(max_val=16)
        Trainer(max_epochs=2, callbacks=[finder]).fit(Sized())
        print(finder.optimal_batch_size)
    """

    SUPPORTED_MODES: ClassVar[tuple[str, ...]] = ("power", "binsearch")

    band: ClassVar[Band] = Band.TRANSFORM

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
        self.mode: str = check_choice("mode", mode, _WHERE, self.SUPPORTED_MODES)
        self.steps_per_trial = check_count("steps_per_trial", steps_per_trial, _WHERE, 1)
        self.init_val = check_count("init_val", init_val, _WHERE, 1)
        self.max_trials = check_count("max_trials", max_trials, _WHERE, 1)
        if not isinstance(batch_arg_name, str) or not batch_arg_name:
            raise OptionError(
                f"batch_arg_name {batch_arg_name!r} of {_WHERE}: it must be the name of an "
                "attribute. Pass it as a text."
            )
        self.batch_arg_name = batch_arg_name
        if check_number("margin", margin, _WHERE, least=0) >= 1:
            raise OptionError(
                f"margin {margin!r} of {_WHERE}: it must be below 1. Pass a share such as 0.05."
            )
        self.margin = margin
        self.max_val = check_count("max_val", max_val, _WHERE, 1)
        self.optimal_batch_size: int | None = None

    @property
    def state_key(self) -> str:
        """The class's name with the attribute that it sets."""
        return self._generate_state_key(batch_arg_name=self.batch_arg_name)

    def state_dict(self) -> dict[str, Any]:
        """Return the size that was found."""
        return {"batch_size": self.optimal_batch_size}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take it back."""
        self.optimal_batch_size = state_dict["batch_size"]

    def on_load_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Make the loaders of a resumed fit with the size that it had, before they are compared."""
        state = checkpoint.get("callbacks", {}).get(self.state_key, {})
        size = state.get("batch_size")
        if trainer.state.fn == "fit" and size is not None:
            self.setting_of(module, trainer.datamodule).write(size)
            trainer.reload_dataloaders()

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Find the size for a new training."""
        if trainer.progress.is_fresh:
            self.scale_batch_size(trainer, module)

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Find the size for a validation of its own."""
        if trainer.state.fn == "validate":
            self.scale_batch_size(trainer, module)

    def on_test_start(self, trainer: Trainer, module: Module) -> None:
        """Find the size for a test."""
        self.scale_batch_size(trainer, module)

    def on_predict_start(self, trainer: Trainer, module: Module) -> None:
        """Find the size for a prediction."""
        self.scale_batch_size(trainer, module)

    def scale_batch_size(self, trainer: Trainer, module: Module) -> None:
        """Try the sizes now, and make the run's loaders with the one that is chosen.

        Raises:
            UsageError: it is inside an epoch, there is nothing to set, or no size fits.
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
        setting = self.setting_of(module, trainer.datamodule)
        before = setting.read()
        trial = _Trial(trainer, setting, self.steps_per_trial)
        try:
            found = largest_fitting(
                trial.fits,
                mode=self.mode,
                start=self.init_val,
                largest=min(self.max_val, _samples(trainer) or self.max_val),
                max_trials=self.max_trials,
            )
        except _WithoutEffectError as error:
            setting.write(before)
            if trainer.state.fn == "fit":
                raise
            warn(f"{error} The size stays {before!r}.", TrainerHooksWarning)
            return
        except BaseException:
            setting.write(before)
            raise
        if self.mode == "binsearch":
            found = max(1, int(found * (1 - self.margin)))
        setting.write(found)
        self.optimal_batch_size = found
        trainer.reload_dataloaders()
        log.info("%s: %s is set to %d", _WHERE, setting.name, found)

    def setting_of(self, module: Module, datamodule: DataModule | None) -> Setting:
        """Return the number that it sets.

        Raises:
            UsageError: neither of them has it.
        """
        names = (self.batch_arg_name,)
        return find_setting(names, module, datamodule, _WHERE, "batch_arg_name=")


class _WithoutEffectError(UsageError):
    """Raised where the loaders do not follow the number that is set."""


class _Trial(Callback):
    """Runs a few batches of a size, and looks whether the loaders have it."""

    def __init__(self, trainer: Trainer, setting: Setting, steps: int) -> None:
        self._trainer = trainer
        self._setting = setting
        self._steps = steps
        self._sizes: dict[int, list[Any]] = {}

    def fits(self, size: int) -> bool:
        """Return whether batches of a size fit into memory.

        Raises:
            UsageError: the loaders have batches of another size, whatever is set.
        """
        self._setting.write(size)
        is_fitting = True
        try:
            self._trainer.trial_run(self, steps=self._steps, validates=True)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            is_fitting = False
        if not is_fitting:
            # not before the error is gone, which holds on to all that it passed through
            free_memory()
        log.info("%s: %d %s", _WHERE, size, "fits" if is_fitting else "does not fit")
        return is_fitting

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Look at the training loader."""
        self._look(trainer, [trainer.train_dataloader])

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Look at the loaders of a validation of its own."""
        if trainer.state.fn == "validate":
            self._look(trainer, loaders_in(trainer.val_dataloaders))

    def on_test_start(self, trainer: Trainer, module: Module) -> None:
        """Look at the loaders of a test."""
        self._look(trainer, loaders_in(trainer.test_dataloaders))

    def on_predict_start(self, trainer: Trainer, module: Module) -> None:
        """Look at the loaders of a prediction."""
        self._look(trainer, loaders_in(trainer.predict_dataloaders))

    def _look(self, trainer: Trainer, loaders: list[Any]) -> None:
        sizes = [loader.batch_size for loader in loaders if type(loader) is DataLoader]
        wanted = self._setting.read()
        self._sizes[wanted] = sizes
        others = [size for size in self._sizes if size != wanted]
        if sizes and others and wanted not in sizes and self._sizes[others[-1]] == sizes:
            raise _WithoutEffectError(
                f"{_WHERE}: {self._setting.name} was set to {others[-1]} and to {wanted}, but the "
                f"loaders have batches of {', '.join(map(str, sizes))} each time. Use "
                f"{self._setting.name} in the dataloader methods."
            )


def _samples(trainer: Trainer) -> int | None:
    """Return how many samples the largest data set of the run has, if that is known."""
    loaders = {
        "fit": [trainer.train_dataloader],
        "validate": loaders_in(trainer.val_dataloaders),
        "test": loaders_in(trainer.test_dataloaders),
        "predict": loaders_in(trainer.predict_dataloaders),
    }[str(trainer.state.fn)]
    counts = []
    for loader in loaders:
        dataset = getattr(loader, "dataset", None)
        if not hasattr(dataset, "__len__"):
            return None
        counts.append(len(dataset))  # type: ignore[arg-type]
    return max(counts, default=None)
