"""What Lightning's users find on a module and a data module: exports, loading, small views."""

from __future__ import annotations

import argparse
import io
import warnings

import pytest
import torch

from trainer_hooks import DataModule, Module
from trainer_hooks.errors import (
    CheckpointError,
    ModuleError,
    OptionError,
    TrainerHooksAdvice,
    TrainerHooksWarning,
    UsageError,
)

# torch says of its own exporters that they are on their way out, and what they lack
pytestmark = [
    pytest.mark.filterwarnings(r"ignore:.torch\.jit\.:DeprecationWarning"),
    pytest.mark.filterwarnings(r"ignore:.torch\.jit\.:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
]


class Net(Module):
    """Dropout tells a module in training mode from one that evaluates."""

    def __init__(self, width: int = 3, lr: float = 0.1, extra: object = None) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.inner = Module()
        self.layer = torch.nn.Linear(2, width)
        self.dropout = torch.nn.Dropout(0.9).eval()
        self.other = torch.nn.Dropout(0.9)

    def forward(self, x):
        return self.other(self.layer(x))

    def training_step(self, batch, batch_idx):
        return self.layer(batch).mean()

    def validation_step(self, batch, batch_idx):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)


def modes(net: Net) -> list[bool]:
    return [part.training for part in net.modules()]


def test_what_takes_its_place_is_said_where_torch_warns(monkeypatch) -> None:
    """One line in the place of each warning of torch, whose other warnings stay."""

    def script(module):
        warnings.warn("`torch.jit.script` is deprecated.", FutureWarning, stacklevel=2)
        warnings.warn("another", UserWarning, stacklevel=2)
        return module

    monkeypatch.setattr(torch.jit, "script", script)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Module().to_torchscript()
    assert [warning.category for warning in caught] == [UserWarning, TrainerHooksAdvice]
    assert "torch.export.export(module" in str(caught[1].message)


class TestToTorchscript:
    """`to_torchscript`, by both methods."""

    @pytest.mark.parametrize("method", ["script", "trace"])
    def test_what_is_made_computes_the_same(self, method, tmp_path):
        """It evaluates, in memory and in the file; the module's modes stay as they were."""
        net, x = Net(), torch.ones(4, 2)
        before = modes(net)
        path = tmp_path / "new" / "net.pt"
        made = net.to_torchscript(path, method, example_inputs=x)
        assert modes(net) == before
        expected = net.layer(x)
        assert torch.equal(made(x), expected)
        assert torch.equal(torch.jit.load(path)(x), expected)

    def test_torch_scripts_a_module_after_its_fit(self, bare):
        """Its properties, and what the fit set on it, are no part of the program."""
        net = Net().eval()
        bare().fit(net, [torch.ones(4, 2)])
        net.eval()
        assert torch.equal(torch.jit.script(net)(torch.ones(4, 2)), net(torch.ones(4, 2)))

    def test_the_modules_own_example(self):
        """Tracing takes `example_input_array` unless it is given another."""
        net = Net()
        net.example_input_array = torch.ones(1, 2)
        assert net.to_torchscript(method="trace", check_trace=False)(torch.ones(5, 2)).shape == (
            5,
            3,
        )

    @pytest.mark.slow
    def test_within_a_run(self, quiet_trainer):
        """A module that a trainer runs can be scripted, too, and knows its trainer afterwards."""
        found = []

        class Scripted(Net):
            def on_train_end(self):
                found.append(self.to_torchscript())
                assert self.trainer.current_epoch == 1

        quiet_trainer(max_epochs=1).fit(Scripted(), [torch.ones(1, 2)])
        assert found[0](torch.ones(1, 2)).shape == (1, 3)

    def test_what_cannot_be_done(self):
        """An unknown method and a trace without an input are refused."""
        with pytest.raises(OptionError, match=r"method='onnx'\): must be 'script'"):
            Net().to_torchscript(method="onnx")
        with pytest.raises(OptionError, match=r"example_inputs=None\): an input for forward"):
            Net().to_torchscript(method="trace")


class TestToOnnx:
    """`to_onnx`, which hands its options to torch."""

    def run(self, model: object, x: torch.Tensor) -> torch.Tensor:
        onnxruntime = pytest.importorskip("onnxruntime")
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        (name,) = [given.name for given in session.get_inputs()]
        return torch.from_numpy(session.run(None, {name: x.numpy()})[0])

    @pytest.mark.slow
    def test_a_file_and_an_open_one(self, tmp_path):
        """A path and a file open for bytes get the same graph, which computes the same."""
        pytest.importorskip("onnxscript")
        net, x = Net(), torch.ones(4, 2)
        before = modes(net)
        net.to_onnx(tmp_path / "net.onnx", x, verbose=False)
        memory = io.BytesIO()
        program = net.to_onnx(memory, x, verbose=False)
        assert modes(net) == before
        expected = net.layer(x).detach()
        assert torch.allclose(self.run(str(tmp_path / "net.onnx"), x), expected, atol=1e-6)
        assert torch.allclose(self.run(memory.getvalue(), x), expected, atol=1e-6)
        assert program is not None

    def test_the_modules_own_example_or_none(self):
        """Without an input there must be an `example_input_array`."""
        with pytest.raises(OptionError, match=r"to_onnx\(input_sample=None\)"):
            Net().to_onnx("net.onnx")

    def test_a_missing_package_names_the_extra(self, monkeypatch):
        """Torch's exporter asks for onnxscript; the error says how to install it."""

        def export(*_, **__):
            raise ModuleNotFoundError("No module named 'onnxscript'", name="onnxscript")

        monkeypatch.setattr(torch.onnx, "export", export)
        with pytest.raises(UsageError, match=r"onnxscript.*trainer-hooks\[export\]"):
            Net().to_onnx("net.onnx", torch.ones(4, 2))

    def test_a_module_that_the_forward_misses_is_the_users(self, monkeypatch):
        """Another missing package is no matter of the extra."""

        def export(*_, **__):
            raise ModuleNotFoundError("No module named 'mine'", name="mine")

        monkeypatch.setattr(torch.onnx, "export", export)
        with pytest.raises(ModuleNotFoundError, match="mine"):
            Net().to_onnx("net.onnx", torch.ones(4, 2))


class TestStrictLoading:
    """Weights that a module leaves out of its checkpoints."""

    class Partial(Net):
        strict_loading = False

        def state_dict(self, *args, **kwargs):
            found = super().state_dict(*args, **kwargs)
            return {name: value for name, value in found.items() if name != "layer.bias"}

        def load_state_dict(self, state_dict, strict=True, assign=False):
            self.was_strict = strict
            return super().load_state_dict(state_dict, strict, assign)

    def saved(self, quiet_trainer, tmp_path, net: Net) -> str:
        trainer = quiet_trainer(max_epochs=1)
        trainer.fit(net, [torch.ones(1, 2)])
        trainer.save_checkpoint(tmp_path / "net.ckpt")
        return str(tmp_path / "net.ckpt")

    def test_a_module_that_is_not_strict_is_resumed_and_loaded(self, quiet_trainer, tmp_path):
        """fit, validate and load_from_checkpoint heed the attribute, unless they are told."""
        path = self.saved(quiet_trainer, tmp_path, self.Partial())
        net = self.Partial()
        quiet_trainer(max_epochs=2).fit(net, [torch.ones(1, 2)], ckpt_path=path)
        assert net.was_strict is False
        net = self.Partial()
        quiet_trainer().validate(net, [torch.ones(1, 2)], ckpt_path=path, verbose=False)
        assert net.was_strict is False
        assert self.Partial.load_from_checkpoint(path).was_strict is False
        with pytest.raises(RuntimeError, match="Missing key"):
            self.Partial.load_from_checkpoint(path, strict=True)

    def test_a_module_is_strict_unless_it_says_otherwise(self, quiet_trainer, tmp_path):
        """A missing weight is an error, also with `strict=None`."""
        path = self.saved(quiet_trainer, tmp_path, self.Partial())
        with pytest.raises(CheckpointError, match=r"Missing key.*: layer\.bias"):
            Net.load_from_checkpoint(path, strict=None)
        with pytest.warns(TrainerHooksWarning, match="Missing key.*: layer.bias"):
            assert Net.load_from_checkpoint(path, strict=False).hparams.width == 3

    def test_a_resume_that_is_not_strict_says_what_it_left(self, quiet_trainer, tmp_path, caplog):
        """A fit and an evaluation log weights that are not in the file, and warn if none is."""

        class Lenient(Net):
            strict_loading = False

        class Renamed(Lenient):
            def state_dict(self, *args, **kwargs):
                return {f"net.{key}": value for key, value in super().state_dict().items()}

        path = self.saved(quiet_trainer, tmp_path, self.Partial())
        quiet_trainer(max_epochs=2).fit(Lenient(), [torch.ones(1, 2)], ckpt_path=path)
        quiet_trainer().validate(Lenient(), [torch.ones(1, 2)], ckpt_path=path, verbose=False)
        told = [one for one in caplog.messages if "in part: Missing key" in one]
        assert len(told) == 2
        assert all("layer.bias" in one for one in told)
        path = self.saved(quiet_trainer, tmp_path, Renamed())
        with pytest.warns(TrainerHooksWarning, match="not at all, as no name matches"):
            quiet_trainer().validate(Lenient(), [torch.ones(1, 2)], ckpt_path=path, verbose=False)


class TestHyperparameters:
    """Hyperparameters as they were at first, and in files."""

    def test_those_at_first(self):
        """`hparams_initial` is how they were when they were saved, whatever became of them."""
        backbone = torch.nn.Linear(1, 1)
        config = {"sizes": [1, 2]}
        with pytest.warns(match="'extra' of Net is left out of checkpoints"):
            net = Net(extra=backbone)
        assert net.hparams_initial.extra is backbone
        net = Net(extra=config)
        net.hparams.lr = 5.0
        config["sizes"].append(3)
        assert net.hparams_initial == {"width": 3, "lr": 0.1, "extra": {"sizes": [1, 2]}}
        net.hparams_initial["lr"] = 7.0
        assert net.hparams_initial.lr == 0.1
        assert Module().hparams_initial == {} == DataModule().hparams_initial

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("h.yaml", "width: 4\nlr: 0.5\n"),
            ("h.yml", "{width: 4, lr: 0.5}"),
            ("h.csv", "key,value\nwidth,4\nlr,0.5\nextra,name\n"),
        ],
    )
    def test_from_a_file(self, quiet_trainer, tmp_path, name, text):
        """A file's hyperparameters take the place of the checkpoint's; arguments come before."""
        trainer = quiet_trainer(max_epochs=1)
        trainer.fit(Net(width=4, lr=0.2), [torch.ones(1, 2)])
        trainer.save_checkpoint(tmp_path / "net.ckpt")
        (tmp_path / name).write_text(text)
        found = Net.load_from_checkpoint(tmp_path / "net.ckpt", hparams_file=tmp_path / name)
        assert (found.hparams.width, found.hparams.lr) == (4, 0.5)
        found = Net.load_from_checkpoint(
            tmp_path / "net.ckpt", None, str(tmp_path / name), None, True, lr=0.7
        )
        assert found.hparams.lr == 0.7

    @pytest.mark.parametrize(
        ("name", "text", "message"),
        [
            ("h.json", "{}", "must end in .yaml, .yml or .csv"),
            ("h.yaml", "width: !!python/object:argparse.Namespace {}", "it must hold plain values"),
            ("h.yaml", "[1, 2]", "it holds list"),
            ("h.csv", "a,b\n1,2\n", "its columns must be key and value"),
            ("none.csv", None, "FileNotFoundError"),
        ],
    )
    def test_a_file_that_cannot_be_used(self, quiet_trainer, tmp_path, name, text, message):
        """What is no file of plain hyperparameters is refused, and no code of it is run."""
        trainer = quiet_trainer(max_epochs=1)
        trainer.fit(Net(), [torch.ones(1, 2)])
        trainer.save_checkpoint(tmp_path / "net.ckpt")
        if text is not None:
            (tmp_path / name).write_text(text)
        with pytest.raises(ModuleError, match=message):
            Net.load_from_checkpoint(tmp_path / "net.ckpt", hparams_file=tmp_path / name)


class TestTheTrainer:
    """The module's trainer, and what it tells of it."""

    def test_it_may_be_set(self):
        """Steps can be called in a test with any object as trainer; None takes it away again."""
        net, fake = Net(), argparse.Namespace(current_epoch=7, local_rank=2)
        net.trainer = fake
        assert (net.trainer, net.current_epoch, net.local_rank) == (fake, 7, 2)
        assert net.inner.trainer is fake
        net.trainer = None
        assert net.local_rank == 0
        with pytest.raises(UsageError, match="attached to no trainer"):
            net.trainer  # noqa: B018

    def test_a_set_one_does_not_last(self, quiet_trainer):
        """A run puts its own trainer in the place of one that was set."""
        net, trainer = Net(), quiet_trainer(max_epochs=1)
        net.trainer = argparse.Namespace()
        seen = []
        net.on_train_start = lambda: seen.append(net.trainer)
        trainer.fit(net, [torch.ones(1, 2)])
        assert seen == [trainer]

    def test_where_it_is(self):
        """`on_gpu` tells a CUDA device from others."""
        assert Net().on_gpu is False
        assert Net().to("meta").on_gpu is False


class TestValidationZeroGrad:
    """`on_validation_model_zero_grad`, before validations in fit."""

    class Watched(Net):
        def __init__(self, **options) -> None:
            super().__init__(**options)
            self.calls = []

        def on_validation_model_zero_grad(self):
            self.calls.append("zero")
            super().on_validation_model_zero_grad()

        def on_validation_start(self):
            has_gradients = self.layer.weight.grad is not None
            self.calls.append("gradients" if has_gradients else "none")

    def test_it_is_called_where_a_step_is_done(self, quiet_trainer):
        """Not in a sanity check, nor inside a window, whose gradients are needed still."""
        net = self.Watched()
        batches = [torch.ones(1, 2)] * 3
        trainer = quiet_trainer(
            max_epochs=1, accumulate_grad_batches=2, val_check_interval=1, num_sanity_val_steps=1
        )
        trainer.fit(net, batches, batches[:1])
        assert net.calls == ["none", "gradients", "zero", "none", "zero", "none"]

    def test_manual_optimization_keeps_its_gradients(self, quiet_trainer):
        """Who optimizes by hand may accumulate over a validation."""
        net = self.Watched()
        net.automatic_optimization = False
        net.training_step = lambda batch, batch_idx: net.manual_backward(net.layer(batch).mean())
        quiet_trainer(max_epochs=1).fit(net, [torch.ones(1, 2)], [torch.ones(1, 2)])
        assert net.calls == ["zero", "gradients"]


class TestFromDatasets:
    """`DataModule.from_datasets` and the arguments of the class."""

    class Own(DataModule):
        def __init__(self, batch_size: int, name: str = "") -> None:
            super().__init__()
            self.found = batch_size, name

    class Open(DataModule):
        def __init__(self, **given) -> None:
            super().__init__()
            self.found = given

    def test_arguments_are_handed_on_where_they_are_taken(self):
        """`batch_size` and `num_workers` reach an `__init__` that has them, or takes any."""
        data = list(range(4))
        own = self.Own.from_datasets(data, batch_size=2, name="n")
        assert own.found == (2, "n")
        assert len(own.train_dataloader()) == 2
        assert self.Open.from_datasets(data, other=1).found == {
            "batch_size": 1, "num_workers": 0, "other": 1,
        }  # fmt: skip
        assert len(DataModule.from_datasets(data, batch_size=3).train_dataloader()) == 2
