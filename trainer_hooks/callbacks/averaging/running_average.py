"""Running averages of a module's weights, and their exchange with the weights in training.

`compat` builds on it: ModelEmaCallback of pytorch-accelerated is there.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim.swa_utils import AveragedModel, get_swa_multi_avg_fn

from trainer_hooks._options import Combination, Rule, finite_number
from trainer_hooks.errors import CallbackError, CheckpointError, OptionError, error_summary
from trainer_hooks.runtime.buffers import BufferRecord, load_buffers
from trainer_hooks.runtime.parameter_names import with_names_of, with_plain_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor

    from trainer_hooks.module.module import Module

    AvgFn = Callable[[Tensor, Tensor, Tensor | int], Tensor]
    MultiAvgFn = Callable[[Any, Any, Tensor | int], None]

_PREFIX = "module."
"""The prefix of the weights' names in the state of `AveragedModel`."""

DECAY = (
    finite_number(0.0),
    Rule(
        "a number from 0 to 1",
        lambda decay: decay <= 1,
        "Pass the share of the old average, such as 0.999.",
    ),
)
"""The rules for `decay`, the weight of the old average in a new one."""
AVERAGING_FUNCTION = Rule(
    "a function", callable, "Pass one, such as torch.optim.swa_utils.get_ema_{name}(0.99)."
).unless(None)
"""The rule for `avg_fn` and for `multi_avg_fn`."""
ONE_AVERAGING_FUNCTION = Combination(
    ("avg_fn", "multi_avg_fn"),
    lambda avg_fn, multi_avg_fn: avg_fn is None or multi_avg_fn is None,
    "only one of them can average. Leave one out.",
    "avg_fn {avg_fn!r} and multi_avg_fn {multi_avg_fn!r} of {owner}",
)
"""The rule for `avg_fn` and `multi_avg_fn` together."""


class RunningAverage:
    """A running average of a module's weights, in a copy of the module.

    Before the first update the copy holds the weights at the time of copying. A buffer that has
    come or has another shape since the last update is copied, and its average begins anew.

    Args:
        module: the module to average. It is copied once, without its gradients.
        device: the device of the average; each tensor's own unless given.
        use_buffers: whether buffers are averaged too; else those of the last update are kept.
        avg_fn: returns a new average of one tensor from the old one, the tensor, and the number
            averaged before; the mean of all unless given.
        multi_avg_fn: the same for lists of tensors, in place.

    Attributes:
        model: torch's `AveragedModel`; the averaged copy is its `module`.
    """

    def __init__(
        self,
        module: nn.Module,
        device: torch.device | None = None,
        use_buffers: bool = False,
        avg_fn: AvgFn | None = None,
        multi_avg_fn: MultiAvgFn | None = None,
    ) -> None:
        if avg_fn is None and multi_avg_fn is None:
            multi_avg_fn = self._mean
        for name, tensor in chain(module.named_parameters(), module.named_buffers()):
            if is_lazy(tensor):
                raise CallbackError(
                    f"{name!r} of {type(module).__qualname__} is lazy: it gets its size with the "
                    "first batch, and the average begins before it. Run a batch through the "
                    "module in configure_model."
                )
        self.model = AveragedModel(module, device, avg_fn, multi_avg_fn, use_buffers)
        # AveragedModel reads the count at each update: on the host this synchronizes no device
        self.model.n_averaged = torch.tensor(0)
        # the deep copy includes the gradients, which would only take memory
        for parameter in self.model.module.parameters():
            parameter.grad = None

    @property
    def module(self) -> Module:
        """The copy of the module that holds the average."""
        return self.model.module  # type: ignore[return-value]

    @property
    def count(self) -> int:
        """The number of updates so far."""
        return int(self.model.n_averaged)

    @count.setter
    def count(self, value: int) -> None:
        self.model.n_averaged.fill_(value)

    def update(self, module: nn.Module) -> None:
        """Update the average with the module's present weights; the first update copies them."""
        # AveragedModel pairs tensors by their order, and would pair others where a buffer came
        for averaged_part, part, leaf in _unequal_buffers(self.model.module, module):
            _copy_buffer(part, averaged_part, leaf)
        self.model.update_parameters(module)

    def require_same_layers(self, module: nn.Module) -> None:
        """Check that the module has the layers that it had when it was copied.

        Raises:
            CallbackError: it gained or lost parameters.
        """
        self._pairs(module)

    @torch.no_grad()
    def exchange(self, module: nn.Module) -> None:
        """Swap the averaged weights with the module's; a second call swaps them back exactly."""
        pairs = self._pairs(module)
        for averaged_part, part, leaf in _unequal_buffers(self.model.module, module):
            before = averaged_part._buffers.get(leaf)  # noqa: SLF001 - it may be None
            _copy_buffer(part, averaged_part, leaf)
            present = part._buffers.get(leaf)  # noqa: SLF001
            if before is not None and present is not None:
                before = before.to(present.device)  # an average may be on a device of its own
            part._buffers[leaf] = before  # noqa: SLF001
        for average, current in pairs:
            # tensor by tensor: at no time is there a second copy of all weights
            averaged = average.clone()
            average.copy_(current)
            current.copy_(averaged)

    @torch.no_grad()
    def copy_to(self, module: nn.Module) -> None:
        """Copy the averaged weights into the module."""
        pairs = self._pairs(module)
        for averaged_part, part, leaf in _unequal_buffers(self.model.module, module):
            _copy_buffer(averaged_part, part, leaf)
        for average, current in pairs:
            current.copy_(average)

    def state_dict(self) -> dict[str, Any]:
        """Return the averaged weights under the module's plain names."""
        return with_plain_names(self.model.module.state_dict())

    def extra_state(self) -> dict[str, Any]:
        """Return the rest of the state: the number of updates."""
        return {
            name: value
            for name, value in self.model.state_dict().items()
            if not name.startswith(_PREFIX)
        }

    def load(self, weights: Mapping[str, Any], extra: Mapping[str, Any] | None = None) -> None:
        """Restore an average from the results of `state_dict` and `extra_state`.

        Raises:
            CheckpointError: they do not fit the averaged module.
        """
        try:
            averaged = self.model.module
            averaged.load_state_dict(with_names_of(averaged.state_dict(), weights))
            if extra is not None:
                self.count = int(extra["n_averaged"])
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            name = type(self.model.module).__qualname__
            # torch's messages have several lines
            reason = " ".join(error_summary(error).split())
            raise CheckpointError(
                f"the average of the weights of {name} in the checkpoint does not fit it "
                f"({reason}): it must be as an average of that module was saved. "
                "Resume from another checkpoint, or without the callback that averages."
            ) from error

    def _mean(self, averages: list[Tensor], current: list[Tensor], _count: object) -> None:
        """Update means in place; integer tensors, such as batch counters, are copied."""
        if averages[0].is_floating_point() or averages[0].is_complex():
            # the count as an int: torch would copy a tensor from the device to make it one
            get_swa_multi_avg_fn()(averages, current, self.count)  # type: ignore[no-untyped-call]
        else:
            torch._foreach_copy_(averages, current)

    def _pairs(self, module: nn.Module) -> list[tuple[Tensor, Tensor]]:
        """Return each averaged tensor with the module's of the same name, without unequal buffers.

        Raises:
            CallbackError: the module gained or lost parameters since it was copied.
        """
        averaged = dict(self.model.module.named_parameters())
        current = dict(module.named_parameters())
        if averaged.keys() != current.keys():
            changed = ", ".join(map(repr, sorted(averaged.keys() ^ current.keys())[:4]))
            raise CallbackError(
                f"{type(module).__qualname__} whose weights are averaged: {changed} came or went "
                "since the averaging began, so the average does not fit it any more. Average the "
                "weights of a module that keeps its layers, without pruning or quantization; add "
                "layers in configure_model or in setup."
            )
        parameters = zip(averaged.values(), current.values(), strict=True)
        return [*parameters, *_equal_buffers(self.model.module, module)]


class ExternalAverage(RunningAverage):
    """A running average that a user's object computes, as `timm.utils.ModelEmaV2` does.

    Args:
        module: the module to average.
        decay: the weight of the old average in a new one, from 0 to 1.
        make: called with `module` and `decay=`; returns an `nn.Module` with the averaged copy in
            its attribute `module` and a method `update(module)`.
        where: the callback whose option `make` is, for messages.

    Attributes:
        model: the object that `make` returned.

    Raises:
        OptionError: `make` returned an object of another form.
    """

    def __init__(
        self, module: nn.Module, decay: float, make: Callable[..., Any], where: str
    ) -> None:
        model = make(module, decay=decay)
        copy = getattr(model, "module", None)
        has_update = isinstance(model, nn.Module) and callable(getattr(model, "update", None))
        # an object that keeps the module itself would average the weights in training
        if not has_update or not isinstance(copy, nn.Module) or copy is module:
            raise OptionError(
                f"model_ema {make!r} of {where}: called with the module and decay=, it returned "
                f"{type(model).__qualname__}; it must return an nn.Module with a copy of the "
                "module as its `module`, and a method update(module). Pass such a class, or None."
            )
        self.model: Any = model
        # such an object need not count its updates, and `put_in` must know whether there was one
        self._count = 0
        for parameter in copy.parameters():
            parameter.grad = None

    @property
    def count(self) -> int:
        """The number of updates so far."""
        return self._count

    @count.setter
    def count(self, value: int) -> None:
        self._count = value

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Let the object average the module's present weights in."""
        self.model.update(module)
        self._count += 1

    def extra_state(self) -> dict[str, Any]:
        """Return the number of updates and the object's own state."""
        return {**super().extra_state(), "n_averaged": self._count}

    def load(self, weights: Mapping[str, Any], extra: Mapping[str, Any] | None = None) -> None:
        """Restore an average with the rest of the object's state."""
        super().load(weights, extra)
        rest = {name: value for name, value in (extra or {}).items() if name != "n_averaged"}
        # not strict: the averaged weights, which are part of the object's state, are loaded above
        self.model.load_state_dict(rest, strict=False)


class ExchangeableAverage:
    """An average of the trained module, which can be exchanged with its weights for a while.

    Args:
        make: returns a new average of a module.

    Attributes:
        average: the average; None before there is a module.
        owner: the module that is averaged, or None.
        is_exchanged: whether the module has the averaged weights now.

    State: the averaged weights, the average's extra state, and the copy's changed buffers that no
    `state_dict` holds.
    """

    def __init__(self, make: Callable[[Module], RunningAverage]) -> None:
        self._make = make
        self.reset()

    def reset(self) -> None:
        """Reset the state that an earlier training left."""
        self.average: RunningAverage | None = None
        self.owner: Module | None = None
        self.is_exchanged = False
        self._pending: dict[str, Any] | None = None
        self._pending_buffers: dict[str, Any] = {}
        self._buffers = BufferRecord()

    @property
    def count(self) -> int:
        """The number of updates of the average."""
        return 0 if self.average is None else self.average.count

    @property
    def has_pending_state(self) -> bool:
        """Whether a restored state waits for `copy`."""
        return self._pending is not None

    def state_dict(self) -> dict[str, Any]:
        """Return the averaged weights and the extra state; empty before there is an average."""
        # a checkpoint that is saved before `copy` must not lose the restored average
        if self._pending is not None:
            return {**self._pending, **self.buffer_state()}
        if self.average is None:
            return {}
        weights, extra = dict(self.average.state_dict()), self.average.extra_state()
        return {"average": weights, "average_extra": extra, **self.buffer_state()}

    def buffer_state(self) -> dict[str, Any]:
        """Return the copy's changed buffers that no `state_dict` holds, as `average_buffers`.

        The result is empty if there are none.
        """
        buffers = self._pending_buffers
        if not buffers and self.average is not None:
            buffers = self._buffers.changed(self.average.module)
        return {"average_buffers": buffers} if buffers else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep a restored state until `copy` has made a copy of the module to load it into."""
        # the module may not be on its device yet, or not have all its layers
        names = ("average", "average_extra")
        self._pending = {n: state_dict[n] for n in names} if "average" in state_dict else None
        self.load_buffer_state(state_dict)

    def load_buffer_state(self, state_dict: dict[str, Any]) -> None:
        """Keep restored buffers until `copy`."""
        self._pending_buffers = dict(state_dict.get("average_buffers", {}))

    def copy(self, module: Module) -> RunningAverage:
        """Return the average of a module, made at the first call.

        Call it when the module has all its layers and is on its device.
        """
        if self.average is None or self.owner is not module:
            if self.owner is not module:
                self._buffers = BufferRecord()
            # before the loop restores the buffers: with those that a resume will build, too
            self._buffers.begin(module)
            self.owner, self.average = module, self._make(module)
            self.is_exchanged = False
        if self._pending is not None:
            self.average.load(self._pending["average"], self._pending["average_extra"])
            self._pending = None
        if self._pending_buffers:
            load_buffers(self.average.module, self._pending_buffers)
            self._pending_buffers = {}
        return self.average

    def require_same_layers(self, module: Module) -> None:
        """Check, if there is an average of the module, that no hook has added layers since.

        Raises:
            CallbackError: one did.
        """
        if self.average is not None and self.owner is module:
            self.average.require_same_layers(module)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the averaged weights into the module within the context, then its own again."""
        # within a validation the weights may be exchanged already, and must stay so afterwards
        was_exchanged = self.is_exchanged
        self.put_in()
        try:
            yield
        finally:
            if not was_exchanged:
                self.take_out()

    def put_in(self) -> None:
        """Put the averaged weights into the module, unless there was no update yet."""
        # before the first update the average is only the module as it was copied
        if self.count and not self.is_exchanged:
            self._exchange()

    def take_out(self) -> None:
        """Put the module's own weights back, if it has the averaged ones."""
        if self.is_exchanged:
            self._exchange()

    def _exchange(self) -> None:
        assert self.average is not None
        assert self.owner is not None
        self.average.exchange(self.owner)
        self.is_exchanged = not self.is_exchanged


def _equal_buffers(averaged: nn.Module, module: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Return each averaged buffer of the module's shape and dtype, with the module's."""
    current = dict(module.named_buffers())
    return [
        (buffer, current[name])
        for name, buffer in averaged.named_buffers()
        if name in current and _is_alike(buffer, current[name])
    ]


def _unequal_buffers(
    averaged: nn.Module, module: nn.Module
) -> list[tuple[nn.Module, nn.Module, str]]:
    """Return the buffers that differ in shape or dtype, or that only one module has.

    Returns:
        For each the part of the average, the same part of the module, and the buffer's name in it.
    """
    before, current = dict(averaged.named_buffers()), dict(module.named_buffers())
    unequal = []
    for name in before | current:
        if name in before and name in current and _is_alike(before[name], current[name]):
            continue
        owner, _, leaf = name.rpartition(".")
        unequal.append((averaged.get_submodule(owner), module.get_submodule(owner), leaf))
    return unequal


def _is_alike(first: Tensor, second: Tensor) -> bool:
    return first.shape == second.shape and first.dtype == second.dtype


def _copy_buffer(source: nn.Module, target: nn.Module, leaf: str) -> None:
    """Set a buffer to a copy of that of another module, on the target's device."""
    buffer, present = source._buffers.get(leaf), target._buffers.get(leaf)  # noqa: SLF001
    if buffer is not None:
        tensors = [present] if present is not None else list(target.parameters())
        device = tensors[0].device if tensors else buffer.device
        buffer = buffer.detach().to(device, copy=True)
    if leaf in target._buffers:  # noqa: SLF001 - torch has no other way to a buffer that is None
        target._buffers[leaf] = buffer  # noqa: SLF001
    else:
        is_persistent = leaf not in source._non_persistent_buffers_set  # noqa: SLF001
        target.register_buffer(leaf, buffer, persistent=is_persistent)
