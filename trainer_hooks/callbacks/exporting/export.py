"""Export a module to a file that runs without its code, and compare the file with the module."""

from __future__ import annotations

import copy
import math
import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from trainer_hooks._log import log
from trainer_hooks._options import answers_keywords, check_option, finite_number
from trainer_hooks._system import path_fault, without_file_scheme
from trainer_hooks.callbacks.exporting.formats import (
    ExportFormat,
    ForwardCall,
    GraphNames,
    format_named,
    tensors_in,
)
from trainer_hooks.callbacks.model_table import unwrap_module
from trainer_hooks.checkpoint.atomic_write import open_atomically
from trainer_hooks.checkpoint.paths import (
    absolute_path,
    file_name,
    is_remote,
    join_path,
    require_reachable,
)
from trainer_hooks.errors import ExportError, OptionError, UsageError, error_summary
from trainer_hooks.module.torch_wrappers import unsharded_class
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from trainer_hooks.callbacks.exporting.formats import Loaded

    Transform = Callable[[nn.Module], nn.Module]

TOLERANCE = 1e-4
_WHERE = "export_for_inference"
_TORCH_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
"""The environment variable that an export by torch sets."""


class ExportOptions:
    """The checked arguments that `export_for_inference` and its callback share.

    Raises:
        OptionError: an argument is outside its rule, or a package is missing.
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
        functions = (transforms,) if callable(transforms) else tuple(transforms or ())
        for transform in functions:
            if not callable(transform):
                raise OptionError(
                    f"transforms {transforms!r} of {where}: each must be a function that is given "
                    "a copy of the module and returns what to export. Pass a list of functions."
                )
        self.transforms: tuple[Transform, ...] = functions
        self.names = GraphNames(
            _check_names("input_names", input_names, where),
            _check_names("output_names", output_names, where),
        )
        self.tolerance = check_option("tolerance", tolerance, where, finite_number(0))


@answers_keywords
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
    random states stay as they are. Before the file is put in place, it is read back and run on the
    sample and on batches of other sizes.

    Args:
        module: any module; its `forward` is what is exported.
        save_format: `"torchscript"` for `torch.jit.load`, `"onnx"` for onnxruntime and others, or
            `"torch.export"` (or `"pt2"`) for `torch.export.load`.
        save_path: the file, or an address such as `"s3://bucket/model.onnx"`.
        save_object_store: the store for a copy under the same name: the address of a folder such as
            `"s3://bucket/models"`, or a file system of fsspec.
        sample_input: a sample of the arguments of `forward`: a tuple of them, with a mapping of
            keyword arguments last if there are any, a mapping of keyword arguments, or the one
            argument; `module.example_input_array` unless given.
        transforms: functions that are called one after the other with the copy and return the
            module to export, for example a quantized one.
        input_names: the names of the inputs in ONNX; by default `input` for a single tensor, and
            the keys or the names of the arguments for others.
        output_names: the names of the outputs in ONNX; by default `output`, or `output_0` and so
            on.
        tolerance: the largest difference allowed between the outputs of the file and the module, as
            a share of the largest output, or of 1 if that is smaller.

    Returns:
        The absolute path, or the address.

    Raises:
        OptionError: an argument is outside its rule, there is no sample, or a package is missing.
        ExportError: the module cannot be exported, or the file computes different outputs; nothing
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


def sample_of(module: nn.Module, sample_input: Any) -> ForwardCall | None:
    """Return the call described by a sample input, or else by the module's own example."""
    module = unwrap_module(module)
    if sample_input is None:
        sample_input = getattr(module, "example_input_array", None)
    return None if sample_input is None else ForwardCall.from_sample(module, sample_input)


def export_call(module: nn.Module, sample: ForwardCall, options: ExportOptions) -> str:
    """Export a module with a sample call; the errors are `export_for_inference`'s."""
    name = type(unwrap_module(module)).__qualname__
    export_name = f"{name} to {options.format.name!r} at {options.path!r}"
    with (
        TemporaryDirectory(prefix="trainer_hooks-") as folder,
        rng.isolated(),
        _restored_environment(),
        torch.no_grad(),
    ):
        file = Path(folder, file_name(options.path))
        try:
            # the reading as well: a file that cannot be read back is no export
            exported, call = _prepare(module, sample, options)
            options.format.write(exported, call, file, options.names)
            run = options.format.load(file)
        except Exception as error:
            reason = error if isinstance(error, ExportError) else error_summary(error)
            raise ExportError(
                f"export of {export_name}: it cannot be exported, and nothing was written there. "
                "Change what forward does at the place that is named here, pass a sample_input "
                f"that it takes, or choose another format.\n{reason}"
            ) from error
        # outside of it: this raises errors that say by themselves what differs
        verify_export(run, exported, call, options.tolerance, export_name)
        store_export(file, options.path, options.store)
    log.info("exported %s", export_name)
    return options.path


@contextmanager
def _restored_environment() -> Iterator[None]:
    """Remove the environment variable that torch sets, unless it was set before."""
    was_set = _TORCH_VARIABLE in os.environ
    try:
        yield
    finally:
        if not was_set:
            os.environ.pop(_TORCH_VARIABLE, None)


def _prepare(
    module: nn.Module, sample: ForwardCall, options: ExportOptions
) -> tuple[nn.Module, ForwardCall]:
    """Return a transformed copy to export, and its sample call with at least two samples."""
    call = sample.mapped(lambda tensor: tensor.detach().cpu())
    if call.size == 0:
        raise ExportError("the sample has no tensor whose first dimension is that of a batch")
    # torch takes a batch size of one for a constant of the graph
    call = call.resized(max(call.size, 2))
    exported = _copy_to_host(unwrap_module(module)).eval().requires_grad_(False)
    before = _dtype_of(exported)
    for transform in options.transforms:
        exported = transform(exported)
        if not isinstance(exported, nn.Module):
            raise ExportError(f"a transform returned {exported!r}, which is no module")
    # a transform may return a new module, which is in train mode
    return exported.eval(), call.with_dtype(before, _dtype_of(exported))


def _copy_to_host(module: nn.Module) -> nn.Module:
    """Return a copy of a module on the CPU, without a second copy on the accelerator."""
    # deepcopy takes the tensors in its memo as copied already
    memo: dict[int, Any] = {}
    if unsharded_class(module) is not type(module):
        raise UsageError(
            f"{unsharded_class(module).__qualname__} is sharded, and cannot be copied to be "
            "exported: load a checkpoint of it with load_from_checkpoint, and export that."
        )
    for tensor in (*module.parameters(), *module.buffers()):
        # these types alone: a subclass has its own way to be copied
        if tensor.device.type != "cpu" and type(tensor) in {Tensor, nn.Parameter}:
            on_host = tensor.detach().cpu()
            memo[id(tensor)] = (
                nn.Parameter(on_host, False) if isinstance(tensor, nn.Parameter) else on_host
            )
    copied = copy.deepcopy(module, memo).cpu()
    # deepcopy copies the gradients, too
    copied.zero_grad()
    return copied


def _dtype_of(module: nn.Module) -> torch.dtype:
    dtypes = (p.dtype for p in module.parameters() if p.is_floating_point())
    return next(dtypes, torch.get_default_dtype())


def _check_names(name: str, names: Any, where: str) -> Sequence[str] | None:
    is_list = isinstance(names, list | tuple) and bool(names)
    if names is not None and not (
        is_list and all(isinstance(each, str) and each for each in names)
    ):
        raise OptionError(
            f"{name} {names!r} of {where}: it must be a list of names. Pass one for each, or None."
        )
    return None if names is None else list(names)


# --- the comparison with the module ---

# a graph in which the sample's size became a constant fails with at least one of these
_OTHER_BATCH_SIZES = (1, 3)
_ALLOWED_ROUNDINGS = 8
"""The difference that is always allowed, in rounding errors of the outputs' type."""


def verify_export(
    run: Loaded, module: nn.Module, call: ForwardCall, tolerance: float, export_name: str
) -> None:
    """Check that an exported file computes the module's outputs for several batch sizes.

    Args:
        run: runs the module in the file.
        module: the module that was exported.
        call: the sample call.
        tolerance: the largest difference allowed, as `export_for_inference` takes it.
        export_name: the description of the export, for messages.

    Raises:
        ExportError: it does not.
    """
    for size in (call.size, *_OTHER_BATCH_SIZES):
        resized = call.resized(size)
        try:
            expected = tensors_in(resized.outputs_of(module))
            outputs = run(resized)
        except Exception as error:
            raise ExportError(
                f"export of {export_name}: it cannot be run with a batch of {size} "
                f"({error_summary(error)}). Nothing was written there. Let forward take "
                "the size of the batch from its input and not from a number that is fixed."
            ) from error
        difference, allowed = _difference(outputs, expected, tolerance)
        if not difference <= allowed:  # so that NaN is refused, too
            raise ExportError(
                f"export of {export_name}: with a batch of {size} it computes something else than "
                f"the module: the largest difference is {difference:.3g}, and {allowed:.3g} is "
                "allowed. Nothing was written there. Let forward depend on its input alone, or "
                "pass a larger tolerance."
            )


def _difference(
    outputs: list[Tensor], expected: list[Tensor], tolerance: float
) -> tuple[float, float]:
    """Return the largest difference of two lists of tensors, and the difference allowed there."""
    # tensors of different shapes may broadcast, and would then be compared all the same
    if [t.shape for t in outputs] != [t.shape for t in expected]:
        return math.inf, tolerance
    return max(
        (
            _tensor_difference(output, reference, tolerance)
            for output, reference in zip(outputs, expected, strict=True)
        ),
        key=lambda pair: pair[0] - pair[1],
        default=(0.0, tolerance),
    )


def _tensor_difference(output: Tensor, expected: Tensor, tolerance: float) -> tuple[float, float]:
    """Return the largest difference of two tensors of one shape, and the difference allowed."""
    precision = torch.finfo(expected.dtype).eps if expected.is_floating_point() else 0.0
    # in double precision: half precision may overflow in the difference
    actual, reference = (
        (torch.view_as_real(t) if t.is_complex() else t).cpu().double().flatten()
        for t in (output, expected)
    )
    # infinite values and NaNs must stand at the same positions; only the others have a distance
    is_number = torch.isfinite(reference)
    if not torch.equal(torch.isfinite(actual), is_number):
        return math.inf, tolerance
    actual, reference = actual[is_number], reference[is_number]
    if reference.numel() == 0:
        return 0.0, tolerance
    allowed = max(tolerance, _ALLOWED_ROUNDINGS * precision) * max(
        1.0, reference.abs().max().item()
    )
    return (actual - reference).abs().max().item(), allowed


# --- the place of the file ---


def check_save_path(path: object, where: str) -> str:
    """Return the path of a file as an absolute path, or its address unchanged.

    Raises:
        OptionError: it is not the path of a file, or the address of a store that cannot be reached.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text or text.endswith(("/", os.sep)):
        raise OptionError(
            f"save_path {path!r} of {where}: it must be the path of a file. Pass such a path, or "
            "an address such as 's3://bucket/model.onnx'."
        )
    fault = "" if is_remote(text) else path_fault(without_file_scheme(text))
    if fault:
        raise OptionError(f"save_path {path!r} of {where}: {fault}. Pass another path.")
    require_reachable(text, f"save_path {text!r} of {where}")
    return absolute_path(text if is_remote(text) else os.path.expanduser(text))  # noqa: PTH111 - not `./~`


def check_object_store(store: Any, where: str) -> Any:
    """Return the store for copies: a folder's address, a file system of fsspec, or None.

    Raises:
        OptionError: it is something else, or a store that cannot be reached.
    """
    if store is None or callable(getattr(store, "put_file", None)):
        return store
    if not isinstance(store, str) or not is_remote(store):
        raise OptionError(
            f"save_object_store {store!r} of {where}: it must be the address of a folder in "
            "another store, or a file system of fsspec. Pass one such as 's3://bucket/models'."
        )
    require_reachable(store, f"save_object_store {store!r} of {where}")
    return store


def store_export(source: Path, target: str, store: Any = None) -> None:
    """Put a file at its path or address, and a copy into a store, each completely or not at all.

    Raises:
        ExportError: it cannot be written; what was there before is untouched.
        CheckpointError: the store of an address does not answer.
    """
    if is_remote(target):
        _upload(source, target)
    else:
        _write_or_raise(lambda: _write_local(source, Path(target)), target)
    if isinstance(store, str):
        _upload(source, join_path(store, file_name(target)))
    elif store is not None:
        name = file_name(target)
        _write_or_raise(
            lambda: _put_in_filesystem(store, source, name), f"{name} in a {type(store).__name__}"
        )


def _upload(source: Path, address: str) -> None:
    from trainer_hooks.checkpoint.remote import upload

    upload(source, address, "export")


def _put_in_filesystem(store: Any, source: Path, name: str) -> None:
    """Put a file into a file system under a temporary name, then rename it.

    So a reader never sees half a file.
    """
    part = f".{name}.part"
    try:
        store.put_file(str(source), part)
        store.mv(part, name)
    except BaseException:
        with suppress(Exception):  # the store has just failed, and may fail again
            store.rm_file(part)
        raise


def _write_local(source: Path, target: Path) -> None:
    with source.open("rb") as content, open_atomically(target) as file:
        shutil.copyfileobj(content, file)


def _write_or_raise(action: Callable[[], None], target: str) -> None:
    try:
        action()
    except Exception as error:  # a store raises errors of its own types
        raise ExportError(
            f"export {target!r} could not be written ({error_summary(error)}); what was "
            "there before is untouched. Check the folder, the rights and the room."
        ) from error
