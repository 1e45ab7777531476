"""Plugins as objects, for `Trainer(plugins=[...])`: precision, environments, layers; and hooks.

Each stands for options of the Trainer; `trainer_options` returns them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any, ClassVar

from torch import nn

from trainer_hooks.adapters.lightning.names import MODULE_NAMES
from trainer_hooks.data.data_hooks import DataHooks
from trainer_hooks.errors import OptionError
from trainer_hooks.hooks.spec import HOOKS, empty_hook

__all__ = [
    "CheckpointHooks",
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
