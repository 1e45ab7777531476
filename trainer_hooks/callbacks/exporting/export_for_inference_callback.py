"""ExportForInferenceCallback: export the trained module when fit is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks._options import answers_keywords
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.base import is_real_fit
from trainer_hooks.callbacks.exporting.export import (
    TOLERANCE,
    ExportOptions,
    export_call,
    sample_of,
)
from trainer_hooks.callbacks.exporting.formats import ForwardCall
from trainer_hooks.checkpoint.encoding import find_unsavable
from trainer_hooks.checkpoint.paths import file_name
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.errors import ExportError
from trainer_hooks.hooks.band import Band
from trainer_hooks.hooks.spec import keeps_optimizers

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from torch import nn
    from torch.utils.hooks import RemovableHandle

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

_WHERE = "ExportForInferenceCallback"
_KEPT_SAMPLES = 2
"""Samples of the first batch to keep: torch takes a batch size of one for a constant."""


class ExportForInferenceCallback(Callback):
    """Export the module when fit is over: TorchScript, ONNX or a program of `torch.export`.

    The file takes batches of any size and needs neither trainer_hooks nor the module's code. Before
    it is put in place, it is read back and compared with the module, on the sample and on batches
    of other sizes. A copy of the module is exported, on the CPU and in evaluation mode; the module
    stays as it is. A fit that ends by an error exports nothing; after a signal, the resumed run
    does. The weights are those that other callbacks leave: the averaged ones of `WeightAveraging`,
    and the best ones of a `SaveBestModelCallback` that precedes this one in the list.

    The callback learns the arguments of `forward` from the first training batch, and keeps two of
    its samples, unless there is a `sample_input` or `module.example_input_array`.

    TorchScript is scripted where torch can, and otherwise traced. It is deprecated in torch: choose
    `"torch.export"` for new work.

    Args:
        save_format: `"torchscript"` for `torch.jit.load`, `"onnx"` for onnxruntime and others, or
            `"torch.export"` (or `"pt2"`) for `torch.export.load`.
        save_path: the file, or an address such as `"s3://bucket/model.onnx"`. An existing file is
            replaced.
        save_object_store: the store for a copy under the same name: the address of a folder such as
            `"s3://bucket/models"`, or a file system of fsspec.
        sample_input: a sample of the arguments of `forward`: a tuple of them, with a mapping of
            keyword arguments last if there are any, a mapping of keyword arguments, or the one
            argument.
        transforms: functions that are called one after the other with the copy and return the
            module to export, for example a quantized one.
        input_names: the names of the inputs in ONNX; by default `input` for a single tensor, and
            the keys or the names of the arguments for others.
        output_names: the names of the outputs in ONNX; by default `output`, or `output_0` and so
            on.
        tolerance: the largest difference allowed between the outputs of the file and the module, as
            a share of the largest output, or of 1 if that is smaller.

    Raises:
        OptionError: an argument is outside its rule, or a package is missing.
        ExportError: in a run, `training_step` does not call the module, so that there is no sample,
            the module cannot be exported, or the file computes different outputs.
        CheckpointError: in a run, the store of an address does not answer.

    State: the sample.

    Example::

        export = ExportForInferenceCallback("torch.export", "digits.pt2")
        trainer = Trainer(max_epochs=2, callbacks=[export])
        trainer.fit(module, train_loader)
        program = torch.export.load("digits.pt2").module()
        print(program(data[:5][0]).shape)
    """

    # last, when the weights are averaged, pruned and quantized
    band = Band.SAVE

    @answers_keywords
    def __init__(
        self,
        save_format: str,
        save_path: str | os.PathLike[str],
        save_object_store: Any = None,
        sample_input: Any = None,
        transforms: Callable[[nn.Module], nn.Module]
        | Sequence[Callable[[nn.Module], nn.Module]]
        | None = None,
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        *,
        tolerance: float = TOLERANCE,
    ) -> None:
        self._options = ExportOptions(
            _WHERE,
            save_format,
            save_path,
            save_object_store,
            transforms,
            input_names,
            output_names,
            tolerance,
        )
        self.save_format = save_format
        self.save_path = self._options.path
        self.sample_input = sample_input
        self._sample_call: ForwardCall | None = None
        self._needs_sample = False
        self._hook: RemovableHandle | None = None

    @property
    def state_key(self) -> str:
        """`ExportForInferenceCallback{...}` with the format and the file's name."""
        return self._generate_state_key(
            save_format=self._options.format.name, name=file_name(self.save_path)
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the sample."""
        call = self._sample_call
        return {"args": None, "kwargs": None} if call is None else _as_state(call)

    @checks_state({"args": list[Any] | None, "kwargs": dict[str, Any] | None})
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the sample."""
        args, kwargs = state_dict["args"], state_dict["kwargs"]
        self._sample_call = None if args is None else ForwardCall(tuple(args), dict(kwargs))

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Drop the sample of an earlier training."""
        if trainer.progress.is_new_training:
            self._sample_call = None

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Decide whether a sample must be taken from the first batch."""
        self._needs_sample = (
            self._sample_call is None
            and sample_of(self._exported(module), self.sample_input) is None
        )

    def on_train_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int
    ) -> None:
        """Register a hook that takes the sample, if there is none yet."""
        if self._needs_sample:
            # a hook fires in `module(...)` alone, and not where a step calls `self.forward(...)`
            exported = self._exported(module)
            self._hook = exported.register_forward_pre_hook(self._keep_sample, with_kwargs=True)

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Remove the hook.

        Raises:
            ExportError: the module was trained on a batch without a call of its `forward`.
        """
        if self._hook is None:
            return
        self._remove_hook()
        self._needs_sample = self._sample_call is None
        # a skipped batch has no outputs: a later one may still call the module
        if self._needs_sample and outputs:
            raise self._missing_sample(module)

    def on_fit_end(self, trainer: Trainer, module: Module) -> None:
        """Export the module, unless the fit was interrupted."""
        # on rank 0 alone: an export is no collective, and all ranks have the same weights
        if not is_real_fit(trainer) or trainer.interrupted or not trainer.is_global_zero:
            return
        exported = self._exported(module)
        sample = sample_of(exported, self.sample_input) or self._sample_call
        if sample is None:
            raise self._missing_sample(module)
        export_call(exported, sample, self._options)

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Remove the hook."""
        self._remove_hook()

    def _exported(self, module: Module) -> nn.Module:
        """Return the module to export; a subclass may return a part of it."""
        return module

    def _keep_sample(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Keep two samples of the first call, on the host and without gradients."""
        # a step may call the module several times: the first call counts
        if self._sample_call is not None:
            return
        call = ForwardCall(args, kwargs)
        call = call.resized(_KEPT_SAMPLES) if call.size > _KEPT_SAMPLES else call
        # on a CPU neither detach() nor cpu() copies, and the step may write into its inputs
        call = call.mapped(lambda tensor: tensor.detach().cpu().clone())
        # now, and not only when a checkpoint with the sample is to be saved
        foreign = find_unsavable(_as_state(call))
        if foreign is not None:
            raise ExportError(
                f"input {type(foreign[1]).__qualname__} of {type(module).__qualname__}.forward, at "
                f"{foreign[0]}: {_WHERE} can keep only containers of tensors and numbers of it. "
                "Pass sample_input."
            )
        self._sample_call = call

    def _remove_hook(self) -> None:
        hook, self._hook = self._hook, None
        if hook is not None:
            hook.remove()

    def _missing_sample(self, module: Module) -> ExportError:
        return ExportError(
            f"export of {type(module).__qualname__} by {_WHERE}: no input of its forward is known, "
            "since no training step called the module. Pass sample_input, or set "
            "module.example_input_array."
        )


def _as_state(call: ForwardCall) -> dict[str, Any]:
    return {"args": call.args, "kwargs": call.kwargs}
