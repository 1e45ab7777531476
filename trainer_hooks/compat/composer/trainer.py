"""Trainer: Composer's, made of one of trainer_hooks."""

from __future__ import annotations

import weakref
from copy import deepcopy
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from trainer_hooks._log import log
from trainer_hooks.compat.composer import trainer_setup as setup
from trainer_hooks.compat.composer.core.data_spec import ensure_data_spec
from trainer_hooks.compat.composer.core.engine import Engine
from trainer_hooks.compat.composer.core.event import Event
from trainer_hooks.compat.composer.core.precision import Precision
from trainer_hooks.compat.composer.core.state import Device, State
from trainer_hooks.compat.composer.core.time import Time, Timestamp, TimeUnit
from trainer_hooks.compat.composer.loggers.logger import Logger
from trainer_hooks.compat.composer.modules import package_getattr
from trainer_hooks.compat.composer.not_offered import TRAINER
from trainer_hooks.compat.composer.options import TrainerOptions
from trainer_hooks.compat.composer.trainer_events import ComposerModule, TrainerEventSource
from trainer_hooks.compat.composer.utils.helpers import format_name_with_dist
from trainer_hooks.compat.not_offered import not_offered_attribute
from trainer_hooks.errors import OptionError, UsageError
from trainer_hooks.runtime.rng import reseed, seed_everything
from trainer_hooks.trainer.options.config import takes_options

if TYPE_CHECKING:
    from trainer_hooks.compat.composer.core.evaluator import Evaluator

__all__ = ["Trainer"]

__getattr__ = package_getattr(__name__)


class Trainer:
    """Train a ComposerModel; the events, options and logged names are Composer's.

    A `trainer_hooks.Trainer` runs underneath, so that its callbacks, checkpoints and plugins work.
    The options are those of `TrainerOptions`, by keyword.

    Attributes:
        state: the state of the training.
        logger: the logger that writes to all destinations.
        engine: the engine that calls the callbacks.
        native: the trainer of trainer_hooks that runs underneath.

    Raises:
        OptionError: an option is unknown, breaks its rule, or asks for a feature that is not here.
    """

    @takes_options(TrainerOptions)
    def __init__(self, options: TrainerOptions) -> None:
        self._options = options
        if options.python_log_level is not None:
            log.setLevel(options.python_log_level.upper())
        seed = options.seed
        if seed is not None:
            seed_everything(seed)
        device = Device(options.device)
        is_gpu = device.name == "gpu"
        # Composer computes in half precision on a GPU unless it is told not to
        precision = options.precision or ("amp_fp16" if is_gpu else "fp32")
        self.state = State(
            options.model,
            options.make_run_name(),
            device=device,
            precision=Precision(precision),
            rank_zero_seed=0 if seed is None else seed,
            max_duration=_scaled(options.max_duration, options.scale_schedule_ratio),
        )
        self.logger = Logger(self.state, setup.make_destinations(options))
        self.engine = Engine(self.state, self.logger)
        self._source = TrainerEventSource(self.engine)
        self._module = ComposerModule(options.model, self._source)
        self.native, self._saver = setup.make_native_trainer(options, self.state, self._source)
        self.state.bind(self.native)
        self.state.optimizers = [setup.make_optimizer(options)]
        # closes the callbacks when the trainer is garbage-collected without close()
        weakref.finalize(self, self.engine.closer)
        # the optimizer was made before: Module.to keeps the Parameter objects that it refers to
        device.module_to_device(options.model)
        options.model.logger = self.logger
        self.engine.run_event(Event.INIT)
        if options.auto_log_hparams:  # after INIT, which opens the destinations
            self.logger.log_hyperparameters(setup.list_hyperparameters(options))
        self.logger.log_hyperparameters(setup.describe_run(self.state))
        self.state.train_metrics = {
            name: deepcopy(metric).to(device.torch_device)
            for name, metric in _metrics(options.model, is_train=True).items()
        }
        if options.train_dataloader is not None:
            self._set_train_dataloader(options.train_dataloader, options.train_dataloader_label)
        if options.eval_dataloader is not None:
            self.state.evaluators = self._make_evaluators(
                options.eval_dataloader, options.eval_interval, options.eval_subset_num_batches
            )
        # after the loader: torch calls a scheduler when it is made, and one whose times are in
        # epochs needs the loader's length
        setup.set_schedulers(options, self._source)
        # the checkpoint that the next run resumes from
        self._start_path = setup.load_start(options, self._source, self._module)
        if seed is not None:
            reseed(self.state.seed)  # once more, as in Composer: callbacks may have drawn by now

    # --- entry points ---

    def fit(
        self,
        *,
        train_dataloader: Any = None,
        train_dataloader_label: str = "train",
        train_subset_num_batches: int | None = None,
        spin_dataloaders: bool | None = None,
        duration: int | str | Time | None = None,
        reset_time: bool = False,
        schedulers: Any = None,
        scale_schedule_ratio: float = 1.0,
        step_schedulers_every_batch: bool | None = None,
        eval_dataloader: Any = None,
        eval_subset_num_batches: int = -1,
        eval_interval: Any = 1,
        device_train_microbatch_size: int | float | str | None = None,
        precision: str | None = None,
    ) -> None:
        """Train until `max_duration`, or for `duration` more.

        Args:
            train_dataloader: the training loader, if the trainer has none or another one.
            train_dataloader_label: the label of the training loader.
            train_subset_num_batches: the trainer's value, or None.
            spin_dataloaders: True or None: a resume always comes back to the same batch.
            duration: how much longer to train, as a time or a number of epochs.
            reset_time: whether to count from zero again.
            schedulers: the schedulers, only in a first fit if the trainer has none.
            scale_schedule_ratio: the factor that stretches the duration and `schedulers`.
            step_schedulers_every_batch: whether `schedulers` step after each batch.
            eval_dataloader: the loader or evaluators, if the trainer has none or other ones.
            eval_subset_num_batches: at most so many batches of each evaluation; -1 for all.
            eval_interval: when to evaluate.
            device_train_microbatch_size: the trainer's value, or None.
            precision: the trainer's value, or None.

        Raises:
            OptionError: the training is done already or has no length, there is no loader, or an
                option that all fits share differs from the trainer's.
        """
        state = self.state
        self._check_shared_options(
            train_subset_num_batches=train_subset_num_batches,
            spin_dataloaders=spin_dataloaders,
            device_train_microbatch_size=device_train_microbatch_size,
            precision=precision,
        )
        if train_dataloader is not None:
            self._set_train_dataloader(train_dataloader, train_dataloader_label)
        if eval_dataloader is not None:
            state.evaluators = self._make_evaluators(
                eval_dataloader, eval_interval, eval_subset_num_batches
            )
        if schedulers is not None:
            setup.set_fit_schedulers(
                self._source,
                schedulers,
                scale_schedule_ratio,
                step_schedulers_every_batch,
                is_first=not self.native.progress.batches_completed and self._start_path is None,
            )
        if self._source.spec is None:
            raise OptionError(
                "Trainer.fit(train_dataloader=None): there is nothing to train on. Pass "
                "train_dataloader to the trainer or to fit."
            )
        if reset_time:
            state.timestamp = Timestamp()
            # trainer_hooks counts from zero for another module
            self._module, self._start_path = ComposerModule(state.model, self._source), None
        if duration is not None:
            longer = Time.from_input(duration, TimeUnit.EPOCH)
            end = longer + state.timestamp.get(longer.unit)
            state.max_duration = _scaled(end, scale_schedule_ratio)
        self._apply_max_duration()
        self._show_train_dataloader(train_dataloader_label)
        self._fit()

    def eval(self, eval_dataloader: Any = None, subset_num_batches: int = -1) -> None:
        """Evaluate; the values are logged, and on `state.eval_metric_values`.

        Args:
            eval_dataloader: a loader or evaluators; the trainer's evaluators unless given.
            subset_num_batches: at most so many batches of each; as the evaluator says if -1.

        Raises:
            OptionError: there is nothing to evaluate.
        """
        state, own_evaluators = self.state, list(self.state.evaluators)
        evaluators = own_evaluators
        if eval_dataloader is not None:
            evaluators = self._make_evaluators(eval_dataloader, "1ep", subset_num_batches)
            # only while they run, so that a later fit does not evaluate them
            state.evaluators = [*own_evaluators, *evaluators]
        if not evaluators:
            raise OptionError(
                "Trainer.eval(eval_dataloader=None): there is nothing to evaluate. Pass "
                "eval_dataloader to the trainer or to eval."
            )
        self._source.evaluators = evaluators
        try:
            self.native.validate(
                self._module,
                [
                    setup.make_native_evaluator(evaluator, None, subset_num_batches)
                    for evaluator in evaluators
                ],
                ckpt_path=self._start_path,
                verbose=False,
            )
        finally:
            state.evaluators = own_evaluators

    def predict(
        self, dataloader: Any, subset_num_batches: int = -1, *, return_outputs: bool = True
    ) -> list[Any]:
        """Return the model's outputs for each batch, on the host.

        Args:
            dataloader: the loader, or a `DataSpec`.
            subset_num_batches: at most so many batches; -1 for all.
            return_outputs: whether to keep the outputs; the list is empty otherwise.
        """
        spec = ensure_data_spec(dataloader)
        batches, self._source.predict_spec = spec.dataloader, spec
        if subset_num_batches >= 0:
            batches = list(islice(batches, subset_num_batches))
        outputs = self.native.predict(
            self._module, batches, return_predictions=return_outputs, ckpt_path=self._start_path
        )
        host = Device("cpu")
        return [host.batch_to_device(output) for output in outputs or []]

    def close(self) -> None:
        """Close the callbacks, and finish pending saves; a second call does nothing."""
        # first: it may fire events, which a closed engine refuses
        self.native.close()
        self.engine.close()

    # --- checkpoints ---

    def save_checkpoint(
        self, name: str = "ep{epoch}-ba{batch}-rank{rank}", *, weights_only: bool = False
    ) -> str:
        """Write a checkpoint, and return its path.

        Args:
            name: the template of the path.
            weights_only: whether to leave out the state that only a resume needs.
        """
        now = self.state.timestamp
        counts = {unit: int(getattr(now, unit)) for unit in ("epoch", "batch", "sample", "token")}
        path = format_name_with_dist(name, self.state.run_name, **counts)
        self.native.save_checkpoint(path, weights_only=weights_only)
        return path

    def save_checkpoint_to_save_folder(self) -> None:
        """Write a checkpoint into `save_folder`.

        Raises:
            UsageError: the trainer has no such folder.
        """
        if self._saver is None:
            raise UsageError(
                "Trainer.save_checkpoint_to_save_folder(): there is no folder. Pass save_folder."
            )
        folder = str(self._saver.dirpath)
        self.save_checkpoint(str(Path(folder) / self._options.save_filename))

    @property
    def saved_checkpoints(self) -> list[str]:
        """The checkpoints in `save_folder` that this training wrote and kept."""
        return [] if self._saver is None else list(map(str, self._saver.best_k_models))

    # --- parts ---

    def _fit(self) -> None:
        state, source = self.state, self._source
        assert source.spec is not None
        source.evaluators = [
            evaluator for evaluator in state.evaluators if not evaluator.is_never_due
        ]
        # the first fit resumes it, and later ones continue that fit
        path, self._start_path = self._start_path, None
        source.spins_loaders = path is None
        self.native.fit(
            self._module,
            source.spec.dataloader,
            [
                setup.make_native_evaluator(evaluator, source.is_due)
                for evaluator in source.evaluators
            ]
            or None,
            ckpt_path=path,
        )
        for optimizer in state.optimizers:
            optimizer.zero_grad()

    def _check_shared_options(self, **fit_options: Any) -> None:
        """Raise an error if an option of a fit differs from the trainer's.

        Args:
            fit_options: the options that all fits share, by name; None for the trainer's value.

        Raises:
            OptionError: an option differs.
        """
        for name, value in fit_options.items():
            shared = self.state.precision.value if name == "precision" else None
            shared = shared or getattr(self._options, name)
            if value is not None and value != shared:
                raise OptionError(
                    f"Trainer.fit({name}={value!r}): it is {shared!r} for all fits of this "
                    f"trainer. Pass Trainer({name}={value!r})."
                )

    def _set_train_dataloader(self, dataloader: Any, label: str) -> None:
        spec = self._source.spec = ensure_data_spec(dataloader)
        state = self.state
        state.train_dataloader = spec.dataloader
        self._show_train_dataloader(label)
        size = self._options.device_train_microbatch_size
        batch_size = getattr(spec.dataloader, "batch_size", None)
        state.auto_microbatching = size == "auto"
        state.device_train_microbatch_size = size if isinstance(size, int) else batch_size

    def _show_train_dataloader(self, label: str) -> None:
        most = self._options.train_subset_num_batches
        self.state.set_dataloader(self.state.train_dataloader, label, most)

    def _make_evaluators(self, source: Any, interval: Any, subset: int) -> list[Evaluator]:
        metrics = _metrics(self.state.model, is_train=False)
        return setup.make_evaluators(source, interval, subset, metrics, self.state.eval_metrics)

    def _apply_max_duration(self) -> None:
        """Make the trainer of trainer_hooks train for as long as the state says.

        Raises:
            OptionError: the training has no length, or is done already.
        """
        state, longest = self.state, self.state.max_duration
        if longest is None:
            raise OptionError(
                "Trainer.fit(): nobody says how long. Pass max_duration to the trainer, or "
                "duration to fit."
            )
        if state.timestamp >= longest:
            raise OptionError(
                f"Trainer.fit(): max_duration={str(longest)!r} is trained already (it is at "
                f"{state.timestamp.get(longest.unit)}). Pass duration= for more, or "
                "reset_time=True."
            )
        broken_off = 0
        if state.timestamp.batch != 0:
            # an epoch that was broken off counts for trainer_hooks, but not for Composer
            done = int(state.timestamp.epoch)
            broken_off = (self.native.current_epoch or done) - done
        state.bind(self.native, broken_off)
        state.max_duration = longest  # once more, now that the trainer's count is known

    def __getattr__(self, name: str) -> NoReturn:
        """Raise an error for an unknown member; it names a replacement for one of Composer's."""
        raise not_offered_attribute(self, name, TRAINER)


def _scaled(duration: Any, ratio: float) -> Any:
    """Return a duration times a ratio, in whole epochs or batches."""
    if duration is None or ratio == 1.0:
        return duration
    return Time.from_input(duration, TimeUnit.EPOCH) * ratio


def _metrics(model: Any, *, is_train: bool) -> dict[str, Any]:
    get = getattr(model, "get_metrics", None)
    return {} if get is None else dict(get(is_train=is_train))
