"""Hooks of a Module or DataModule for loaders and batch transfer, and the transfer itself."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._names import names_left_to_user
from trainer_hooks.errors import DataError
from trainer_hooks.runtime.nested_tensors import lies_on, map_tensors, move_to_device

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from trainer_hooks.runtime.precision import Precision


class DataHooks:
    """Hooks that return the loaders, and hooks that move a batch to the device."""

    def prepare_data(self) -> None:
        """Download or convert data, called once per node before `setup`. Set no attributes here."""

    def train_dataloader(self) -> Any:
        """Return the training loader: any iterable of batches, or a list or dict of loaders."""

    def val_dataloader(self) -> Any:
        """Return the validation loader, or a list of loaders to run one after another."""

    def test_dataloader(self) -> Any:
        """Return the test loader, or a list of loaders to run one after another."""

    def predict_dataloader(self) -> Any:
        """Return the predict loader, or a list of loaders to run one after another."""

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:  # noqa: ARG002
        """Return the batch, changed if you like, before its transfer to the device."""
        return batch

    def transfer_batch_to_device(
        self,
        batch: Any,
        device: torch.device,
        dataloader_idx: int,  # noqa: ARG002
    ) -> Any:
        """Return the batch on `device`. Override it for a type without a method `to(device)`."""
        return move_to_device(batch, device)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:  # noqa: ARG002
        """Return the batch, changed if you like, after its transfer to the device."""
        return batch


def defines(owner: object, name: str, base: type = DataHooks) -> bool:
    """Return whether `owner` overrides `name` of `base`, in its class or on the instance.

    A hook that is set to None counts as not overridden.
    """
    if name in names_left_to_user(type(owner)):
        return False
    if name in vars(owner):
        return vars(owner)[name] is not None
    # both are read from classes, where a method is one function: bound methods are new objects
    override = getattr(type(owner), name)
    return override is not None and override is not getattr(base, name)


_TRANSFER_HOOKS = (
    "on_before_batch_transfer",
    "transfer_batch_to_device",
    "on_after_batch_transfer",
)


class BatchTransfer:
    """Move batches to the device through the transfer hooks of the module or the data module.

    Args:
        module: the module of the run.
        datamodule: the data module, or None. A hook that it overrides is used in place of the
            module's.
        device: target of the transfer.
        precision: precision to convert floating-point tensors to.
        context_of_hooks: returns a context for calls of overridden hooks.

    Attributes:
        is_needed: whether the transfer can change a batch; if not, loops omit the call.
        copy_stream: runs copies to a GPU beside the step; None if overridden hooks may compute.
    """

    def __init__(
        self,
        module: DataHooks,
        datamodule: DataHooks | None,
        device: torch.device,
        precision: Precision,
        context_of_hooks: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._device = device
        self._convert = precision.convert_batch
        self._before = _select_hook("on_before_batch_transfer", module, datamodule)
        self._move = _select_hook("transfer_batch_to_device", module, datamodule)
        self._after = _select_hook("on_after_batch_transfer", module, datamodule)
        self._context_of_hooks = context_of_hooks
        self._overridden = [
            f"{type(owner).__qualname__}.{name}"
            for owner in (module, datamodule)
            for name in _TRANSFER_HOOKS
            if owner is not None and defines(owner, name)
        ]
        self.is_needed = (
            bool(self._overridden) or device.type != "cpu" or precision.converts_batches
        )

        self.copy_stream: CopyStream | None = None
        # an overridden hook may compute on the batch, which must happen on the stream of the step
        if device.type == "cuda" and not self._overridden:
            self.copy_stream = CopyStream(device)

    def __call__(self, batch: Any, dataloader_idx: int = 0) -> Any:
        """Return the batch on the device."""
        if self.copy_stream is not None:
            # no hook is overridden. The conversion computes, so it runs on the stream of the step
            return self._convert(self.copy_stream(self._move, batch, self._device, dataloader_idx))
        if self._overridden:
            with self._context_of_hooks():
                return self._run_hooks(batch, dataloader_idx)
        return self._run_hooks(batch, dataloader_idx)

    def _run_hooks(self, batch: Any, dataloader_idx: int) -> Any:
        """Return the batch after all three hooks and the conversion.

        Raises:
            DataError: a hook returned None.
        """
        was_none = batch is None
        batch = self._before(batch, dataloader_idx)
        batch = self._move(batch, self._device, dataloader_idx)
        batch = self._after(batch, dataloader_idx)
        if batch is None and not was_none:
            raise DataError(
                f"one of {', '.join(self._overridden)} returned None: such a hook must return the "
                "batch. End it with `return batch`."
            )
        # the conversion comes last: the hooks get the types that the loader yields
        return self._convert(batch)


def _select_hook(name: str, module: DataHooks, datamodule: DataHooks | None) -> Callable[..., Any]:
    """Return the data module's hook if it overrides it, else the module's."""
    if datamodule is not None and defines(datamodule, name):
        return getattr(datamodule, name)  # type: ignore[no-any-return]
    return getattr(module, name)  # type: ignore[no-any-return]


class CopyStream:
    """Copy batches to a GPU on a separate CUDA stream, while the GPU computes.

    The host asks for the next batch as soon as it has launched a step, with which the GPU is still
    busy. On the stream of that step the copy would start after the step. On its own stream it runs
    at the same time, and a copy from pageable memory does not wait for the step either. Kernels
    that use the batch wait for the copy on the GPU, not on the host.

    Args:
        device: a GPU.
        cuda: module with the stream functions; `torch.cuda`.
    """

    def __init__(self, device: torch.device, cuda: Any = torch.cuda) -> None:
        self._device = device
        self._cuda = cuda
        self._stream = cuda.Stream(device)

    def __call__(self, move: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of `move`, whose copies run on the separate stream.

        Args:
            move: moves a batch to the device.
            arguments: its arguments, of which the first is the batch.
        """
        if lies_on(arguments[0], self._device):
            return move(*arguments)
        compute_stream = self._cuda.current_stream(self._device)
        with self._cuda.stream(self._stream):
            moved = move(*arguments)
        # the step's kernels wait on the GPU; the host goes on
        compute_stream.wait_stream(self._stream)

        def record_use(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.device.type == self._device.type:
                # keeps the caching allocator from reusing the memory before the step has used it
                tensor.record_stream(compute_stream)
            return tensor

        map_tensors(moved, record_use)
        return moved
