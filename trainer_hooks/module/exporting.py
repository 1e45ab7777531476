"""A module as a graph that runs without its code: ONNX and TorchScript."""

from __future__ import annotations

import io
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks import checkpoint
from trainer_hooks.errors import OptionError
from trainer_hooks.module.scripting import without_run
from trainer_hooks.runtime import move_to_device

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import nn

__all__ = ["to_onnx", "to_torchscript"]


def to_onnx(
    module: nn.Module,
    base: type[nn.Module],
    file: Any,
    sample: Any,
    options: Mapping[str, Any],
) -> Any:
    """Export a module to ONNX; the arguments are those of `Module.to_onnx`, and `Module`."""
    given = _example(module, sample, "to_onnx", "input_sample")
    arguments = given if isinstance(given, tuple) else (given,)
    target = os.fspath(file) if isinstance(file, str | os.PathLike) else None
    with _evaluating(module), without_run(module, base):
        if file is None or target is not None:
            return torch.onnx.export(module, arguments, target, **options)
        if options.get("dynamo", True):  # which writes to paths alone
            program = torch.onnx.export(module, arguments, **options)
            assert program is not None
            file.write(program.model_proto.SerializeToString())
            return program
        return torch.onnx.export(module, arguments, file, **options)


def to_torchscript(
    module: nn.Module,
    base: type[nn.Module],
    file_path: str | os.PathLike[str] | None,
    method: str | None,
    example: Any,
    options: Mapping[str, Any],
) -> Any:
    """Export a module to TorchScript; the arguments are those of `Module.to_torchscript`.

    `base` is `Module` itself.
    """
    if method not in ("script", "trace"):
        raise OptionError(
            f"{type(module).__qualname__}.to_torchscript(method={method!r}): must be 'script', "
            "which keeps what depends on the data, or 'trace'."
        )
    jit: Any = torch.jit
    given = None
    if method == "trace":
        given = _example(module, example, "to_torchscript", "example_inputs")
    with _evaluating(module), without_run(module, base):
        if method == "script":
            made = jit.script(module, **options)
        else:
            made = jit.trace(func=module, example_inputs=given, **options)
    if file_path is not None:
        content = io.BytesIO()
        jit.save(made, content)
        _write(checkpoint.located(file_path), content.getvalue())
    return made


def _example(module: Any, given: Any, method: str, argument: str) -> Any:
    """Return an input for `forward`, on the module's device.

    Raises:
        OptionError: there is none.
    """
    found = module.example_input_array if given is None else given
    if found is None:
        raise OptionError(
            f"{type(module).__qualname__}.{method}({argument}=None): an input for forward must be "
            f"known. Pass {argument}=, or set self.example_input_array."
        )
    return move_to_device(found, module.device)


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Let a module evaluate without gradients; its parts are in the modes they had afterwards."""
    modes = {part: part.training for part in module.modules()}
    with torch.no_grad():
        module.eval()
        try:
            yield
        finally:
            for part, was_training in modes.items():
                part.training = was_training


def _write(path: str, content: bytes) -> None:
    """Write a file whole or not at all, also where the path is an address."""
    if checkpoint.is_remote(path):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, checkpoint.name_of(path))
            source.write_bytes(content)
            checkpoint.upload(source, path, "export")
        return

    def write(file: Any) -> None:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())

    checkpoint.write_whole(Path(path), write)
