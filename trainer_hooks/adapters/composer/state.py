"""The State, Logger and model that Composer's callbacks receive, and the event source behind them.

They derive from Composer's own classes, so that Composer's functions accept them: those that save
and load, format names, and decide when something is due. Importing this module needs Composer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from composer.core import DataSpec, Evaluator, Precision, State
from composer.loggers import Logger, LoggerDestination
from composer.models import ComposerModel
from composer.utils import get_device

from trainer_hooks.adapters.composer.event_source import (
    EventSource,
    advance_timestamp,
    close_at_exit,
    close_callbacks,
)
from trainer_hooks.adapters.composer.loggers import TrainerDestination
from trainer_hooks.adapters.composer.state_changes import StateChanges
from trainer_hooks.adapters.proxy import ModuleProxy, joined_class, missing_attribute
from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.data.loaders import loaders_in
from trainer_hooks.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

_DEVICES = {"cuda": "gpu"}
_PRECISIONS = {
    "16-mixed": Precision.AMP_FP16,
    "16-true": Precision.AMP_FP16,
    "bf16-mixed": Precision.AMP_BF16,
    "bf16-true": Precision.AMP_BF16,
}
_BEFORE_LOSS = frozenset({"after_forward", "before_loss", "eval_after_forward"})


# --- metrics ---


class LoggedMetric:
    """A logged value with the `compute()` of a metric object.

    Args:
        value: a tensor.
    """

    def __init__(self, value: Any) -> None:
        self._value = value

    def compute(self) -> Any:
        """Return the value."""
        return self._value


def _label_and_name(logged: str) -> tuple[str, str]:
    """Return the label and the name in `metrics/label/name`; an empty label in any other name."""
    prefix, _, rest = logged.partition("/")
    label, _, name = rest.partition("/")
    return (label, name) if prefix == "metrics" and name else ("", logged)


def _is_of_evaluation(logged: str, name: str) -> bool:
    """Return whether an evaluation with a label logs a metric of this name under `logged`."""
    label, bare = _label_and_name(logged)
    return bare == name and label not in ("", "train")


class LoggedMetrics(Mapping[str, Any]):
    """The latest logged metrics of a trainer, by name.

    Those of the label are listed, under their names without it. Where a module logs under names of
    its own, which have no label, all these are.

    Args:
        trainer: the trainer that logs.
        label: the label of a loader whose own metrics come first: `acc` then also finds
            `acc/label` and `metrics/label/acc`, under which evaluators log it. An empty one stands
            for all evaluations.
        are_values: whether the mapping holds values; otherwise it holds objects with `compute()`.
    """

    def __init__(self, trainer: Any, label: str = "", *, are_values: bool = False) -> None:
        self._trainer = trainer
        self._label = label
        self._are_values = are_values

    def __getitem__(self, name: str) -> Any:
        logged = self._trainer.callback_metrics
        index = self._label.removeprefix("eval_")
        # the evaluator's own first, then those of its loader, and the plain name last
        candidates = (
            f"{name}/{self._label}",
            f"metrics/{self._label}/{name}",
            f"{name}/dataloader_idx_{index}",
            name,
        )
        key = next((candidate for candidate in candidates if candidate in logged), None)
        if key is None and not self._label:
            # of several evaluations the one that logged last
            key = next(
                (candidate for candidate in reversed(logged) if _is_of_evaluation(candidate, name)),
                None,
            )
        if key is None:
            raise KeyError(name)
        return logged[key] if self._are_values else LoggedMetric(logged[key])

    def __contains__(self, name: object) -> bool:
        try:
            self[str(name)]
        except KeyError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def _names(self) -> list[str]:
        """Return the names of the label's metrics, or of all that have no label if it has none."""
        matching, unlabelled = [], []
        endings = (f"/{self._label}", f"/dataloader_idx_{self._label.removeprefix('eval_')}")
        for logged in self._trainer.callback_metrics:
            label, name = _label_and_name(logged)
            ending = next((end for end in endings if self._label and logged.endswith(end)), "")
            if label:
                is_own = label == self._label if self._label else label != "train"
                matching += [name] if is_own else []
            elif ending:
                matching.append(logged.removesuffix(ending))
            elif not logged.startswith("loss/"):
                unlabelled.append(logged)
        # a ComposerModel without metrics for the label logs its losses alone
        has_labels = hasattr(self._trainer.lightning_module, "foreign_module")
        return list(dict.fromkeys(matching)) or ([] if has_labels else unlabelled)


class MetricsByLabel(Mapping[str, LoggedMetrics]):
    """The logged metrics by the label of an evaluation; every label has an entry.

    Args:
        trainer: the trainer that logs.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def __getitem__(self, label: str) -> LoggedMetrics:
        return LoggedMetrics(self._trainer, label)

    def __iter__(self) -> Iterator[str]:
        # any label is answered; those are listed that have logged
        return iter(self._labels())

    def __len__(self) -> int:
        return len(self._labels())

    def _labels(self) -> list[str]:
        labels = (_label_and_name(logged)[0] for logged in self._trainer.callback_metrics)
        return [label for label in dict.fromkeys(labels) if label not in ("", "train")]


class TrainLosses(Mapping[str, float]):
    """The losses of the last batch under the names that Composer's Trainer logs them by.

    Args:
        state: the State that holds the loss.

    Attributes:
        losses: the losses of a ComposerModel, by name; None where a module of trainer_hooks has
            one loss, which the state holds. They are copied to the host where they are read.
    """

    def __init__(self, state: Any) -> None:
        self._state = state
        self.losses: Mapping[str, Any] | None = None

    def _present_losses(self) -> Mapping[str, Any]:
        if self.losses is not None:
            return self.losses
        loss = self._state.loss
        return {"loss/train/total": loss} if loss.numel() == 1 else {}

    def __getitem__(self, name: str) -> float:
        return float(self._present_losses()[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._present_losses())

    def __len__(self) -> int:
        return len(self._present_losses())


# --- the model ---


def get_model_proxy(module: Any) -> Any:
    """Return the object that callbacks receive as the model.

    Args:
        module: a Module, or the adapter of another framework's module.

    Returns:
        The ComposerModel itself where the module adapts one; otherwise a proxy of the module.
    """
    model = getattr(module, "foreign_module", module)
    return model if isinstance(model, ComposerModel) else ComposerModelProxy(model)


class ComposerModelProxy(ModuleProxy):
    """A module for which `isinstance` says ComposerModel; every other access is passed on."""

    __slots__ = ()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return joined_class(type(self.proxy_target), ComposerModel)


# --- the state ---


class AdapterState(StateChanges, State):  # type: ignore[misc]
    """Composer's State with the values of a trainer_hooks Trainer.

    The trainer sets the batch, the outputs and the loss with `keep`; callbacks cannot, since the
    module's own step would not use them.

    Making a timestamp takes Composer longer than a small batch takes to train, so timestamps are
    only made when they are read.

    Attributes:
        sync: brings the two timestamps up to date; None while there is nothing to count.
        made_timestamp: the timestamp as it was made last.
        made_previous_timestamp: the previous timestamp as it was made last.
    """

    sync: Callable[[], None] | None = None
    made_timestamp: Any = None
    made_previous_timestamp: Any = None

    @property
    def timestamp(self) -> Any:
        """How much is trained."""
        if self.sync is not None:
            self.sync()
        return self.made_timestamp

    @timestamp.setter
    def timestamp(self, timestamp: Any) -> None:
        self.keep("made_timestamp", timestamp)

    @property
    def previous_timestamp(self) -> Any:
        """The timestamp before the last batch, epoch or iteration was counted."""
        if self.sync is not None:
            self.sync()
        return self.made_previous_timestamp

    @previous_timestamp.setter
    def previous_timestamp(self, timestamp: Any) -> None:
        self.keep("made_previous_timestamp", timestamp)

    @contextmanager
    def before_batch(self, step: int | None) -> Iterator[None]:
        """Show the timestamp from before the last batch was counted, if `step` is that batch's."""
        now, before = self.timestamp, self.previous_timestamp
        is_of_batch = before is not None and before.batch.value == step != now.batch.value
        if not is_of_batch:
            yield
            return
        sync = self.sync
        self.keep("sync", None)
        self.keep("made_timestamp", before)
        try:
            yield
        finally:
            self.keep("made_timestamp", now)
            self.keep("sync", sync)

    def keep(self, name: str, value: Any) -> None:
        """Set an attribute on behalf of the trainer."""
        # past __setattr__, which is for callbacks
        self.__dict__[name] = value

    def set_dataloader(self, *arguments: Any, **options: Any) -> None:
        """Set the loader that is used now; the trainer calls this."""
        self.require_own_dataloader()
        super().set_dataloader(*arguments, **options)

    def stop(self, trainer: Any, reason: str) -> None:
        """Stop the trainer after this batch, and evaluate if that is inside an epoch."""
        super().stop(trainer, reason)
        is_inside = trainer.training and trainer.progress.stage is EpochStage.BATCHES
        if is_inside and trainer.enable_validation:
            # Composer evaluates at the end of a training, wherever that is
            trainer.request_validation()

    def load_state_dict(self, *_: Any, **__: Any) -> None:
        """Refuse to resume a training of Composer's Trainer.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            "state.load_state_dict(): the counters, optimizers and data of a checkpoint of "
            "Composer's are not this trainer's. Load the weights alone, as with "
            "LoadCheckpoint(load_weights_only=True), or go on from a checkpoint of trainer_hooks: "
            "trainer.fit(ckpt_path=...)."
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise missing_attribute("State", "Composer", name)

    def __setattr__(self, name: str, value: Any) -> None:
        event = self.current_event
        if event and (name in {"batch", "loss"} or (name == "outputs" and event in _BEFORE_LOSS)):
            raise UsageError(
                f"state.{name} was set at {event!r}: here the module's own step makes the batch, "
                "the outputs and the loss, and does not look there. Change tensors in place, or "
                "do it in the module."
            )
        super().__setattr__(name, value)


def _make_state(trainer: Any, model: Any) -> AdapterState:
    """Return a trainer's State with the values that are known before a run."""
    state = AdapterState(
        model=model,
        # seed_everything leaves the seed there
        rank_zero_seed=int(os.environ.get("PL_GLOBAL_SEED", "0")),
        run_name=_run_name(trainer),
        device=get_device(_DEVICES.get(trainer.device.type, trainer.device.type)),
        precision=_PRECISIONS.get(trainer.precision, Precision.FP32),
    )
    state.train_metrics = LoggedMetrics(trainer, "train")
    state.eval_metrics = MetricsByLabel(trainer)
    state.train_metric_values = LoggedMetrics(trainer, "train", are_values=True)
    state.eval_metric_values = LoggedMetrics(trainer, are_values=True)
    state.total_loss_dict = TrainLosses(state)
    return state


def _run_name(trainer: Any) -> str:
    """Return the last part of the run's log folder, or `"run"` without one."""
    folder = trainer.log_dir if trainer.loggers else None
    return os.path.basename(os.path.normpath(folder)) if folder else "run"  # noqa: PTH119


# --- the logger ---


class AdapterLogger(Logger):  # type: ignore[misc]
    """Composer's Logger that logs to a trainer's loggers and history, and to adapted destinations.

    Args:
        state: the State that callbacks receive.
        trainer: the trainer whose loggers are used.
    """

    destinations: tuple[Any, ...]

    def __init__(self, state: Any, trainer: Any) -> None:
        super().__init__(state, (_TrainerDestination(trainer),))
        self._trainer = trainer

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Log metrics; `step` is the number of trained batches unless given.

        Adapted destinations receive them by `on_log`, as they receive all that the trainer logs.
        """
        step = self._state.timestamp.batch.value if step is None else step
        self._trainer.log_metrics(metrics, step)

    def add_destination(self, destination: LoggerDestination) -> None:
        """Add a destination for tables, images, hyperparameters and files."""
        if destination not in self.destinations:
            self.destinations += (destination,)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise missing_attribute("Logger", "Composer", name)


class _TrainerDestination(TrainerDestination, LoggerDestination):  # type: ignore[misc]
    """A `TrainerDestination` that Composer's Logger accepts as one of its destinations."""


# --- the events ---


class AdapterEventSource(EventSource):
    """The state, logger and events that all adapted callbacks of one trainer share.

    Args:
        trainer: the trainer.
        module: the module that it runs first.

    Attributes:
        trainer: the trainer that the state and the events belong to.
        logger: the Logger that callbacks receive.
        open_adapters: the adapters whose callbacks are open.
    """

    def __init__(self, trainer: Any, module: Any) -> None:
        # first, since __del__ reads it whatever fails below
        self.open_adapters: list[Any] = []
        super().__init__(_make_state(trainer, get_model_proxy(module)))
        self.trainer = trainer
        self.logger = AdapterLogger(self.state, trainer)
        self._counts = self._previous_counts = (0, 0, 0)
        close_at_exit(self)

    def begin_run(self, module: Any) -> None:
        """Show the module of a run on the state, as a ComposerModel."""
        super().begin_run(module)
        self.state.model = get_model_proxy(module)
        losses = self.state.total_loss_dict
        losses.losses = (losses.losses or {}) if self.has_model_loss else None

    def evaluators_of(self, trainer: Any) -> list[Evaluator]:
        """Return an Evaluator for each validation loader."""
        loaders = loaders_in(trainer.val_dataloaders)
        several = len(loaders) > 1
        evaluators = []
        for index, loader in enumerate(loaders):
            label = getattr(loader, "label", f"eval_{index}" if several else "eval")
            # in several processes DataSpec refuses a loader without a DistributedSampler, but here
            # the trainer shares out the batches
            spec = DataSpec(())
            spec.dataloader = getattr(loader, "dataloader", loader)
            # Composer demands a size where the loader has none, as one of several loaders together
            size = None if hasattr(spec.dataloader, "batch_size") else 1
            evaluators.append(
                Evaluator(
                    label=label, dataloader=spec, metric_names=[], device_eval_microbatch_size=size
                )
            )
        return evaluators

    def follow_progress(self, trainer: Any) -> None:
        """Set the timestamp to how far the trainer is, and count from there."""
        # a read of the timestamp must not count the batches of another run
        self.state.keep("sync", None)
        super().follow_progress(trainer)
        self._counts = self._previous_counts = (0, 0, 0)
        self.state.keep("sync", self.sync)
        self.count_batch(trainer)

    def count_batch(self, trainer: Any) -> None:
        """Note the trainer's counts, from which a timestamp can be made."""
        progress = trainer.progress
        counts = progress.batches_stepped, progress.samples_completed, progress.tokens_completed
        # in an open window the batches stay the same, and its samples do not count yet
        if counts[0] != self._counts[0]:
            self._previous_counts, self._counts = self._counts, counts

    def sync(self) -> None:
        """Make the timestamps of the batches counted since the last read.

        Only the last two are made, since those of the batches in between were never read.
        """
        self.count_batch(self.trainer)
        state = self.state
        counted = state.made_timestamp.batch.value
        due = self._counts[0] - counted
        if due <= 0:
            return
        now, seconds = state.made_timestamp, self.trainer.clock.train_seconds
        if due > 1 and self._previous_counts[0] > counted:
            now = advance_timestamp(now, self._previous_counts, seconds)
        state.previous_timestamp = now
        state.timestamp = advance_timestamp(now, self._counts, seconds)

    def close(self) -> None:
        """Close the open callbacks, then call `post_close` on those whose `close` went well."""
        adapters, self.open_adapters = self.open_adapters, []
        for adapter in adapters:
            adapter.is_open = False
        if adapters:  # without one, __init__ may have failed before there was a logger
            close_callbacks([adapter.guest for adapter in adapters], self.state, self.logger)

    def __del__(self) -> None:
        self.close()
