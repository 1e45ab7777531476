"""QuantizationAwareTraining: on images of digits, and in small runs."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.ao import quantization
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Callback, Module
from trainer_hooks.callbacks import ModelPruning, QuantizationAwareTraining
from trainer_hooks.errors import CallbackError, OptionError
from trainer_hooks.testing import TinyModule


class Digits(Module):
    """A convolution with BatchNorm and two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.relu = nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU()
        self.flat, self.dense, self.act = nn.Flatten(), nn.Linear(8 * 36, 64), nn.ReLU()
        self.head = nn.Linear(64, 10)

    def forward(self, images):
        features = self.flat(self.relu(self.norm(self.conv(images))))
        return self.head(self.act(self.dense(features)))

    def training_step(self, batch, batch_idx):
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def test_step(self, batch, batch_idx):
        self.log("acc", (self(batch[0]).argmax(dim=1) == batch[1]).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)


FUSED = [["conv", "norm", "relu"], ["dense", "act"]]


@pytest.fixture(scope="module")
def digits():
    """Loaders of images to train on and to test with."""
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    data = TensorDataset(images, torch.tensor(labels))
    parts = torch.utils.data.random_split(data, [1400, 397], torch.Generator().manual_seed(0))
    order = torch.Generator().manual_seed(0)
    return DataLoader(parts[0], 50, shuffle=True, generator=order), DataLoader(parts[1], 397)


def size_of(module: nn.Module) -> int:
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    return len(file.getvalue())


@pytest.mark.slow
def test_digits_in_int8(digits, quiet_trainer, tmp_path) -> None:
    """It is much smaller, and has nearly the accuracy of the float one."""
    train, test = digits
    torch.manual_seed(0)
    plain = Digits()
    trainer = quiet_trainer(max_epochs=4)
    trainer.fit(plain, train)
    (as_float,) = trainer.test(plain, test, verbose=False)
    torch.manual_seed(0)
    module = Digits()
    trainer = quiet_trainer(
        callbacks=[QuantizationAwareTraining(modules_to_fuse=FUSED)], max_epochs=4
    )
    trainer.fit(module, train)
    (as_int8,) = trainer.test(module, test, verbose=False)
    assert as_float["acc"] > 0.9
    assert as_int8["acc"] > as_float["acc"] - 0.02
    assert size_of(module) < 0.4 * size_of(plain)
    assert module.dense.weight().dtype == module.conv.weight().dtype == torch.qint8
    assert not list(module.parameters())
    trainer.save_checkpoint(tmp_path / "int8.ckpt", weights_only=True)
    assert (tmp_path / "int8.ckpt").stat().st_size < 0.4 * size_of(plain)


def test_it_learns_with_rounded_weights_and_ends_in_int8(quiet_trainer) -> None:
    """While it trains the layers round; afterwards the module's own layers are integers."""
    seen = []

    class Look(Callback):
        def on_train_end(self, trainer, module):
            seen.append(type(module.layer).__module__)

    module = TinyModule()
    callback = QuantizationAwareTraining()
    quiet_trainer(callbacks=[callback, Look()]).fit(module)
    assert "qat" in seen[0]
    assert callback.is_converted
    assert module.layer.weight().dtype == torch.qint8
    batch = next(iter(module.test_dataloader()))
    assert module(batch).dtype == torch.float32


def test_the_optimizer_trains_what_is_rounded(quiet_trainer) -> None:
    """The parameters that the optimizer has are those of the prepared layers."""
    module = TinyModule()
    before = module.layer.weight.detach().clone()
    quiet_trainer(callbacks=[QuantizationAwareTraining(quantize_on_fit_end=False)]).fit(module)
    assert not torch.equal(module.layer.weight, before)
    assert not module.layer.weight.is_quantized


def test_not_input_compatible(quiet_trainer) -> None:
    """Without input_compatible the int8 module takes and returns quantized tensors."""
    module = TinyModule()
    quiet_trainer(callbacks=[QuantizationAwareTraining(input_compatible=False)]).fit(module)
    inputs = torch.quantize_per_tensor(torch.ones(2, 2), 0.1, 0, torch.quint8)
    assert module((inputs, None)).is_quantized


@pytest.mark.parametrize(
    ("collects", "calls"), [(None, 5), (2, 2), (lambda trainer: trainer.training, 3), (0, 0)]
)
def test_how_many_forwards_quantize(collects, calls, quiet_trainer) -> None:
    """collect_quantization is a number or a function of the trainer."""
    callback = QuantizationAwareTraining(collect_quantization=collects)
    quiet_trainer(callbacks=[callback]).fit(TinyModule())
    assert callback.state_dict() == {"forward_calls": calls}


def ranges_of(quiet_trainer, stages) -> list[bool]:
    """Return whether ranges moved in training and in the validation after it."""
    moved = []

    class Look(Callback):
        def on_train_start(self, trainer, module):
            self.before = self.read(module)

        def read(self, module):
            observer = module.layer.activation_post_process.activation_post_process
            return observer.min_val.item(), observer.max_val.item()

        def on_train_batches_end(self, trainer, module):
            moved.append(self.before != self.read(module))
            self.before = self.read(module)

        def on_train_epoch_end(self, trainer, module):
            moved.append(self.before != self.read(module))

    callback = QuantizationAwareTraining(
        observer_type="histogram", observer_enabled_stages=stages, quantize_on_fit_end=False
    )
    quiet_trainer(callbacks=[callback, Look()], num_sanity_val_steps=1).fit(TinyModule())
    return moved


@pytest.mark.slow
def test_the_stages_that_are_observed(quiet_trainer) -> None:
    """Ranges move in the stages that are named, and in no other."""
    assert ranges_of(quiet_trainer, ["train"]) == [True, False]
    assert ranges_of(quiet_trainer, ["validate"]) == [False, True]
    assert ranges_of(quiet_trainer, []) == [False, False]


def test_a_further_fit_goes_on(quiet_trainer) -> None:
    """After the end the same training may go on: from the weights, and not from the integers."""
    whole, module = TinyModule(), TinyModule()
    batches = list(module.train_dataloader())
    quiet_trainer(callbacks=[QuantizationAwareTraining()], max_epochs=2).fit(whole, batches)
    trainer = quiet_trainer(callbacks=[QuantizationAwareTraining()])
    trainer.fit(module, batches)
    trainer.max_epochs = 2
    trainer.fit(module, batches)
    assert torch.equal(whole.layer.weight().dequantize(), module.layer.weight().dequantize())


def test_a_checkpoint_of_after_the_end_can_be_resumed_from(quiet_trainer, tmp_path) -> None:
    """A whole checkpoint holds the weights to learn on from, also once they are converted."""
    trainer = quiet_trainer(callbacks=[QuantizationAwareTraining()])
    module = TinyModule()
    trainer.fit(module)
    (expected,) = trainer.validate(module, verbose=False)
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    saved = torch.load(tmp_path / "x.ckpt", weights_only=True)["state_dict"]
    assert saved["layer.weight"].dtype == torch.float32
    assert trainer.validate(module, verbose=False) == [expected]
    trained = TinyModule()
    quiet_trainer(callbacks=[QuantizationAwareTraining()], max_epochs=2).fit(
        trained, ckpt_path=tmp_path / "x.ckpt"
    )
    assert trained.layer.weight().dtype == torch.qint8
    other = quiet_trainer(callbacks=[QuantizationAwareTraining()])
    (seen,) = other.validate(TinyModule(), ckpt_path=tmp_path / "x.ckpt", verbose=False)
    assert seen["val_loss"] == pytest.approx(expected["val_loss"], abs=0.02)


@pytest.mark.slow
def test_histograms_of_ranges_come_back(quiet_trainer, tmp_path) -> None:
    """A run that goes on from the middle of an epoch has weights and histograms of the first."""

    class Save(Callback):
        def on_batch_checkpoint(self, trainer, module):
            if trainer.global_step == 2:
                trainer.save_checkpoint(tmp_path / "x.ckpt")

    def fit(*more: Callback, **resume):
        module = TinyModule()
        callback = QuantizationAwareTraining(observer_type="histogram", quantize_on_fit_end=False)
        quiet_trainer(callbacks=[callback, *more], max_steps=4, max_epochs=-1).fit(module, **resume)
        return module.state_dict()

    whole, resumed = fit(Save()), fit(ckpt_path=tmp_path / "x.ckpt")
    assert any("histogram" in name for name in whole)
    torch.testing.assert_close(resumed, whole, rtol=0, atol=0)


def test_int8_weights_of_a_file(quiet_trainer, tmp_path) -> None:
    """Weights alone, saved after the fit, are integers, which a new module computes with."""
    trainer = quiet_trainer(callbacks=[QuantizationAwareTraining()])
    module = TinyModule()
    trainer.fit(module)
    (expected,) = trainer.validate(module, verbose=False)
    trainer.save_checkpoint(tmp_path / "int8.ckpt", weights_only=True)
    again = TinyModule()
    other = quiet_trainer(callbacks=[QuantizationAwareTraining()])
    assert other.validate(again, ckpt_path=tmp_path / "int8.ckpt", verbose=False) == [expected]
    assert again.layer.weight().dtype == torch.qint8


def test_a_qconfig_of_ones_own(quiet_trainer) -> None:
    """Weights may be rounded as the given QConfig says: here one scale for each whole tensor."""
    qconfig = quantization.QConfig(
        activation=quantization.default_fake_quant, weight=quantization.default_weight_fake_quant
    )
    module = TinyModule()
    quiet_trainer(callbacks=[QuantizationAwareTraining(qconfig)]).fit(module)
    assert module.layer.weight().qscheme() == torch.per_tensor_symmetric or (
        module.layer.weight().qscheme() == torch.per_tensor_affine
    )


def test_layers_to_fuse_that_are_not_there(quiet_trainer) -> None:
    """The error names the layer."""
    callback = QuantizationAwareTraining(modules_to_fuse=[["layer", "relu"]])
    with pytest.raises(CallbackError, match="has no layer 'relu'"):
        quiet_trainer(callbacks=[callback]).fit(TinyModule())


def test_pruning_beside_it_is_refused(quiet_trainer) -> None:
    """Layers that are replaced cannot be pruned."""
    trainer = quiet_trainer(
        callbacks=[QuantizationAwareTraining(), ModelPruning("l1_unstructured")]
    )
    with pytest.raises(CallbackError, match="beside"):
        trainer.fit(TinyModule())


def converted_module(quiet_trainer, **options) -> TinyModule:
    """Return a module after a fit with the callback."""
    module = TinyModule()
    quiet_trainer(callbacks=[QuantizationAwareTraining(**options)]).fit(module)
    return module


@pytest.mark.parametrize("converts", [True, False], ids=["converted", "prepared"])
def test_a_copy_computes_with_itself(converts, quiet_trainer) -> None:
    """Its outputs are those of the original, until its own layers are replaced."""
    module = converted_module(quiet_trainer, quantize_on_fit_end=converts).eval()
    module.apply(quantization.disable_observer)  # or each forward of the prepared form moves it
    batch = next(iter(module.test_dataloader()))
    twin = copy.deepcopy(module)
    assert torch.equal(twin(batch), module(batch))
    before = module(batch)
    twin.layer, twin.dequant = nn.Flatten(), nn.Identity()
    assert not torch.equal(twin(batch), before)
    assert torch.equal(module(batch), before)


def test_the_forwards_of_a_copy_are_not_counted(quiet_trainer) -> None:
    """A copy does as the last forward did, and asks no callback."""
    callback = QuantizationAwareTraining(collect_quantization=2, quantize_on_fit_end=False)
    module = TinyModule()
    quiet_trainer(callbacks=[callback]).fit(module)
    batch = next(iter(module.test_dataloader()))
    assert torch.equal(copy.deepcopy(module)(batch), module(batch))

    def refuse(trainer):
        raise AssertionError

    callback._collects = refuse
    copy.deepcopy(module)(batch)


def test_a_pickle_of_an_int8_module(quiet_trainer) -> None:
    """It computes as the module did, with its own layers."""
    module = converted_module(quiet_trainer)
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    batch = next(iter(module.test_dataloader()))
    expected = module(batch)
    assert torch.equal(loaded(batch), expected)
    loaded.layer, loaded.dequant = nn.Flatten(), nn.Identity()
    assert not torch.equal(loaded(batch), expected)


def test_a_copy_in_a_further_fit(quiet_trainer) -> None:
    """The prepared form is trained on, and quantizes once; from integers nothing can be trained."""
    prepared = copy.deepcopy(converted_module(quiet_trainer, quantize_on_fit_end=False))
    callback = QuantizationAwareTraining()
    trainer = quiet_trainer(callbacks=[callback])
    trainer.fit(prepared)
    assert prepared.layer.weight().dtype == torch.qint8
    assert callback.state_dict() == {"forward_calls": 5}
    other = quiet_trainer(callbacks=[QuantizationAwareTraining()])
    with pytest.raises(CallbackError, match="is converted to int8, which cannot be trained"):
        other.fit(copy.deepcopy(prepared))


def test_int8_weights_into_a_copy(quiet_trainer, tmp_path) -> None:
    """A converted copy takes them as it is, and its own may be saved."""
    module = converted_module(quiet_trainer)
    first = quiet_trainer(callbacks=[QuantizationAwareTraining()])
    (expected,) = first.validate(module, verbose=False)
    first.save_checkpoint(tmp_path / "int8.ckpt", weights_only=True)
    other = quiet_trainer(callbacks=[QuantizationAwareTraining()])
    twin = copy.deepcopy(module)
    read = {"ckpt_path": tmp_path / "int8.ckpt", "verbose": False}
    assert other.validate(twin, **read) == [expected]
    other.save_checkpoint(tmp_path / "whole.ckpt")
    saved = torch.load(tmp_path / "whole.ckpt", weights_only=False)["state_dict"]
    assert saved.keys() == twin.state_dict().keys()


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("compatible", [True, False])
def test_scripting_is_refused_and_tracing_works(compatible, quiet_trainer) -> None:
    """The error says to trace, and not that the library's code cannot be scripted."""
    module = converted_module(quiet_trainer, input_compatible=compatible)
    with pytest.raises(OptionError, match=r"TinyModule.to_torchscript: .* method='trace'"):
        module.to_torchscript()
    points, labels = next(iter(module.test_dataloader()))
    batch = (points if compatible else module.quant(points), labels)
    traced = module.to_torchscript(method="trace", example_inputs=(batch,))
    assert torch.equal(*(f(batch).dequantize() for f in (traced, module)))


def test_a_forward_of_ones_own_on_the_instance(quiet_trainer) -> None:
    """It is called in the quantized module, too."""
    module = TinyModule()
    own, calls = module.forward, []
    module.forward = lambda batch: calls.append(batch) or own(batch)
    quiet_trainer(callbacks=[QuantizationAwareTraining()]).fit(module)
    before = len(calls)
    module(next(iter(module.test_dataloader())))
    assert len(calls) == before + 1 > 1
