"""The forms of a module on its way to int8: as it was, prepared to learn for it, and converted."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.ao import quantization

from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Quantizer", "form_of", "make_qconfig"]

_QUIET = (
    "torch.ao.quantization is deprecated",
    "Please use quant_min and quant_max",
    "torch.quantize_per_tensor",
    "must run observer before calling calculate_qparams",
)
"""What torch warns of that a user of this callback can do nothing about."""


class Quantizer:
    """Takes one module from form to form, in place.

    Args:
        module: the module; its parts are replaced, and its own parameters left alone.
        qconfig: what observes and rounds.
        engine: the backend whose kernels it runs with.
        to_fuse: groups of names of layers that become one.
    """

    def __init__(
        self, module: nn.Module, qconfig: Any, engine: str | None, to_fuse: Sequence[Sequence[str]]
    ) -> None:
        self.module = module
        self.form = "plain"
        self._qconfig = qconfig
        self._engine = engine
        self._to_fuse = [list(group) for group in to_fuse]
        self._parts: dict[str, dict[str, nn.Module]] = {}

    def prepare(self) -> None:
        """Let it round as int8 does, while it learns; from a converted one, go back to that."""
        if self.form == "converted":
            self._take("prepared")
            return
        if self.form == "prepared":
            return
        module = self.module
        modes = [(part, part.training) for part in module.modules()]
        module.add_module("quant", quantization.QuantStub())
        module.add_module("dequant", quantization.DeQuantStub())
        with _quietly(), rng.isolated():  # the new layers draw weights that they do not keep
            module.train()
            if self._to_fuse:
                quantization.fuse_modules_qat(module, self._to_fuse, inplace=True)  # type: ignore[no-untyped-call]
            module.qconfig = self._qconfig
            quantization.prepare_qat(module, inplace=True)  # type: ignore[no-untyped-call]
            del module.qconfig
            self._see_weights()
        self.observe(is_on=False)  # until a stage says so: a summary's forward is none
        for part, mode in modes:
            part.training = mode
        self._keep("prepared")

    def convert(self) -> None:
        """Make it an int8 module, of what it has learned; it can go back to learning."""
        self.prepare()
        training = self.module.training
        self.module.eval()
        with _quietly(), self.engine():
            converted = quantization.convert(self.module)  # type: ignore[no-untyped-call]
        self.module.train(training)
        self._parts["converted"] = dict(converted.named_children())
        self._take("converted")

    @contextmanager
    def engine(self) -> Iterator[None]:
        """Run with the backend that the module is made for."""
        before = torch.backends.quantized.engine
        if self._engine is None or before == self._engine:
            yield
            return
        torch.backends.quantized.engine = self._engine
        try:
            yield
        finally:
            torch.backends.quantized.engine = before

    def prepared_state(self) -> dict[str, Any]:
        """Return the state of the module as it learns, whatever form it has."""
        form = self.form
        self._take("prepared")
        state = self.module.state_dict()
        self._take(form)
        return state

    def make_room(self, weights: Mapping[str, Any]) -> None:
        """Give ranges the size of saved ones: how many there are shows with the first batch."""
        for name, buffer in self.module.named_buffers():
            saved = weights.get(name)
            is_range = "fake_quant" in name or "activation_post_process" in name
            if is_range and isinstance(saved, Tensor) and saved.shape != buffer.shape:
                buffer.resize_(saved.shape)

    def observe(self, *, is_on: bool) -> None:
        """Let the ranges of values be observed, or leave them as they are."""
        switch = quantization.enable_observer if is_on else quantization.disable_observer
        self.module.apply(switch)

    @torch.no_grad()
    def _see_weights(self) -> None:
        """Give the ranges of weights a first value, without which nothing can be rounded."""
        for part in self.module.modules():
            rounding = getattr(part, "weight_fake_quant", None)
            if isinstance(rounding, nn.Module):
                rounding(part.weight)

    def _keep(self, form: str) -> None:
        self.form = form
        self._parts[form] = dict(self.module.named_children())

    def _take(self, form: str) -> None:
        self.form = form
        for name, part in self._parts[form].items():
            self.module.add_module(name, part)


def form_of(weights: Mapping[str, Any]) -> str:
    """Return which form of a module saved weights are of."""
    if any(isinstance(value, Tensor) and value.is_quantized for value in weights.values()):
        return "converted"
    if any(name.endswith("._packed_params") for name in weights):
        return "converted"
    is_prepared = any("fake_quant" in name or "activation_post_process" in name for name in weights)
    return "prepared" if is_prepared else "plain"


def make_qconfig(engine: str, observer_type: str) -> Any:
    """Return what observes and rounds for an engine.

    Args:
        engine: the backend.
        observer_type: `"average"` for moving averages of the ranges, or `"histogram"`.
    """
    with _quietly():
        qconfig = quantization.get_default_qat_qconfig(engine)  # type: ignore[no-untyped-call]
        if observer_type == "average":
            return qconfig
        activation = quantization.FakeQuantize.with_args(  # type: ignore[no-untyped-call]
            observer=quantization.HistogramObserver, quant_min=0, quant_max=255,
            reduce_range=engine != "qnnpack",
        )  # fmt: skip
        return quantization.QConfig(  # type: ignore[no-untyped-call]
            activation=activation, weight=qconfig.weight
        )


@contextmanager
def _quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        for message in _QUIET:
            warnings.filterwarnings("ignore", message=message)
        yield
