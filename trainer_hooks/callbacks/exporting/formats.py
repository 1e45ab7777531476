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

from trainer_hooks.callbacks.exporting.call import Call, tensors_in
from trainer_hooks.callbacks.exporting.scripting import to_torchscript
from trainer_hooks.callbacks.monitoring import check_choice
from trainer_hooks.errors import ExportError, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from torch import nn
    from torch.export import ExportedProgram

__all__ = ["ExportFormat", "Loaded", "Names", "format_named"]

Loaded = Callable[[Call], list[Tensor]]
"""What runs a module that was read from a file: it returns the tensors of the outputs."""

_NEEDED_BY_ONNX = ("onnx", "onnxscript", "onnxruntime")


@dataclass(frozen=True, slots=True)
class Names:
    """What the inputs and outputs of a graph are called; None for the default."""

    inputs: Sequence[str] | None = None
    outputs: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """One format.

    Attributes:
        name: as `save_format` has it.
        write: writes a module in eval mode, which is called in such a way, to a file.
        load: returns what runs the module in a file, and returns the tensors of its outputs.
    """

    name: str
    write: Callable[[nn.Module, Call, Path, Names], None]
    load: Callable[[Path], Loaded]


def format_named(save_format: object, where: str) -> ExportFormat:
    """Return the format of a name.

    Raises:
        OptionError: there is none, or what it needs is not installed.
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


def _write_torchscript(module: nn.Module, call: Call, path: Path, _: Names) -> None:
    with _hushed():
        torch.jit.save(to_torchscript(module, call), str(path))


def _load_torchscript(path: Path) -> Loaded:
    load: Any = torch.jit.load
    with _hushed():
        loaded = load(str(path), map_location="cpu")
    return lambda call: tensors_in(call.of_module(loaded))


def _write_program(module: nn.Module, call: Call, path: Path, _: Names) -> None:
    with path.open("wb") as file, _hushed():
        torch.export.save(_program_of(module, call), file)


def _load_program(path: Path) -> Loaded:
    with path.open("rb") as file:
        loaded = torch.export.load(file).module()
    return lambda call: tensors_in(call.of_module(loaded))


def _write_onnx(module: nn.Module, call: Call, path: Path, names: Names) -> None:
    results = tensors_in(call.of_module(module))
    if any(x.dtype == torch.bfloat16 for x in (*tensors_in((call.args, call.kwargs)), *results)):
        raise ExportError(
            "onnxruntime is given its inputs as arrays of numpy, which has no bfloat16: pass "
            "transforms=[torch.nn.Module.float]"
        )
    with _hushed():
        written = torch.onnx.export(
            _program_of(module, call),
            dynamo=True,
            verbose=False,
            dynamic_shapes=call.dynamic_shapes(module, "batch"),  # what the size is called
            input_names=names.inputs or _default_inputs(call),
            output_names=names.outputs or _default_outputs(len(results)),
        )
    assert written is not None
    written.save(str(path), external_data=False)


def _load_onnx(path: Path) -> Loaded:
    import onnx
    import onnxruntime  # type: ignore[import-untyped]

    onnx.checker.check_model(str(path), full_check=True)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]

    def run(call: Call) -> list[Tensor]:
        values = [tensor.numpy() for tensor in tensors_in((call.args, call.kwargs))]
        found = session.run(None, dict(zip(names, values, strict=True)))
        return [torch.from_numpy(value) for value in found]

    return run


def _program_of(module: nn.Module, call: Call) -> ExportedProgram:
    """Return a module as a graph in which the size of the batch is open."""
    batch = torch.export.Dim("batch", min=1)
    return torch.export.export(
        module,
        call.args,
        call.kwargs,
        dynamic_shapes=call.dynamic_shapes(module, batch),
        strict=False,
    )


def _default_inputs(call: Call) -> list[str] | None:
    """Return Composer's name for a single input, and the keys of a single mapping."""
    values = (*call.args, *call.kwargs.values())
    if len(tensors_in(values)) == 1 and isinstance(values[0], torch.Tensor):
        return ["input"]
    if len(values) == 1 and _is_flat(values[0]):
        return list(values[0])
    return None


def _is_flat(value: Any) -> bool:
    """Return whether it is a mapping of tensors by name."""
    return isinstance(value, dict) and all(
        isinstance(key, str) and isinstance(item, torch.Tensor) for key, item in value.items()
    )


def _default_outputs(count: int) -> list[str]:
    return ["output"] if count == 1 else [f"output_{index}" for index in range(count)]


@contextmanager
def _hushed() -> Iterator[None]:
    """Leave out that TorchScript is on its way out, and what torch's exporters say of torch."""
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
