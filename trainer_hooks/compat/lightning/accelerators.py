"""Lightning's accelerators, which are options of the trainer here."""

from __future__ import annotations

from trainer_hooks.compat.refusing import refusing

__all__: list[str] = []

__getattr__ = refusing(
    __name__,
    {
        "Accelerator": "pass Trainer(accelerator='cpu'), 'cuda' or 'mps'",
        "CPUAccelerator": "pass Trainer(accelerator='cpu')",
        "CUDAAccelerator": "pass Trainer(accelerator='cuda')",
        "MPSAccelerator": "pass Trainer(accelerator='mps')",
        "XLAAccelerator": "there are no TPUs here",
        "find_usable_cuda_devices": "pass Trainer(devices=2), or a list of device numbers",
    },
)
