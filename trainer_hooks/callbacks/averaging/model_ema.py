"""ModelEmaCallback: validate an average of the weights beside the training, and save the best."""

from __future__ import annotations

from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar

from torch.optim.swa_utils import get_ema_multi_avg_fn

from trainer_hooks.callbacks.averaging.average import Average, check_decay
from trainer_hooks.callbacks.averaging.kept_average import KeptAverage
from trainer_hooks.callbacks.monitoring import check_choice, has_validation
from trainer_hooks.callbacks.saving.save_best_model import SaveBestModelCallback
from trainer_hooks.callbacks.weight_owner import require_no_owner
from trainer_hooks.connector import Entry, Roster, collect
from trainer_hooks.errors import CallbackError, OptionError, UsageError
from trainer_hooks.hooks import Band, Hooks

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator

    from torch import nn

    from trainer_hooks.callback import Callback
    from trainer_hooks.callbacks.saving.ranking import Books
    from trainer_hooks.callbacks.saving.saved_files import Plan
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["ModelEmaCallback"]

_WHERE = "ModelEmaCallback"


class ModelEmaCallback(SaveBestModelCallback):
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
        super().__init__(
            save_path,
            watch_metric,
            greater_is_better,
            reset_on_train=False,
            save_optimizer=False,
            save_scheduler=False,
            load_saved_checkpoint=False,
        )
        if not self.evaluate_during_training:
            self.monitor = None  # the newest is the best
        if not isinstance(prefix, str) or not prefix:
            raise OptionError(
                f"prefix {prefix!r} of {_WHERE}: it must be a text that tells the average's "
                "metrics from the module's. Pass one, such as 'ema_model_'."
            )
        self.prefix = prefix
        self.callbacks = collect(callbacks)
        Roster(Entry(callback, "user") for callback in self.callbacks)  # no two with one key
        self._make = model_ema
        self._restart()

    def _restart(self) -> None:
        self._average: Average | None = None
        self._owner: Module | None = None
        self._pending: dict[str, Any] | None = None
        self._is_exchanged = False
        self._states_before: dict[str, dict[str, Any]] | None = None
        self._latest_update_epoch = -1
        self._is_validated = self._is_evaluated = False

    @property
    def state_key(self) -> str:
        """The class with the decay, what it watches, which values are better, and the file."""
        return self._generate_state_key(
            decay=self.decay,
            watch_metric=self.watch_metric,
            mode=self.mode,
            name=self._name + self.FILE_EXTENSION,
        )

    @property
    def ema_model(self) -> nn.Module | None:
        """What keeps the average: its `module` is the averaged one. None before the first fit."""
        return None if self._average is None else self._average.model

    @property
    def num_averaged(self) -> int:
        """How many times weights were averaged in."""
        return 0 if self._average is None else self._average.count

    def state_dict(self) -> dict[str, Any]:
        """Return the books of the saved file, the average, and what is still to be done with it."""
        state = {
            **super().state_dict(),
            "latest_update_epoch": self._latest_update_epoch,
            "is_validated": self._is_validated,
            "is_evaluated": self._is_evaluated,
            "callbacks": self._states_before or self._callback_states(),
        }
        if self._pending is not None:
            state |= {name: self._pending[name] for name in ("average", "average_extra")}
        elif self._average is not None:
            state["average"] = dict(self._average.state_dict())
            state["average_extra"] = self._average.extra_state()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take it back; the average, when the module is where it is to be."""
        super().load_state_dict(state_dict)
        self._latest_update_epoch = state_dict["latest_update_epoch"]
        self._is_validated = state_dict["is_validated"]
        self._is_evaluated = state_dict["is_evaluated"]
        self._load_callback_states(state_dict["callbacks"])
        self._pending = state_dict if "average" in state_dict else None

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Make sure that nobody is in the way, and begin anew in a new training."""
        super().setup(trainer, module, stage)
        if stage != "fit":
            return
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
        if trainer.state.fn != "fit":
            return
        if self._average is None or self._owner is not module:
            self._owner, self._average = module, self._made(module)
        if self._pending is not None:
            self._average.load(self._pending["average"], self._pending["average_extra"])
            self._pending = None

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
        super().on_fit_start(trainer, module)

    def on_validation_run_end(self, trainer: Trainer, module: Module) -> None:
        """Note that the epoch has a validation."""
        self._is_validated = True

    def on_train_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Average the epoch's weights in, and validate the average if the epoch was validated."""
        assert self._average is not None
        if trainer.current_epoch > self._latest_update_epoch:
            self._average.update(module)
            self._latest_update_epoch = trainer.current_epoch
        if self.evaluate_during_training and self._is_validated:
            self._states_before = deepcopy(self._callback_states())
            try:
                with self._averaged_weights():
                    trainer.validate_again(self.prefix, self.callbacks)
            except BaseException:
                self._load_callback_states(self._states_before)
                raise
            finally:
                self._states_before = None
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
        if own is not None and self._is_exchanged:
            own["average"], checkpoint["state_dict"] = checkpoint["state_dict"], own["average"]

    def write(self, trainer: Trainer, plan: Plan, books: Books) -> None:
        """Write the averaged weights; what a resume is to begin from has the training's own."""
        if plan.is_for_now:
            super().write(trainer, plan, books)
            return
        with self._averaged_weights():
            super().write(trainer, plan, books)

    @contextmanager
    def _averaged_weights(self) -> Iterator[None]:
        """Let the module have the averaged weights, and then its own again, bit for bit."""
        average, module = self._average, self._owner
        if average is None or module is None or not average.count or self._is_exchanged:
            yield
            return
        average.exchange(module)
        self._is_exchanged = True
        try:
            yield
        finally:
            average.exchange(module)
            self._is_exchanged = False

    def _callback_states(self) -> dict[str, dict[str, Any]]:
        return {one.state_key: one.state_dict() for one in self.callbacks if one.is_stateful}

    def _load_callback_states(self, states: dict[str, dict[str, Any]]) -> None:
        for callback in self.callbacks:
            if callback.is_stateful and callback.state_key in states:
                callback.load_state_dict(states[callback.state_key])
