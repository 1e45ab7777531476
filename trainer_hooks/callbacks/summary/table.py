"""What a model is made of, as data and as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch.nn.parameter import is_lazy

from trainer_hooks._text import aligned
from trainer_hooks.callbacks.summary.example_run import ExampleRun, run_example
from trainer_hooks.callbacks.summary.layers import named_layers, seen_through
from trainer_hooks.errors import CallbackError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import Tensor, nn

__all__ = [
    "RIGHT",
    "LayerSummary",
    "ModelSummaryTable",
    "SummaryData",
    "check_depth",
    "summarize",
    "text_table",
    "totals",
]

SummaryData = list[tuple[str, list[str]]]
"""The columns of a table: the header of each, and its cells."""

RIGHT = frozenset({"Params", "FLOPs"})
"""The headers of the columns that are flush right."""


@dataclass(frozen=True, slots=True)
class LayerSummary:
    """One row: a submodule, or the parameters that the model holds itself.

    Attributes:
        name: its path in the model, as in `"encoder.0"`, without the names of what wraps it.
        type: its class.
        parameters: how many numbers its parameters hold, each parameter counted once.
        mode: `"train"` or `"eval"`, or an empty string for what has no mode.
        in_sizes: shapes of what its forward was given, `"?"` if it did not run.
        out_sizes: shapes of what its forward returned, `"?"` if it did not run.
        flops: operations of its forward that torch counts, None if it did not run.
        is_lazy: whether some of its parameters have no shape yet; they count as 0.
    """

    name: str
    type: str
    parameters: int
    mode: str
    in_sizes: str = "?"
    out_sizes: str = "?"
    flops: int | None = None
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
        total_flops: floating-point operations of that run which torch counts: those of matrix
            products, convolutions and attention, of the forward pass alone.
    """

    layers: tuple[LayerSummary, ...]
    trainable_parameters: int
    frozen_parameters: int
    megabytes: float
    modules_in_train: int
    modules_in_eval: int
    has_sizes: bool = False
    total_flops: int = 0

    @property
    def total_parameters(self) -> int:
        """How many numbers all parameters hold; a shared parameter counts once."""
        return self.trainable_parameters + self.frozen_parameters

    @property
    def is_lazy(self) -> bool:
        """Whether some parameters have no shape yet, so that the totals are too low."""
        return any(layer.is_lazy for layer in self.layers)

    @property
    def total_training_modes(self) -> dict[str, int]:
        """How many submodules are in which mode."""
        return {"train": self.modules_in_train, "eval": self.modules_in_eval}

    @property
    def data(self) -> SummaryData:
        """The columns; sizes and operations only where an example input was run."""
        layers = self.layers
        columns = [
            (" ", [str(index) for index in range(len(layers))]),
            ("Name", [layer.name for layer in layers]),
            ("Type", [layer.type for layer in layers]),
            ("Params", [f"{r.parameters:,}" + (" (lazy)" if r.is_lazy else "") for r in layers]),
            ("Mode", [layer.mode for layer in layers]),
        ]
        if self.has_sizes:
            columns += [
                ("FLOPs", ["?" if r.flops is None else f"{r.flops:,}" for r in layers]),
                ("In sizes", [layer.in_sizes for layer in layers]),
                ("Out sizes", [layer.out_sizes for layer in layers]),
            ]
        return columns

    def __str__(self) -> str:
        return text_table(
            self.data,
            totals(
                self.total_parameters,
                self.trainable_parameters,
                self.megabytes,
                self.total_training_modes,
                self.total_flops,
                self.data,
            ),
        )


def totals(
    total_parameters: int,
    trainable_parameters: int,
    model_size: float,
    total_training_modes: Mapping[str, int],
    total_flops: int,
    summary_data: SummaryData,
) -> list[tuple[str, str]]:
    """Return what stands below the table: figures, and what each is."""
    found = [
        (f"{trainable_parameters:,}", "trainable params"),
        (f"{total_parameters - trainable_parameters:,}", "non-trainable params"),
        (f"{total_parameters:,}", "total params"),
        (f"{model_size:,.3f}", "total estimated model params size (MB)"),
        (f"{total_training_modes['train']:,}", "modules in train mode"),
        (f"{total_training_modes['eval']:,}", "modules in eval mode"),
    ]
    columns = dict(summary_data)
    if "FLOPs" in columns:
        what = "FLOPs of one forward of the example (matrix products, convolutions, attention)"
        found.append((f"{total_flops:,}", what))
    if any("(lazy)" in cell for cell in columns["Params"]):
        found.append(("", "(lazy parameters have no size yet and are counted as 0)"))
    return found


def text_table(summary_data: SummaryData, below: Sequence[tuple[str, str]]) -> str:
    """Return the table as plain text."""
    header = [name.strip() for name, _ in summary_data]
    rows = list(zip(*(cells for _, cells in summary_data), strict=True))
    right = {index for index, name in enumerate(header) if name in RIGHT}
    lines = aligned([header, *rows], right) if rows else []
    figures = aligned(below, right={0})
    rule = "-" * max(map(len, (*lines, *figures)))
    if lines:
        lines = [lines[0], rule, *lines[1:], rule]
    return "\n".join([*lines, *figures])


def summarize(module: nn.Module, max_depth: int = 1) -> ModelSummaryTable:
    """Return what `module` is made of; what only wraps a module is seen through.

    Args:
        module: any module. If it has an `example_input_array` that is not None, it is run: a tuple
            or list as positional arguments, a mapping as keyword arguments, else as the one
            argument. With lazy parameters it is not, because that would initialize them.
        max_depth: how many levels of submodules get a row; -1 for all.

    Raises:
        CallbackError: `max_depth` is no whole number from -1 on.
    """
    check_depth(max_depth)
    module = seen_through(module)
    everything = dict(named_layers(module))
    shown = {
        name: layer
        for name, layer in everything.items()
        if name and (max_depth == -1 or name.count(".") < max_depth)
    }
    parameters = list(module.parameters())
    is_incomplete = any(map(is_lazy, parameters)) or any(map(is_lazy, module.buffers()))
    example = getattr(module, "example_input_array", None)
    run = None if example is None or is_incomplete else run_example(module, shown, example)
    layers = [_row(name, layer, run) for name, layer in shown.items()]
    own = list(module.parameters(recurse=False))
    if own and max_depth != 0:
        lazy = any(map(is_lazy, own))
        layers.append(LayerSummary("(own)", "Parameter", _count(own), "", is_lazy=lazy))
    in_train = sum(layer.training for layer in everything.values())
    return ModelSummaryTable(
        tuple(layers),
        trainable_parameters=_count(p for p in parameters if p.requires_grad),
        frozen_parameters=_count(p for p in parameters if not p.requires_grad),
        megabytes=_bytes(parameters) / 1e6,
        modules_in_train=in_train,
        modules_in_eval=len(everything) - in_train,
        has_sizes=run is not None,
        total_flops=0 if run is None else run.total_flops,
    )


def _row(name: str, layer: nn.Module, run: ExampleRun | None) -> LayerSummary:
    seen = run or ExampleRun()
    return LayerSummary(
        name,
        type(layer).__name__,
        _count(layer.parameters()),
        "train" if layer.training else "eval",
        *seen.sizes.get(name, ("?", "?")),
        flops=seen.flops.get(name),
        is_lazy=any(map(is_lazy, layer.parameters())),
    )


def check_depth(max_depth: object, owner: str = "ModelSummary") -> int:
    """Return `max_depth` if it is a whole number from -1 on.

    Raises:
        CallbackError: it is not.
    """
    if not isinstance(max_depth, int) or isinstance(max_depth, bool) or max_depth < -1:
        raise CallbackError(
            f"max_depth {max_depth!r} of {owner}: must be a whole number from -1 on. "
            "Write -1 to see all levels, 0 to have no summary."
        )
    return max_depth


def _count(parameters: Iterable[Tensor]) -> int:
    return sum(0 if is_lazy(parameter) else parameter.numel() for parameter in parameters)


def _bytes(parameters: Iterable[Tensor]) -> int:
    return sum(0 if is_lazy(parameter) else parameter.nbytes for parameter in parameters)
