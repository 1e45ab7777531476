"""ModelSummary: what a model is made of, as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch.nn.parameter import is_lazy

from trainer_hooks._text import aligned
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.example_sizes import example_sizes
from trainer_hooks.errors import CallbackError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor, nn

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["LayerSummary", "ModelSummary", "ModelSummaryTable", "summarize"]


@dataclass(frozen=True, slots=True)
class LayerSummary:
    """One row: a submodule, or the parameters that the model holds itself.

    Attributes:
        name: its path in the model, as in `"encoder.0"`.
        type: its class.
        parameters: how many numbers its parameters hold, each parameter counted once.
        mode: `"train"` or `"eval"`, or an empty string for what has no mode.
        in_sizes: shapes of what its forward was given, `"?"` if it did not run.
        out_sizes: shapes of what its forward returned, `"?"` if it did not run.
        is_lazy: whether some of its parameters have no shape yet; they count as 0.
    """

    name: str
    type: str
    parameters: int
    mode: str
    in_sizes: str = "?"
    out_sizes: str = "?"
    is_lazy: bool = False


@dataclass(frozen=True, slots=True)
class ModelSummaryTable:
    """What `summarize` found; `str()` of it is the table.

    Attributes:
        layers: the rows, in the order of the model.
        trainable_parameters: how many numbers require a gradient.
        frozen_parameters: how many do not.
        megabytes: what all parameters take, in units of 10**6 bytes.
        modules_in_train: how many submodules are in train mode.
        modules_in_eval: how many are in eval mode.
        has_sizes: whether an example input was run through the model.
        is_lazy: whether some parameters have no shape yet, so that the totals are too low.
    """

    layers: tuple[LayerSummary, ...]
    trainable_parameters: int
    frozen_parameters: int
    megabytes: float
    modules_in_train: int
    modules_in_eval: int
    has_sizes: bool = False
    is_lazy: bool = False

    @property
    def total_parameters(self) -> int:
        """How many numbers all parameters hold; a shared parameter counts once."""
        return self.trainable_parameters + self.frozen_parameters

    def __str__(self) -> str:
        header = ["", "Name", "Type", "Params", "Mode"]
        if self.has_sizes:
            header += ["In sizes", "Out sizes"]
        rows = []
        for index, layer in enumerate(self.layers):
            count = f"{layer.parameters:,}" + (" (lazy)" if layer.is_lazy else "")
            row = [str(index), layer.name, layer.type, count, layer.mode]
            rows.append([*row, layer.in_sizes, layer.out_sizes] if self.has_sizes else row)
        lines = aligned([header, *rows], right={3}) if rows else []
        totals = [
            [f"{self.trainable_parameters:,}", "trainable params"],
            [f"{self.frozen_parameters:,}", "non-trainable params"],
            [f"{self.total_parameters:,}", "total params"],
            [f"{self.megabytes:,.3f}", "total estimated model params size (MB)"],
            [f"{self.modules_in_train:,}", "modules in train mode"],
            [f"{self.modules_in_eval:,}", "modules in eval mode"],
        ]
        rule = "-" * max(len(line) for line in (*lines, *aligned(totals, right={0})))
        if lines:
            lines = [lines[0], rule, *lines[1:], rule]
        if self.is_lazy:
            totals.append(["", "(lazy parameters have no size yet and are counted as 0)"])
        return "\n".join([*lines, *aligned(totals, right={0})])


class ModelSummary(Callback):
    """Print what the model is made of, when fit starts.

    With `module.example_input_array` set, the table has the sizes of what goes in and out. Running
    it leaves no trace: not in random numbers, buffers, gradients, or the module's mode.

    Args:
        max_depth: how many levels of submodules get a row: 1 for those of the model itself, 0 for
            the totals only, -1 for all.

    Raises:
        CallbackError: `max_depth` is no whole number from -1 on.

    Example::

        trainer = Trainer(callbacks=[ModelSummary(max_depth=2)])
    """

    def __init__(self, max_depth: int = 1) -> None:
        self.max_depth = _checked_depth(max_depth)

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Print the table."""
        trainer.print(summarize(module, self.max_depth))


def summarize(module: nn.Module, max_depth: int = 1) -> ModelSummaryTable:
    """Return what `module` is made of.

    Args:
        module: any module. If it has an `example_input_array` that is not None, it is run: a tuple
            or list as positional arguments, a mapping as keyword arguments, else as the one
            argument. With lazy parameters it is not, because that would initialize them.
        max_depth: how many levels of submodules get a row; -1 for all.

    Raises:
        CallbackError: `max_depth` is no whole number from -1 on.
    """
    _checked_depth(max_depth)
    shown = {
        name: layer
        for name, layer in module.named_modules()
        if name and (max_depth == -1 or name.count(".") < max_depth)
    }
    parameters = list(module.parameters())
    has_lazy = any(map(is_lazy, parameters))
    example = getattr(module, "example_input_array", None)
    sizes: dict[str, tuple[str, str]] = {}
    if example is not None and shown and not (has_lazy or any(map(is_lazy, module.buffers()))):
        sizes = example_sizes(module, shown, example)
    layers = [
        LayerSummary(
            name,
            type(layer).__name__,
            _count(layer.parameters()),
            "train" if layer.training else "eval",
            *sizes.get(name, ("?", "?")),
            is_lazy=any(map(is_lazy, layer.parameters())),
        )
        for name, layer in shown.items()
    ]
    own = list(module.parameters(recurse=False))
    if own and max_depth != 0:
        layers.append(
            LayerSummary("(own)", "Parameter", _count(own), "", is_lazy=any(map(is_lazy, own)))
        )
    in_train = sum(layer.training for layer in module.modules())
    return ModelSummaryTable(
        tuple(layers),
        trainable_parameters=_count(p for p in parameters if p.requires_grad),
        frozen_parameters=_count(p for p in parameters if not p.requires_grad),
        megabytes=_bytes(parameters) / 1e6,
        modules_in_train=in_train,
        modules_in_eval=sum(1 for _ in module.modules()) - in_train,
        has_sizes=bool(sizes),
        is_lazy=has_lazy,
    )


def _checked_depth(max_depth: object) -> int:
    if not isinstance(max_depth, int) or isinstance(max_depth, bool) or max_depth < -1:
        raise CallbackError(
            f"max_depth {max_depth!r} of ModelSummary: must be a whole number from -1 on. "
            "Write -1 to see all levels, 0 to see the totals only."
        )
    return max_depth


def _count(parameters: Iterable[Tensor]) -> int:
    return sum(0 if is_lazy(parameter) else parameter.numel() for parameter in parameters)


def _bytes(parameters: Iterable[Tensor]) -> int:
    return sum(0 if is_lazy(parameter) else parameter.nbytes for parameter in parameters)
