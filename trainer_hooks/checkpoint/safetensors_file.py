"""Weights as a safetensors file, which other tools and languages can read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import IO, Any

import torch

from trainer_hooks.errors import CheckpointError, CheckpointNotFoundError, UsageError

SAFETENSORS_SUFFIX = ".safetensors"

_KEPT = ("epoch", "global_step", "hparams_name", "hyper_parameters", "trainer_hooks")
"""The parts of a checkpoint that go to the file's metadata, as JSON."""


def is_safetensors(path: str | os.PathLike[str]) -> bool:
    """Return whether a path ends in `.safetensors`."""
    return Path(path).suffix == SAFETENSORS_SUFFIX


def require_weights_only(path: str | os.PathLike[str], *, weights_only: bool) -> None:
    """Raise unless a checkpoint can be written as a safetensors file.

    Raises:
        UsageError: it is to hold more than weights.
        CheckpointError: the library is not installed.
    """
    if not weights_only:
        raise UsageError(
            f"save_checkpoint({str(path)!r}): a safetensors file holds weights alone, and nothing "
            "could be resumed from it. Pass weights_only=True, or a path that ends in .ckpt."
        )
    _library(f"checkpoint {str(path)!r}")


def dump_safetensors(checkpoint: dict[str, Any], file: IO[bytes]) -> None:
    """Write a checkpoint's weights into an open file.

    A tied weight is written once, and its other names go to the metadata. So do hyperparameters
    that JSON can hold; others, such as tuples and tensors, are left out.

    Raises:
        CheckpointError: a weight is no dense tensor.
    """
    tensors, tied = _distinct(checkpoint["state_dict"])
    entries = {name: checkpoint[name] for name in _KEPT if name in checkpoint}
    if "hyper_parameters" in entries:
        entries["hyper_parameters"] = {
            name: value for name, value in entries["hyper_parameters"].items() if _is_json(value)
        }
    # accelerate refuses metadata without `format`; the values must be texts
    metadata = {"format": "pt", "trainer_hooks": json.dumps({**entries, "tied": tied})}
    try:
        # not save_file, which takes a path: the file is open for an atomic write
        file.write(_library("a safetensors file").torch.save(tensors, metadata))
    except (KeyError, ValueError) as error:  # a dtype that it does not know
        raise CheckpointError(
            f"the weights cannot be written as safetensors: {error}. Save a .ckpt file."
        ) from error


def read_safetensors(path: str | os.PathLike[str], map_location: Any = "cpu") -> dict[str, Any]:
    """Return the checkpoint that `dump_safetensors` wrote; of another tool's file the weights.

    Args:
        path: the file.
        map_location: a device for the weights; the CPU for anything else that `torch.load` takes.

    Raises:
        CheckpointNotFoundError: there is no such file.
        CheckpointError: it is damaged or no safetensors file, or the library is not installed.
    """
    library = _library(f"checkpoint {str(path)!r}")
    if not os.path.isfile(path):  # noqa: PTH113 - Path's raises for a name that is too long
        raise CheckpointNotFoundError(f"checkpoint {str(path)!r} is not there.")
    device = str(map_location) if isinstance(map_location, str | torch.device) else "cpu"
    try:
        with library.safe_open(path, framework="pt", device=device) as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            entries = json.loads((file.metadata() or {}).get("trainer_hooks", "{}"))
        for name, other in entries.pop("tied", {}).items():
            weights[name] = weights[other]
    except (
        library.SafetensorError,
        AttributeError,
        LookupError,
        OSError,
        TypeError,
        ValueError,
    ) as error:
        raise CheckpointError(
            f"checkpoint {str(path)!r} cannot be read: it is damaged or no safetensors file "
            f"({error}). Use another one."
        ) from error
    return {**entries, "state_dict": weights}


def _library(subject: str) -> Any:
    try:
        import safetensors
        import safetensors.torch
    except ImportError as error:
        raise CheckpointError(
            f"{subject} needs the package safetensors, which is not installed. "
            "Install it with: pip install trainer-hooks[safetensors]."
        ) from error
    return safetensors


def _distinct(weights: dict[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Return each weight once, in memory of its own, and a map from tied names to written names."""
    tensors: dict[str, torch.Tensor] = {}
    tied: dict[str, str] = {}
    first: dict[Any, str] = {}
    memory: set[int] = set()
    for name, value in weights.items():
        is_dense = isinstance(value, torch.Tensor) and value.layout is torch.strided
        if not is_dense or value.is_quantized or value.is_meta:
            kind = (
                str(value.layout) if isinstance(value, torch.Tensor) else type(value).__qualname__
            )
            raise CheckpointError(
                f"the weight {name!r} ({kind}) cannot be written as safetensors: the file holds "
                "dense tensors alone. Save a .ckpt file."
            )
        start = value.untyped_storage().data_ptr()
        place = (start, value.storage_offset(), value.shape, value.stride(), value.dtype)
        if value.numel() and place in first:  # empty tensors may all have the address 0
            tied[name] = first[place]
            continue
        first[place] = name
        # safetensors refuses tensors that share memory, so views of one storage are cloned
        is_alone = start not in memory
        is_whole = value.untyped_storage().nbytes() == value.numel() * value.element_size()
        memory.add(start)
        # a lazy conjugate or negation is a flag of the tensor, which its bytes do not show
        tensor = value.detach().resolve_conj().resolve_neg().contiguous()
        tensors[name] = tensor if is_alone and is_whole else tensor.clone()
    return tensors, tied


def _is_json(value: object) -> bool:
    try:
        # compared, since JSON turns tuples into lists and keys into texts without an error
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError, RecursionError):
        return False
