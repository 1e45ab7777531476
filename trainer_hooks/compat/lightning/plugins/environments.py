"""Lightning's cluster environments: the trainer finds out by itself who has started it."""

from __future__ import annotations

from trainer_hooks.compat.refusing import refusing

__all__: list[str] = []

_FOUND = "torchrun, SLURM and a process group that is there are found without it"

__getattr__ = refusing(
    __name__,
    {
        "ClusterEnvironment": _FOUND,
        "LightningEnvironment": "pass Trainer(devices=2)",
        "SLURMEnvironment": _FOUND,
        "TorchElasticEnvironment": _FOUND,
        "KubeflowEnvironment": "start the processes with torchrun",
        "LSFEnvironment": "start the processes with torchrun",
        "MPIEnvironment": "start the processes with torchrun",
        "XLAEnvironment": "there are no TPUs here",
    },
)
