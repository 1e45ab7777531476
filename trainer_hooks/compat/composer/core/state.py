"""State and Device: the state of a training, which Composer's callbacks read."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import torch

from trainer_hooks.adapters.composer.state_changes import StateChanges
from trainer_hooks.compat.composer.core.time import Time, Timestamp, TimeUnit
from trainer_hooks.compat.composer.not_offered import STATE
from trainer_hooks.compat.composer.utils import dist
from trainer_hooks.compat.composer.utils.helpers import batch_get, batch_set
from trainer_hooks.compat.not_offered import not_offered_attribute
from trainer_hooks.errors import OptionError, UsageError
from trainer_hooks.runtime.nested_tensors import move_to_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from trainer_hooks import callback
    from trainer_hooks.compat.composer.core.precision import Precision

__all__ = ["Device", "State", "get_device"]

_KEPT = frozenset({"loss", "max_duration"})
"""The attributes whose value is kept apart, since callbacks that set them do more, or cannot."""


class State(StateChanges):
    """The state of a training; the trainer makes it, and callbacks read it.

    Attributes:
        model: the model.
        run_name: the name of the run.
        device: the device of the model.
        precision: the precision of the forward.
        rank_zero_seed: the seed of rank 0.
        timestamp: the batches, epochs, samples and tokens that are trained.
        previous_timestamp: the timestamp before the last batch, epoch or iteration was counted.
        eval_timestamp: the counts of the loader that is evaluated.
        predict_timestamp: the counts of the prediction.
        batch: the batch, or in the forward, loss and backward the microbatch. A callback that sets
            it before the forward replaces the model's input.
        outputs: the model's outputs for the batch; a callback that sets them before the loss
            replaces the input of `model.loss`.
        loss: the value that `model.loss` returned for the batch.
        total_loss_dict: the losses of the last batch, by the names they were logged under.
        train_metrics: the metric objects of the training, by name.
        eval_metrics: the metric objects of the evaluations, by label and name.
        train_metric_values: the values last computed of `train_metrics`, by name.
        eval_metric_values: the values last computed of `eval_metrics`, by name.
        metric_outputs: the value that `model.update_metric` returned last.
        optimizers: the optimizer, in a list.
        schedulers: the schedulers.
        callbacks: all callbacks, with the logger destinations first.
        algorithms: an empty list.
        evaluators: the evaluators.
        train_dataloader: the loader of training batches.
        dataloader: the loader that is used now.
        dataloader_label: the label of that loader; `"train"` for the training.
        device_train_microbatch_size: the most samples of a microbatch.
        auto_microbatching: whether that number is found by trying.
        save_metrics: False; metric objects are part of each checkpoint here.
        load_path: the checkpoint that the training resumes from.
        profiler: None; see `trainer_hooks.Trainer(profile_hooks=True)`.
        scaler: the loss scaler of half precision.
    """

    def __init__(
        self,
        model: Any,
        run_name: str,
        *,
        device: Device,
        precision: Precision,
        rank_zero_seed: int = 0,
        max_duration: Time | str | int | None = None,
        callbacks: Iterable[callback.Callback] = (),
    ) -> None:
        self.model: Any = model
        self.run_name = run_name
        self.device = device
        self.precision = precision
        self.rank_zero_seed = rank_zero_seed
        self.timestamp = Timestamp()
        self.previous_timestamp: Timestamp | None = None
        self.eval_timestamp = Timestamp()
        self.predict_timestamp = Timestamp()
        self.batch: Any = None
        # empty before the first batch, as in Composer
        self.outputs: Any = torch.Tensor()
        self._loss: Any = torch.Tensor()
        self.total_loss_dict: dict[str, float] = {}
        self.train_metrics: dict[str, Any] = {}
        self.eval_metrics: dict[str, dict[str, Any]] = {}
        self.train_metric_values: dict[str, Any] = {}
        self.eval_metric_values: dict[str, Any] = {}
        self.metric_outputs: dict[str, Any] = {}
        self.optimizers: list[Optimizer] = []
        self.schedulers: list[LRScheduler] = []
        self.callbacks: list[callback.Callback] = list(callbacks)
        self.algorithms: list[NoReturn] = []
        self.evaluators: list[Any] = []
        self.train_dataloader: Any = None
        self.dataloader: Any = None
        self.dataloader_label: str | None = None
        self._dataloader_len: Time | None = None
        self.device_train_microbatch_size = None
        self.auto_microbatching = False
        self.save_metrics = False
        self.load_path: str | None = None
        self.profiler = None
        self.scaler: Any = None
        self._max_duration: Time | None = None
        self._trainer: Callable[[], Any] = lambda: None
        self._epochs_broken_off = 0
        self.max_duration = max_duration

    # --- duration ---

    @property
    def max_duration(self) -> Time | None:
        """How long to train; set by a time, a text, or a number of epochs.

        Set in a callback, it makes the fit under way longer or shorter. If so much is trained
        already, the fit stops after this batch, or at `EPOCH_START` after the epoch's first.
        """
        return self._max_duration

    @max_duration.setter
    def max_duration(self, value: Time | str | int | None) -> None:
        time = None if value is None else Time.from_input(value, TimeUnit.EPOCH)
        if time is not None and time.unit is TimeUnit.DURATION:
            raise OptionError(
                f"max_duration {value!r}: a share of the training says nothing of its length. Give "
                "it in epochs, batches, samples or tokens, as '10ep'."
            )
        self._max_duration = time
        trainer = self._trainer()
        if trainer is not None and time is not None:
            reason = f"state.max_duration was set to {str(time)!r}"
            self.apply_max_duration(trainer, time, reason, self._epochs_broken_off)

    def get_elapsed_duration(self) -> Time | None:
        """Return the share of the training that is done, in `dur`; None if it has no length."""
        longest = self.max_duration
        if longest is None:
            return None
        done = self.timestamp.get(longest.unit)
        # a duration of zero is over, and no error of division
        return Time(1.0, TimeUnit.DURATION) if not longest.value else done / longest

    def stop_training(self) -> None:
        """Stop after this batch, and set `max_duration` to the present count.

        At `EPOCH_START` the first batch of the epoch is still trained.

        Raises:
            UsageError: the state belongs to no trainer.
        """
        trainer = self._trainer()
        if trainer is None:
            raise UsageError(
                "state.stop_training(): no trainer goes by this state. Call it in a callback."
            )
        unit = TimeUnit.BATCH if self.max_duration is None else self.max_duration.unit
        # not in epochs: inside the first one that would be a duration of zero
        # past the setter, whose reason for the stop would be another
        self._max_duration = self.timestamp.get("ba" if unit is TimeUnit.EPOCH else unit)
        self.request_stop(trainer, "state.stop_training() was called")

    def bind(self, trainer: Any, epochs_broken_off: int = 0) -> None:
        """Set the trainer that goes by this state; the reference to it is weak.

        Args:
            trainer: the trainer of trainer_hooks.
            epochs_broken_off: how many epochs that were broken off the trainer counts, and the
                timestamp does not.
        """
        # weak, since callbacks and loggers hold the state, and must not keep the trainer alive
        self._trainer = weakref.ref(trainer)
        self._epochs_broken_off = epochs_broken_off

    # --- the batch ---

    @property
    def loss(self) -> Any:
        """The value that `model.loss` returned for the microbatch; it cannot be set."""
        return self._loss

    @loss.setter
    def loss(self, value: Any) -> None:
        raise UsageError(
            f"state.loss = {type(value).__qualname__}: the backward is that of what the model "
            "returned. Override loss() in the ComposerModel."
        )

    def keep(self, name: str, value: Any) -> None:
        """Set an attribute on behalf of the trainer, with no effect but that it is shown."""
        setattr(self, f"_{name}" if name in _KEPT else name, value)

    def batch_get_item(self, key: Any) -> Any:
        """Return a part of the batch, by a key, several keys, or a function of the batch."""
        return batch_get(self.batch, key)

    def batch_set_item(self, key: Any, value: Any) -> None:
        """Replace a part of the batch, by a key, several keys, or a function of batch and value."""
        self.batch = batch_set(self.batch, key, value)

    # --- the present loader ---

    def set_dataloader(
        self,
        dataloader: Any = None,
        dataloader_label: str | None = None,
        dataloader_len: int | Time = -1,
    ) -> None:
        """Set the loader that is used now; the trainer calls this.

        Args:
            dataloader: the loader, or None.
            dataloader_label: the label of the loader.
            dataloader_len: the number of its batches that are used; -1 for all.

        Raises:
            OptionError: the loader has no label.
            UsageError: a callback calls it, whose loader the fit would not use.
        """
        self.require_own_dataloader()
        if dataloader is not None and dataloader_label is None:
            raise OptionError("set_dataloader(dataloader): a loader needs a label. Pass one.")
        self.dataloader, self.dataloader_label = dataloader, dataloader_label
        length, most = _loader_length(dataloader), int(dataloader_len)
        if most >= 0:
            length = most if length is None else min(most, length)
        self._dataloader_len = None if length is None else Time(length, TimeUnit.BATCH)

    @property
    def dataloader_len(self) -> Time | None:
        """The number of batches of the present loader; None if unknown."""
        return self._dataloader_len

    @dataloader_len.setter
    def dataloader_len(self, value: int | Time) -> None:
        self.set_dataloader(self.dataloader, self.dataloader_label, value)

    # --- processes ---

    @property
    def seed(self) -> int:
        """The seed of this process."""
        return self.rank_zero_seed + dist.get_global_rank()

    @property
    def is_model_ddp(self) -> bool:
        """Whether the model is wrapped for several processes: never here."""
        return False

    def __getattr__(self, name: str) -> NoReturn:
        """Raise an error for an unknown attribute; it names a replacement for one of Composer's."""
        raise not_offered_attribute(self, name, STATE)


def _loader_length(loader: Any) -> int | None:
    try:
        # a DataLoader of an iterable data set has a __len__, which raises a TypeError
        return None if loader is None else len(loader)
    except (TypeError, NotImplementedError):
        return None


_TORCH_DEVICE_TYPES = {"cpu": "cpu", "gpu": "cuda", "mps": "mps"}

M = TypeVar("M", bound=torch.nn.Module)


class Device:
    """The device of the model, by Composer's name.

    Args:
        name: `"cpu"`, `"gpu"`, `"mps"`, or None for the best that there is.

    Attributes:
        name: Composer's name of the device.
        torch_device: the device.

    Raises:
        OptionError: the name is another one.
    """

    def __init__(self, name: str | None = None) -> None:
        if name is None:
            has_mps = torch.backends.mps.is_available()
            name = "gpu" if torch.cuda.is_available() else "mps" if has_mps else "cpu"
        if name not in _TORCH_DEVICE_TYPES:
            raise OptionError(
                f"Trainer(device={name!r}): must be 'cpu', 'gpu' or 'mps', or None for the best "
                "that there is. Choose one."
            )
        self.name = name
        self.torch_device = torch.device(_TORCH_DEVICE_TYPES[name])

    def tensor_to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor on the device."""
        return tensor.to(self.torch_device)

    def batch_to_device(self, batch: Any) -> Any:
        """Return a batch with its tensors on the device."""
        return move_to_device(batch, self.torch_device)

    def module_to_device(self, module: M) -> M:
        """Return a module on the device."""
        return module.to(self.torch_device)

    def optimizer_to_device(self, optimizer: Optimizer) -> Optimizer:
        """Return an optimizer with its state on the device."""
        for parameter, state in optimizer.state.items():
            optimizer.state[parameter] = move_to_device(state, self.torch_device)
        return optimizer

    def __repr__(self) -> str:
        return f"Device({self.name!r})"


def get_device(device: str | Device | None = None) -> Device:
    """Return a device by Composer's name; without one the best that there is.

    Args:
        device: `"cpu"`, `"gpu"` or `"mps"`, or a device.

    Raises:
        OptionError: the name is another one.
    """
    return device if isinstance(device, Device) else Device(device)
