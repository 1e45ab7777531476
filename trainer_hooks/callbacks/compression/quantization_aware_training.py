"""QuantizationAwareTraining: train a module for int8, and make it one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.callbacks.compression.quantization import Quantizer, form_of, make_qconfig
from trainer_hooks.callbacks.monitoring import check_choice, check_count
from trainer_hooks.callbacks.weight_owner import WeightOwner
from trainer_hooks.errors import CallbackError, OptionError
from trainer_hooks.runtime import map_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["QuantizationAwareTraining"]

_WHERE = "QuantizationAwareTraining"
_STAGES = ("train", "validate", "test", "predict")


class QuantizationAwareTraining(WeightOwner):
    """Train a module for int8: it rounds as int8 does while it learns, and becomes int8 at the end.

    In a fit its layers are replaced by ones that observe the ranges of their values and round them.
    When the fit is over they are converted: the module then computes with eight-bit integers, on
    the CPU, and has about a quarter of the size. It is torch's `torch.ao.quantization`, with all
    that it asks of a module: the tensors that `forward` is given are quantized and what it returns
    is turned back, so in between there must be layers and functions that can compute with such
    tensors; a sum of two of them is to be written with `torch.ao.nn.quantized.FloatFunctional`.

    Checkpoints can be resumed from, before and after the end; one of weights alone that is saved
    after the fit holds the int8 weights. To evaluate either, have this callback in the trainer. A
    further fit goes on from what was learned.

    Args:
        qconfig: the backend to be made for, such as `"fbgemm"` or `"x86"` for servers and
            `"qnnpack"` for phones, or a `torch.ao.quantization.QConfig` of one's own.
        observer_type: `"average"` for moving averages of the ranges, or `"histogram"`; of a
            backend's name.
        collect_quantization: how many forwards quantize what they are given, or a function of the
            trainer that says whether to; all unless given.
        modules_to_fuse: groups of names of layers that follow each other and become one, as
            `[["conv", "norm", "relu"]]`.
        input_compatible: whether the converted module takes and returns ordinary tensors; if not,
            quantized ones.
        quantize_on_fit_end: whether it is converted when fit ends; if not, it stays as it is
            trained.
        observer_enabled_stages: the stages in which ranges are observed: some of `"train"`,
            `"validate"`, `"test"` and `"predict"`.

    State: how many forwards quantized what they were given; the ranges are part of the weights.

    Raises:
        OptionError: an argument is outside its rule.
        CallbackError: in a fit, a layer to fuse is none of the module's, or another callback
            averages or prunes it.

    Example::

        trainer = Trainer(max_epochs=2, callbacks=[QuantizationAwareTraining()])
        trainer.fit(module, train_loader, val_loader)
    """

    def __init__(
        self,
        qconfig: Any = "fbgemm",
        observer_type: str = "average",
        collect_quantization: int | Callable[[Trainer], bool] | None = None,
        modules_to_fuse: Sequence[Sequence[str]] | None = None,
        input_compatible: bool = True,
        quantize_on_fit_end: bool = True,
        observer_enabled_stages: Sequence[str] = ("train",),
    ) -> None:
        check_choice("observer_type", observer_type, _WHERE, ("average", "histogram"))
        self._engine, self._qconfig = _checked_qconfig(qconfig, observer_type)
        if collect_quantization is not None and not callable(collect_quantization):
            check_count("collect_quantization", collect_quantization, _WHERE)
        self._collects = collect_quantization
        self._to_fuse = _checked_groups(modules_to_fuse)
        yes_no = (True, False)
        self._is_compatible = check_choice("input_compatible", input_compatible, _WHERE, yes_no)
        self._converts = check_choice("quantize_on_fit_end", quantize_on_fit_end, _WHERE, yes_no)
        stages = observer_enabled_stages
        if isinstance(stages, str):
            raise OptionError(
                f"observer_enabled_stages {stages!r} of {_WHERE}: it must be a list of stages. "
                f"Pass [{stages!r}]."
            )
        for stage in stages:
            check_choice("observer_enabled_stages", stage, _WHERE, _STAGES)
        self._observed_stages = frozenset(stages)
        self._quantizer: Quantizer | None = None
        self._forward_calls = 0

    @property
    def is_converted(self) -> bool:
        """Whether the module of the last run computes with integers now."""
        return self._quantizer is not None and self._quantizer.form == "converted"

    def state_dict(self) -> dict[str, Any]:
        """Return how many forwards quantized what they were given."""
        return {"forward_calls": self._forward_calls}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take it back."""
        self._forward_calls = state_dict["forward_calls"]

    def _forget(self) -> None:
        self._forward_calls = 0

    def on_after_configure_model(self, trainer: Trainer, module: Module) -> None:
        """Prepare the module that is to be trained."""
        if trainer.state.fn == "fit":
            self._quantizer_of(trainer, module).prepare()

    def on_load_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Give a module that is evaluated the form of the weights that are put into it."""
        weights = checkpoint["state_dict"]
        form = form_of(weights)
        if form == "plain":
            return
        quantizer = self._quantizer_of(trainer, module)
        quantizer.prepare()
        quantizer.make_room(weights)
        if trainer.state.fn != "fit" and form == "converted":
            quantizer.convert()

    def on_save_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Save what can be learned on from; as weights alone, what the module has."""
        quantizer = self._quantizer
        if quantizer is not None and quantizer.module is module and "callbacks" in checkpoint:
            checkpoint["state_dict"] = quantizer.prepared_state()

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Observe ranges in training, or not."""
        self._observe("train")

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Observe ranges in validation, or not; in the sanity check never."""
        self._observe("sanity_check" if trainer.sanity_checking else "validate")

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Go back to how it is in training."""
        self._observe("train")

    def on_test_start(self, trainer: Trainer, module: Module) -> None:
        """Observe ranges in the test, or not."""
        self._observe("test")

    def on_predict_start(self, trainer: Trainer, module: Module) -> None:
        """Observe ranges in prediction, or not."""
        self._observe("predict")

    def on_fit_end(self, trainer: Trainer, module: Module) -> None:
        """Convert the module."""
        if self._converts and not trainer.is_leaving and self._quantizer is not None:
            self._quantizer.convert()

    def _observe(self, stage: str) -> None:
        quantizer = self._quantizer
        if quantizer is not None and quantizer.form == "prepared":
            quantizer.observe(is_on=stage in self._observed_stages)

    def _quantizer_of(self, trainer: Trainer, module: Module) -> Quantizer:
        """Return what takes the module from form to form; its forward is wrapped once."""
        if self._quantizer is None or self._quantizer.module is not module:
            _require_layers(module, self._to_fuse)
            self._quantizer = Quantizer(module, self._qconfig, self._engine, self._to_fuse)
            module.__dict__["forward"] = self._wrapped(trainer, self._quantizer, module.forward)
        return self._quantizer

    def _wrapped(
        self, trainer: Trainer, quantizer: Quantizer, forward: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Return the forward with tensors quantized before and turned back after."""

        def quantizing(*args: Any, **kwargs: Any) -> Any:
            module = quantizer.module
            is_converted = quantizer.form == "converted"
            if quantizer.form == "plain" or (is_converted and not self._is_compatible):
                with quantizer.engine():
                    return forward(*args, **kwargs)
            if not is_converted:
                if not self._is_collecting(trainer):
                    return forward(*args, **kwargs)
                self._forward_calls += 1
            args, kwargs = map_tensors((args, kwargs), lambda tensor: _stubbed(module, tensor))
            with quantizer.engine():
                dequantize: Any = module.dequant
                return map_tensors(forward(*args, **kwargs), dequantize)

        return quantizing

    def _is_collecting(self, trainer: Trainer) -> bool:
        collects = self._collects
        if callable(collects):
            return bool(collects(trainer))
        return collects is None or self._forward_calls < collects


def _stubbed(module: Any, tensor: torch.Tensor) -> torch.Tensor:
    """Quantize a tensor of floats; what counts or names classes stays."""
    quantized: torch.Tensor = module.quant(tensor) if tensor.is_floating_point() else tensor
    return quantized


def _checked_qconfig(qconfig: Any, observer_type: str) -> tuple[str | None, Any]:
    """Return the engine that a qconfig names, or None, and the qconfig.

    Raises:
        OptionError: it is neither an engine of this torch nor a QConfig.
    """
    from torch.ao.quantization import QConfig

    if isinstance(qconfig, QConfig):
        return None, qconfig
    engines = [name for name in torch.backends.quantized.supported_engines if name != "none"]
    if not isinstance(qconfig, str) or qconfig not in engines:
        raise OptionError(
            f"qconfig {qconfig!r} of {_WHERE}: it must be one of {', '.join(engines)}, or a "
            "torch.ao.quantization.QConfig. Pass the backend that the module is to run with."
        )
    return qconfig, make_qconfig(qconfig, observer_type)


def _checked_groups(groups: Any) -> list[list[str]]:
    """Return groups of names.

    Raises:
        OptionError: they are none.
    """
    if groups is None:
        return []
    found = [list(group) if isinstance(group, list | tuple) else [] for group in groups]
    if not all(len(g) > 1 and all(isinstance(n, str) for n in g) for g in found):
        raise OptionError(
            f"modules_to_fuse {groups!r} of {_WHERE}: it must be a list of lists of at least two "
            "names. Pass the layers that follow each other, as [['conv', 'norm', 'relu']]."
        )
    return found


def _require_layers(module: torch.nn.Module, groups: list[list[str]]) -> None:
    names = {name for name, _ in module.named_modules()}
    for group in groups:
        for name in group:
            if name not in names:
                raise CallbackError(
                    f"modules_to_fuse {group!r} of {_WHERE}: {type(module).__qualname__} has no "
                    f"layer {name!r}. Name layers as module.named_modules() does."
                )
