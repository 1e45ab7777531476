"""The formats of exported modules: how each is written, and how it is read and run again."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from trainer_hooks._annotations import signature_of
from trainer_hooks._log import warn
from trainer_hooks._options import check_option, one_of
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
    import inspect
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from torch import nn
    from torch.export import ExportedProgram


@dataclass(frozen=True, slots=True)
class ForwardCall:
    """The arguments of a call of `forward`.

    Tensors whose first dimension is that of the first tensor belong to the batch.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @classmethod
    def from_sample(cls, module: nn.Module, sample: Any) -> ForwardCall:
        """Return the call of `forward` that a sample input describes.

        A tuple or list holds the arguments in order, with a mapping of keywords last if there are
        any; a mapping whose keys are names of arguments holds keyword arguments. Anything else, and
        a sample that `forward` does not accept in this way, is the one argument.
        """
        signature = signature_of(module.forward)
        names = set(signature.parameters)
        candidates = []
        if isinstance(sample, Mapping) and sample and names.issuperset(sample):
            candidates.append(cls((), dict(sample)))
        if isinstance(sample, list | tuple):
            last = sample[-1] if len(sample) > 1 else None
            if isinstance(last, Mapping) and names.issuperset(last):
                candidates.append(cls(tuple(sample[:-1]), dict(last)))
            candidates.append(cls(tuple(sample), {}))
        candidates.append(cls((sample,), {}))
        # the one argument where nothing fits: the error of calling forward with it says why
        return next((call for call in candidates if call.fits(signature)), candidates[-1])

    def fits(self, signature: inspect.Signature) -> bool:
        """Return whether a function of a signature accepts these arguments."""
        try:
            signature.bind(*self.args, **self.kwargs)
        except TypeError:
            return False
        return True

    def outputs_of(self, module: nn.Module) -> Any:
        """Call a module with these arguments and return its outputs."""
        return module(*self.args, **self.kwargs)

    @property
    def size(self) -> int:
        """The number of samples in the batch; 0 if no tensor has a dimension for them."""
        sizes = [len(tensor) for tensor in tensors_in((self.args, self.kwargs)) if tensor.ndim]
        return sizes[0] if sizes else 0

    def resized(self, size: int) -> ForwardCall:
        """Return the call with a batch of `size` samples, made by repeating its own."""
        own_size = self.size
        rows = torch.arange(size) % own_size

        def resize(tensor: Tensor) -> Tensor:
            return tensor[rows.to(tensor.device)] if _belongs_to_batch(tensor, own_size) else tensor

        return self.mapped(resize)

    def mapped(self, change: Callable[[Tensor], Tensor]) -> ForwardCall:
        """Return the call with each tensor replaced by the result of a function."""

        def change_tensor(leaf: Any) -> Any:
            return change(leaf) if isinstance(leaf, Tensor) else leaf

        # an object of a class that pytree does not know is one leaf, which stays as it is
        args, kwargs = tree_map(change_tensor, (self.args, self.kwargs))
        return ForwardCall(args, kwargs)

    def with_dtype(self, before: torch.dtype, after: torch.dtype) -> ForwardCall:
        """Return the call with the tensors of one type converted to another."""
        return self.mapped(lambda tensor: tensor.to(after) if tensor.dtype == before else tensor)

    def in_order(self, module: nn.Module) -> ForwardCall:
        """Return the call with keyword arguments as positional ones where `forward` allows it."""
        bound = signature_of(module.forward).bind(*self.args, **self.kwargs)
        return ForwardCall(bound.args, bound.kwargs)

    def dynamic_shapes(self, module: nn.Module, batch: Any) -> dict[str, Any]:
        """Return the batch dimension of each tensor by argument name, as torch.export takes it.

        Args:
            module: the module that is called.
            batch: the name or `torch.export.Dim` of the batch dimension.
        """
        own_size = self.size

        def dims(leaf: Any) -> dict[int, Any] | None:
            if not isinstance(leaf, Tensor):
                # None for what is no tensor; an empty dict keeps all sizes of a tensor fixed
                return None
            return {0: batch} if _belongs_to_batch(leaf, own_size) else {}

        bound = signature_of(module.forward).bind(*self.args, **self.kwargs)
        return {name: tree_map(dims, value) for name, value in bound.arguments.items()}


def tensors_in(value: Any) -> list[Tensor]:
    """Return the tensors of nested containers, in order."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def _belongs_to_batch(tensor: Tensor, size: int) -> bool:
    return tensor.ndim > 0 and len(tensor) == size


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
            # some of what cannot be scripted fails only when it is called
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
        # strict=False: else torch refuses outputs in a list or a dict
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
    name = check_option("save_format", save_format, where, one_of(*_FORMATS))
    missing = [
        package
        for package in _NEEDED_BY_ONNX
        # find_spec, as it does not import these large packages
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
    numbered = [f"output_{index}" for index in range(len(outputs))]
    default_outputs = ["output"] if len(outputs) == 1 else numbered
    with _without_export_warnings():
        # a program: a module torch would capture itself, in several ways if the first one fails
        written = torch.onnx.export(
            _export_program(module, call),
            dynamo=True,
            verbose=False,
            dynamic_shapes=call.dynamic_shapes(module, "batch"),  # the name of the dimension
            input_names=names.inputs or _default_inputs(call),
            output_names=names.outputs or default_outputs,
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
