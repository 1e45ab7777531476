from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Evaluator, Module, every, once
from trainer_hooks.callbacks import ImageVisualizer
from trainer_hooks.callbacks.reporting.sample_images import class_masks, color_mask, side_by_side
from trainer_hooks.errors import DataError, ModuleError
from trainer_hooks.loggers import InMemoryLogger, TensorBoardLogger


class InkSegmentation(Module):
    """Says of each pixel of a digit whether it belongs to it: at half of the full ink, exactly."""

    def __init__(self, key=0):
        super().__init__()
        self.net = nn.Conv2d(1, 2, 1)
        self.key = key
        with torch.no_grad():
            self.net.weight.copy_(torch.tensor([-1.0, 1.0]).reshape(2, 1, 1, 1))
            self.net.bias.copy_(torch.tensor([0.5, -0.5]))

    def forward(self, batch):
        return self.net(batch[0])

    def loss(self, outputs, batch):
        return nn.functional.cross_entropy(outputs, batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)


class OwnSteps(InkSegmentation):
    """Has steps of its own, that return what was predicted."""

    def training_step(self, batch, batch_idx):
        outputs = self.net(batch[0])
        return {"loss": nn.functional.cross_entropy(outputs, batch[1]), "outputs": outputs}

    def validation_step(self, batch, batch_idx):
        return {"outputs": self.net(batch[0])}


def digits(count=6, size=3):
    """Batches of digits from 0 to 1 and masks of where there is more than half of the ink."""
    images = torch.tensor(load_digits().images[: count * size]).float()[:, None] / 16
    masks = (images[:, 0] > 0.5).long()
    return list(zip(images.split(size), masks.split(size), strict=True))


@pytest.fixture
def fit(quiet_trainer):
    """Fit under a visualizer; return the logger that kept everything."""

    def run(batches, val=None, *, module=None, trainer=None, ckpt_path=None, **options):
        logger = InMemoryLogger()
        made = quiet_trainer(
            callbacks=[ImageVisualizer(**options)],
            **{"logger": logger, "num_sanity_val_steps": 1, **(trainer or {})},
        )
        made.fit(module or InkSegmentation(), batches, val, ckpt_path=ckpt_path)
        return logger

    return run


def steps(logger, name="Images/Train"):
    return [step for step, _ in logger.images.get(name, [])]


@pytest.mark.parametrize(
    ("interval", "shown"),
    [
        ("2ba", [0, 2, 4, 6, 8, 10]),
        ("5ba", [0, 5, 10]),
        ("100ba", [0]),
        ("1ep", [0, 6]),
        (1, [0, 6]),
        ("9sp", [0, 3, 6, 9]),
        ("0.5dur", [0, 6]),
        ("4st", [0, 4, 8]),
        (once("3ba"), [3]),
        (every("5ba") | once("1ba"), [1, 5, 10]),
        (lambda clock: clock.batches == 7, [7]),
    ],
)
def test_when_training_batches_are_shown(fit, interval, shown):
    """With a time the first batch and those at its multiples; with a filter where it says so."""
    logger = fit(digits(), interval=interval, trainer={"max_epochs": 2})
    assert steps(logger) == shown


def test_each_validation_is_shown(fit):
    """The first batch of each validation is shown whatever the interval, the sanity check not."""
    batches = digits()
    options = {"max_epochs": 2, "val_check_interval": 3}
    logger = fit(batches, batches[4:], interval=once("99ba"), trainer=options)
    assert steps(logger) == []
    assert steps(logger, "Images/Eval") == [3, 6, 9, 12]
    expected = (batches[4][0][0, 0].double() * 255).round().numpy()
    assert (logger.images["Images/Eval"][0][1][0][..., 0] == expected).all()


def test_several_validation_loaders(fit):
    """Each loader's pictures have a name of their own: the evaluator's label, or its number."""
    batches = digits()
    loaders = [DataLoader(TensorDataset(*batch), batch_size=2) for batch in batches[:2]]
    logger = fit(batches, loaders)
    assert {name for name in logger.images if "Eval" in name} == {
        "Images/Eval/dataloader_idx_0",
        "Images/Eval/dataloader_idx_1",
    }
    labelled = [Evaluator("easy", loaders[0]), Evaluator("hard", loaders[1])]
    logger = fit(batches, labelled)
    assert {name for name in logger.images if "Eval" in name} == {
        "Images/Eval/easy",
        "Images/Eval/hard",
    }


def pixels(event):
    return np.asarray(Image.open(io.BytesIO(event.encoded_image_string)))


def events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder), size_guidance={"images": 0}).Reload()


def test_digits_in_tensorboard(fit, tmp_path):
    """TensorBoard finds the digits, as they are, under Composer's names and at their steps."""
    logger, batches = TensorBoardLogger(tmp_path / "tb"), digits()
    fit(batches, batches[5:], interval="3ba", num_images=2, trainer={"logger": logger})
    read = events(logger.log_dir)
    names = [f"Images/{kind}/{number}" for kind in ("Eval", "Train") for number in range(2)]
    assert sorted(read.Tags()["images"]) == names
    shown = read.Images("Images/Train/1")
    assert [event.step for event in shown] == [0, 3]
    for event in shown:
        expected = (batches[event.step][0][1, 0].double() * 255).round().numpy()
        assert (pixels(event) == expected[..., None]).all()
    [event] = read.Images("Images/Eval/0")
    expected = (batches[5][0][0, 0].double() * 255).round().numpy()
    assert (pixels(event) == expected[..., None]).all()


@pytest.mark.parametrize("module", [InkSegmentation, OwnSteps])
def test_masks_in_tensorboard(fit, tmp_path, module):
    """A digit stands beside its mask and the predicted one, which for this module are equal."""
    logger, batches = TensorBoardLogger(tmp_path / "tb"), digits()
    options = {"mode": "segmentation", "interval": "4ba", "num_images": 3, "module": module()}
    fit(batches, batches[5:], trainer={"logger": logger}, **options)
    read = events(logger.log_dir)
    assert [event.step for event in read.Images("Images/Train/2")] == [0, 4]
    found = [(e, batches[e.step]) for e in read.Images("Images/Train/2")]
    found += [(e, batches[5]) for e in read.Images("Images/Eval/2")]
    assert len(found) == 3
    for event, (images, masks) in found:
        image, target, predicted = np.split(np.insert(pixels(event), 0, 0, axis=1), 3, axis=1)
        assert (image[:, 1:, 0] == (images[2, 0].double() * 255).round().numpy()).all()
        assert (target[:, 0] == 255).all()
        assert (target[:, 1:] == predicted[:, 1:]).all()
        is_ink = target[:, 1:].any(axis=2)
        assert (is_ink == masks[2].bool().numpy()).all()


@pytest.mark.parametrize("size", [1, 2])
def test_parts_of_a_batch(fit, size):
    """Where a batch is run in parts, the first part's pictures are shown with its masks."""
    options = {"mode": "segmentation", "trainer": {"microbatch_size": size, "max_steps": 1}}
    logger = fit(digits(), **options)
    [(step, shown)] = logger.images["Images/Train"]
    assert (step, len(shown)) == (0, size)


class Keyed(InkSegmentation):
    """Takes its batches as dicts."""

    def forward(self, batch):
        return super().forward((batch["x"],))

    def loss(self, outputs, batch):
        return super().loss(outputs, (None, batch["y"]))


@pytest.mark.parametrize(
    "keys",
    [{"input_key": "x", "target_key": "y"}, {"input_key": lambda b: b["x"], "target_key": "y"}],
)
def test_keys(fit, keys):
    """Pictures and masks are found by keys and by functions."""
    batches = [{"x": images, "y": masks} for images, masks in digits()]
    logger = fit(batches, mode="segmentation", module=Keyed(), **keys)
    assert logger.images["Images/Train"][0][1][0].shape == (8, 26, 3)
    assert logger.captions["Images/Train"][0][0] == "image 0, target, prediction"


class Blind(Module):
    """Trains on whatever it is given, without looking at it."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def training_step(self, batch, batch_idx):
        return self.weight.square().sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("images", "last", "expected", "remark"),
    [
        (torch.tensor([[0.0, 0.2], [0.4, 1.0]]), False, [[0, 51], [102, 255]], ""),
        (torch.tensor([[-3.0, 2.0], [-1.0, 7.0]]), False, [[0, 128], [51, 255]], "-3 to 7"),
        (torch.tensor([[7, 255], [0, 1]], dtype=torch.uint8), False, [[7, 255], [0, 1]], ""),
        (torch.tensor([[True, False], [False, True]]), False, [[255, 0], [0, 255]], ""),
        (torch.tensor([[[0.0], [1.0]], [[1.0], [0.0]]]), True, [[0, 255], [255, 0]], ""),
    ],
)
def test_any_range(fit, images, last, expected, remark):
    """Colours of any range and type are shown; where they are stretched the caption says so."""
    logger = fit([(images[None],)], module=Blind(), channels_last=last)
    assert logger.images["Images/Train"][0][1][0][..., 0].tolist() == expected
    assert remark in logger.captions["Images/Train"][0][0]


@pytest.mark.parametrize("last", [True, False])
def test_colours(fit, last):
    """Three channels come through, first or last, and so does a batch that is one tensor."""
    images = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    batch = images.movedim(1, -1) if last else images
    logger = fit([batch], module=Blind(), channels_last=last)
    expected = (images[1].double() * 255).round().movedim(0, -1).numpy()
    assert (logger.images["Images/Train"][0][1][1] == expected).all()


@pytest.mark.parametrize(
    ("batch", "options", "error", "message"),
    [
        (
            (torch.zeros(2, 5, 4, 4),),
            {},
            DataError,
            r"input_key of ImageVisualizer: .*\(2, 5, 4, 4",
        ),
        ((torch.zeros(2, 4),), {}, DataError, r"of ImageVisualizer: .* not \(2, 4\)"),
        (("a",), {}, DataError, r"input_key of ImageVisualizer: .* not str"),
        ((torch.zeros(2, 4, 4),), {"input_key": 3}, DataError, r"input_key 3 of ImageVisualizer"),
        (
            (torch.zeros(2, 4, 4),) * 2,
            {"mode": "segmentation"},
            DataError,
            r"outputs of ImageVisualizer: masks .* not \(2,\)",
        ),
        (
            (torch.zeros(2, 4, 4),) * 2,
            {"mode": "segmentation", "module": None},
            ModuleError,
            r"Blind\.training_step returned no predictions, which ImageVisualizer shows",
        ),
    ],
)
def test_what_cannot_be_shown_is_named(fit, batch, options, error, message):
    """What is no picture and no mask is an error that says what was found and what to do."""

    class Wrong(Blind):
        def training_step(self, batch, batch_idx):
            return {"loss": super().training_step(batch, batch_idx), "outputs": torch.zeros(2)}

    module = Blind() if "module" in options else Wrong()
    with pytest.raises(error, match=message):
        fit([batch], **{**options, "module": module})


def test_without_a_logger_nothing_is_looked_at(fit):
    """Where nobody is told, a batch may be anything."""
    fit([("a",)], module=Blind(), trainer={"logger": False})


def test_classes():
    """Classes are those given, the largest channel's, or whether a single one is high."""
    classes = torch.tensor([[[0, 2], [1, -1]]])
    for masks in (classes, classes.to(torch.int16), classes[:, None]):
        assert torch.equal(class_masks(masks, 9, "m", "Mine"), classes)
    scores = nn.functional.one_hot(classes.clamp(0), 3).movedim(-1, 1).float()
    assert torch.equal(class_masks(scores, 9, "m", "Mine"), classes.clamp(0))
    logits = torch.tensor([[[-0.1, 0.1], [3.0, -3.0]]])
    assert class_masks(logits, 9, "m", "Mine").tolist() == [[[0, 1], [1, 0]]]
    shares = torch.tensor([[[[0.1, 0.6], [1.0, 0.5]]]])
    assert class_masks(shares, 9, "m", "Mine").tolist() == [[[0, 1], [1, 0]]]
    assert len(class_masks(torch.zeros(5, 2, 2), 3, "m", "Mine")) == 3


def test_colours_of_classes():
    """All 256 classes have colours of their own, black and grey are taken, and more begin anew."""
    colours = color_mask(torch.arange(256).reshape(1, -1))[:, 0].T
    assert len({tuple(colour.tolist()) for colour in colours}) == 256
    assert colours[0].tolist() == [0, 0, 0]
    assert not any(colour.tolist() == [128, 128, 128] for colour in colours)
    more = color_mask(torch.tensor([[-1, -100, 256, 511]]))[:, 0].T
    assert more.tolist() == [[128] * 3, [128] * 3, colours[1].tolist(), colours[1].tolist()]


def test_masks_of_another_size():
    """A mask that is coarser than its picture is shown in the picture's size, without blending."""
    small = color_mask(torch.tensor([[0, 1]]))
    both = side_by_side(torch.zeros(1, 2, 4, dtype=torch.uint8), small)
    assert both.shape == (3, 2, 9)
    assert torch.equal(both[:, :, 5:], small.repeat_interleave(2, 1).repeat_interleave(2, 2))
