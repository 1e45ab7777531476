"""State: what Composer's callbacks read of a training."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from trainer_hooks.compat.composer.absent import STATE
from trainer_hooks.compat.composer.core.batches import batch_get, batch_set
from trainer_hooks.compat.composer.core.times import Time, TimeUnit
from trainer_hooks.compat.composer.core.timestamp import Timestamp
from trainer_hooks.compat.refusing import lacking
from trainer_hooks.errors import OptionError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from trainer_hooks import callback
    from trainer_hooks.compat.composer.core.device import Device
    from trainer_hooks.compat.composer.core.precision import Precision

__all__ = ["State"]


class State:
    """How a training stands; the trainer makes it, and callbacks read it.

    Attributes:
        model: the model.
        run_name: the name of the run.
        device: what moves tensors to where the model is.
        precision: what the forward runs in.
        rank_zero_seed: the seed of the first process.
        timestamp: what is trained.
        previous_timestamp: the same, before the last batch, epoch or iteration was counted.
        eval_timestamp: what is evaluated of the loader under way.
        predict_timestamp: what is predicted.
        batch: the batch, or in the forward, loss and backward the microbatch. One that is put here
            before the forward is what the model is given.
        outputs: what the model returned for it; the loss is computed of what is here.
        loss: what `model.loss` returned for it.
        total_loss_dict: the losses of the last batch, as they were logged.
        train_metrics: metric objects of the training, by name.
        eval_metrics: those of the evaluations, by label and name.
        train_metric_values: what they were, last computed.
        eval_metric_values: likewise.
        metric_outputs: what `model.update_metric` returned last.
        optimizers: the optimizer, in a list.
        schedulers: the schedulers.
        callbacks: all callbacks, the logger destinations among them and first.
        algorithms: none, ever.
        evaluators: what is evaluated.
        train_dataloader: what gives the training batches.
        dataloader: the loader under way.
        dataloader_label: its label; `"train"` for the training.
        device_train_microbatch_size: how many samples a microbatch has at most.
        auto_microbatching: whether that is found by trying.
        save_metrics: False; metric objects are part of each checkpoint here.
        load_path: the checkpoint that the training goes on from.
        profiler: None; see `trainer_hooks.Trainer(profile_hooks=True)`.
        scaler: what scales the loss in half precision.
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
        self.device_train_microbatch_size: int | None = None
        self.auto_microbatching = False
        self.save_metrics = False
        self.load_path: str | None = None
        self.profiler = None
        self.scaler: Any = None
        self._max_duration: Time | None = None
        self.limit(max_duration)
        self._stop: Callable[[str], None] | None = None

    # --- how long ---

    @property
    def max_duration(self) -> Time | None:
        """How long to train."""
        return self._max_duration

    @max_duration.setter
    def max_duration(self, value: Time | str | int | None) -> None:
        self.limit(value)

    def limit(self, max_duration: Time | str | int | None) -> None:
        """Set how long to train, by a time, a text, or a number of epochs."""
        self._max_duration = None
        if max_duration is not None:
            time = Time.from_input(max_duration, TimeUnit.EPOCH)
            if time.unit is TimeUnit.DURATION:
                raise OptionError(
                    f"max_duration {max_duration!r}: a share of the training says nothing of its "
                    "length. Give it in epochs, batches, samples or tokens, as '10ep'."
                )
            self._max_duration = time

    def get_elapsed_duration(self) -> Time | None:
        """Return how much of the training is done, in `dur`; None where it has no length."""
        longest = self.max_duration
        if longest is None:
            return None
        done = self.timestamp.get(longest.unit)
        return Time(1.0, TimeUnit.DURATION) if not longest.value else done / longest

    def stop_training(self) -> None:
        """Stop after this batch: the training is then as long as it has become.

        Raises:
            UsageError: no trainer runs by this state.
        """
        if self._stop is None:
            raise UsageError(
                "state.stop_training(): no trainer goes by this state. Call it in a callback."
            )
        unit = TimeUnit.BATCH if self.max_duration is None else self.max_duration.unit
        # an epoch is too coarse: where the first is under way, that would be none
        self.max_duration = self.timestamp.get("ba" if unit is TimeUnit.EPOCH else unit)
        self._stop("state.stop_training() was called")

    def bind(self, stop: Callable[[str], None]) -> None:
        """Let `stop_training` call this; it is not kept alive."""
        held = weakref.WeakMethod(stop)

        def call(reason: str) -> None:
            method = held()
            if method is not None:
                method(reason)

        self._stop = call

    # --- the batch ---

    @property
    def loss(self) -> Any:
        """What `model.loss` returned for the microbatch."""
        return self._loss

    @loss.setter
    def loss(self, value: Any) -> None:
        raise UsageError(
            f"state.loss = {type(value).__qualname__}: the backward is that of what the model "
            "returned. Override loss() in the ComposerModel."
        )

    def keep_loss(self, loss: Any) -> None:
        """Keep what the model returned; the trainer calls this."""
        self._loss = loss

    def batch_get_item(self, key: Any) -> Any:
        """Return a part of the batch, by a key, several, or a function of the batch."""
        return batch_get(self.batch, key)

    def batch_set_item(self, key: Any, value: Any) -> None:
        """Replace a part of the batch, by a key, several, or a function of batch and value."""
        self.batch = batch_set(self.batch, key, value)

    # --- the loader under way ---

    def set_dataloader(
        self,
        dataloader: Any = None,
        dataloader_label: str | None = None,
        dataloader_len: int | Time = -1,
    ) -> None:
        """Note which loader is under way; the trainer calls this.

        Args:
            dataloader: it, or None.
            dataloader_label: its label.
            dataloader_len: how many of its batches are run; -1 for all.

        Raises:
            OptionError: there is a loader without a label.
        """
        if dataloader is not None and dataloader_label is None:
            raise OptionError("set_dataloader(dataloader): a loader needs a label. Pass one.")
        self.dataloader, self.dataloader_label = dataloader, dataloader_label
        number, known = int(dataloader_len), _length(dataloader)
        least = known if number < 0 else number if known is None else min(number, known)
        self._dataloader_len = None if least is None else Time(least, TimeUnit.BATCH)

    @property
    def dataloader_len(self) -> Time | None:
        """How many batches the loader under way gives; None where unknown."""
        return self._dataloader_len

    @dataloader_len.setter
    def dataloader_len(self, value: int | Time) -> None:
        self.set_dataloader(self.dataloader, self.dataloader_label, value)

    # --- processes ---

    @property
    def seed(self) -> int:
        """The seed of this process."""
        from trainer_hooks.compat.composer.utils import dist

        return self.rank_zero_seed + dist.get_global_rank()

    @property
    def is_model_ddp(self) -> bool:
        """Whether the model is wrapped for several processes: it never is, here."""
        return False

    def __getattr__(self, name: str) -> NoReturn:
        """Say what to use instead of what is not here."""
        raise lacking(self, name, STATE)


def _length(loader: Any) -> int | None:
    try:
        return None if loader is None else len(loader)
    except (TypeError, NotImplementedError):
        return None
