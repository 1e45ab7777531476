from __future__ import annotations

import json
import math
import sys

import pytest
import torch
from PIL import Image

from trainer_hooks import Band, Callback, Module
from trainer_hooks.callbacks import SampleInspector
from trainer_hooks.errors import DataError, UsageError
from trainer_hooks.loggers.base import Logger


class Gallery(Logger):
    """Keeps what is neither a number nor a hyperparameter."""

    def __init__(self):
        self.images, self.texts, self.tables = [], [], []

    def log_metrics(self, metrics, step=None):
        pass

    def log_image(self, key, images, step=None, *, captions=None, channels_last=False):
        self.images.append((key, [image.clone() for image in images], step, list(captions)))

    def log_text(self, key, text, step=None):
        self.texts.append((key, text, step))

    def log_table(self, key, columns=None, data=None, dataframe=None, step=None):
        self.tables.append((key, list(columns), [list(row) for row in data], step))


class IgnoresBatches(Module):
    """Trains on whatever it is given, without looking at it."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def training_step(self, batch, batch_idx):
        return self.weight.square().sum()

    def validation_step(self, batch, batch_idx):
        pass

    test_step = validation_step

    def predict_step(self, batch, batch_idx, dataloader_idx=0):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def pictures(count=3, channels=3, size=4):
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.rand(2, channels, size, size + 1, generator=generator), torch.tensor([n, n + 10]))
        for n in range(count)
    ]


@pytest.fixture
def inspect(quiet_trainer, tmp_path):
    """Fit under an inspector; return it, the logger, and what stands in the index."""

    def make(batches, *callbacks, val=None, trainer=None, ckpt_path=None, **options):
        inspector, gallery = SampleInspector(**options), Gallery()
        fitted = quiet_trainer(
            callbacks=[inspector, *callbacks],
            logger=gallery,
            **{"num_sanity_val_steps": 1, **(trainer or {})},
        )
        fitted.fit(IgnoresBatches(), batches, val, ckpt_path=ckpt_path)
        path = tmp_path / "samples" / "samples.json"
        return inspector, gallery, json.loads(path.read_text()) if path.exists() else None

    return make


@pytest.fixture(autouse=True)
def _logs_in(monkeypatch, tmp_path):
    monkeypatch.setattr(Gallery, "log_dir", str(tmp_path))


def pixels_of(path):
    image = Image.open(path)
    data = torch.tensor(list(image.tobytes()), dtype=torch.uint8)
    return data.reshape(image.height, image.width, -1).permute(2, 0, 1)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_pictures(inspect, tmp_path, channels):
    """The first samples are PNG files, entries with captions in the index, and in the loggers."""
    batches = pictures(3, channels)
    inspector, gallery, index = inspect(batches, max_samples=3, targets=1, stages="train")
    expected = [(sample * 255).round().to(torch.uint8) for b, _ in batches for sample in b][:3]
    captions = ["train 0, target 0", "train 1, target 10", "train 2, target 1"]
    names = [f"train-{number}.png" for number in range(3)]
    assert sorted(path.name for path in (tmp_path / "samples").glob("*.png")) == names
    for name, pixels in zip(names, expected, strict=True):
        assert torch.equal(pixels_of(tmp_path / "samples" / name), pixels)
    assert [entry["file"] for entry in index] == names
    assert [entry["caption"] for entry in index] == captions
    assert [(entry["epoch"], entry["step"]) for entry in index] == [(0, 0), (0, 0), (0, 1)]
    assert [(key, step) for key, _, step, _ in gallery.images] == [
        ("samples/train", 0),
        ("samples/train", 1),
    ]
    assert [caption for _, _, _, told in gallery.images for caption in told] == captions
    logged = [image for _, images, _, _ in gallery.images for image in images]
    assert all(torch.equal(*pair) for pair in zip(logged, expected, strict=True))
    assert inspector.taken == {"train": 3, "validate": 0, "test": 0, "predict": 0}


@pytest.mark.parametrize(
    ("mean", "std"), [(0.5, 0.25), ([0.4, 0.5, 0.6], [0.2, 0.3, 0.1]), ([0.1], [2.0])]
)
def test_a_normalization_is_undone(inspect, tmp_path, mean, std):
    """With mean and std a picture looks as it did before it was normalized."""
    [(raw, targets)] = pictures(1)
    normalized = (raw - torch.tensor(mean).reshape(-1, 1, 1)) / torch.tensor(std).reshape(-1, 1, 1)
    _, _, index = inspect([(normalized, targets)], mean=mean, std=std)
    assert [entry["caption"] for entry in index] == ["train 0", "train 1"]
    for number in range(2):
        shown = pixels_of(tmp_path / "samples" / f"train-{number}.png")
        assert (shown.double() / 255 - raw[number]).abs().max() < 0.003


def test_what_is_beyond_the_colours_is_stretched_and_said(inspect, tmp_path):
    """Without the normalization the colours are stretched, and NaN is black; captions say so."""
    batch = torch.linspace(-2, 3, 2 * 12).reshape(2, 1, 3, 4)
    batch[1, 0, 0, 0] = math.nan
    _, _, index = inspect([batch], stages="train")
    assert index[0]["caption"] == "train 0 (stretched from -2 to 0.391)"
    assert index[1]["caption"].startswith("train 1 (NaN or infinity shown black, stretched from 0")
    shown = pixels_of(tmp_path / "samples" / "train-0.png")
    assert (int(shown.min()), int(shown.max())) == (0, 255)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (torch.tensor([0, 255, 7, 9] * 3, dtype=torch.uint8), [0, 255, 7, 9]),
        (torch.tensor([0, 255, 7, 9] * 3), [0, 255, 7, 9]),
        (torch.tensor([True, False, True, True] * 3), [255, 0, 255, 255]),
        (torch.tensor([0.0, 1.0, 0.5, 0.25] * 3, dtype=torch.float16), [0, 255, 128, 64]),
    ],
    ids=["bytes", "numbers", "masks", "halves"],
)
def test_types_of_pictures(inspect, tmp_path, batch, expected):
    """Bytes, whole numbers, masks and fractions are shown as what they mean."""
    inspect([batch.reshape(1, 3, 2, 2)], stages="train")
    assert pixels_of(tmp_path / "samples" / "train-0.png")[0].flatten().tolist() == expected


def test_texts(inspect):
    """With `decode` samples are texts: in the index, and in the loggers."""
    words = ["a", "cat", "sat", "down"]
    batches = [{"ids": torch.tensor([[0, 1], [2, 3]]), "label": ["x", "y"]}]
    _, gallery, index = inspect(
        batches,
        inputs="ids",
        targets="label",
        decode=lambda ids: " ".join(words[i] for i in ids),
    )
    assert [(entry["caption"], entry["text"]) for entry in index] == [
        ("train 0, target x", "a cat"),
        ("train 1, target y", "sat down"),
    ]
    assert gallery.texts == [
        ("samples/train", "train 0, target x:\na cat\n\ntrain 1, target y:\nsat down", 0)
    ]


def test_numbers(inspect):
    """What is neither picture nor text is told by shape, type and range, and logged as a table."""
    batch = torch.tensor([[1.0, 2.0, 6.0], [0.0, 0.0, 0.0]])
    _, gallery, index = inspect([batch])
    told = "shape (3,), torch.float32, from 1 to 6, mean 3"
    assert index[0]["text"] == told
    [(key, columns, rows, step)] = gallery.tables
    assert (key, columns, rows[0], step) == (
        "samples/train", ["sample", "values"], ["train 0", told], 0,
    )  # fmt: skip


@pytest.mark.slow
def test_it_is_what_the_model_is_given(inspect, tmp_path):
    """A callback that changes batches has had its turn, wherever it stands in the list."""

    class Darkens(Callback):
        band = Band.TRANSFORM

        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            batch[0].mul_(0)

    inspect(pictures(1), Darkens())
    assert int(pixels_of(tmp_path / "samples" / "train-0.png").max()) == 0


def test_stages(inspect, quiet_trainer, tmp_path):
    """Each stage is looked at by itself, and the sanity check is none."""
    _, _, index = inspect(pictures(4), val=pictures(2), max_samples=3, trainer={"max_epochs": 2})
    assert [entry["caption"] for entry in index] == [
        *(f"train {n}" for n in range(3)),
        *(f"validate {n}" for n in range(3)),
    ]
    # after four batches and not before the first
    assert {entry["step"] for entry in index[3:]} == {4}
    for stage in ("test", "predict"):
        one = SampleInspector(max_samples=1, stages=stage)
        trainer = quiet_trainer(callbacks=[one], logger=Gallery())
        getattr(trainer, stage)(IgnoresBatches(), pictures(1))
        assert one.taken[stage] == 1
        assert (tmp_path / "samples" / f"{stage}-0.png").exists()


def test_nothing_is_looked_at_once_there_is_enough(inspect):
    """After the first batches the batch is left alone."""
    looked = []

    def look(batch):
        looked.append(1)
        return batch[0]

    inspect(pictures(9), inputs=look, max_samples=3)
    assert len(looked) == 2


def test_fast_dev_run_leaves_nothing(inspect, tmp_path):
    """A dry run shows nothing."""
    inspect(pictures(2), trainer={"fast_dev_run": True})
    assert not (tmp_path / "samples").exists()


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_resumed_run_shows_the_rest(inspect, tmp_path, cut):
    """Cut anywhere and resumed in its folder, the index and the pictures are those of one run."""

    class Cuts(Callback):
        def on_batch_checkpoint(self, trainer, module):
            if trainer.progress.batches_completed == cut:
                trainer.save_checkpoint(tmp_path / "cut.ckpt")

    _, _, whole = inspect(pictures(4), Cuts(), max_samples=5)
    (tmp_path / "samples" / "samples.json").write_text(
        json.dumps([entry for entry in whole if entry["step"] < cut])
    )
    resumed, gallery, index = inspect(pictures(4), max_samples=5, ckpt_path=tmp_path / "cut.ckpt")
    assert index == whole
    assert resumed.taken["train"] == 5
    assert sum(len(images) for _, images, _, _ in gallery.images) == max(0, 5 - 2 * cut)


def test_entries_of_others_stay(inspect, tmp_path):
    """What somebody else put into the index is kept; samples of an earlier run are replaced."""
    folder = tmp_path / "samples"
    folder.mkdir()
    own = {"caption": "mine", "text": "hello"}
    old = {"caption": "train 0", "file": "train-0.png", "stage": "train", "number": 0}
    (folder / "samples.json").write_text(json.dumps([own, old]))
    _, _, index = inspect(pictures(1), max_samples=1)
    assert index[0] == own
    assert [entry["caption"] for entry in index] == ["mine", "train 0"]
    assert "epoch" in index[1]
    (folder / "samples.json").write_text("broken")
    assert len(inspect(pictures(1), max_samples=1)[2]) == 1


@pytest.mark.parametrize(
    ("batch", "options", "message"),
    [
        ({"x": torch.ones(1, 2)}, {"inputs": "y"}, r"inputs 'y' of .*dict has the keys 'x'\. Pass"),
        ([torch.ones(1, 2)], {"targets": 3}, r"targets 3 of SampleInspector: .*list has 1 items"),
        ({"x": "text"}, {}, r"inputs of SampleInspector: a batch of type dict holds no tensor"),
        (torch.ones(1, 1, 4, 4), {"mean": [0.5] * 3, "std": 1}, r"mean \(0\.5, .* has 1 channels"),
    ],
)
def test_a_batch_without_what_was_named(inspect, batch, options, message):
    """A batch that has not what was asked for is an error that says what it has."""
    with pytest.raises(DataError, match=message):
        inspect([batch], **options)


def test_without_pillow(inspect, monkeypatch):
    """Where pillow is not installed, pictures are an error that says what to install."""
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UsageError, match=r"pip install 'trainer-hooks\[report\]'"):
        inspect(pictures(1))
