"""The formats of exported modules: how each is written, and how it is read and run again."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer_hooks._log import warn
from trainer_hooks.callbacks.exporting.forward_call import ForwardCall, tensors_in
from trainer_hooks.callbacks.option_checks import check_choice
from trainer_hooks.errors import (
    ExportError,
    OptionError,
    TrainerHooksWarning,
    error_message,
    error_summary,
)
from trainer_hooks.module.module import Module
from trainer_hooks.module.torch_wrappers import hide_run_attributes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from torch import nn
    from torch.export import ExportedProgram

__all__ = ["ExportFormat", "GraphNames", "Loaded", "format_named", "to_torchscript"]


_MAX_ERROR_LINES = 6


def to_torchscript(module: nn.Module, call: ForwardCall) -> Any:
    """Convert a module to TorchScript that accepts a call's arguments.

    It is scripted, which keeps control flow that depends on data. If torch cannot script it, it is
    traced with the call.

    Raises:
        ExportError: neither works.
    """
    with hide_run_attributes(module, Module):
        try:
            scripted: Any = torch.jit.script(module)
            call.outputs_of(scripted)
            return scripted
        except Exception as error:  # noqa: BLE001 - torch raises errors of many types
            scripting_error = error
        try:
            return _trace(module, call)
        except Exception as error:
            raise ExportError(
                f"scripting: {_short_message(scripting_error)}\ntracing: {error_summary(error)}"
            ) from error


def _trace(module: nn.Module, call: ForwardCall) -> Any:
    """Trace a module with a call.

    Raises:
        ExportError: the call mixes positional and keyword arguments, which torch cannot trace.
    """
    ordered = call.in_order(module)
    if not ordered.kwargs:
        example: dict[str, Any] = {"example_inputs": ordered.args}
    elif not call.args:
        example = {"example_kwarg_inputs": dict(call.kwargs)}
    else:
        raise ExportError("positions and keywords together cannot be traced; name all of them")
    trace: Any = torch.jit.trace
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", torch.jit.TracerWarning)  # type: ignore[attr-defined]
        traced = trace(module, **example, strict=False, check_trace=False)
    if caught:
        warn(
            f"{type(module).__qualname__} was traced for TorchScript, which fixes what depends on "
            f"the data as it was for the sample: {caught[0].message} Write forward so that it can "
            "be scripted if that matters.",
            TrainerHooksWarning,
        )
    return traced


def _short_message(error: Exception) -> str:
    """Return the first lines of an error; torch adds the code of all functions that it compiled."""
    lines = [line for line in error_message(error).splitlines() if line.strip()]
    more = ["..."] if len(lines) > _MAX_ERROR_LINES else []
    return "\n".join(
        [f"{type(error).__name__}: {lines[0] if lines else ''}", *lines[1:_MAX_ERROR_LINES], *more]
    )


Loaded = Callable[[ForwardCall], list[Tensor]]
"""Runs the module in a file with a call, and returns the tensors of its outputs."""

_NEEDED_BY_ONNX = ("onnx", "onnxscript", "onnxruntime")


@dataclass(frozen=True, slots=True)
class GraphNames:
    """The names of a graph's inputs and outputs; None for the default."""

    inputs: Sequence[str] | None = None
    outputs: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """A file format for exported modules.

    Attributes:
        name: its name, as `save_format` takes it.
        write: writes a module in eval mode, with a sample call, to a file.
        load: returns a function that runs the module in a file.
    """

    name: str
    write: Callable[[nn.Module, ForwardCall, Path, GraphNames], None]
    load: Callable[[Path], Loaded]


def format_named(save_format: object, where: str) -> ExportFormat:
    """Return a format by its name.

    Raises:
        OptionError: there is no such format, or a package that it needs is not installed.
    """
    name = check_choice("save_format", save_format, where, tuple(_FORMATS))
    missing = [
        package
        for package in _NEEDED_BY_ONNX
        if name == "onnx" and importlib.util.find_spec(package) is None
    ]
    if missing:
        raise OptionError(
            f"save_format {name!r} of {where}: it needs {' and '.join(missing)}, which cannot be "
            "imported. Install it: pip install 'trainer-hooks[export]'."
        )
    return _FORMATS[name]


def _write_torchscript(module: nn.Module, call: ForwardCall, path: Path, _: GraphNames) -> None:
    with _without_export_warnings():
        torch.jit.save(to_torchscript(module, call), str(path))


def _load_torchscript(path: Path) -> Loaded:
    load: Any = torch.jit.load
    with _without_export_warnings():
        loaded = load(str(path), map_location="cpu")
    return lambda call: tensors_in(call.outputs_of(loaded))


def _write_program(module: nn.Module, call: ForwardCall, path: Path, _: GraphNames) -> None:
    with path.open("wb") as file, _without_export_warnings():
        torch.export.save(_export_program(module, call), file)


def _load_program(path: Path) -> Loaded:
    with path.open("rb") as file:
        loaded = torch.export.load(file).module()
    return lambda call: tensors_in(call.outputs_of(loaded))


def _write_onnx(module: nn.Module, call: ForwardCall, path: Path, names: GraphNames) -> None:
    outputs = tensors_in(call.outputs_of(module))
    if any(x.dtype == torch.bfloat16 for x in (*tensors_in((call.args, call.kwargs)), *outputs)):
        raise ExportError(
            "onnxruntime is given its inputs as arrays of numpy, which has no bfloat16: pass "
            "transforms=[torch.nn.Module.float]"
        )
    with _without_export_warnings():
        written = torch.onnx.export(
            _export_program(module, call),
            dynamo=True,
            verbose=False,
            dynamic_shapes=call.dynamic_shapes(module, "batch"),  # the name of the dimension
            input_names=names.inputs or _default_inputs(call),
            output_names=names.outputs or _default_outputs(len(outputs)),
        )
    assert written is not None
    # the weights inside, so that the export is one file that can be moved
    written.save(str(path), external_data=False)


def _load_onnx(path: Path) -> Loaded:
    import onnx
    import onnxruntime  # type: ignore[import-untyped]

    onnx.checker.check_model(str(path), full_check=True)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [graph_input.name for graph_input in session.get_inputs()]

    def run(call: ForwardCall) -> list[Tensor]:
        values = [tensor.numpy() for tensor in tensors_in((call.args, call.kwargs))]
        outputs = session.run(None, dict(zip(names, values, strict=True)))
        return [torch.from_numpy(value) for value in outputs]

    return run


def _export_program(module: nn.Module, call: ForwardCall) -> ExportedProgram:
    """Export a module as a graph for batches of any size."""
    batch = torch.export.Dim("batch", min=1)
    return torch.export.export(
        module,
        call.args,
        call.kwargs,
        dynamic_shapes=call.dynamic_shapes(module, batch),
        strict=False,  # strict mode would need a module that torch.compile can capture whole
    )


def _default_inputs(call: ForwardCall) -> list[str] | None:
    """Return `input` (Composer's name) for a single tensor, and the keys of a single mapping."""
    values = (*call.args, *call.kwargs.values())
    if len(tensors_in(values)) == 1 and isinstance(values[0], torch.Tensor):
        return ["input"]
    if len(values) == 1 and _is_flat(values[0]):
        return list(values[0])
    return None


def _is_flat(value: Any) -> bool:
    """Return whether a value is a dict of tensors by name."""
    return isinstance(value, dict) and all(
        isinstance(key, str) and isinstance(item, torch.Tensor) for key, item in value.items()
    )


def _default_outputs(count: int) -> list[str]:
    return ["output"] if count == 1 else [f"output_{index}" for index in range(count)]


@contextmanager
def _without_export_warnings() -> Iterator[None]:
    """Hide the deprecation of TorchScript, and warnings of torch's exporters about torch itself."""
    of_rnn = r"The tensor attributes self\..*_flat_weights\[0\].* were assigned during export"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", of_rnn, UserWarning)
        warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)
        warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)`", FutureWarning)
        warnings.filterwarnings("ignore", "# The axis name: .* will not be used", UserWarning)
        yield


_PROGRAM = ExportFormat("torch.export", _write_program, _load_program)
_FORMATS: Mapping[str, ExportFormat] = {
    "torchscript": ExportFormat("torchscript", _write_torchscript, _load_torchscript),
    "onnx": ExportFormat("onnx", _write_onnx, _load_onnx),
    "torch.export": _PROGRAM,
    "pt2": _PROGRAM,
}
