"""Plugins as objects, for `Trainer(plugins=[...])`: precision, environments, layers; and hooks.

Most stand for options of the Trainer; `trainer_options` returns them. A `CheckpointIO` stays.
"""

from __future__ import annotations

import copy
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

from torch import nn

from trainer_hooks.adapters.lightning.names import MODULE_NAMES
from trainer_hooks.checkpoint.custom_io import CheckpointIO as AnyCheckpointIO
from trainer_hooks.checkpoint.custom_io import facts_for_writing
from trainer_hooks.checkpoint.file import read_checkpoint, write_checkpoint
from trainer_hooks.checkpoint.paths import absolute_path, remove
from trainer_hooks.data.data_hooks import DataHooks
from trainer_hooks.errors import OptionError
from trainer_hooks.hooks.spec import HOOKS, empty_hook

__all__ = [
    "AsyncCheckpointIO",
    "CheckpointHooks",
    "CheckpointIO",
    "ClusterEnvironment",
    "DataHooks",
    "DoublePrecision",
    "HalfPrecision",
    "LayerSync",
    "LightningEnvironment",
    "MixedPrecision",
    "ModelHooks",
    "Precision",
    "SLURMEnvironment",
    "TorchCheckpointIO",
    "TorchElasticEnvironment",
    "TorchSyncBatchNorm",
    "trainer_options",
]


class _TrainerPlugin:
    """An object that stands for options of the Trainer."""

    def trainer_options(self) -> dict[str, Any]:
        """Return the options, by name."""
        return {}


class Precision(_TrainerPlugin):
    """The precision `"32-true"`, and the base of the others.

    Attributes:
        precision: the text that `Trainer(precision=...)` takes.
    """

    precision: str = "32-true"

    def trainer_options(self) -> dict[str, Any]:
        """Return the option `precision`."""
        return {"precision": self.precision}


class DoublePrecision(Precision):
    """The precision `"64-true"`."""

    precision = "64-true"


class HalfPrecision(Precision):
    """A precision of 16 bits throughout.

    Args:
        precision: `"bf16-true"` or `"16-true"`.
    """

    def __init__(self, precision: str = "16-true") -> None:
        self.precision = precision


class MixedPrecision(Precision):
    """Autocast to 16 bits.

    Args:
        precision: `"16-mixed"` or `"bf16-mixed"`.
        device: the type of device, such as `"cuda"`; the Trainer's own is used.
        scaler: must be left out: the Trainer makes the scaler of gradients.

    Raises:
        OptionError: a scaler is passed.
    """

    def __init__(self, precision: str, device: str, scaler: Any = None) -> None:
        if scaler is not None:
            raise OptionError(
                "scaler of MixedPrecision: the Trainer makes the scaler of gradients itself, with "
                "torch's defaults. Leave it out."
            )
        self.precision, self.device, self.scaler = precision, device, scaler


class LayerSync(_TrainerPlugin):
    """Base of plugins that share the statistics of layers among the processes."""


class TorchSyncBatchNorm(LayerSync):
    """BatchNorm layers share their statistics: `Trainer(sync_batchnorm=True)`."""

    def trainer_options(self) -> dict[str, Any]:
        """Return the option `sync_batchnorm`."""
        return {"sync_batchnorm": True}

    def apply(self, model: nn.Module) -> nn.Module:
        """Return the module with its BatchNorm layers replaced by synchronized ones."""
        converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
        return converted


class ClusterEnvironment(_TrainerPlugin):
    """The processes of a run, as environment variables give them; the Trainer finds it by itself.

    In a list of plugins it changes nothing.
    """

    creates_processes_externally: ClassVar[bool] = True
    _variables: ClassVar[tuple[str, str, str, str]] = (
        "WORLD_SIZE", "RANK", "LOCAL_RANK", "GROUP_RANK",
    )  # fmt: skip
    """The variables of the number of processes, the rank, that on its machine, and the machine."""

    @classmethod
    def detect(cls) -> bool:
        """Return whether the processes were started so."""
        return {*cls._variables[:3]} <= os.environ.keys()

    def _number(self, index: int, default: str = "0") -> int:
        return int(os.environ.get(self._variables[index], default))

    def world_size(self) -> int:
        """Return the number of processes."""
        return self._number(0, "1")

    def global_rank(self) -> int:
        """Return the rank of this process."""
        return self._number(1)

    def local_rank(self) -> int:
        """Return the rank of this process on its machine."""
        return self._number(2)

    def node_rank(self) -> int:
        """Return the index of this machine."""
        return self._number(3)

    @property
    def main_address(self) -> str:
        """The address of rank 0."""
        return os.environ.get("MASTER_ADDR", "127.0.0.1")

    @property
    def main_port(self) -> int:
        """The port of rank 0."""
        return int(os.environ.get("MASTER_PORT", "12910"))


class TorchElasticEnvironment(ClusterEnvironment):
    """Processes that torchrun starts."""


class LightningEnvironment(ClusterEnvironment):
    """Processes that the Trainer starts itself."""

    creates_processes_externally = False
    _variables = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "NODE_RANK")


class SLURMEnvironment(ClusterEnvironment):
    """Processes that `srun` starts.

    Args:
        auto_requeue: accepted; whether a job is queued again after a signal is up to SLURM, as a
            run that SIGUSR1 ends leaves a checkpoint from which `ckpt_path="auto"` goes on.
        requeue_signal: accepted; SIGUSR1 and SIGTERM have that effect.
    """

    _variables = ("SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID")

    def __init__(self, auto_requeue: bool = True, requeue_signal: Any = None) -> None:
        self.auto_requeue, self.requeue_signal = auto_requeue, requeue_signal

    @staticmethod
    def job_name() -> str | None:
        """Return the job's name, or None."""
        return os.environ.get("SLURM_JOB_NAME")

    @staticmethod
    def job_id() -> int | None:
        """Return the job's number; None without one, and in an interactive shell."""
        number = os.environ.get("SLURM_JOB_ID", "")
        is_shell = os.environ.get("SLURM_JOB_NAME") in ("bash", "interactive")
        return int(number) if number.isdigit() and not is_shell else None

    @staticmethod
    def resolve_root_node_address(nodes: str) -> str:
        """Return the first machine of a list as SLURM writes it, such as `node[5-9],other`."""
        first = re.sub(r"\[(.*?)[,-].*\]", r"\1", nodes)
        return re.sub(r"\[(.*?)\]", r"\1", first).split(" ")[0].split(",")[0]


class CheckpointIO(ABC):
    """Base of classes that write, read and remove the Trainer's checkpoints in their own way.

    The Trainer calls an object of it in `plugins` for each checkpoint, on rank 0 to save and remove
    and on every rank to load. It then writes no checkpoint itself: files have no seal, and are
    whole only if the class makes them so.
    """

    @abstractmethod
    def save_checkpoint(
        self,
        checkpoint: dict[str, Any],
        path: str | os.PathLike[str],
        storage_options: Any | None = None,
    ) -> None:
        """Write a checkpoint.

        Args:
            checkpoint: plain data and tensors, which the training changes after the call.
            path: the path or address.
            storage_options: the argument of `trainer.save_checkpoint`.
        """

    @abstractmethod
    def load_checkpoint(
        self, path: str | os.PathLike[str], map_location: Any | None = None
    ) -> dict[str, Any]:
        """Return the checkpoint that was written to a path.

        Args:
            path: the path or address.
            map_location: where the tensors go; the Trainer leaves it out.
        """

    @abstractmethod
    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Remove the checkpoint at a path or address."""

    def teardown(self) -> None:  # noqa: B027 - most classes have nothing to end
        """Finish at the end of each run, such as saves in a thread."""


class TorchCheckpointIO(CheckpointIO):
    """The Trainer's own files, for subclasses that do something besides.

    They are written whole or not at all, and sealed.
    """

    def save_checkpoint(
        self,
        checkpoint: dict[str, Any],
        path: str | os.PathLike[str],
        storage_options: Any | None = None,
    ) -> None:
        """Write a sealed file.

        Args:
            checkpoint: plain data and tensors.
            path: the path or address.
            storage_options: must be None.

        Raises:
            OptionError: `storage_options` is not None.
            CheckpointError: the file cannot be written.
        """
        if storage_options is not None:
            raise OptionError(
                f"storage_options of {type(self).__name__}: a file of torch takes none. Override "
                "save_checkpoint to use them, or configure fsspec."
            )
        write_checkpoint(checkpoint, path, **facts_for_writing(checkpoint))

    def load_checkpoint(
        self, path: str | os.PathLike[str], map_location: Any | None = None
    ) -> dict[str, Any]:
        """Return a file's content, compared with its seal; no code in it is run.

        Args:
            path: the path or address.
            map_location: where the tensors go, as in `torch.load`; by default to the CPU.

        Raises:
            CheckpointNotFoundError: there is no such file.
            CheckpointError: it is damaged, no checkpoint, or would need code to be run.
        """
        return read_checkpoint(path, "cpu" if map_location is None else map_location)

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Remove the file, if it is there."""
        remove(absolute_path(path))


class AsyncCheckpointIO(CheckpointIO):
    """Save by another `CheckpointIO` in a thread, one checkpoint after another.

    Checkpoints are also removed there, after the saves before, so that a file is gone only once its
    successor is there. The error of a save is raised by the next call or at the end of the run, and
    until then nothing is removed.

    Args:
        checkpoint_io: the one that saves; a `TorchCheckpointIO` by default.
    """

    def __init__(self, checkpoint_io: AnyCheckpointIO | None = None) -> None:
        self.checkpoint_io = TorchCheckpointIO() if checkpoint_io is None else checkpoint_io
        self._executor: ThreadPoolExecutor | None = None
        self._error: BaseException | None = None

    def save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        """Copy a checkpoint in memory, and write the copy in the thread."""
        self._raise_error()
        # now: the training goes on to change the tensors
        args, kwargs = copy.deepcopy((args, kwargs))
        self._submit(self.checkpoint_io.save_checkpoint, args, kwargs)

    def load_checkpoint(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return a checkpoint, once the saves before are finished."""
        self._finish()
        return self.checkpoint_io.load_checkpoint(*args, **kwargs)

    def remove_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        """Remove a checkpoint in the thread, after the saves before."""
        self._submit(self.checkpoint_io.remove_checkpoint, args, kwargs)

    def teardown(self) -> None:
        """Wait for all saves, and raise the error of one that failed."""
        self._finish()
        # by name, as any object may be a CheckpointIO
        getattr(self.checkpoint_io, "teardown", tuple)()

    def _submit(
        self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="checkpoint writer")
        self._executor.submit(self._call, call, args, kwargs)

    def _call(
        self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if self._error is not None:  # after a failed save, what it was to replace must stay
            return
        try:
            call(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - raised by the next call
            self._error = error

    def _finish(self) -> None:
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()
        self._raise_error()

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error


def trainer_options(plugins: Any) -> tuple[Any, dict[str, Any]]:
    """Return the plugins that are left for the Trainer, and the options for which others stand.

    Args:
        plugins: what `Trainer(plugins=...)` was given: one, or several.

    Raises:
        OptionError: two stand for different values of an option.
    """
    is_several = isinstance(plugins, Iterable) and not isinstance(plugins, str)
    given = list(plugins) if is_several else [plugins]
    options: dict[str, Any] = {}
    for plugin in given:
        if isinstance(plugin, _TrainerPlugin):
            for name, value in plugin.trainer_options().items():
                if options.setdefault(name, value) != value:
                    raise OptionError(
                        f"Trainer(plugins={plugins!r}): they stand for {name}={options[name]!r} "
                        f"and for {name}={value!r}. Keep one."
                    )
    rest = [plugin for plugin in given if not isinstance(plugin, _TrainerPlugin)]
    if len(rest) == len(given):
        return plugins, {}
    return rest or None, options


class ModelHooks:
    """The hooks of a module as methods that do nothing, for mixins."""


class CheckpointHooks:
    """The hooks of a module around checkpoints as methods that do nothing, for mixins."""


_OF_CHECKPOINTS = ("on_load_checkpoint", "on_save_checkpoint")
for _name in sorted(MODULE_NAMES & HOOKS.keys()):
    setattr(CheckpointHooks if _name in _OF_CHECKPOINTS else ModelHooks, _name, empty_hook(_name))
