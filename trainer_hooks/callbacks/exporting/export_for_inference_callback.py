"""ExportForInferenceCallback: when a training is over, export the module so that it can be used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.exporting.call import Call
from trainer_hooks.callbacks.exporting.export import (
    TOLERANCE,
    ExportOptions,
    export_call,
    sample_of,
)
from trainer_hooks.callbacks.monitoring import is_training
from trainer_hooks.checkpoint import find_foreign, name_of
from trainer_hooks.errors import ExportError
from trainer_hooks.hooks import Band

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from torch import nn
    from torch.utils.hooks import RemovableHandle

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["ExportForInferenceCallback"]

_WHERE = "ExportForInferenceCallback"
_KEPT = 2
"""How many samples of the first batch are kept: a batch of one would look like a fixed number."""


class ExportForInferenceCallback(Callback):
    """Export the module when fit is over: TorchScript, ONNX or a program of `torch.export`.

    What is written takes batches of any size, needs neither trainer_hooks nor the module's code,
    and was read again and compared with the module before it got its place: on the sample and on
    batches of other sizes. A copy is exported, on the CPU and in evaluation mode, so the module
    stays as it was. A fit that is broken off exports nothing; where a signal ends it, the run that
    is resumed does. The weights are those that other callbacks leave: the averaged ones of
    `WeightAveraging`, and the best ones of a `SaveBestModelCallback` that stands before this in the
    list.

    How `forward` is called is seen in the first batch that is trained, and two samples of that are
    kept, unless there is a `sample_input` or `module.example_input_array`.

    TorchScript is scripted where torch can, and otherwise traced. torch calls it deprecated: choose
    `"torch.export"` for something new.

    Args:
        save_format: `"torchscript"` for `torch.jit.load`, `"onnx"` for onnxruntime and others, or
            `"torch.export"` (or `"pt2"`) for `torch.export.load`.
        save_path: the file, or an address such as `"s3://bucket/model.onnx"`. A file that is there
            is replaced.
        save_object_store: where a copy goes under the same name: the address of a folder such as
            `"s3://bucket/models"`, or a file system of fsspec.
        sample_input: what `forward` takes: a tuple of its arguments, in which a mapping of keyword
            arguments may come last, a mapping of keyword arguments, or the one argument.
        transforms: functions that are given the copy, one after the other, and return what is
            exported, as one that quantizes it.
        input_names: what the inputs are called in ONNX; a single tensor is `input`, others have
            the names of their keys or of the arguments.
        output_names: what the outputs are called in ONNX: `output`, or `output_0` and so on.
        tolerance: how far outputs of the file may be from the module's, as a share of the largest,
            or of 1 where that is smaller.

    Raises:
        OptionError: an argument is outside its rule, or a package is missing.
        ExportError: in a run, `training_step` does not call the module, so that there is no sample,
            the module cannot be exported, or the file computes something else.
        CheckpointError: in a run, the store of an address does not answer.

    State: the sample that it kept.

    Example::

        export = ExportForInferenceCallback("torch.export", "digits.pt2")
        trainer = Trainer(max_epochs=2, callbacks=[export])
        trainer.fit(module, train_loader)
        program = torch.export.load("digits.pt2").module()
        print(program(data[:5][0]).shape)
    """

    band = Band.SAVE

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
        self._kept: Call | None = None
        self._looks = False
        self._watch: RemovableHandle | None = None

    @property
    def state_key(self) -> str:
        """The class with the format and the file's name."""
        return self._generate_state_key(
            save_format=self._options.format.name, name=name_of(self.save_path)
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the sample that was kept."""
        kept = self._kept
        return {"args": None, "kwargs": None} if kept is None else _as_state(kept)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take it back."""
        args, kwargs = state_dict["args"], state_dict["kwargs"]
        self._kept = None if args is None else Call(tuple(args), dict(kwargs))

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Forget the sample of an earlier training."""
        if trainer.progress.is_fresh:
            self._kept = None

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """See whether it has still to be found out how `forward` is called."""
        self._looks = self._kept is None and self._sample(module) is None

    def on_train_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int
    ) -> None:
        """Look how `forward` is called, if that is not known yet."""
        if self._looks:
            self._watch = module.register_forward_pre_hook(self._keep, with_kwargs=True)

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Look no longer.

        Raises:
            ExportError: the module learned from a batch, and its `forward` was not called.
        """
        if self._watch is None:
            return
        self._unwatch()
        self._looks = self._kept is None
        if self._looks and outputs:
            raise self._no_sample(module)

    def on_fit_end(self, trainer: Trainer, module: Module) -> None:
        """Export, unless something broke the fit off."""
        if not is_training(trainer) or trainer.interrupted or not trainer.is_global_zero:
            return
        sample = self._sample(module) or self._kept
        if sample is None:
            raise self._no_sample(module)
        export_call(module, sample, self._options)

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Leave nothing at the module."""
        self._unwatch()

    def _sample(self, module: Module) -> Call | None:
        return sample_of(module, self.sample_input)

    def _keep(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep two samples of the first call, on the host and apart from any graph."""
        if self._kept is not None:
            return
        call = Call(args, kwargs)
        call = call.resized(_KEPT) if call.size > _KEPT else call
        call = call.mapped(lambda tensor: tensor.detach().cpu().clone())
        foreign = find_foreign(_as_state(call))
        if foreign is not None:
            raise ExportError(
                f"input {type(foreign[1]).__qualname__} of {type(module).__qualname__}.forward, at "
                f"{foreign[0]}: {_WHERE} can keep only containers of tensors and numbers of it. "
                "Pass sample_input."
            )
        self._kept = call

    def _unwatch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.remove()

    def _no_sample(self, module: Module) -> ExportError:
        return ExportError(
            f"export of {type(module).__qualname__} by {_WHERE}: no input of its forward is known, "
            "since no training step called the module. Pass sample_input, or set "
            "module.example_input_array."
        )


def _as_state(call: Call) -> dict[str, Any]:
    return {"args": call.args, "kwargs": call.kwargs}
