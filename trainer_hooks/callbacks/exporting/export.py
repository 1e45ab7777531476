"""Export a module so that it runs without its code, and make sure that it computes the same."""

from __future__ import annotations

import copy
import os
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from trainer_hooks._log import log
from trainer_hooks.callbacks.exporting.call import Call
from trainer_hooks.callbacks.exporting.formats import ExportFormat, Names, format_named
from trainer_hooks.callbacks.exporting.placing import check_object_store, check_save_path, place
from trainer_hooks.callbacks.exporting.verifying import verify
from trainer_hooks.callbacks.monitoring import check_number
from trainer_hooks.callbacks.summary.layers import seen_through
from trainer_hooks.checkpoint import name_of
from trainer_hooks.errors import ExportError, OptionError, UsageError, described
from trainer_hooks.module import own_class
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Transform = Callable[[nn.Module], nn.Module]

__all__ = ["TOLERANCE", "ExportOptions", "export_call", "export_for_inference"]

TOLERANCE = 1e-4
_WHERE = "export_for_inference"
_SET_BY_TORCH = "TORCHINDUCTOR_CACHE_DIR"


class ExportOptions:
    """The arguments that `export_for_inference` and its callback share, checked.

    Raises:
        OptionError: one is outside its rule, or a package is missing.
    """

    def __init__(
        self,
        where: str,
        save_format: str,
        save_path: str | os.PathLike[str],
        save_object_store: Any = None,
        transforms: Transform | Sequence[Transform] | None = None,
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        tolerance: float = TOLERANCE,
    ) -> None:
        self.where = where
        self.format: ExportFormat = format_named(save_format, where)
        self.path = check_save_path(save_path, where)
        self.store = check_object_store(save_object_store, where)
        several = (transforms,) if callable(transforms) else tuple(transforms or ())
        for transform in several:
            if not callable(transform):
                raise OptionError(
                    f"transforms {transforms!r} of {where}: each must be a function that is given "
                    "a copy of the module and returns what to export. Pass a list of functions."
                )
        self.transforms: tuple[Transform, ...] = several
        self.names = Names(
            _checked_names("input_names", input_names, where),
            _checked_names("output_names", output_names, where),
        )
        self.tolerance = check_number("tolerance", tolerance, where, least=0)


def export_for_inference(
    module: nn.Module,
    save_format: str,
    save_path: str | os.PathLike[str],
    save_object_store: Any = None,
    sample_input: Any = None,
    transforms: Transform | Sequence[Transform] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    *,
    tolerance: float = TOLERANCE,
) -> str:
    """Write a module to a file that runs without its code, in batches of any size.

    A copy of the module is exported, on the CPU and in evaluation mode; the module itself and the
    random numbers stay as they are. The file is read again and run before it gets its place: on
    the sample, and on batches of other sizes.

    Args:
        module: any module; its `forward` is what is exported.
        save_format: `"torchscript"` for `torch.jit.load`, `"onnx"` for onnxruntime and others, or
            `"torch.export"` (or `"pt2"`) for `torch.export.load`.
        save_path: the file, or an address such as `"s3://bucket/model.onnx"`.
        save_object_store: where a copy goes under the same name: the address of a folder such as
            `"s3://bucket/models"`, or a file system of fsspec.
        sample_input: what `forward` takes: a tuple of its arguments, in which a mapping of keyword
            arguments may come last, a mapping of keyword arguments, or the one argument;
            `module.example_input_array` unless given.
        transforms: functions that are given the copy, one after the other, and return what is
            exported, as one that quantizes it.
        input_names: what the inputs are called in ONNX; a single tensor is `input`, others have
            the names of their keys or of the arguments.
        output_names: what the outputs are called in ONNX: `output`, or `output_0` and so on.
        tolerance: how far outputs of the file may be from the module's, as a share of the largest,
            or of 1 where that is smaller.

    Returns:
        The absolute path, or the address.

    Raises:
        OptionError: an argument is outside its rule, there is no sample, or a package is missing.
        ExportError: the module cannot be exported, or the file computes something else; nothing
            is written then.
        CheckpointError: the store of an address does not answer.

    Example::

        export_for_inference(module, "torch.export", "model.pt2", sample_input=torch.zeros(1, 64))
    """
    options = ExportOptions(
        _WHERE,
        save_format,
        save_path,
        save_object_store,
        transforms,
        input_names,
        output_names,
        tolerance,
    )
    sample = sample_of(module, sample_input)
    if sample is None:
        raise OptionError(
            f"sample_input None of {_WHERE}: an input must be known. Pass what forward takes, or "
            "set module.example_input_array."
        )
    return export_call(module, sample, options)


def sample_of(module: nn.Module, sample_input: Any) -> Call | None:
    """Return the call that a sample input, or the module's own example, stands for."""
    module = seen_through(module)
    if sample_input is None:
        sample_input = getattr(module, "example_input_array", None)
    return None if sample_input is None else Call.of(module, sample_input)


def export_call(module: nn.Module, sample: Call, options: ExportOptions) -> str:
    """Export a module that is called in such a way; the errors are `export_for_inference`'s."""
    name = type(seen_through(module)).__qualname__
    what = f"{name} to {options.format.name!r} at {options.path!r}"
    with (
        TemporaryDirectory(prefix="trainer_hooks-") as folder,
        rng.isolated(),
        _same_environment(),
        torch.no_grad(),
    ):
        file = Path(folder, name_of(options.path))
        try:
            exported, call = _prepared(module, sample, options)
            options.format.write(exported, call, file, options.names)
            run = options.format.load(file)
        except Exception as error:
            told = error if isinstance(error, ExportError) else described(error)
            raise ExportError(
                f"export of {what}: it cannot be exported, and nothing was written there. Change "
                "what forward does at the place that is named here, pass a sample_input that it "
                f"takes, or choose another format.\n{told}"
            ) from error
        verify(run, exported, call, options.tolerance, what)
        place(file, options.path, options.store)
    log.info("exported %s", what)
    return options.path


@contextmanager
def _same_environment() -> Iterator[None]:
    """Take back what torch sets in the environment, where it was not set before."""
    was_set = _SET_BY_TORCH in os.environ
    try:
        yield
    finally:
        if not was_set:
            os.environ.pop(_SET_BY_TORCH, None)


def _prepared(module: nn.Module, sample: Call, options: ExportOptions) -> tuple[nn.Module, Call]:
    """Return a copy to export, and a call of it with two samples at least.

    A batch of one would make graphs in which there is always one.
    """
    call = sample.mapped(lambda tensor: tensor.detach().cpu())
    if call.size == 0:
        raise ExportError("the sample has no tensor whose first dimension is that of a batch")
    call = call.resized(max(call.size, 2))
    exported = _copied_to_host(seen_through(module)).eval().requires_grad_(False)
    before = _dtype_of(exported)
    for transform in options.transforms:
        exported = transform(exported)
        if not isinstance(exported, nn.Module):
            raise ExportError(f"a transform returned {exported!r}, which is no module")
    return exported.eval(), call.with_dtype(before, _dtype_of(exported))


def _copied_to_host(module: nn.Module) -> nn.Module:
    """Return a copy on the CPU; an accelerator needs room for no second one."""
    known: dict[int, Any] = {}
    if own_class(module) is not type(module):
        raise UsageError(
            f"{own_class(module).__qualname__} is sharded, and cannot be copied to be exported: "
            "load a checkpoint of it with load_from_checkpoint, and export that."
        )
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.device.type != "cpu" and type(tensor) in {Tensor, nn.Parameter}:
            on_host = tensor.detach().cpu()
            known[id(tensor)] = (
                nn.Parameter(on_host, False) if isinstance(tensor, nn.Parameter) else on_host
            )
    copied = copy.deepcopy(module, known).cpu()
    copied.zero_grad()
    return copied


def _dtype_of(module: nn.Module) -> torch.dtype:
    found = (p.dtype for p in module.parameters() if p.is_floating_point())
    return next(found, torch.get_default_dtype())


def _checked_names(name: str, names: Any, where: str) -> Sequence[str] | None:
    is_list = isinstance(names, list | tuple) and bool(names)
    if names is not None and not (
        is_list and all(isinstance(each, str) and each for each in names)
    ):
        raise OptionError(
            f"{name} {names!r} of {where}: it must be a list of names. Pass one for each, or None."
        )
    return None if names is None else list(names)
