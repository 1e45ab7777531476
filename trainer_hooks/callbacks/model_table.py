"""The summary of a model's layers as data and as a text table, with an example run for sizes.

`ModelSummary` prints it; `compat.lightning.utilities` offers it under Lightning's names.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.backends import mha
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.parameter import is_lazy

from trainer_hooks._log import warn
from trainer_hooks._text import aligned, printable
from trainer_hooks.errors import CallbackError, TrainerHooksWarning, error_summary
from trainer_hooks.runtime.modes import evaluation_mode
from trainer_hooks.runtime.parameter_names import WRAPPERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor, nn
    from torch.utils.flop_counter import FlopCounterMode
    from torch.utils.hooks import RemovableHandle

# how torch.compile, activation checkpointing and FSDP name the one module that they wrap
_WRAPPED = (*WRAPPERS, "_fsdp_wrapped_module")
SummaryData = list[tuple[str, list[str]]]
"""The columns of a table: the header of each, and its cells."""
RIGHT = frozenset({"Params", "FLOPs"})
"""The headers of the right-aligned columns."""


@dataclass(frozen=True, slots=True)
class LayerSummary:
    """One row of the table: a submodule, or the parameters that the model holds directly.

    Attributes:
        name: its path in the model, as in `"encoder.0"`, without the names of wrappers.
        type: the name of its class.
        parameters: the number of elements of its parameters, each parameter counted once.
        mode: `"train"` or `"eval"`, or an empty string for parameters, which have no mode.
        in_sizes: shapes of its forward's inputs, `"?"` if it did not run.
        out_sizes: shapes of its forward's outputs, `"?"` if it did not run.
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
    """The summary of a model; `str()` of it is the table.

    Attributes:
        layers: the rows, in the order of the model.
        trainable_parameters: the number of elements that require a gradient.
        frozen_parameters: the number of elements that do not.
        megabytes: the size of all parameters, in units of 10**6 bytes.
        modules_in_train: the number of submodules in train mode.
        modules_in_eval: the number of submodules in eval mode.
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
        """The number of elements of all parameters; a shared parameter counts once."""
        return self.trainable_parameters + self.frozen_parameters

    @property
    def is_lazy(self) -> bool:
        """Whether some parameters have no shape yet, so that the totals are too low."""
        return any(layer.is_lazy for layer in self.layers)

    @property
    def total_training_modes(self) -> dict[str, int]:
        """The number of submodules in each mode."""
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


def summarize(module: nn.Module, max_depth: int = 1) -> ModelSummaryTable:
    """Return the summary of a model's layers; wrappers are left out.

    Args:
        module: any module. Its `example_input_array`, unless None, is run: a tuple or list as
            positional arguments, a mapping as keyword arguments, else as the one argument. With
            lazy parameters it is not run, because that would initialize them.
        max_depth: the number of levels of submodules that get a row; -1 for all.

    Raises:
        CallbackError: `max_depth` is not an integer of at least -1.
    """
    check_depth(max_depth)
    module = unwrap_module(module)
    everything = dict(named_layers(module))
    shown = {
        name: layer
        for name, layer in everything.items()
        if name and (max_depth == -1 or name.count(".") < max_depth)
    }
    parameters = list(module.parameters())
    # a forward would initialize lazy parameters, before the user's own code does
    is_incomplete = any(map(is_lazy, parameters)) or any(map(is_lazy, module.buffers()))
    example = getattr(module, "example_input_array", None)
    run = None if example is None or is_incomplete else run_example(module, shown, example)
    layers = [_summarize_layer(name, layer, run) for name, layer in shown.items()]
    direct = list(module.parameters(recurse=False))
    if direct and max_depth != 0:
        lazy = any(map(is_lazy, direct))
        layers.append(LayerSummary("(own)", "Parameter", _count(direct), "", is_lazy=lazy))
    # of the submodules, without the model itself, whose name is empty
    modes = [layer.training for name, layer in everything.items() if name]
    in_train = sum(modes)
    return ModelSummaryTable(
        tuple(layers),
        trainable_parameters=_count(p for p in parameters if p.requires_grad),
        frozen_parameters=_count(p for p in parameters if not p.requires_grad),
        megabytes=sum(0 if is_lazy(p) else p.nbytes for p in parameters) / 1e6,
        modules_in_train=in_train,
        modules_in_eval=len(modes) - in_train,
        has_sizes=run is not None,
        total_flops=0 if run is None else run.total_flops,
    )


def _summarize_layer(name: str, layer: nn.Module, run: ExampleRun | None) -> LayerSummary:
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


def _count(parameters: Iterable[Tensor]) -> int:
    return sum(0 if is_lazy(parameter) else parameter.numel() for parameter in parameters)


def check_depth(max_depth: object, owner: str = "ModelSummary") -> int:
    """Return `max_depth` if it is an integer of at least -1.

    Raises:
        CallbackError: it is not.
    """
    if not isinstance(max_depth, int) or isinstance(max_depth, bool) or max_depth < -1:
        raise CallbackError(
            f"max_depth {max_depth!r} of {owner}: must be a whole number from -1 on. "
            "Write -1 to see all levels, 0 to have no summary."
        )
    return max_depth


def totals(
    total_parameters: int,
    trainable_parameters: int,
    model_size: float,
    total_training_modes: Mapping[str, int],
    total_flops: int,
    summary_data: SummaryData,
) -> list[tuple[str, str]]:
    """Return the lines below the table: a figure and its label each."""
    lines = [
        (f"{trainable_parameters:,}", "trainable params"),
        (f"{total_parameters - trainable_parameters:,}", "non-trainable params"),
        (f"{total_parameters:,}", "total params"),
        (f"{model_size:,.3f}", "total estimated model params size (MB)"),
        (f"{total_training_modes['train']:,}", "modules in train mode"),
        (f"{total_training_modes['eval']:,}", "modules in eval mode"),
    ]
    columns = dict(summary_data)
    if "FLOPs" in columns:
        label = "FLOPs of one forward of the example (matrix products, convolutions, attention)"
        lines.append((f"{total_flops:,}", label))
    if any("(lazy)" in cell for cell in columns["Params"]):
        lines.append(("", "(lazy parameters have no size yet and are counted as 0)"))
    return lines


def text_table(summary_data: SummaryData, below: Sequence[tuple[str, str]]) -> str:
    """Return the table with the lines below it as plain text."""
    header = [name.strip() for name, _ in summary_data]
    columns = [[printable(cell) for cell in cells] for _, cells in summary_data]
    rows = list(zip(*columns, strict=True))
    right = {index for index, name in enumerate(header) if name in RIGHT}
    lines = aligned([header, *rows], right) if rows else []
    figures = aligned(below, right={0})
    rule = "-" * max(map(len, (*lines, *figures)))
    if lines:
        lines = [lines[0], rule, *lines[1:], rule]
    return "\n".join([*lines, *figures])


@dataclass(slots=True)
class ExampleRun:
    """Sizes and operation counts recorded while an example input ran through a model.

    Attributes:
        sizes: shapes of the first inputs and outputs, by the name of the layer that ran.
        flops: floating-point operations that torch counted, by the name of the layer that ran.
        total_flops: the operations of the whole model.
    """

    sizes: dict[str, tuple[str, str]] = field(default_factory=dict)
    flops: dict[str, int] = field(default_factory=dict)
    total_flops: int = 0


def run_example(
    module: nn.Module, layers: Mapping[str, nn.Module], example: Any
) -> ExampleRun | None:
    """Run `example` through `module` without side effects; return the records, None on failure.

    Args:
        module: the model, without wrappers.
        layers: the layers to watch, by name.
        example: a tuple or list of positional arguments, a mapping of keyword arguments, or the one
            argument.
    """
    from torch.utils.flop_counter import FlopCounterMode

    handles: list[RemovableHandle] = []
    example = _to_device_of(example, next(module.parameters(), None))
    try:
        with _no_side_effects(module), FlopCounterMode(display=False) as counter:
            seen = _record_layers(layers, counter, handles)
            if isinstance(example, Mapping):
                module(**example)
            elif isinstance(example, list | tuple):
                module(*example)
            else:
                module(example)
            seen.total_flops = counter.get_total_flops()
    except Exception as error:  # noqa: BLE001 - user code may fail in any way; it is reported
        warn(
            f"example_input_array of {type(module).__qualname__} could not be run for the summary, "
            f"so the table has no sizes: {error_summary(error)}. Set it to what forward "
            "takes, or to None.",
            TrainerHooksWarning,
        )
        return None
    finally:
        for handle in handles:
            handle.remove()
    return seen


def _record_layers(
    layers: Mapping[str, nn.Module], counter: FlopCounterMode, handles: list[RemovableHandle]
) -> ExampleRun:
    """Hook each layer to record the shapes of its inputs and outputs and its operations."""
    seen = ExampleRun()
    # a stack, since layers call each other
    running: list[tuple[str, int]] = []

    def before(name: str) -> Any:
        def hook(_: nn.Module, __: tuple[Any, ...]) -> None:
            running.append((name, counter.get_total_flops()))

        return hook

    def after(name: str) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
            inputs = [*args, *kwargs.values()]
            shown = inputs[0] if len(inputs) == 1 else inputs
            # a layer that is called several times shows the sizes of its first call
            seen.sizes.setdefault(name, (_shape(shown), _shape(out)))
            begun, counted = running.pop()
            # a layer that raised, and whose caller caught the error, never got its forward hook
            while begun != name:
                begun, counted = running.pop()
            # but the operations of all its calls
            seen.flops[name] = seen.flops.get(name, 0) + counter.get_total_flops() - counted

        return hook

    for name, layer in layers.items():
        handles.append(layer.register_forward_pre_hook(before(name)))
        handles.append(layer.register_forward_hook(after(name), with_kwargs=True))
    return seen


@contextmanager
def _no_side_effects(module: nn.Module) -> Iterator[None]:
    """Put `module` into eval mode without gradients, and restore all its state afterwards."""
    buffers = [
        (layer, name, buffer, buffer.clone())
        for layer in module.modules()
        for name, buffer in layer.named_buffers(recurse=False)
    ]
    generators = random.getstate()
    # NumPy is not imported for this: a module that was never loaded drew no numbers.
    numpy = sys.modules.get("numpy")
    numpy_state = numpy.random.get_state() if numpy is not None else None
    devices = sorted({p.device.index or 0 for p in module.parameters() if p.device.type == "cuda"})
    with ExitStack() as stack:
        # these devices alone: by default torch saves the generator of every GPU
        stack.enter_context(torch.random.fork_rng(devices=devices))
        # FlopCounterMode sets global module hooks, of which compiled modules warn
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", r"Using `torch.compile\(module\)` when there are global")
        # without this a compiled module would be compiled again, for eval mode
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        # the fast path of TransformerEncoder bypasses the forward of its layers, and so our hooks
        stack.callback(mha.set_fastpath_enabled, mha.get_fastpath_enabled())
        mha.set_fastpath_enabled(False)
        stack.enter_context(evaluation_mode(module))
        try:
            yield
        finally:
            for layer, name, buffer, content in buffers:
                # a forward may replace a buffer or write into it: put the object back, then its
                # content
                setattr(layer, name, buffer)
                buffer.copy_(content)
            random.setstate(generators)
            if numpy is not None:
                numpy.random.set_state(numpy_state)


def _to_device_of(example: Any, like: Tensor | None) -> Any:
    """Return `example` with its tensors on the device of the parameter `like`."""
    if isinstance(example, torch.Tensor) and like is not None:
        # integers stay integers: they may be indices of an embedding
        floating = example.is_floating_point() and like.is_floating_point()
        return example.to(like.device, like.dtype if floating else example.dtype)
    if isinstance(example, Mapping):
        return {key: _to_device_of(item, like) for key, item in example.items()}
    # exactly these: the constructor of a named tuple takes its items one by one
    if type(example) in {list, tuple}:
        return type(example)(_to_device_of(item, like) for item in example)
    return example


def _shape(value: Any) -> str:
    """Return the shape of a tensor, or the shapes in a container, as text."""
    if isinstance(value, torch.Tensor):
        return str(list(value.shape))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_shape(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_shape, value)) + "]"
    return "?"


def named_layers(
    module: nn.Module, path: str = "", seen: set[nn.Module] | None = None
) -> Iterator[tuple[str, nn.Module]]:
    """Yield `module` and its submodules with their paths, in order, each once, unwrapped."""
    seen = set() if seen is None else seen
    module = unwrap_module(module)
    if module in seen:
        return
    seen.add(module)
    yield path, module
    for name, child in module.named_children():
        yield from named_layers(child, f"{path}.{name}" if path else name, seen)


def unwrap_module(module: nn.Module) -> nn.Module:
    """Return the module inside wrappers such as those of `torch.compile` or DDP."""
    if isinstance(module, DistributedDataParallel | DataParallel):
        return unwrap_module(module.module)
    children = dict(module.named_children())
    wrapped = next((children[name] for name in _WRAPPED if name in children), None)
    return module if wrapped is None else unwrap_module(wrapped)
