"""ModelEmaCallback: validate a moving average of the weights beside the training, save the best."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from torch.optim.swa_utils import get_ema_multi_avg_fn

from trainer_hooks._names import ours
from trainer_hooks._options import FLAG, METRIC_NAME, Rule, check_option, is_text, option_rules
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.callbacks.averaging.running_average import (
    DECAY,
    ExchangeableAverage,
    ExternalAverage,
    RunningAverage,
)
from trainer_hooks.callbacks.base import require_no_owner, require_whole_weights
from trainer_hooks.callbacks.monitored_metric import has_validation, resolve_metric_name
from trainer_hooks.callbacks.saver_base import FixedSavePath
from trainer_hooks.compat.accelerated.built_in_callback import built_in
from trainer_hooks.connector.registry import CallbackEntry, CallbackRegistry, collect_callbacks
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.errors import CallbackError, UsageError
from trainer_hooks.hooks.band import Band
from trainer_hooks.hooks.catalogue import Hooks
from trainer_hooks.hooks.spec import keeps_optimizers

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from torch import nn

    from trainer_hooks.callback import Callback
    from trainer_hooks.callbacks.saver_base import SavePlan
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

__all__ = ["ModelEmaCallback"]

_WHERE = "ModelEmaCallback"


@partial(
    built_in,
    works_anyway_at=(
        "on_training_run_start",
        "on_train_epoch_end",
        "on_eval_epoch_end",
        "on_training_run_epoch_end",
        "on_training_run_end",
    ),
)
class ModelEmaCallback(ModelCheckpoint):
    """Keep an exponential moving average of the weights, validate it too, and save the best one.

    At the end of each epoch the average becomes `decay` times itself plus `1 - decay` times the
    weights, buffers such as the statistics of BatchNorm included; it begins as the weights before
    the training. After an epoch with a validation the averaged weights are validated too, over all
    validation loaders. The metrics of that second validation have the prefix `ema_model_`, for the
    loggers, the history and callbacks: `val_loss` becomes `ema_model_val_loss`. Only the module's
    own hooks and those of `callbacks` fire in it. The training then goes on with its own weights,
    unchanged, and ends with them.

    The file holds the averaged weights alone, and loads into a plain module. To stop early or
    to schedule a learning rate by a metric of the average, name it:
    `EarlyStopping("ema_model_val_loss", check_on_train_epoch_end=True)`. To validate with the
    average in place of the weights, use `EMAWeightAveraging`.

    Args:
        decay: the weight of the old average in a new one, from 0 to 1.
        evaluate_during_training: whether the average is validated, and only the best one saved;
            if not, the file is replaced after each epoch.
        save_path: the file; a relative path is one in the present folder.
        watch_metric: the metric that ranks the averages. `ema_model_eval_loss_epoch` stands for
            `ema_model_val_loss` where no metric of that name was logged.
        greater_is_better: whether larger values are better.
        model_ema: a class that computes the average in place of this callback, called with the
            module and `decay=`, such as `timm.utils.ModelEmaV2`. It must be an `nn.Module` with
            the average in its attribute `module` and a method `update(module)`.
        callbacks: callbacks whose validation hooks fire while the average is validated; they take
            no part in the training, unless the trainer was given them too.
        prefix: the prefix of the average's metrics; two of these callbacks that validate need
            different ones.

    Attributes:
        decay: as given.
        evaluate_during_training: as given.
        callbacks: as given.
        prefix: as given.

    State: the average, the epoch of its last update, the path and the score of the best, and the
    state of `callbacks`.

    Raises:
        OptionError: an argument is outside its rule.
        CallbackError: in a run, another callback replaces the module's weights or layers, or two of
            these have one prefix.
        UsageError: in a run, there is no validation.
        MetricError: in a run, the metric was not logged or is not a single number.

    Example::

        from trainer_hooks.compat.accelerated.callbacks import ModelEmaCallback

        ema = ModelEmaCallback(decay=0.9, save_path="ema.pt")
        trainer = Trainer(max_epochs=2, callbacks=[ema])
        trainer.fit(module, train_loader, val_loader)
        print(trainer.callback_metrics["ema_model_val_loss"], ema.best_model_score)
    """

    needs_steps: ClassVar[bool] = True
    # first, so that the average's metrics exist for callbacks that act at the end of an epoch
    band: ClassVar[Band] = Band.TRANSFORM

    on_batch_checkpoint = Hooks.on_batch_checkpoint  # not overridden: it saves after epochs alone

    @option_rules(
        decay=DECAY,
        evaluate_during_training=FLAG,
        model_ema=Rule("a class that keeps an average", callable, "Pass one, or None.").unless(
            None
        ),
        greater_is_better=FLAG,
        prefix=Rule(
            "a text that distinguishes the average's metrics from the module's",
            is_text,
            "Pass one, such as 'ema_model_'.",
        ),
    )
    def __init__(
        self,
        decay: float = 0.99,
        evaluate_during_training: bool = True,
        save_path: str | os.PathLike[str] = "ema_model.pt",
        watch_metric: str = "ema_model_eval_loss_epoch",
        greater_is_better: bool = False,
        model_ema: Callable[..., nn.Module] | None = None,
        callbacks: Callback | Iterable[Callback] = (),
        prefix: str = "ema_model_",
    ) -> None:
        self.decay = decay
        self.evaluate_during_training = evaluate_during_training
        self.watch_metric = check_option("monitor", watch_metric, _WHERE, METRIC_NAME)
        self._file = file = FixedSavePath(save_path, _WHERE)
        super().__init__(
            file.folder,
            monitor=watch_metric,
            mode="max" if greater_is_better else "min",
            save_weights_only=True,
            enable_version_counter=False,
            save_on_train_epoch_end=True,
        )
        if not self.evaluate_during_training:
            self.monitor = None  # without a monitor the newest average counts as the best
        # an instance attribute over the class's: this saver's one file has the suffix that the
        # user chose
        self.FILE_EXTENSION = file.suffix
        # pytorch-accelerated's callback has these attributes from its saver of the best model
        self.reset_on_train = self.load_saved_checkpoint = False
        self._watched.name_resolver = resolve_metric_name
        self.prefix = prefix
        self.callbacks = collect_callbacks(callbacks)
        self._external_average_class = model_ema
        self._average = ExchangeableAverage(self._make_average)
        self._validation_callbacks = RestorableCallbacks(self.callbacks)
        # a save runs inside this context, so that its file has the averaged weights
        self.store.around = self._weights_to_save
        self._reset()

    def _reset(self) -> None:
        self._average.reset()
        self._validation_callbacks.reset()
        self._latest_update_epoch = -1
        self._is_validated = self._is_evaluated = False

    @property
    def state_key(self) -> str:
        """The class name with the decay, the metric, the mode, and the file's name."""
        return self._generate_state_key(
            decay=self.decay,
            watch_metric=self.watch_metric,
            mode=self.mode,
            name=self._file_name,
        )

    @property
    def ema_model(self) -> nn.Module | None:
        """The object that holds the average, as its `module`; None before the first fit."""
        return None if self._average.average is None else self._average.average.model

    @property
    def num_averaged(self) -> int:
        """The number of updates of the average."""
        return self._average.count

    def state_dict(self) -> dict[str, Any]:
        """Return the saver's state, the average, and the steps still to do with the average."""
        return {
            **super().state_dict(),
            "latest_update_epoch": self._latest_update_epoch,
            "is_validated": self._is_validated,
            "is_evaluated": self._is_evaluated,
            # the trainer saves no states of these, since they take no part in the training
            "callbacks": self._validation_callbacks.state_dict(),
            **self._average.state_dict(),
        }

    @checks_state(
        {
            "latest_update_epoch": int,
            "is_validated": bool,
            "is_evaluated": bool,
            "callbacks": dict[str, dict[str, Any]],
        },
        {
            "average": dict[str, Any],
            "average_extra": dict[str, Any],
            "average_buffers": dict[str, Any],
        },
    )
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state; the average is restored when the module is complete."""
        super().load_state_dict(state_dict)
        self._latest_update_epoch = state_dict["latest_update_epoch"]
        self._is_validated = state_dict["is_validated"]
        self._is_evaluated = state_dict["is_evaluated"]
        self._validation_callbacks.load_state_dict(state_dict["callbacks"])
        self._average.load_state_dict(state_dict)

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Check that no other callback interferes, and reset the state in a new training."""
        super().setup(trainer, module, stage)
        if stage != "fit":
            return
        require_whole_weights(trainer, self)
        require_no_owner(trainer, self)
        averages = [c for c in trainer.callbacks if isinstance(c, ModelEmaCallback)]
        validating = [c for c in averages if c.evaluate_during_training]
        # prefixes need not differ where nothing is validated: no metric has one then
        if self in validating and [c.prefix for c in validating].count(self.prefix) > 1:
            raise CallbackError(
                f"two {_WHERE} with the prefix {self.prefix!r}: each would log over the other's "
                "metrics. Give one of them another prefix=, and the watch_metric= that goes with "
                "it."
            )
        if trainer.progress.is_new_training:
            self._reset()

    @keeps_optimizers
    def on_after_load(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any] | None
    ) -> None:
        """Copy the module, which is complete and on its device now."""
        if trainer.state.fn == "fit":
            self._average.copy(module)

    def _make_average(self, module: Module) -> RunningAverage:
        if self._external_average_class is not None:
            return ExternalAverage(module, self.decay, self._external_average_class, _WHERE)
        average = get_ema_multi_avg_fn(self.decay)  # type: ignore[no-untyped-call]
        return _AverageFromStart(module, use_buffers=True, multi_avg_fn=average)

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Check that there is a validation, and start or go on with the saving."""
        if self.evaluate_during_training and not has_validation(trainer):
            raise UsageError(
                f"evaluate_during_training=True of {_WHERE} in a fit that has nothing to validate: "
                "pass fit val_dataloaders= and define validation_step, or save the average "
                "unseen with evaluate_during_training=False."
            )
        # the best average of an earlier fit still counts
        if not trainer.progress.is_new_training:
            super().on_fit_start(trainer, module)

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Check that `on_fit_start` of other callbacks has added no layers."""
        super().on_train_start(trainer, module)
        self._average.require_same_layers(module)

    def on_validation_run_end(self, trainer: Trainer, module: Module) -> None:
        """Note that the epoch has a validation."""
        self._is_validated = True

    def on_train_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Update the average, and validate the average if the epoch was validated."""
        # a resume may come to this hook of the same epoch again, which must not update twice
        if trainer.current_epoch > self._latest_update_epoch:
            self._average.copy(module).update(module)
            self._latest_update_epoch = trainer.current_epoch
        if self.evaluate_during_training and self._is_validated:
            with self._validation_callbacks.restoring_on_error(), self._average.in_place():
                trainer.validate_again(self.prefix, self.callbacks)
            # only after the validation: from a checkpoint saved during it a resume repeats it
            self._is_validated, self._is_evaluated = False, True

    def on_epoch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Save the average, if it is the best so far."""
        if self._is_evaluated or not self.evaluate_during_training:
            self._is_evaluated = False
            super().on_epoch_checkpoint(trainer, module)

    def on_save_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Swap weights and average in a checkpoint that is saved while the average is validated."""
        state = checkpoint.get("callbacks", {}).get(self.state_key)
        if state is not None and self._average.is_exchanged:
            # a resume trains on from state_dict, which must hold the training's own weights
            state["average"], checkpoint["state_dict"] = checkpoint["state_dict"], state["average"]
            module_buffers = checkpoint["trainer_hooks"].get("extra_buffers")
            if module_buffers is not None:
                averaged = module_buffers["changed"]
                module_buffers["changed"] = state.pop("average_buffers", {})
                state["average_buffers"] = averaged

    def _weights_to_save(self, plan: SavePlan) -> AbstractContextManager[None]:
        """Return the context for a save: averaged weights, or the training's own for a resume."""
        return nullcontext() if plan.is_temporary else self._average.in_place()


class _AverageFromStart(RunningAverage):
    """A running average that begins with the weights as they were copied, before the training."""

    def update(self, module: nn.Module) -> None:
        """Update the average with the module's present weights, also at the first time."""
        count = self.count + 1
        # torch's AveragedModel copies the weights while the count is 0
        self.count = count
        super().update(module)
        self.count = count


class RestorableCallbacks:
    """Callbacks whose states can be restored if an action that they take part in is broken off.

    Args:
        callbacks: the callbacks.

    State: the callbacks' states, by their keys.

    Raises:
        CallbackError: two callbacks that have a state have one key.
    """

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        # constructed for its check: it refuses two callbacks with one state key
        CallbackRegistry(CallbackEntry(callback, "user") for callback in callbacks)
        self._callbacks = callbacks
        self.reset()

    def reset(self) -> None:
        """Reset the snapshot of an action that was broken off."""
        self._before: dict[str, dict[str, Any]] | None = None

    @contextmanager
    def restoring_on_error(self) -> Iterator[None]:
        """Restore the callbacks' states if an exception leaves the context."""
        # a deep copy: a callback may go on writing into the state that it returned
        before = self._before = deepcopy(self._states())
        try:
            yield
        except BaseException:
            self.load_state_dict(before)
            raise
        finally:
            self._before = None

    def state_dict(self) -> dict[str, Any]:
        """Return the callbacks' states; within `restoring_on_error` those from before it."""
        # a state taken in the middle of the action would make the resumed run repeat a part of it
        return self._before or self._states()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the callbacks' states."""
        for callback in self._callbacks:
            if ours(callback).is_stateful and callback.state_key in state_dict:
                callback.load_state_dict(state_dict[callback.state_key])

    def _states(self) -> dict[str, dict[str, Any]]:
        return {c.state_key: c.state_dict() for c in self._callbacks if ours(c).is_stateful}
