"""Classes of accelerators, for `isinstance(trainer.accelerator, ...)` and `is_available()`.

Programs ask them what the machine has. The device of a run is an option of the Trainer.
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch

from trainer_hooks._names import is_of_package
from trainer_hooks.errors import OptionError
from trainer_hooks.trainer.lightning_attributes import TrainerAccelerator

__all__ = [
    "Accelerator",
    "AcceleratorRegistry",
    "CPUAccelerator",
    "CUDAAccelerator",
    "HPUAccelerator",
    "MPSAccelerator",
    "TPUAccelerator",
    "XLAAccelerator",
]


class _AcceleratorKind(type):
    """The metaclass: the accelerators that are instances of a class."""

    _device_type: str

    def __instancecheck__(cls, instance: object) -> bool:
        if not isinstance(instance, TrainerAccelerator):
            return False
        return cls._device_type in ("any", instance.root_device.type)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if not is_of_package(cls):
            return super().__call__(*args, **kwargs)
        raise OptionError(
            f"{cls.__name__}(): it tells what this machine has, and is no option. Pass "
            "Trainer(accelerator='cpu'), 'cuda', 'mps' or 'auto'."
        )


class Accelerator(metaclass=_AcceleratorKind):
    """Any device."""

    _device_type = "any"

    @classmethod
    def is_available(cls) -> bool:
        """Return whether this machine has such a device."""
        return cls.auto_device_count() > 0

    @classmethod
    def auto_device_count(cls) -> int:
        """Return the number of such devices on this machine; 1 for the CPU."""
        return 1


class CPUAccelerator(Accelerator):
    """The CPU."""

    _device_type = "cpu"


class CUDAAccelerator(Accelerator):
    """GPUs of NVIDIA or AMD."""

    _device_type = "cuda"

    @classmethod
    def auto_device_count(cls) -> int:
        """Return the number of GPUs."""
        return torch.cuda.device_count()


class MPSAccelerator(Accelerator):
    """The GPU of a Mac."""

    _device_type = "mps"

    @classmethod
    def auto_device_count(cls) -> int:
        """Return 1 on a Mac with such a GPU, else 0."""
        return int(torch.backends.mps.is_available())


class XLAAccelerator(Accelerator):
    """TPUs, on which nothing trains here."""

    _device_type = "xla"

    @classmethod
    def auto_device_count(cls) -> int:
        """Return 0."""
        return 0


TPUAccelerator = XLAAccelerator


class HPUAccelerator(XLAAccelerator):
    """Gaudi processors, on which nothing trains here."""

    _device_type = "hpu"


_Kind = TypeVar("_Kind", bound=type)


class _Registry(dict[str, Any]):
    """The accelerators of others by name, which libraries register as they are imported.

    A run takes none of them: `Trainer(accelerator=name)` is an error with the devices there are.
    """

    def register(
        self,
        name: str,
        accelerator: _Kind | None = None,
        description: str = "",
        override: bool = False,
        **init_params: Any,
    ) -> Any:
        """Keep a class under a name; without the class, return a decorator that does.

        Args:
            name: the name.
            accelerator: the class.
            description: ignored.
            override: ignored; a later class replaces an earlier one.
            init_params: ignored.
        """

        def keep(kind: _Kind) -> _Kind:
            self[name] = kind
            return kind

        return keep if accelerator is None else keep(accelerator)

    def available_accelerators(self) -> set[str]:
        """Return the registered names."""
        return set(self)


AcceleratorRegistry = _Registry()
"""Lightning's registry."""
