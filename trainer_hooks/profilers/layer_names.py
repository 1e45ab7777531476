"""LayerNames: each layer's forward is an action in what torch records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.profiler import record_function

if TYPE_CHECKING:
    from torch import nn
    from torch.utils.hooks import RemovableHandle

__all__ = ["LayerNames"]


class LayerNames:
    """Mark the forward of each layer of a module, until they are removed.

    Args:
        module: whose.
    """

    def __init__(self, module: nn.Module) -> None:
        self._marks: list[record_function] = []
        self._handles: list[RemovableHandle] = []
        self._names: dict[int, str] = {}
        for name, layer in module.named_modules():
            if name:
                self._names[id(layer)] = f"{type(layer).__qualname__}: {name}"
                self._handles += [
                    layer.register_forward_pre_hook(self._begin),
                    layer.register_forward_hook(self._end, always_call=True),
                ]

    def remove(self) -> None:
        """Mark nothing any more."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _begin(self, layer: nn.Module, inputs: Any) -> None:  # noqa: ARG002 - torch's signature
        mark = record_function(self._names.get(id(layer), type(layer).__qualname__))
        mark.__enter__()  # type: ignore[no-untyped-call]
        self._marks.append(mark)

    def _end(self, layer: nn.Module, inputs: Any, output: Any) -> None:  # noqa: ARG002
        if self._marks:
            self._marks.pop().__exit__(None, None, None)
