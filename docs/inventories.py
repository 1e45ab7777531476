"""Inventories of names that others document, for the site's links: torch's and Python's.

They are files of this repository, since a build has no network. The format is Sphinx's
version 1, which is plain text. Each name is looked up in the installed torch or Python.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

__all__ = ["inventories"]

_OWN_PAGES = (
    "torch.autograd.profiler.profile torch.compile torch.Generator torch.nn.Module "
    "torch.nn.parameter.Parameter torch.optim.Adam torch.optim.AdamW torch.optim.LBFGS "
    "torch.optim.SGD torch.optim.lr_scheduler.LRScheduler "
    "torch.optim.lr_scheduler.ReduceLROnPlateau torch.nn.SyncBatchNorm "
    "torch.optim.swa_utils.AveragedModel torch.load torch.save torch.use_deterministic_algorithms"
)
"""Names to each of which torch's documentation gives a page."""

_TORCH = {
    "tensors.html": "torch.Tensor",
    "tensor_attributes.html": "torch.device torch.dtype",
    "data.html": (
        "torch.utils.data.DataLoader torch.utils.data.Dataset torch.utils.data.IterableDataset "
        "torch.utils.data.Sampler torch.utils.data.distributed.DistributedSampler"
    ),
    "optim.html": "torch.optim.Optimizer",
    "profiler.html": "torch.profiler.profile torch.profiler.ProfilerActivity",
    "distributed.html": "torch.distributed.init_process_group",
    "distributed.fsdp.fully_shard.html": "torch.distributed.fsdp.fully_shard",
    **{f"generated/{name}.html": name for name in _OWN_PAGES.split()},
}
_PYTHON = {
    "library/argparse.html": "argparse.ArgumentParser argparse.Namespace",
    "library/collections.abc.html": (
        "collections.abc.Callable collections.abc.Collection collections.abc.Hashable "
        "collections.abc.Iterable collections.abc.Iterator collections.abc.Mapping "
        "collections.abc.MutableMapping collections.abc.Sequence"
    ),
    "library/contextlib.html": "contextlib.AbstractContextManager",
    "library/datetime.html": "datetime.datetime datetime.timedelta",
    "library/enum.html": "enum.Enum enum.IntEnum enum.StrEnum",
    "library/exceptions.html": (
        "ArithmeticError AttributeError BaseException Exception FileNotFoundError ImportError "
        "KeyboardInterrupt KeyError LookupError OSError RuntimeError StopIteration SystemExit "
        "TypeError UserWarning ValueError Warning"
    ),
    "library/functions.html": "bool float int object type",
    "library/os.html": "os.PathLike",
    "library/pathlib.html": "pathlib.Path",
    "library/stdtypes.html": "bytes dict frozenset list set str tuple",
    "library/typing.html": (
        "typing.Any typing.Literal typing.NamedTuple typing.Protocol typing.TextIO"
    ),
}


def inventories() -> dict[str, str]:
    """Return the text of each inventory, by its path below docs/."""
    return {
        "inventories/torch.inv": _inventory("PyTorch", _TORCH),
        "inventories/python.inv": _inventory("Python", _PYTHON),
    }


def _inventory(project: str, pages: dict[str, str]) -> str:
    lines = ["# Sphinx inventory version 1", f"# Project: {project}", "# Version: "]
    for page, names in pages.items():
        for name in names.split():
            kind = "class" if inspect.isclass(_object(name)) else "function"
            if inspect.isclass(_object(name)) and issubclass(_object(name), BaseException):
                kind = "exception"
            lines.append(f"{name} {kind} {page}")
    return "\n".join(lines) + "\n"


def _object(name: str) -> Any:
    """Return the object of a dotted name.

    Raises:
        AttributeError: there is none of this name any longer.
    """
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module or "builtins"), attribute)
