"""QuantizationAwareTraining: train a module for int8 and convert it to int8."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.ao import quantization

from trainer_hooks._options import FLAG, Rule, check_option, one_of, option_rules, whole_number
from trainer_hooks.callbacks.base import WeightOwner
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.errors import CallbackError, OptionError
from trainer_hooks.runtime import rng
from trainer_hooks.runtime.modes import restored_modes
from trainer_hooks.runtime.nested_tensors import map_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

_QUIET = (
    "torch.ao.quantization is deprecated",
    "Please use quant_min and quant_max",
    "torch.quantize_per_tensor",
    "must run observer before calling calculate_qparams",
)
"""Beginnings of torch's warnings that a user of this callback can do nothing about."""


class QuantizingForward:
    """The forward of a quantized module: it quantizes the inputs and dequantizes the outputs.

    The module has its method `forward`. That of an object with a reference to the module, and no
    closure: a deep copy or a pickle of the module brings its own.

    Args:
        module: the module; it may have such a forward already, as a copy has.
        engine: the backend whose kernels it runs with; None for the one that is set in torch.
        is_compatible: whether the converted module takes and returns ordinary tensors.

    Attributes:
        module: the module.
        form: the form of the module, as in `Quantizer`.
        choose: whether the prepared module's next forward quantizes; None where no run asks, as in
            a copy, which does as the last forward did.
    """

    not_scriptable = "it quantizes the inputs of each call, for QuantizationAwareTraining"
    """The reason why TorchScript cannot script it, which `to_torchscript` tells."""

    def __init__(self, module: nn.Module, engine: str | None, *, is_compatible: bool) -> None:
        self.module = module
        self.form = "plain"
        self.choose: Callable[[], bool] | None = None
        self._engine = engine
        self._is_compatible = is_compatible
        self._assigned: Any = vars(module).get("forward")
        self._quantizes = True
        former = getattr(self._assigned, "__self__", None)
        if isinstance(former, QuantizingForward):
            self.form, self._assigned = former.form, former._assigned  # noqa: SLF001
            if self.form == "converted":
                # its weights are packed for that one
                self._engine = former._engine  # noqa: SLF001

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module's own forward, as the form of the module has it."""
        module, is_converted = self.module, self.form == "converted"
        forward = self._assigned or MethodType(type(module).forward, module)
        if self.form == "plain" or (is_converted and not self._is_compatible):
            with self.engine():
                return forward(*args, **kwargs)
        if not is_converted:
            if self.choose is not None:
                self._quantizes = self.choose()
            if not self._quantizes:
                return forward(*args, **kwargs)
        quantize: Any = module.quant
        # integers, such as class indices, stay
        args, kwargs = map_tensors(
            (args, kwargs), lambda t: quantize(t) if t.is_floating_point() else t
        )
        with self.engine():
            dequantize: Any = module.dequant
            return map_tensors(forward(*args, **kwargs), dequantize)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the run out of copies and pickles."""
        return {**vars(self), "choose": None}

    @contextmanager
    def engine(self) -> Iterator[None]:
        """Set torch's quantized engine to the module's backend inside the block."""
        before = torch.backends.quantized.engine
        if self._engine is None or before == self._engine:
            yield
            return
        torch.backends.quantized.engine = self._engine
        try:
            yield
        finally:
            torch.backends.quantized.engine = before


class Quantizer:
    """Switches one module between three forms, in place.

    The forms are plain, prepared (with fake quantization, for training) and converted (to int8).

    Args:
        forward: the forward, which is put onto its module; the module's layers are replaced, its
            own parameters are not.
        qconfig: torch's configuration of observers and fake quantization.
        to_fuse: groups of names of layers that become one layer.
    """

    def __init__(
        self, forward: QuantizingForward, qconfig: Any, to_fuse: Sequence[Sequence[str]]
    ) -> None:
        self.module = forward.module
        self.forward = forward
        self._qconfig = qconfig
        self._to_fuse = [list(group) for group in to_fuse]
        self._parts: dict[str, dict[str, nn.Module]] = {}
        # of a copy, or for another callback, the module is in one of the other forms already
        if self.form != "plain":
            self._parts[self.form] = dict(self.module.named_children())
        # a method: torch.export reads the code of a function
        self.module.__dict__["forward"] = forward.forward

    @property
    def form(self) -> str:
        """The form of the module: `"plain"`, `"prepared"` or `"converted"`."""
        return self.forward.form

    def prepare(self) -> None:
        """Switch to the prepared form, which rounds as int8 does and can be trained.

        Raises:
            CallbackError: the module is converted, and its layers of before are not known.
        """
        if self.form == "converted":
            if "prepared" not in self._parts:
                name = type(self.module).__qualname__
                raise CallbackError(
                    f"{_WHERE}: this {name} is converted to int8, which cannot be trained, and its "
                    "layers of before belong to another callback or to the module it was copied "
                    f"from. Fit that one, or resume a new {name} from a checkpoint of the fit."
                )
            self._switch_to("prepared")
            return
        if self.form == "prepared":
            return
        module = self.module
        # as children, so that prepare_qat gives the inputs an observer too
        module.add_module("quant", quantization.QuantStub())
        module.add_module("dequant", quantization.DeQuantStub())
        # new layers draw initial weights, which are replaced; parts that the user froze are in eval
        # mode, and must be so again afterwards
        with _quietly(), rng.isolated(), restored_modes(module):
            module.train()  # torch fuses and prepares for training in train mode only
            if self._to_fuse:
                quantization.fuse_modules_qat(module, self._to_fuse, inplace=True)  # type: ignore[no-untyped-call]
            # prepare_qat hands this attribute of the module down to all of its parts
            module.qconfig = self._qconfig
            quantization.prepare_qat(module, inplace=True)  # type: ignore[no-untyped-call]
            del module.qconfig
            self._observe_weights()
        self.observe(is_on=False)  # until a stage begins: a model summary's forward must not count
        self.forward.form = "prepared"
        # the children alone, since the user holds the module: another form gets other children
        self._parts["prepared"] = dict(module.named_children())

    def convert(self) -> None:
        """Switch to the converted form, an int8 module with the weights and ranges learned."""
        self.prepare()
        training = self.module.training
        self.module.eval()
        with _quietly(), self.forward.engine():
            # not in place: convert copies deeply, so the prepared layers stay for a further fit
            converted = quantization.convert(self.module)  # type: ignore[no-untyped-call]
        self.module.train(training)
        self._parts["converted"] = dict(converted.named_children())
        self._switch_to("converted")

    def prepared_state(self) -> dict[str, Any]:
        """Return the state of the prepared form, whatever the current form is.

        It is that of the converted form if no other is known.
        """
        form = self.form
        if "prepared" not in self._parts:
            return self.module.state_dict()
        # the converted layers hold int8 weights, from which no training can go on
        self._switch_to("prepared")
        state = self.module.state_dict()
        self._switch_to(form)
        return state

    def resize_ranges(self, weights: Mapping[str, Any]) -> None:
        """Resize the buffers of ranges to the saved ones.

        The number of ranges is known only after the first batch.
        """
        for name, buffer in self.module.named_buffers():
            saved = weights.get(name)
            is_range = "fake_quant" in name or "activation_post_process" in name
            if is_range and isinstance(saved, Tensor) and saved.shape != buffer.shape:
                # this leaves the content undefined, and the load that follows fills it
                buffer.resize_(saved.shape)

    def observe(self, *, is_on: bool) -> None:
        """Switch the observation of value ranges on or off."""
        switch = quantization.enable_observer if is_on else quantization.disable_observer
        # the switch acts on torch's fake quantization alone, and ignores all other parts
        self.module.apply(switch)

    @torch.no_grad()
    def _observe_weights(self) -> None:
        """Observe the weights once: without a range, nothing can be rounded."""
        for part in self.module.modules():
            rounding = getattr(part, "weight_fake_quant", None)
            if isinstance(rounding, nn.Module):
                rounding(part.weight)

    def _switch_to(self, form: str) -> None:
        self.forward.form = form
        # in place of the child of that name
        for name, part in self._parts[form].items():
            self.module.add_module(name, part)


def form_of(weights: Mapping[str, Any]) -> str:
    """Return the form of the module whose weights were saved."""
    if any(isinstance(value, Tensor) and value.is_quantized for value in weights.values()):
        return "converted"
    # a quantized linear layer saves its weight in a packed tuple, which is no Tensor
    if any(name.endswith("._packed_params") for name in weights):
        return "converted"
    is_prepared = any("fake_quant" in name or "activation_post_process" in name for name in weights)
    return "prepared" if is_prepared else "plain"


def make_qconfig(engine: str, observer_type: str) -> Any:
    """Make torch's configuration of observers and fake quantization for an engine.

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
            # on x86 the sum of two products may overflow 16 bits: torch's defaults spare one bit
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


_WHERE = "QuantizationAwareTraining"
_STAGES = ("train", "validate", "test", "predict")


def _are_groups(groups: Any) -> bool:
    """Return whether each item is a list of at least two names."""
    return all(
        isinstance(group, list | tuple)
        and len(group) > 1
        and all(isinstance(name, str) for name in group)
        for group in groups
    )


class QuantizationAwareTraining(WeightOwner):
    """Train a module with fake quantization, and convert it to int8 at the end.

    In a fit, layers are replaced by layers that observe the ranges of their values and round them
    as int8 does. When the fit is over they are converted: the module then computes with eight-bit
    integers, on the CPU, and has about a quarter of the size. This uses `torch.ao.quantization`
    with its requirements: the inputs of `forward` are quantized and its outputs dequantized, so all
    layers and functions in between must accept quantized tensors; add two of them with
    `torch.ao.nn.quantized.FloatFunctional`.

    A run can be resumed from checkpoints before and after the end. A checkpoint of weights alone
    that is saved after the fit holds the int8 weights. To evaluate from either, the trainer needs
    this callback. A further fit goes on from the trained weights and ranges.

    The module can be copied, and the converted one pickled, as by `torch.save(module)`; while it is
    trained, torch's settings in its layers cannot be pickled. An int8 copy cannot be trained. None
    can be scripted: pass `method="trace"` and `example_inputs` to `to_torchscript`.

    Args:
        qconfig: the backend to convert for, such as `"fbgemm"` or `"x86"` for servers and
            `"qnnpack"` for phones, or a `torch.ao.quantization.QConfig`.
        observer_type: `"average"` for moving averages of the ranges, or `"histogram"`; used if
            `qconfig` is a backend's name.
        collect_quantization: the number of forwards that quantize their inputs, or a function of
            the trainer that returns whether to; all unless given.
        modules_to_fuse: groups of names of consecutive layers that become one layer, as
            `[["conv", "norm", "relu"]]`.
        input_compatible: whether the converted module takes and returns ordinary tensors, or
            quantized ones.
        quantize_on_fit_end: whether to convert the module when fit ends.
        observer_enabled_stages: the stages in which ranges are observed: some of `"train"`,
            `"validate"`, `"test"` and `"predict"`.

    State: the number of forwards that quantized their inputs; the ranges are part of the weights.

    Raises:
        OptionError: an argument is outside its rule.
        CallbackError: in a fit, the module has no layer of a name to fuse, another callback
            averages or prunes it, or it is converted already and not by this callback.

    Example::

        trainer = Trainer(max_epochs=2, callbacks=[QuantizationAwareTraining()])
        trainer.fit(module, train_loader, val_loader)
    """

    @option_rules(
        observer_type=one_of("average", "histogram"),
        collect_quantization=whole_number().unless(None).or_function(),
        input_compatible=FLAG,
        quantize_on_fit_end=FLAG,
        modules_to_fuse=Rule(
            "a list of lists of at least two names",
            _are_groups,
            "Pass the layers that follow each other, as [['conv', 'norm', 'relu']].",
        ).unless(None),
    )
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
        self._engine, self._qconfig = _check_qconfig(qconfig, observer_type)
        self._collects = collect_quantization
        self._to_fuse = [list(group) for group in modules_to_fuse or ()]
        self._is_compatible = input_compatible
        self._converts = quantize_on_fit_end
        stages = observer_enabled_stages
        if isinstance(stages, str):
            raise OptionError(
                f"observer_enabled_stages {stages!r} of {_WHERE}: it must be a list of stages. "
                f"Pass [{stages!r}]."
            )
        for stage in stages:
            check_option("observer_enabled_stages", stage, _WHERE, one_of(*_STAGES))
        self._observed_stages = frozenset(stages)
        self._quantizer: Quantizer | None = None
        self._forward_calls = 0

    @property
    def is_converted(self) -> bool:
        """Whether the module of the last run is converted to int8."""
        return self._quantizer is not None and self._quantizer.form == "converted"

    def state_dict(self) -> dict[str, Any]:
        """Return the number of forwards that quantized their inputs."""
        return {"forward_calls": self._forward_calls}

    @checks_state({"forward_calls": int})
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore that number."""
        self._forward_calls = state_dict["forward_calls"]

    def _reset(self) -> None:
        self._forward_calls = 0

    def on_after_configure_model(self, trainer: Trainer, module: Module) -> None:
        """Prepare the module for training."""
        if trainer.state.fn == "fit":
            self._quantizer_of(trainer, module).prepare()

    def on_before_restore(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Switch the module to the form of the weights in the checkpoint."""
        weights = checkpoint["state_dict"]
        form = form_of(weights)
        if form == "plain":
            return
        quantizer = self._quantizer_of(trainer, module)
        if trainer.state.fn != "fit" and quantizer.form == form == "converted":
            return
        quantizer.prepare()
        quantizer.resize_ranges(weights)
        # a fit trains on, which only the prepared form can
        if trainer.state.fn != "fit" and form == "converted":
            quantizer.convert()

    def on_save_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Save the prepared form, from which training can go on, unless weights alone are saved."""
        quantizer = self._quantizer
        if quantizer is not None and quantizer.module is module and "callbacks" in checkpoint:
            checkpoint["state_dict"] = quantizer.prepared_state()

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Switch the observation of ranges as the training stage has it."""
        self._observe("train")

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Switch the observation of ranges for validation; off in the sanity check."""
        self._observe("sanity_check" if trainer.sanity_checking else "validate")

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Switch the observation of ranges back to that of training."""
        self._observe("train")

    def on_test_start(self, trainer: Trainer, module: Module) -> None:
        """Switch the observation of ranges for a test or a prediction."""
        self._observe(str(trainer.state.fn))

    on_predict_start = on_test_start

    def on_fit_end(self, trainer: Trainer, module: Module) -> None:
        """Convert the module, unless the run will be resumed."""
        if self._converts and not trainer.is_leaving and self._quantizer is not None:
            self._quantizer.convert()

    def _observe(self, stage: str) -> None:
        quantizer = self._quantizer
        if quantizer is not None and quantizer.form == "prepared":
            quantizer.observe(is_on=stage in self._observed_stages)

    def _quantizer_of(self, trainer: Trainer, module: Module) -> Quantizer:
        """Return the module's quantizer; make it and replace the module's forward on first use."""
        if self._quantizer is None or self._quantizer.module is not module:
            _require_layers(module, self._to_fuse)
            forward = QuantizingForward(module, self._engine, is_compatible=self._is_compatible)
            self._quantizer = Quantizer(forward, self._qconfig, self._to_fuse)
        self._quantizer.forward.choose = partial(self._choose, trainer)
        return self._quantizer

    def _choose(self, trainer: Trainer) -> bool:
        """Return whether the next forward quantizes its inputs, and count it."""
        collects = self._collects
        if callable(collects):
            quantizes = bool(collects(trainer))
        else:
            quantizes = collects is None or self._forward_calls < collects
        self._forward_calls += quantizes
        return quantizes


def _check_qconfig(qconfig: Any, observer_type: str) -> tuple[str | None, Any]:
    """Return the engine that `qconfig` names (None for a QConfig), and the QConfig.

    Raises:
        OptionError: it is neither an engine of this torch nor a QConfig.
    """
    from torch.ao.quantization import QConfig

    if isinstance(qconfig, QConfig):
        return None, qconfig
    # torch lists "none" as well, which is no backend
    engines = [name for name in torch.backends.quantized.supported_engines if name != "none"]
    if not isinstance(qconfig, str) or qconfig not in engines:
        raise OptionError(
            f"qconfig {qconfig!r} of {_WHERE}: it must be one of {', '.join(engines)}, or a "
            "torch.ao.quantization.QConfig. Pass the backend that the module is to run with."
        )
    return qconfig, make_qconfig(qconfig, observer_type)


def _require_layers(module: torch.nn.Module, groups: list[list[str]]) -> None:
    """Raise CallbackError for a name in the groups that is no layer of the module."""
    names = {name for name, _ in module.named_modules()}
    for group in groups:
        for name in group:
            if name not in names:
                raise CallbackError(
                    f"modules_to_fuse {group!r} of {_WHERE}: {type(module).__qualname__} has no "
                    f"layer {name!r}. Name layers as module.named_modules() does."
                )
