"""Export a module as a graph that runs without its Python code: ONNX and TorchScript."""

from __future__ import annotations

import io
import os
import re
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._log import warn
from trainer_hooks._options import Rule, check_option
from trainer_hooks.errors import OptionError, TrainerHooksAdvice, UsageError
from trainer_hooks.module.torch_wrappers import hide_run_attributes
from trainer_hooks.runtime.modes import evaluation_mode
from trainer_hooks.runtime.nested_tensors import move_to_device

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import nn

_METHOD = Rule(
    "'script', which keeps what depends on the data, or 'trace'",
    lambda value: value in ("script", "trace"),
)


_DEPRECATED_JIT = re.compile(r"torch\.jit\.\w+` is deprecated")


def to_onnx(
    module: nn.Module,
    base: type[nn.Module],
    file: Any,
    sample: Any,
    options: Mapping[str, Any],
) -> Any:
    """Export a module to ONNX; see `Module.to_onnx`.

    Args:
        module: the module to export.
        base: the class `Module`.
        file: a path, a file open for writing bytes, or None.
        sample: an input for the forward; None for the module's `example_input_array`.
        options: options of `torch.onnx.export`.

    Raises:
        UsageError: a package of the extra `export` is not installed.
    """
    example = _example(module, sample, "to_onnx", "input_sample")
    arguments = example if isinstance(example, tuple) else (example,)
    target = os.fspath(file) if isinstance(file, str | os.PathLike) else None
    with _naming_extra(), evaluation_mode(module), hide_run_attributes(module, base):
        if file is None or target is not None:
            return torch.onnx.export(module, arguments, target, **options)
        if options.get("dynamo", True):  # this exporter writes to paths only
            program = torch.onnx.export(module, arguments, **options)
            assert program is not None
            file.write(program.model_proto.SerializeToString())
            return program
        return torch.onnx.export(module, arguments, file, **options)


@contextmanager
def _naming_extra() -> Iterator[None]:
    """Name the extra where torch's exporter misses a package of it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("onnx"):  # a user's forward may import, too
            raise
        raise UsageError(
            f"Module.to_onnx: it needs {error.name}, which cannot be imported. Install it: "
            "pip install 'trainer-hooks[export]'."
        ) from error


def to_torchscript(
    module: nn.Module,
    base: type[nn.Module],
    file_path: str | os.PathLike[str] | None,
    method: str | None,
    example: Any,
    options: Mapping[str, Any],
) -> Any:
    """Export a module to TorchScript; see `Module.to_torchscript`.

    Args:
        module: the module to export.
        base: the class `Module`.
        file_path: the path or address to write to, or None.
        method: `"script"` or `"trace"`.
        example: an input for the forward; None for the module's `example_input_array`.
        options: options of `torch.jit.script` or `torch.jit.trace`.

    Raises:
        OptionError: the method is unknown, there is no input to trace with, or a callback has
            replaced a forward by one that can be traced alone.
    """
    from trainer_hooks.checkpoint.paths import absolute_path, open_whole

    owner = f"{type(module).__qualname__}.to_torchscript"
    check_option("method", method, owner, _METHOD, is_call=True)
    jit: Any = torch.jit
    inputs = None
    if method == "trace":
        inputs = _example(module, example, "to_torchscript", "example_inputs")
    # to memory first: the file is then written whole or not at all, also to an address
    content = io.BytesIO()
    with _told_of_torch_export(owner):
        with evaluation_mode(module), hide_run_attributes(module, base):
            if method == "script":
                _require_scriptable(module, owner)
                scripted = jit.script(module, **options)
            else:
                scripted = jit.trace(func=module, example_inputs=inputs, **options)
        if file_path is not None:
            jit.save(scripted, content)
    if file_path is not None:
        with open_whole(absolute_path(file_path), "export") as file:
            file.write(content.getvalue())
    return scripted


def _require_scriptable(module: nn.Module, owner: str) -> None:
    """Require that no callback has put a forward onto a module that TorchScript cannot script.

    Raises:
        OptionError: one has; torch's error would be about the code of that forward.
    """
    for name, part in module.named_modules():
        forward_owner = getattr(vars(part).get("forward"), "__self__", None)
        if reason := getattr(forward_owner, "not_scriptable", ""):
            where = f"self.{name}" if name else "the module"
            raise OptionError(
                f"method 'script' of {owner}: the forward of {where} cannot be scripted: {reason}. "
                "Pass method='trace' and example_inputs=."
            )


@contextmanager
def _told_of_torch_export(owner: str) -> Iterator[None]:
    """Name torch.export in one line, in the place of torch's warnings of TorchScript."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    is_told = False
    for warning in caught:
        if _DEPRECATED_JIT.search(str(warning.message)):
            is_told = True
            continue
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    if is_told:
        warn(
            f"{owner}: torch deprecates TorchScript. torch.export.export(module, (example,)) takes "
            "its place, and torch.export.save writes what it returns.",
            TrainerHooksAdvice,
        )


def _example(module: Any, given: Any, method: str, argument: str) -> Any:
    """Return an input for `forward`, on the module's device.

    Raises:
        OptionError: there is none.
    """
    inputs = module.example_input_array if given is None else given
    if inputs is None:
        raise OptionError(
            f"{type(module).__qualname__}.{method}({argument}=None): an input for forward must be "
            f"known. Pass {argument}=, or set self.example_input_array."
        )
    return move_to_device(inputs, module.device)
