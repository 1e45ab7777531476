"""Trainer: Composer's, made of one of trainer_hooks."""

from __future__ import annotations

import weakref
from copy import deepcopy
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from trainer_hooks._log import log
from trainer_hooks.compat.composer.absent import TRAINER
from trainer_hooks.compat.composer.core.data_spec import ensure_data_spec
from trainer_hooks.compat.composer.core.device import Device
from trainer_hooks.compat.composer.core.engine import Engine
from trainer_hooks.compat.composer.core.event import Event
from trainer_hooks.compat.composer.core.precision import Precision
from trainer_hooks.compat.composer.core.state import State
from trainer_hooks.compat.composer.core.times import Time, TimeUnit
from trainer_hooks.compat.composer.core.timestamp import Timestamp
from trainer_hooks.compat.composer.loggers.logger import Logger
from trainer_hooks.compat.composer.options import TrainerOptions
from trainer_hooks.compat.composer.running import making, starting
from trainer_hooks.compat.composer.running.carrier import Carrier
from trainer_hooks.compat.composer.running.links import Links
from trainer_hooks.compat.composer.utils import format_name_with_dist
from trainer_hooks.compat.refusing import lacking
from trainer_hooks.errors import OptionError, UsageError
from trainer_hooks.runtime import seed_everything
from trainer_hooks.trainer.options import takes_options

if TYPE_CHECKING:
    from trainer_hooks.compat.composer.core.evaluator import Evaluator

__all__ = ["Trainer"]


class Trainer:
    """Train a ComposerModel; the events, options and logged names are Composer's.

    What runs is a `trainer_hooks.Trainer`, so that its callbacks, checkpoints and plugins take
    part. The options are those of `TrainerOptions`, by keyword.

    Attributes:
        state: how the training stands.
        logger: what logs to all destinations.
        engine: what calls the callbacks.
        native: the trainer of trainer_hooks.

    Raises:
        OptionError: an option is unknown, breaks its rule, or asks for what is not here.
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
        precision = options.precision or ("amp_fp16" if is_gpu else "fp32")
        self.state = State(
            options.model,
            options.named(),
            device=device,
            precision=Precision(precision),
            rank_zero_seed=0 if seed is None else seed,
            max_duration=_scaled(options.max_duration, options.scale_schedule_ratio),
        )
        destinations = making.destinations(options)
        self.logger = Logger(self.state, destinations)
        self.engine = Engine(self.state, self.logger)
        self._links = Links(self.engine, is_guest=False)
        self._carrier = Carrier(options.model, self._links)
        self.native, self._saver = making.native_trainer(options, self.state, self._links)
        self.state.bind(self.native.stop)
        self.state.optimizers = [making.optimizer(options)]
        weakref.finalize(self, self.engine.closing)
        device.module_to_device(options.model)
        options.model.logger = self.logger
        self.engine.run_event(Event.INIT)
        if options.auto_log_hparams:
            self.logger.log_hyperparameters(making.hyperparameters(options))
        self.state.train_metrics = {
            name: deepcopy(metric).to(device.torch_device)
            for name, metric in _metrics(options.model, is_train=True).items()
        }
        if options.train_dataloader is not None:
            self._take_train(options.train_dataloader, options.train_dataloader_label)
        if options.eval_dataloader is not None:
            self._take_eval(
                options.eval_dataloader, options.eval_interval, options.eval_subset_num_batches
            )
        making.compile_schedulers(options, self._links)
        self._start = starting.load(options, self.state, self.engine, self._carrier)

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
            train_dataloader: the loader, if it was not given to the trainer, or another one.
            train_dataloader_label: its label.
            train_subset_num_batches: as the trainer was given it, or None.
            spin_dataloaders: True or None: a resume always comes back to the same batch.
            duration: how much longer to train.
            reset_time: whether to count from nothing again.
            schedulers: only where it is the first fit, and the trainer was given none.
            scale_schedule_ratio: stretches the duration and the schedulers given here.
            step_schedulers_every_batch: as in the trainer.
            eval_dataloader: what to evaluate, if it was not given to the trainer, or another one.
            eval_subset_num_batches: batches of each evaluation.
            eval_interval: when to evaluate.
            device_train_microbatch_size: as the trainer was given it, or None.
            precision: likewise.

        Raises:
            OptionError: there is nothing to train, nothing to train on, or an option differs from
                the trainer's that one fit cannot have for itself.
        """
        state = self.state
        self._refuse_others(
            train_subset_num_batches=train_subset_num_batches,
            spin_dataloaders=spin_dataloaders,
            device_train_microbatch_size=device_train_microbatch_size,
            precision=precision,
        )
        if train_dataloader is not None:
            self._take_train(train_dataloader, train_dataloader_label)
        if eval_dataloader is not None:
            self._take_eval(eval_dataloader, eval_interval, eval_subset_num_batches)
        if schedulers is not None:
            making.late_schedulers(
                self._links,
                schedulers,
                scale_schedule_ratio,
                step_schedulers_every_batch,
                is_first=not self.native.progress.batches_completed and self._start is None,
            )
        if self._links.spec is None:
            raise OptionError(
                "Trainer.fit(train_dataloader=None): there is nothing to train on. Pass "
                "train_dataloader to the trainer or to fit."
            )
        if reset_time:
            state.timestamp = Timestamp()
            self._carrier, self._start = Carrier(state.model, self._links), None
        if duration is not None:
            longer = Time.from_input(duration, TimeUnit.EPOCH)
            state.limit(longer + state.timestamp.get(longer.unit))
            state.limit(_scaled(state.max_duration, scale_schedule_ratio))
        self._limit()
        self._restore_labels(train_dataloader_label)
        self._run()

    def eval(self, eval_dataloader: Any = None, subset_num_batches: int = -1) -> None:
        """Evaluate; the values are logged, and on `state.eval_metric_values`.

        Args:
            eval_dataloader: what to evaluate; the trainer's evaluators unless given.
            subset_num_batches: batches of each; those of the evaluator unless given.

        Raises:
            OptionError: there is nothing to evaluate.
        """
        state, kept = self.state, list(self.state.evaluators)
        chosen = kept
        if eval_dataloader is not None:
            chosen = self._evaluators(eval_dataloader, "1ep", subset_num_batches)
            state.evaluators = [*kept, *chosen]
        if not chosen:
            raise OptionError(
                "Trainer.eval(eval_dataloader=None): there is nothing to evaluate. Pass "
                "eval_dataloader to the trainer or to eval."
            )
        self._links.evaluators = chosen
        try:
            self.native.validate(
                self._carrier,
                [making.native_evaluator(one, None, subset_num_batches) for one in chosen],
                ckpt_path=self._start,
                verbose=False,
            )
        finally:
            state.evaluators = kept

    def predict(
        self, dataloader: Any, subset_num_batches: int = -1, *, return_outputs: bool = True
    ) -> list[Any]:
        """Return what the model returns for each batch, on the host.

        Args:
            dataloader: the loader, or a `DataSpec`.
            subset_num_batches: how many batches; -1 for all.
            return_outputs: whether to keep them; an empty list is returned otherwise.
        """
        spec = ensure_data_spec(dataloader)
        batches, self._links.predicted = spec.dataloader, spec
        if subset_num_batches >= 0:
            batches = list(islice(batches, subset_num_batches))
        found = self.native.predict(
            self._carrier,
            batches,
            return_predictions=return_outputs,
            ckpt_path=self._start,
        )
        host = Device("cpu")
        return [host.batch_to_device(one) for one in found or []]

    def close(self) -> None:
        """Close the callbacks, and finish what is being saved; a second call does nothing."""
        self.native.close()
        self.engine.close()

    # --- checkpoints ---

    def save_checkpoint(
        self, name: str = "ep{epoch}-ba{batch}-rank{rank}", *, weights_only: bool = False
    ) -> str:
        """Write a checkpoint, and return its path.

        Args:
            name: template of the path.
            weights_only: leave out what only a resume needs.
        """
        now = self.state.timestamp
        counts = {unit: int(getattr(now, unit)) for unit in ("epoch", "batch", "sample", "token")}
        path = format_name_with_dist(name, self.state.run_name, **counts)
        self.native.save_checkpoint(path, weights_only=weights_only)
        return path

    def save_checkpoint_to_save_folder(self) -> None:
        """Write a checkpoint into `save_folder`.

        Raises:
            UsageError: there is none.
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

    def _run(self) -> None:
        """Let the trainer of trainer_hooks train."""
        state, links = self.state, self._links
        assert links.spec is not None
        links.evaluators = [one for one in state.evaluators if not one.is_never_due]
        path, self._start = self._start, None
        wanted = links.endings.is_wanted
        self.native.fit(
            self._carrier,
            links.spec.dataloader,
            [making.native_evaluator(one, wanted) for one in links.evaluators] or None,
            ckpt_path=path,
        )
        for optimizer in state.optimizers:
            optimizer.zero_grad()

    def _refuse_others(self, **given: Any) -> None:
        """Make sure that a fit asks for nothing that one fit cannot have for itself."""
        for name, value in given.items():
            known = self.state.precision.value if name == "precision" else None
            known = known or getattr(self._options, name)
            if value is not None and value != known:
                raise OptionError(
                    f"Trainer.fit({name}={value!r}): it is {known!r} for all fits of this trainer. "
                    f"Pass Trainer({name}={value!r})."
                )

    def _take_train(self, dataloader: Any, label: str) -> None:
        spec = self._links.spec = ensure_data_spec(dataloader)
        state = self.state
        state.train_dataloader = spec.dataloader
        self._restore_labels(label)
        size = self._options.device_train_microbatch_size
        known = getattr(spec.dataloader, "batch_size", None)
        state.auto_microbatching = size == "auto"
        state.device_train_microbatch_size = size if isinstance(size, int) else known

    def _restore_labels(self, label: str) -> None:
        most = self._options.train_subset_num_batches
        self.state.set_dataloader(self.state.train_dataloader, label, most)

    def _take_eval(self, source: Any, interval: Any, subset: int) -> None:
        self.state.evaluators = self._evaluators(source, interval, subset)

    def _evaluators(self, source: Any, interval: Any, subset: int) -> list[Evaluator]:
        metrics = _metrics(self.state.model, is_train=False)
        return making.evaluators(source, interval, subset, metrics, self.state.eval_metrics)

    def _limit(self) -> None:
        """Let the trainer of trainer_hooks train for as long as the state says."""
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
        self.native.max_epochs = -1
        if longest.unit is TimeUnit.EPOCH and state.timestamp.batch != 0:
            # an epoch that was broken off is one of trainer_hooks, and none of Composer's
            done = self.native.current_epoch or int(state.timestamp.epoch)
            longest = longest - state.timestamp.epoch + done
        self.native.max_duration = str(longest)

    def __getattr__(self, name: str) -> NoReturn:
        """Say what to use instead of what is not here."""
        raise lacking(self, name, TRAINER)


def _scaled(duration: Any, ratio: float) -> Any:
    """Return a duration times a ratio, in whole epochs or batches."""
    if duration is None or ratio == 1.0:
        return duration
    return Time.from_input(duration, TimeUnit.EPOCH) * ratio


def _metrics(model: Any, *, is_train: bool) -> dict[str, Any]:
    get = getattr(model, "get_metrics", None)
    return {} if get is None else dict(get(is_train=is_train))
