"""ModelSummary: a summary of a module's layers, under the names of Lightning's class."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from trainer_hooks.callbacks.model_table import named_layers, unwrap_module
from trainer_hooks.callbacks.model_table import summarize as summarize_layers

if TYPE_CHECKING:
    from torch import nn

    from trainer_hooks.callbacks.model_table import LayerSummary

__all__ = ["UNKNOWN_SIZE", "ModelSummary", "parse_batch_shape", "summarize"]


class ModelSummary:
    """A summary of a module's layers; `str()` of it is the table.

    Args:
        model: any module; its `example_input_array` is run if it has one.
        max_depth: the number of levels of submodules that get a row; -1 for all.

    Attributes:
        table: the rows and totals, as `trainer_hooks` has them.

    Raises:
        CallbackError: `max_depth` is not an integer of at least -1.
    """

    def __init__(self, model: nn.Module, max_depth: int = 1) -> None:
        self.table = summarize_layers(model, max_depth)
        self._max_depth = max_depth
        self._modules = dict(named_layers(unwrap_module(model)))

    def summarize(self) -> dict[str, LayerSummary]:
        """Return the row of each layer, by the layer's name."""
        return {layer.name: layer for layer in self.table.layers if layer.name in self._modules}

    @property
    def named_modules(self) -> list[tuple[str, nn.Module]]:
        """The name and module of each row."""
        return [(name, self._modules[name]) for name in self.summarize()]

    @property
    def layer_names(self) -> list[str]:
        """The names of the rows."""
        return [*self.summarize()]

    @property
    def layer_types(self) -> list[str]:
        """The class names of the rows."""
        return [layer.type for layer in self.summarize().values()]

    @property
    def in_sizes(self) -> list[list[Any] | str]:
        """The shapes of the inputs of the rows, `?` if they are not known."""
        return [_as_shape(layer.in_sizes) for layer in self.summarize().values()]

    @property
    def out_sizes(self) -> list[list[Any] | str]:
        """The shapes of the outputs of the rows, `?` if they are not known."""
        return [_as_shape(layer.out_sizes) for layer in self.summarize().values()]

    @property
    def param_nums(self) -> list[int]:
        """The numbers of parameters of the rows."""
        return [layer.parameters for layer in self.summarize().values()]

    @property
    def training_modes(self) -> list[bool]:
        """Whether each row's module is in train mode."""
        return [layer.mode == "train" for layer in self.summarize().values()]

    @property
    def total_training_modes(self) -> dict[str, int]:
        """The number of submodules in each mode."""
        return self.table.total_training_modes

    @property
    def total_parameters(self) -> int:
        """The number of elements of all parameters."""
        return self.table.total_parameters

    @property
    def trainable_parameters(self) -> int:
        """The number of elements that require a gradient."""
        return self.table.trainable_parameters

    @property
    def model_size(self) -> float:
        """The size of all parameters, in units of 10**6 bytes."""
        return self.table.megabytes

    @property
    def total_flops(self) -> int:
        """Floating-point operations of a forward pass of the example input."""
        return self.table.total_flops

    def __str__(self) -> str:
        return str(self.table)

    __repr__ = __str__


UNKNOWN_SIZE = "?"
"""The size of a value without a shape."""


def parse_batch_shape(batch: Any) -> list[Any] | str:
    """Return the shape of a tensor, a list of those in a list or tuple, or `?`."""
    if hasattr(batch, "shape"):
        return list(batch.shape)
    if isinstance(batch, list | tuple):
        return [parse_batch_shape(item) for item in batch]
    return UNKNOWN_SIZE


def _as_shape(text: str) -> list[Any] | str:
    """Return the shape that a cell of the table shows."""
    try:
        shape = ast.literal_eval(text.replace(UNKNOWN_SIZE, repr(UNKNOWN_SIZE)))
    except (SyntaxError, ValueError):  # a text that is cut, or of an object
        return text
    return list(shape) if isinstance(shape, list | tuple) else str(shape)


def summarize(lightning_module: nn.Module, max_depth: int = 1) -> ModelSummary:
    """Return the summary of a module's layers, with the arguments of `ModelSummary`."""
    return ModelSummary(lightning_module, max_depth)
