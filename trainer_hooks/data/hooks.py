"""Where data comes from and how a batch moves: what a Module and a DataModule both may define."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.runtime import move_to_device

if TYPE_CHECKING:
    import torch

__all__ = ["DataHooks", "defines"]


class DataHooks:
    """Loaders, and the steps of a batch on its way to the device."""

    def prepare_data(self) -> None:
        """Download or convert; called once on each machine, before `setup`. Set no attributes."""

    def train_dataloader(self) -> Any:
        """Return the training loader: any iterable of batches, or a list or dict of loaders."""

    def val_dataloader(self) -> Any:
        """Return the validation loader, or a list of them, which are run one after another."""

    def test_dataloader(self) -> Any:
        """Return the test loader, or a list of them."""

    def predict_dataloader(self) -> Any:
        """Return the predict loader, or a list of them."""

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:  # noqa: ARG002
        """Return the batch, changed if you like, while it is still on the host."""
        return batch

    def transfer_batch_to_device(
        self,
        batch: Any,
        device: torch.device,
        dataloader_idx: int,  # noqa: ARG002
    ) -> Any:
        """Return the batch on `device`. Override it for a type that has no `to(device)`."""
        return move_to_device(batch, device)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:  # noqa: ARG002
        """Return the batch, changed if you like, now that it is on the device."""
        return batch


def defines(owner: object, name: str, base: type = DataHooks) -> bool:
    """Return whether `owner` has a `name` of its own, in its class or on itself, not `base`'s.

    One that is None is switched off.
    """
    if name in vars(owner):
        return vars(owner)[name] is not None
    own = getattr(type(owner), name)
    return own is not None and own is not getattr(base, name)
