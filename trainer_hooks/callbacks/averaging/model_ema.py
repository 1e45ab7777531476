"""ModelEmaCallback: validate an average of the weights beside the training, and save the best."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

from torch.optim.swa_utils import get_ema_multi_avg_fn

from trainer_hooks.callbacks.averaging.average import Average, check_decay
from trainer_hooks.callbacks.averaging.beside import AverageBeside
from trainer_hooks.callbacks.averaging.companions import Companions
from trainer_hooks.callbacks.averaging.kept_average import KeptAverage
from trainer_hooks.callbacks.metric_names import name_of_metric
from trainer_hooks.callbacks.monitoring import check_choice, check_monitor, has_validation
from trainer_hooks.callbacks.saving.model_checkpoint import ModelCheckpoint
from trainer_hooks.callbacks.saving.one_file import OneFile
from trainer_hooks.callbacks.saving.saver_options import check_flags
from trainer_hooks.callbacks.weight_owner import require_no_owner, require_whole_weights
from trainer_hooks.connector import collect
from trainer_hooks.errors import CallbackError, OptionError, UsageError
from trainer_hooks.hooks import Band, Hooks

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager

    from torch import nn

    from trainer_hooks.callback import Callback
    from trainer_hooks.callbacks.saving.saved_files import Plan
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["ModelEmaCallback"]

_WHERE = "ModelEmaCallback"


class ModelEmaCallback(ModelCheckpoint):
    """Keep an exponential moving average of the weights, validate it too, and save the best one.

    At the end of each epoch the average becomes `decay` times itself plus `1 - decay` times the
    weights, buffers such as the statistics of BatchNorm included; the first epoch's are taken as
    they are. An epoch that had a validation then has another one, of the averaged weights, over all
    validation loaders. What the module logs in it has the prefix `ema_model_`, for the loggers, the
    history and callbacks: `val_loss` becomes `ema_model_val_loss`. Only the module's own hooks and
    those of `callbacks` fire in it. The training goes on with its own weights as if nothing had
    been, and ends with them.

    The averaged weights alone are in the file, which loads into a plain module. To stop early or
    to schedule a learning rate by a metric of the average, name it:
    `EarlyStopping("ema_model_val_loss", check_on_train_epoch_end=True)`. To have the average in
    the place of the weights while fit validates, take `EMAWeightAveraging`.

    Args:
        decay: the share of the old average in a new one, from 0 to 1.
        evaluate_during_training: whether the average is validated, and only the best one saved;
            if not, the file is replaced after each epoch.
        save_path: the file; a relative path is one in the present folder.
        watch_metric: the metric that says which average is the best. `ema_model_eval_loss_epoch`
            stands for `ema_model_val_loss` where nothing of that name was logged.
        greater_is_better: whether larger values are better.
        model_ema: what keeps the average in place of this callback: a class that is called with
            the module and `decay=`, such as `timm.utils.ModelEmaV2`. It must be an `nn.Module` with
            the average in its attribute `module` and a method `update(module)`.
        callbacks: whose validation hooks fire while the average is validated; they take no part in
            the training, unless the trainer was given them too.
        prefix: what is put before the names of the average's metrics; two of these callbacks that
            validate need two.

    Attributes:
        decay: as given.
        evaluate_during_training: as given.
        callbacks: as given.
        prefix: as given.

    State: the average, the epoch that was last averaged after, the path and the score of the best,
    and the state of `callbacks`.

    Raises:
        OptionError: an argument is outside its rule.
        CallbackError: in a run, another callback replaces the module's weights or layers, or two of
            these have one prefix.
        UsageError: in a run, there is nothing to validate.
        MetricError: in a run, the metric was not logged or is no single number.

    Example::

        ema = ModelEmaCallback(decay=0.9, save_path="ema.pt")
        trainer = Trainer(max_epochs=2, callbacks=[ema])
        trainer.fit(module, train_loader, val_loader)
        print(trainer.callback_metrics["ema_model_val_loss"], ema.best_model_score)
    """

    # the average and its metrics are there for all that act or save at the end of an epoch
    band: ClassVar[Band] = Band.TRANSFORM

    on_batch_checkpoint = Hooks.on_batch_checkpoint  # it saves after epochs alone

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
        self.decay = check_decay(decay, _WHERE)
        self.evaluate_during_training: bool = check_choice(
            "evaluate_during_training", evaluate_during_training, _WHERE, (True, False)
        )
        if model_ema is not None and not callable(model_ema):
            raise OptionError(
                f"model_ema {model_ema!r} of {_WHERE}: it must be a class that keeps an average. "
                "Pass one, or None."
            )
        check_flags(_WHERE, greater_is_better=greater_is_better)
        self.watch_metric = check_monitor(watch_metric, _WHERE)
        self._file = OneFile(save_path, _WHERE)
        super().__init__(
            self._file.folder,
            monitor=watch_metric,
            mode="max" if greater_is_better else "min",
            save_weights_only=True,
            enable_version_counter=False,
            save_on_train_epoch_end=True,
        )
        if not self.evaluate_during_training:
            self.monitor = None  # the newest is the best
        self.FILE_EXTENSION = self._file.suffix
        self.reset_on_train = self.load_saved_checkpoint = False
        self._watched.found_as = name_of_metric
        self.prefix = _check_prefix(prefix)
        self.callbacks = collect(callbacks)
        self._make = model_ema
        self._beside = AverageBeside(self._made)
        self._companions = Companions(self.callbacks)
        self._writer.around = self._averaged
        self._restart()

    def _restart(self) -> None:
        self._beside.forget()
        self._companions.forget()
        self._latest_update_epoch = -1
        self._is_validated = self._is_evaluated = False

    @property
    def state_key(self) -> str:
        """The class with the decay, what it watches, which values are better, and the file."""
        return self._generate_state_key(
            decay=self.decay,
            watch_metric=self.watch_metric,
            mode=self.mode,
            name=self._file.stem + self.FILE_EXTENSION,
        )

    @property
    def ema_model(self) -> nn.Module | None:
        """What keeps the average: its `module` is the averaged one. None before the first fit."""
        return None if self._beside.average is None else self._beside.average.model

    @property
    def num_averaged(self) -> int:
        """How many times weights were averaged in."""
        return 0 if self._beside.average is None else self._beside.average.count

    def state_dict(self) -> dict[str, Any]:
        """Return the books of the saved file, the average, and what is still to be done with it."""
        return {
            **super().state_dict(),
            "latest_update_epoch": self._latest_update_epoch,
            "is_validated": self._is_validated,
            "is_evaluated": self._is_evaluated,
            "callbacks": self._companions.state_dict(),
            **self._beside.state_dict(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take it back; the average, when the module is where it is to be."""
        super().load_state_dict(state_dict)
        self._latest_update_epoch = state_dict["latest_update_epoch"]
        self._is_validated = state_dict["is_validated"]
        self._is_evaluated = state_dict["is_evaluated"]
        self._companions.load_state_dict(state_dict["callbacks"])
        self._beside.load_state_dict(state_dict)

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Make sure that nobody is in the way, and begin anew in a new training."""
        super().setup(trainer, module, stage)
        if stage != "fit":
            return
        require_whole_weights(trainer, self)
        require_no_owner(trainer, self)
        others = [one for one in trainer.callbacks if isinstance(one, ModelEmaCallback)]
        validating = [one for one in others if one.evaluate_during_training]
        if self in validating and [one.prefix for one in validating].count(self.prefix) > 1:
            raise CallbackError(
                f"two {_WHERE} with the prefix {self.prefix!r}: each would log over the other's "
                "metrics. Give one of them another prefix=, and the watch_metric= that goes with "
                "it."
            )
        if trainer.progress.is_fresh:
            self._restart()

    def on_after_load(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any] | None
    ) -> None:
        """Copy the module, now that it is whole and where it is to be."""
        if trainer.state.fn == "fit":
            self._beside.copy(module)

    def _made(self, module: Module) -> Average:
        if self._make is not None:
            return KeptAverage(module, self.decay, self._make, _WHERE)
        average = get_ema_multi_avg_fn(self.decay)  # type: ignore[no-untyped-call]
        return Average(module, use_buffers=True, multi_avg_fn=average)

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Begin anew or go on, if there is something to validate."""
        if self.evaluate_during_training and not has_validation(trainer):
            raise UsageError(
                f"evaluate_during_training=True of {_WHERE} in a fit that has nothing to validate: "
                "pass fit val_dataloaders= and define validation_step, or save the average "
                "unseen with evaluate_during_training=False."
            )
        # what was the best in an earlier fit still counts
        if trainer.ckpt_path is not None or not trainer.progress.is_fresh:
            super().on_fit_start(trainer, module)

    def on_validation_run_end(self, trainer: Trainer, module: Module) -> None:
        """Note that the epoch has a validation."""
        self._is_validated = True

    def on_train_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Average the epoch's weights in, and validate the average if the epoch was validated."""
        if trainer.current_epoch > self._latest_update_epoch:
            self._beside.copy(module).update(module)
            self._latest_update_epoch = trainer.current_epoch
        if self.evaluate_during_training and self._is_validated:
            with self._companions.attempt(), self._beside.in_place():
                trainer.validate_again(self.prefix, self.callbacks)
            self._is_validated, self._is_evaluated = False, True

    def on_epoch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Save the average, if it is the best so far."""
        if self._is_evaluated or not self.evaluate_during_training:
            self._is_evaluated = False
            super().on_epoch_checkpoint(trainer, module)

    def on_save_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Let a checkpoint that is saved amid the average's validation have each in its place."""
        own = checkpoint.get("callbacks", {}).get(self.state_key)
        if own is not None and self._beside.is_exchanged:
            own["average"], checkpoint["state_dict"] = checkpoint["state_dict"], own["average"]

    def candidates(self, trainer: Trainer) -> list[str]:
        """Return the file, if it is there, and what was saved for now before leaving."""
        path, found = self.format_checkpoint_name(), super().candidates(trainer)
        return self._file.among(path, found, self.CHECKPOINT_NAME_PREEMPTED)

    def format_checkpoint_name(
        self,
        metrics: Mapping[str, Any] | None = None,
        filename: str | None = None,
        ver: int | None = None,
    ) -> str:
        """Return the path of the file whatever the metrics, or that of another one beside it."""
        if filename is None:
            metrics, filename = {}, self._file.stem
        return super().format_checkpoint_name(metrics or {}, filename, ver)

    def _averaged(self, plan: Plan) -> AbstractContextManager[None]:
        """Have the averaged weights written; what a resume begins from has the training's own."""
        return nullcontext() if plan.is_for_now else self._beside.in_place()


def _check_prefix(prefix: object) -> str:
    if not isinstance(prefix, str) or not prefix:
        raise OptionError(
            f"prefix {prefix!r} of {_WHERE}: it must be a text that tells the average's "
            "metrics from the module's. Pass one, such as 'ema_model_'."
        )
    return prefix
