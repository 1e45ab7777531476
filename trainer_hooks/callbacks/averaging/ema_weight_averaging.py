"""EMAWeightAveraging: an exponential moving average of the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.optim.swa_utils import get_ema_multi_avg_fn

from trainer_hooks.callbacks.averaging.average import check_decay
from trainer_hooks.callbacks.averaging.weight_averaging import WeightAveraging
from trainer_hooks.callbacks.monitoring import check_count
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    import torch

__all__ = ["EMAWeightAveraging"]

_WHERE = "EMAWeightAveraging"


class EMAWeightAveraging(WeightAveraging):
    """Keep an exponential moving average of the weights, and evaluate with it.

    Each update makes the average `decay` times itself plus `1 - decay` times the weights; the first
    takes them as they are. All else is `WeightAveraging`'s.

    It is updated after the steps that `update_every_n_steps` and `update_starting_at_step` choose,
    and at the end of the epochs that `update_starting_at_epoch` chooses: these add up. To average
    at the end of epochs alone, pass `update_every_n_steps=0`.

    Args:
        device: where the average is kept; where the module is unless given.
        use_buffers: whether buffers are averaged too; if not, those of the last update are kept.
        decay: the share of the old average in a new one, from 0 to 1.
        update_every_n_steps: it is updated after steps whose index is a multiple of this; 0 for
            none.
        update_starting_at_step: the index of the first step after which it is; the first unless
            given.
        update_starting_at_epoch: the index of the first epoch at whose end it is; at no epoch's end
            unless given.

    Attributes:
        decay: as given.
        update_every_n_steps: as given.
        update_starting_at_step: as given.
        update_starting_at_epoch: as given.

    State: as `WeightAveraging`.

    Raises:
        OptionError: an argument is outside its rule, or there would never be an update.

    Example::

        trainer = Trainer(max_epochs=2, callbacks=[EMAWeightAveraging(decay=0.99)])
        trainer.fit(module, train_loader, val_loader)
    """

    def __init__(
        self,
        device: torch.device | str | int | None = None,
        use_buffers: bool = True,
        decay: float = 0.999,
        update_every_n_steps: int = 1,
        update_starting_at_step: int | None = None,
        update_starting_at_epoch: int | None = None,
    ) -> None:
        check_decay(decay, _WHERE)
        check_count("update_every_n_steps", update_every_n_steps, _WHERE)
        for name, start in (
            ("update_starting_at_step", update_starting_at_step),
            ("update_starting_at_epoch", update_starting_at_epoch),
        ):
            if start is not None:
                check_count(name, start, _WHERE)
        if update_every_n_steps == 0 and update_starting_at_epoch is None:
            raise OptionError(
                f"update_every_n_steps {update_every_n_steps!r} of {_WHERE}: without "
                "update_starting_at_epoch nothing would ever be averaged. Pass one of them."
            )
        average = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
        super().__init__(device, use_buffers, multi_avg_fn=average)
        self.decay = decay
        self.update_every_n_steps = update_every_n_steps
        self.update_starting_at_step = update_starting_at_step
        self.update_starting_at_epoch = update_starting_at_epoch

    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
        """Return whether to average after this step or epoch, by the arguments."""
        every, first = self.update_every_n_steps, self.update_starting_at_step
        if step_idx is not None and every and step_idx % every == 0 and step_idx >= (first or 0):
            return True
        start = self.update_starting_at_epoch
        return epoch_idx is not None and start is not None and epoch_idx >= start
