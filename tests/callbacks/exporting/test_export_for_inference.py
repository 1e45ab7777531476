"""Modules that are exported: what is written runs elsewhere and computes the same."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib.util
import json
import os
import random
import subprocess
import sys
import uuid

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from samples import one_in
from torch import nn
from torch.utils.data import DataLoader

from trainer_hooks import Callback, Module, callbacks
from trainer_hooks.callbacks import ExportForInferenceCallback, export_for_inference
from trainer_hooks.compat.accelerated.callbacks import SaveBestModelCallback
from trainer_hooks.errors import (
    CheckpointError,
    ExportError,
    OptionError,
    StopTraining,
    TrainerHooksWarning,
)

pytestmark = pytest.mark.slow  # an export takes its time

FORMATS = {"torchscript": "net.pt", "onnx": "net.onnx", "torch.export": "net.pt2"}

_READER = """
import json, sys, warnings
import numpy as np
for line in sys.stdin:
    kind, path, given, found = json.loads(line)
    batches = np.load(given)
    answers = {}
    for name in batches:
        if kind == "onnx":
            import onnxruntime
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            answers[name] = session.run(None, {session.get_inputs()[0].name: batches[name]})[0]
        else:
            import torch
            if kind == "torchscript":
                warnings.simplefilter("ignore", DeprecationWarning)
                loaded = torch.jit.load(path)
            else:
                loaded = torch.export.load(path).module()
            answers[name] = loaded(torch.from_numpy(batches[name])).detach().numpy()
    np.savez(found, **answers)
    print("trainer_hooks" in sys.modules, "torch" in sys.modules, flush=True)
"""


class DropoutAndNorm(nn.Module):
    """Dropout and batch normalization: it computes something else while it is trained."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(3)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.norm(self.layer(x)))


class Digits(Module):
    """The digits' classifier, with steps of its own."""

    def __init__(self):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10)
        )

    def forward(self, images):
        return self.net(images)

    def training_step(self, batch, batch_idx):
        images, targets = batch
        return nn.functional.cross_entropy(self(images), targets)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


@pytest.fixture(scope="module", autouse=True)
def _one_table_of_operators():
    """Make torch's table of ONNX operators once: that is half of each export."""
    with pytest.MonkeyPatch.context() as patch:
        try:
            from torch.onnx._internal.exporter._registration import ONNXRegistry
        except ImportError:  # not public: another torch may have it elsewhere
            pass
        else:
            made = staticmethod(functools.cache(ONNXRegistry.from_torchlib))
            patch.setattr(ONNXRegistry, "from_torchlib", made)
        yield


def loader_of(data, size=128):
    return DataLoader(
        data, size, shuffle=True, generator=torch.Generator().manual_seed(1), drop_last=True
    )


@pytest.fixture(scope="module")
def readers(tmp_path_factory):
    """A function that returns the process which reads files of a kind, and does not know the rest.

    Each is started for its first file, and reads all others of this module.
    """
    with contextlib.ExitStack() as processes:

        @functools.cache
        def reader(kind):
            return processes.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", _READER], stdin=subprocess.PIPE, text=True,
                    stdout=subprocess.PIPE, cwd=tmp_path_factory.mktemp("elsewhere"),
                    env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
                )
            )  # fmt: skip

        yield lambda kind: reader("onnx" if kind == "onnx" else "torch")


@pytest.fixture
def read_elsewhere(readers, tmp_path):
    """A function that returns a file's answers in a process which does not know trainer_hooks."""

    def read(kind, path, batches):
        given, found = tmp_path / "given.npz", tmp_path / "found.npz"
        np.savez(given, **{name: batch.numpy() for name, batch in batches.items()})
        process = readers(kind)
        process.stdin.write(f"{json.dumps([kind, *map(str, (path, given, found))])}\n")
        process.stdin.flush()
        knows_package, knows_torch = process.stdout.readline().split()
        assert knows_package == "False"
        if kind == "onnx":
            assert knows_torch == "False"
        return {name: torch.from_numpy(answer) for name, answer in np.load(found).items()}

    return read


# --- bad input ---


@pytest.mark.parametrize("missing", ["onnx", "onnxscript", "onnxruntime"])
def test_a_package_that_is_missing_is_named(missing, monkeypatch):
    """ONNX without one of its packages is refused at once, with what to install."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == missing else find(name)
    )
    with pytest.raises(OptionError, match=rf"{missing}, .*pip install 'trainer-hooks\[export\]'"):
        ExportForInferenceCallback("onnx", "net.onnx")
    ExportForInferenceCallback("torchscript", "net.pt")


def test_no_sample_is_told(tmp_path):
    """The function without a sample says what to pass."""
    with pytest.raises(OptionError, match="sample_input None of export_for_inference"):
        export_for_inference(DropoutAndNorm(), "torchscript", tmp_path / "net.pt")


# --- what is written ---


@pytest.mark.parametrize("kind", FORMATS)
def test_a_trained_classifier_runs_elsewhere(kind, digits, bare, tmp_path, read_elsewhere):
    """What a fit exports gives the module's answers in a fresh process, for any batch size."""
    path = tmp_path / "models" / FORMATS[kind]
    torch.manual_seed(0)
    module = Digits()
    bare(ExportForInferenceCallback(kind, path), max_epochs=2).fit(module, loader_of(digits))
    batches = {"one": digits[:1][0], "seven": digits[3:10][0], "many": digits[:300][0]}
    found = read_elsewhere(kind, path, batches)
    module.eval()
    with torch.no_grad():
        for name, batch in batches.items():
            torch.testing.assert_close(found[name], module(batch), rtol=1e-4, atol=1e-5)
        right = module(digits[:][0]).argmax(1) == digits[:][1]
    assert right.float().mean() > 0.85, "it was trained"
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("kind", one_in(3, FORMATS))
def test_the_module_stays_as_it_was(kind, tmp_path):
    """Modes, weights, gradients, requires_grad, the random numbers and the environment stay."""
    module, sample = DropoutAndNorm().train(), torch.rand(2, 4)
    module.norm.eval()
    module.layer.bias.requires_grad_(False)
    module(torch.rand(5, 4)).sum().backward()
    before = copy.deepcopy(module.state_dict())
    grad = module.layer.weight.grad.clone()
    numbers, others = torch.get_rng_state(), (random.getstate(), dict(os.environ))
    export_for_inference(module, kind, tmp_path / FORMATS[kind], sample_input=sample)
    assert torch.equal(numbers, torch.get_rng_state())
    assert others == (random.getstate(), dict(os.environ))
    assert [part.training for part in module.modules()] == [True, True, False, True]
    assert [p.requires_grad for p in module.parameters()] == [True, False, True, True]
    assert torch.equal(module.layer.weight.grad, grad)
    torch.testing.assert_close(module.state_dict(), before, rtol=0, atol=0)
    assert type(module) is DropoutAndNorm


class Several(nn.Module):
    """Takes and returns several things."""

    def forward(self, x, shift=None, scale=None):
        y = x if shift is None else x + shift
        return (y, y.sum(1)) if scale is None else (y * scale, y.sum(1))


@pytest.mark.parametrize("kind", one_in(3, FORMATS))
@pytest.mark.parametrize(
    ("sample", "names"),
    [
        (torch.ones(1, 4), ["input"]),
        ((torch.ones(2, 4), torch.ones(4)), ["x", "shift"]),
        ((torch.ones(3, 4), {"shift": torch.ones(3, 4)}), ["x", "shift"]),
        ([torch.ones(2, 4), {}], ["input"]),
        ({"x": torch.ones(2, 4), "scale": torch.ones(2, 1)}, ["x", "scale"]),
    ],
    ids=["alone", "tuple", "with keywords", "list", "mapping"],
)
def test_a_sample_says_how_forward_is_called(kind, sample, names, tmp_path):
    """Positions and keywords are exported as given; what has no batch keeps its size."""
    path = tmp_path / FORMATS[kind]
    assert export_for_inference(Several(), kind, path, sample_input=sample) == str(path)
    if kind == "onnx":
        inputs = onnxruntime.InferenceSession(path).get_inputs()
        assert [each.name for each in inputs] == names
        assert inputs[0].shape == ["batch", 4]


def test_names_of_inputs_and_outputs(tmp_path):
    """An ONNX graph has the names that are given, and by default those of a mapping's keys."""
    path = tmp_path / "a.onnx"
    sample = (torch.ones(2, 4), torch.ones(4))
    export_for_inference(
        Several(),
        "onnx",
        path,
        sample_input=sample,
        input_names=["a", "b"],
        output_names=["c", "d"],
    )
    graph = onnx.load(path).graph
    assert [each.name for each in graph.input] == ["a", "b"]
    assert [each.name for each in graph.output] == ["c", "d"]

    class OfBatch(nn.Module):
        def forward(self, batch):
            return batch["left"] - batch["right"]

    export_for_inference(
        OfBatch(), "onnx", path, sample_input={"left": torch.ones(2), "right": torch.zeros(2)}
    )
    graph = onnx.load(path).graph
    assert [each.name for each in graph.input] == ["left", "right"]
    assert [each.name for each in graph.output] == ["output"]


class Texts(nn.Module):
    """Of whole numbers, with layers that torch has several ways to run."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.recur = nn.LSTM(8, 8, batch_first=True)
        self.attend = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, tokens):
        return self.attend(self.recur(self.embed(tokens))[0]).mean(1)


@pytest.mark.parametrize("kind", one_in(3, FORMATS))
def test_layers_of_many_kinds(kind, tmp_path, read_elsewhere):
    """Recurrent layers and attention are exported, of whole numbers, without a warning."""
    module, path = Texts(), tmp_path / FORMATS[kind]
    batch = torch.arange(35).reshape(7, 5) % 20
    export_for_inference(module, kind, path, sample_input=batch[:2])
    found = read_elsewhere(kind, path, {"seven": batch})
    with torch.no_grad():
        torch.testing.assert_close(found["seven"], module.eval()(batch), rtol=1e-4, atol=1e-5)


class Branches(nn.Module):
    """Does one thing or the other, as the data are."""

    def forward(self, x):
        if bool(x.sum() > 0):
            return x + 1
        return x - 1


class Unscriptable(Module):
    """A form of forward that torch traces only."""

    def forward(self, *inputs):
        return inputs[0].reshape(inputs[0].shape[0], 2, -1) * 2


class Fixed(nn.Module):
    """Fixes the size of the batch when it is traced."""

    def forward(self, *inputs):
        return inputs[0] + torch.zeros(int(inputs[0].shape[0]), 1)


def test_torchscript_keeps_what_depends_on_the_data(tmp_path, read_elsewhere):
    """A module that can be scripted is, so both ways of a branch are there."""
    path = tmp_path / "net.pt"
    export_for_inference(Branches(), "torchscript", path, sample_input=torch.ones(2, 2))
    found = read_elsewhere("torchscript", path, {"up": torch.ones(2, 2), "down": -torch.ones(7, 2)})
    assert found["up"].unique().tolist() == [2.0]
    assert found["down"].unique().tolist() == [-2.0]


def test_torchscript_of_what_cannot_be_scripted(tmp_path, read_elsewhere):
    """A module that can only be traced is, and takes batches of any size."""
    path = tmp_path / "net.pt"
    export_for_inference(Unscriptable(), "torchscript", path, sample_input=torch.ones(1, 4))
    found = read_elsewhere("torchscript", path, {"seven": torch.ones(7, 4)})
    assert found["seven"].shape == (7, 2, 2)


def test_a_trace_that_fixes_the_batch_is_refused(tmp_path):
    """What tracing froze is told, and a file that takes one size alone is not written."""
    path = tmp_path / "net.pt"
    with (
        pytest.warns(TrainerHooksWarning, match="fixes what depends on the data"),
        pytest.raises(ExportError, match=r"cannot be run with a batch of 1|something else"),
    ):
        export_for_inference(Fixed(), "torchscript", path, sample_input=torch.ones(2, 4))
    assert list(tmp_path.iterdir()) == []


class Random(nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)


class OutOfTorch(nn.Module):
    def forward(self, x):
        return torch.from_numpy(x.numpy() * 2)


@pytest.mark.parametrize("kind", one_in(3, FORMATS))
def test_other_answers_are_an_error(kind, tmp_path):
    """A file that computes something else leaves the old one there; the difference is named."""
    path = tmp_path / FORMATS[kind]
    path.write_text("old")
    text = rf"export of Random to '{kind}' at .*the largest difference is 0\.\d+, and 0\.0001"
    with pytest.raises(ExportError, match=text):
        export_for_inference(Random(), kind, path, sample_input=torch.zeros(2, 3))
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    export_for_inference(Random(), kind, path, sample_input=torch.zeros(2, 3), tolerance=2.0)


@pytest.mark.parametrize("kind", one_in(3, FORMATS))
def test_what_cannot_be_exported_is_told(kind, tmp_path):
    """The error names the module, the format and what torch said; nothing is written."""
    with pytest.raises(ExportError, match=f"export of OutOfTorch to '{kind}'") as caught:
        export_for_inference(
            OutOfTorch(), kind, tmp_path / FORMATS[kind], sample_input=torch.zeros(2, 3)
        )
    assert "numpy" in str(caught.value)
    assert "choose another format" in str(caught.value)
    assert caught.value.__cause__ is not None
    assert list(tmp_path.iterdir()) == []


class OfTwo(nn.Module):
    def forward(self, x):
        return x - torch.tensor([[0.0], [1.0]])


@pytest.mark.parametrize("kind", one_in(3, FORMATS))
def test_a_module_for_one_size_is_told(kind, tmp_path):
    """A module that takes batches of one size alone cannot be exported for others."""
    with pytest.raises(ExportError, match=r"batch of 3|Constraints violated \(batch\)"):
        export_for_inference(OfTwo(), kind, tmp_path / "a", sample_input=torch.zeros(2, 3))
    assert list(tmp_path.iterdir()) == []


def test_a_sample_without_a_batch_is_told(tmp_path):
    """A sample must have a dimension for the batch."""
    with pytest.raises(ExportError, match="no tensor whose first dimension"):
        export_for_inference(
            DropoutAndNorm(), "pt2", tmp_path / "a.pt2", sample_input=torch.tensor(1.0)
        )


@pytest.mark.parametrize("kind", one_in(3, FORMATS))
def test_transforms_change_the_copy(kind, tmp_path, read_elsewhere):
    """Transforms make what is exported, one after the other, also in another type."""
    module, path = DropoutAndNorm(), tmp_path / FORMATS[kind]
    batch = torch.rand(7, 4)
    steps = [lambda net: nn.Sequential(net, nn.Softmax(1)), nn.Module.double]
    export_for_inference(module, kind, path, sample_input=batch, transforms=steps)
    found = read_elsewhere(kind, path, {"seven": batch.double()})
    expected = module.eval().double()(batch.double()).softmax(1)
    torch.testing.assert_close(found["seven"], expected.detach())
    with pytest.raises(ExportError, match="a transform returned None"):
        export_for_inference(module, kind, path, sample_input=batch, transforms=[lambda net: None])


def test_a_module_of_bfloat16(tmp_path):
    """It is exported as it is, but to ONNX only as what numpy knows."""
    module, batch = DropoutAndNorm().bfloat16(), torch.rand(2, 4, dtype=torch.bfloat16)
    for kind in ("torchscript", "pt2"):
        export_for_inference(module, kind, tmp_path / "net", sample_input=batch)
    with pytest.raises(ExportError, match=r"transforms=\[torch\.nn\.Module\.float\]"):
        export_for_inference(module, "onnx", tmp_path / "net.onnx", sample_input=batch)
    mended = [nn.Module.float]
    path = tmp_path / "net.onnx"
    export_for_inference(module, "onnx", path, sample_input=batch, transforms=mended)
    assert onnxruntime.InferenceSession(path).get_inputs()[0].type == "tensor(float)"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
@pytest.mark.parametrize("kind", FORMATS)
def test_a_module_on_an_accelerator(kind, tmp_path, read_elsewhere):
    """A module on a GPU is exported from the host, and stays where it is."""
    module, batch = DropoutAndNorm().cuda(), torch.rand(2, 4, device="cuda")
    path = tmp_path / FORMATS[kind]
    export_for_inference(module, kind, path, sample_input=batch)
    assert {p.device.type for p in (*module.parameters(), *module.buffers())} == {"cuda"}
    found = read_elsewhere(kind, path, {"seven": torch.ones(7, 4)})
    with torch.no_grad():
        expected = module.eval()(torch.ones(7, 4, device="cuda")).cpu()
    torch.testing.assert_close(found["seven"], expected, rtol=1e-3, atol=1e-4)


def test_a_compiled_module_is_seen_through(tmp_path):
    """What `torch.compile` wraps is exported, and nothing is compiled for that."""

    def no_backend(graph, inputs):
        raise AssertionError

    module = torch.compile(DropoutAndNorm(), backend=no_backend)
    export_for_inference(module, "pt2", tmp_path / "a.pt2", sample_input=torch.rand(2, 4))


# --- where it goes ---


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    """A disk that fails leaves the old file and nothing else."""
    path = tmp_path / "net.pt"
    path.write_text("old")

    def fail(descriptor):
        raise OSError("no room")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ExportError, match=r"could not be written \(OSError: no room\)"):
        export_for_inference(DropoutAndNorm(), "torchscript", path, sample_input=torch.rand(2, 4))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture(scope="module")
def server():
    """Start an S3 server on the loopback interface; nothing leaves this machine."""
    from moto.server import ThreadedMotoServer
    from s3fs import S3FileSystem

    started = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    started.start()
    settings = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{started.get_host_and_port()[1]}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        S3FileSystem.clear_instance_cache()  # those of another server, which is gone
        yield
        S3FileSystem.clear_instance_cache()
    started.stop()


@pytest.mark.parametrize("protocol", ["memory", "s3"])
def test_it_goes_to_another_store(protocol, request, tmp_path):
    """An address gets the whole file, and so does the store for the copy."""
    import fsspec

    if protocol == "s3":
        request.getfixturevalue("server")
    store, bucket = fsspec.filesystem(protocol), f"bucket-{uuid.uuid4().hex[:8]}"
    if protocol == "s3":
        store.mkdir(bucket)
    address = f"{protocol}://{bucket}"
    where = export_for_inference(
        DropoutAndNorm(), "pt2", f"{address}/a/net.pt2", f"{address}/copies", torch.rand(2, 4)
    )
    assert where == f"{address}/a/net.pt2"
    store.invalidate_cache()
    found = sorted(store.find(bucket))
    assert [name.partition(bucket)[2] for name in found] == ["/a/net.pt2", "/copies/net.pt2"]
    for name in found:
        store.get_file(name, str(tmp_path / "back.pt2"))
        assert torch.export.load(tmp_path / "back.pt2").module()(torch.rand(7, 4)).shape == (7, 3)


def test_a_copy_goes_to_a_file_system(tmp_path):
    """A file system of fsspec gets a copy under the file's name, and no unfinished one stays."""
    from fsspec.implementations.dirfs import DirFileSystem
    from fsspec.implementations.local import LocalFileSystem

    (tmp_path / "store").mkdir()
    store = DirFileSystem(str(tmp_path / "store"), LocalFileSystem())
    path = tmp_path / "net.onnx"
    export_for_inference(DropoutAndNorm(), "onnx", path, store, torch.rand(2, 4))
    assert (tmp_path / "store" / "net.onnx").read_bytes() == path.read_bytes()
    assert len(list((tmp_path / "store").iterdir())) == 1
    (tmp_path / "store" / "net.onnx").unlink()
    (tmp_path / "store").rmdir()
    with pytest.raises(ExportError, match=r"'net\.onnx in a DirFileSystem' could not be"):
        export_for_inference(DropoutAndNorm(), "onnx", path, store, torch.rand(2, 4))


def test_a_store_that_does_not_answer_is_told(tmp_path, monkeypatch):
    """A store's error is the framework's, and says that it is of an export."""
    from fsspec.implementations.memory import MemoryFileSystem

    def fail(*args, **options):
        raise ConnectionError("gone")

    monkeypatch.setattr(MemoryFileSystem, "put_file", fail)
    with pytest.raises(CheckpointError, match=r"export 'memory://a/net\.pt' could not be written"):
        export_for_inference(
            DropoutAndNorm(), "torchscript", "memory://a/net.pt", None, torch.rand(2, 4)
        )


# --- in a fit ---


def answers(path, count=7):
    batch = torch.linspace(-1, 1, count * 64).reshape(count, 64)
    with torch.no_grad():
        return torch.export.load(path).module()(batch)


class Cut(Callback):
    """Saves in a batch, and then ends the fit in some way."""

    def __init__(self, end=lambda: None, at=4):
        self.end, self.at = end, at

    def on_batch_checkpoint(self, trainer, module):
        if trainer.progress.batches_completed == self.at:
            trainer.save_checkpoint(f"{trainer.default_root_dir}/cut.ckpt")
            self.end()


def fit(bare, digits, *others, path, ckpt_path=None, **options):
    torch.manual_seed(0)
    export = ExportForInferenceCallback("pt2", path)
    trainer = bare(*others, export, **options)
    try:
        trainer.fit(Digits(), loader_of(digits, 512), ckpt_path=ckpt_path)
    finally:
        trainer.close()
    return export


def test_what_is_kept_of_the_first_batch(digits, bare, tmp_path):
    """Two samples of what forward is given are kept, no targets; no hook stays at the module."""
    module = Digits()
    export = ExportForInferenceCallback("pt2", tmp_path / "a.pt2")
    bare(export, limit_train_batches=1).fit(module, loader_of(digits))
    (kept,) = export.state_dict()["args"]
    assert kept.shape == (2, 64)
    assert not module._forward_pre_hooks
    assert answers(tmp_path / "a.pt2", 1).shape == (1, 10)


@pytest.mark.parametrize("end", [KeyError("broken"), KeyboardInterrupt()], ids=["error", "ctrl-c"])
def test_a_fit_that_is_broken_off_exports_nothing(end, digits, bare, tmp_path):
    """After an exception there is no file; a resumed run exports what an uncut one does."""

    def broken():
        raise end

    with pytest.raises(type(end)):
        fit(bare, digits, Cut(broken), path=tmp_path / "cut.pt2", max_epochs=2)
    assert not (tmp_path / "cut.pt2").exists()
    cut = tmp_path / "cut.ckpt"
    fit(bare, digits, path=tmp_path / "cut.pt2", max_epochs=2, ckpt_path=cut)
    fit(bare, digits, path=tmp_path / "uncut.pt2", max_epochs=2)
    assert torch.equal(answers(tmp_path / "cut.pt2"), answers(tmp_path / "uncut.pt2"))


def test_a_signal_exports_nothing(digits, bare, tmp_path, handlers):
    """A fit that makes way for a signal has its end hooks, and leaves no export."""
    import signal

    with (
        pytest.raises(SystemExit),
        pytest.warns(TrainerHooksWarning, match="no checkpoint callback"),
    ):
        fit(
            bare,
            digits,
            Cut(lambda: signal.raise_signal(signal.SIGTERM)),
            path=tmp_path / "a.pt2",
            max_epochs=3,
        )
    assert not (tmp_path / "a.pt2").exists()


def test_a_run_that_is_resumed_after_its_end_exports_the_same(digits, bare, tmp_path):
    """A finished training trains no batch any more; the sample comes from the checkpoint."""
    fit(bare, digits, Cut(at=3), path=tmp_path / "a.pt2")
    before = answers(tmp_path / "a.pt2")
    (tmp_path / "a.pt2").unlink()
    export = fit(bare, digits, path=tmp_path / "a.pt2", ckpt_path=tmp_path / "cut.ckpt")
    assert torch.equal(answers(tmp_path / "a.pt2"), before)
    assert export.state_dict()["args"][0].shape == (2, 64)


def test_a_fit_that_is_stopped_exports(digits, bare, tmp_path):
    """To stop is an end as good as any; a trial run exports nothing."""

    def stop():
        raise StopTraining("enough")

    fit(bare, digits, Cut(stop, at=2), path=tmp_path / "a.pt2", max_epochs=5)
    assert (tmp_path / "a.pt2").exists()
    fit(bare, digits, path=tmp_path / "b.pt2", fast_dev_run=True)
    assert not (tmp_path / "b.pt2").exists()


def test_the_averaged_weights_are_exported(digits, bare, tmp_path):
    """What other callbacks do to the weights at the end is done, wherever in the list they are."""
    torch.manual_seed(0)
    module = Digits()
    export = ExportForInferenceCallback("pt2", tmp_path / "a.pt2")
    averaging = callbacks.EMAWeightAveraging(decay=0.9)
    bare(export, averaging, max_epochs=2).fit(module, loader_of(digits))
    batch = torch.linspace(-1, 1, 7 * 64).reshape(7, 64)
    with torch.no_grad():
        torch.testing.assert_close(answers(tmp_path / "a.pt2"), module.eval()(batch))


class Worsening(Digits):
    """Is validated as if each epoch were worse than the one before."""

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", float(self.trainer.current_epoch))


def test_the_best_weights_are_exported(digits, bare, tmp_path):
    """After a callback that puts the best weights back, these are what is exported."""
    module = Worsening()
    best = SaveBestModelCallback(tmp_path / "best.pt", "val_loss")
    export = ExportForInferenceCallback("pt2", tmp_path / "a.pt2")
    trainer = bare(best, export, max_epochs=2, enable_checkpointing=True)
    trainer.fit(module, loader_of(digits), loader_of(digits))
    saved = Worsening.load_from_checkpoint(best.best_model_path).eval()
    with torch.no_grad():
        expected = saved(torch.linspace(-1, 1, 7 * 64).reshape(7, 64))
    torch.testing.assert_close(answers(tmp_path / "a.pt2"), expected)
    assert torch.load(best.best_model_path, weights_only=True)["global_step"] == len(
        loader_of(digits)
    )


class Inner(Digits):
    """Learns through its layers, without a call of its forward."""

    def training_step(self, batch, batch_idx):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])


def test_a_forward_that_is_not_called(digits, bare, tmp_path):
    """It is told in the first batch, and `example_input_array` or `sample_input` mends it."""
    path = tmp_path / "a.pt2"
    with pytest.raises(ExportError, match=r"no training step called the module\. Pass"):
        bare(ExportForInferenceCallback("pt2", path)).fit(Inner(), loader_of(digits))
    bare(ExportForInferenceCallback("pt2", path, sample_input=torch.zeros(1, 64))).fit(
        Inner(), loader_of(digits)
    )
    assert answers(path).shape == (7, 10)
    path.unlink()
    module = Inner()
    module.example_input_array = torch.zeros(1, 64)
    bare(ExportForInferenceCallback("pt2", path)).fit(module, loader_of(digits))
    assert answers(path).shape == (7, 10)


class OfObjects(Digits):
    """Its forward takes something of one's own."""

    class Images:
        def __init__(self, content):
            self.content = content

    def forward(self, images):
        return self.net(images.content)

    def training_step(self, batch, batch_idx):
        return nn.functional.cross_entropy(self(self.Images(batch[0])), batch[1])


def test_an_input_that_cannot_be_kept(digits, bare, tmp_path):
    """An input that no checkpoint can hold is told when it is first seen."""
    with pytest.raises(ExportError, match=r"OfObjects\.forward.*Pass sample_input"):
        bare(ExportForInferenceCallback("pt2", tmp_path / "a.pt2")).fit(
            OfObjects(), loader_of(digits)
        )


def test_several_formats_in_one_fit(digits, bare, tmp_path):
    """One trainer may export to each format, each with a state of its own."""
    exports = [ExportForInferenceCallback(kind, tmp_path / name) for kind, name in FORMATS.items()]
    assert len({export.state_key for export in exports}) == 3
    bare(*exports, limit_train_batches=1).fit(Digits(), loader_of(digits))
    assert sorted(each.name for each in tmp_path.glob("net.*")) == sorted(FORMATS.values())
