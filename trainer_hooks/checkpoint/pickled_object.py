"""PickledObject: an object that a checkpoint holds as a pickle, which only a trusted load opens.

Lightning keeps networks, optimizer classes and configurations that are hyperparameters as pickles.
So does a checkpoint of a Lightning module here, in a form that three readers understand:

- this library reads bytes and tensors, and runs nothing; `PickledObject.open` is called where the
  user passes `weights_only=False`;
- `torch.load(weights_only=False)`, and so Lightning, gets the object;
- `torch.load(weights_only=True)` of another program refuses the file, as it does Lightning's.
"""

from __future__ import annotations

import io
import pickle
from typing import TYPE_CHECKING, Any

import torch
from torch.serialization import safe_globals

from trainer_hooks.errors import is_interruption

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

_TENSORS = (torch.Tensor, torch.nn.Parameter)


class PickledObject:
    """An object as a pickle without its tensors, which lie beside it.

    Args:
        data: the pickle.
        tensors: the tensors that it refers to. A checkpoint that holds the weights of the same
            network writes their memory once.
    """

    __slots__ = ("data", "tensors")

    def __init__(self, data: bytes, tensors: list[torch.Tensor]) -> None:
        self.data = data
        self.tensors = tensors

    @classmethod
    def of(cls, value: object) -> PickledObject:
        """Return an object as a pickle.

        Raises:
            ValueError: it cannot be pickled, or holds a tensor of another class.
        """
        buffer = io.BytesIO()
        pickler = _Pickler(buffer)
        try:
            pickler.dump(value)
        # the errors that pickle documents, and those that objects raise in `__reduce__`
        except (pickle.PicklingError, AttributeError, TypeError, RuntimeError) as error:
            if is_interruption(error):
                raise
            raise ValueError(str(error)) from error
        return cls(buffer.getvalue(), pickler.tensors)

    def open(self) -> Any:
        """Return the object. This runs whatever code the pickle names."""
        return open_pickle(self.data, self.tensors)

    def __repr__(self) -> str:
        """Show no content, which differs between runs."""
        return "PickledObject()"


class _Pickler(pickle.Pickler):
    """A pickler that keeps tensors out of the pickle."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.tensors: list[torch.Tensor] = []
        self._numbers: dict[int, int] = {}

    def persistent_id(self, value: Any) -> int | None:
        """Return the number of a tensor; None for anything else, which is pickled."""
        if not isinstance(value, torch.Tensor):
            return None
        if type(value) not in _TENSORS:
            raise pickle.PicklingError(f"it holds a tensor of {type(value).__qualname__}")
        # one number for each tensor, so that tied weights stay tied
        number = self._numbers.setdefault(id(value), len(self.tensors))
        if number == len(self.tensors):
            self.tensors.append(value)
        return number


class _Unpickler(pickle.Unpickler):
    """The counterpart of `_Pickler`."""

    def __init__(self, data: bytes, tensors: list[torch.Tensor]) -> None:
        super().__init__(io.BytesIO(data))
        self._tensors = tensors

    def persistent_load(self, pid: Any) -> torch.Tensor:
        """Return the tensor of a number."""
        tensor: torch.Tensor = self._tensors[pid]
        return tensor


def open_pickle(data: bytes, tensors: list[torch.Tensor]) -> Any:
    """Return the object of a pickle; files name this function, so its place must stay.

    Args:
        data: the pickle.
        tensors: the tensors that it refers to.
    """
    return _Unpickler(data, tensors).load()


class OpenedByTrust:
    """Pickled as the call of `open_pickle`, which a trusted load makes.

    Args:
        data: the pickle.
        tensors: the tensors that it refers to.
    """

    def __init__(self, data: bytes, tensors: list[torch.Tensor]) -> None:
        self._arguments = data, tensors

    def __reduce__(self) -> Any:
        """Become the object when the file is opened as trusted."""
        return open_pickle, self._arguments


def reading_pickles_unopened() -> AbstractContextManager[Any]:
    """Return a context in which `torch.load(weights_only=True)` reads each pickle unopened."""
    # under the function's name the safe unpickler finds the class, which keeps the bytes
    name = f"{open_pickle.__module__}.{open_pickle.__qualname__}"
    return safe_globals([(PickledObject, name)])
