"""`trainer-hooks checkpoint export FILE -o OUT`: write the weights to a file of their own."""

from __future__ import annotations

import copy
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer_hooks._text import count_with_noun
from trainer_hooks.checkpoint.file import write_checkpoint
from trainer_hooks.checkpoint.inspection import FileFault, UnusableFileError, verify_file
from trainer_hooks.checkpoint.parts import FORMAT
from trainer_hooks.checkpoint.safetensors_file import (
    dump_safetensors,
    is_safetensors,
    require_weights_only,
)
from trainer_hooks.cli.values import printable, size_text
from trainer_hooks.errors import UsageError
from trainer_hooks.runtime.parameter_names import with_plain_names

if TYPE_CHECKING:
    from pathlib import Path

    from trainer_hooks.checkpoint.inspection import CheckpointContents

_SUFFIXES = (".ckpt", ".pt", ".safetensors")

_KEPT = (
    "epoch",
    "global_step",
    "pytorch-lightning_version",
    "hparams_name",
    "hyper_parameters",
)
"""What of a checkpoint goes with the weights into another one."""


def export(source: Path, target: Path, *, is_forced: bool) -> int:
    """Write the weights of a checkpoint to another file, print a summary, and return the exit code.

    Args:
        source: the checkpoint; its checksums are verified first.
        target: the file to write; its suffix decides the format.
        is_forced: whether an existing file may be overwritten.

    Raises:
        UsageError: the target has an unknown suffix, or exists.
        CheckpointError: the source cannot be read.
    """
    if target.suffix not in _SUFFIXES:
        raise UsageError(
            f"output {str(target)!r}: its name must end in {', '.join(_SUFFIXES[:-1])} or "
            f"{_SUFFIXES[-1]}, which says what is written."
        )
    if target.is_dir():
        raise UsageError(f"output {str(target)!r} is a folder. Name a file in it.")
    # exists() is False for a link that leads nowhere, which would be replaced
    if not is_forced and (target.exists() or target.is_symlink()):
        raise UsageError(f"output {str(target)!r} is there already. Give --force to write over it.")
    if is_safetensors(target):
        require_weights_only(target, weights_only=True)  # without the library nothing is read
    # verified whole: a damaged weight would get new checksums in the new file
    contents = verify_file(source, FORMAT).with_tensors()
    if not contents.weights:
        raise UnusableFileError(source, FileFault.NO_CHECKPOINT, "there are no weights in it")
    if is_safetensors(target):
        write_checkpoint(_checkpoint(contents), target, dump=dump_safetensors)
    elif target.suffix == ".pt":
        write_checkpoint(_without_shared_storage(contents.weights), target)
    else:
        write_checkpoint(_checkpoint(contents), target)
    count, size = count_with_noun(len(contents.weights), "tensor"), size_text(target.stat().st_size)
    print(f"wrote {printable(target)}: {count}, {size}")
    return 0


def _checkpoint(contents: CheckpointContents) -> dict[str, Any]:
    """Return a checkpoint of weights and hyperparameters, in the format of the source."""
    entries = {name: contents.data[name] for name in _KEPT if name in contents.data}
    if contents.trainer_hooks:
        entries["loops"] = {}
        entries["trainer_hooks"] = {
            name: contents.trainer_hooks.get(name) for name in ("format", "version")
        }
    return {**entries, "state_dict": _without_shared_storage(contents.weights)}


def _without_shared_storage(weights: dict[str, Any]) -> dict[str, Any]:
    """Return weights without the parts of their storage that other tensors of the file use.

    Weights that share memory with one another keep sharing it.
    """
    # a file of Lightning may have torch's names of compiled layers
    weights = with_plain_names(weights)
    dense = {
        name: value
        for name, value in weights.items()
        # sparse tensors have no storage, and raise where it is asked for
        if isinstance(value, Tensor) and value.layout is torch.strided
    }
    used: Counter[int] = Counter()
    for tensor in dense.values():
        used[tensor.untyped_storage().data_ptr()] += tensor.numel() * tensor.element_size()
    alone = copy.copy(weights)  # with the modules' versions, which are an attribute of it
    for name, tensor in dense.items():
        memory = tensor.untyped_storage()
        # torch.save writes whole storages: one row of a table would bring the table along
        if used[memory.data_ptr()] < memory.nbytes():
            alone[name] = tensor.detach().clone()
    return alone
