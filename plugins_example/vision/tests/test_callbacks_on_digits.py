"""The four callbacks, on real models that are trained on handwritten digits."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from trainer_hooks import Callback
from trainer_hooks.errors import DataError, OptionError, UsageError
from trainer_hooks.testing import check_callback
from trainer_hooks_vision import (
    ConfusedLogitCallback,
    ImageLogger,
    LatentDimInterpolator,
    SSLOnlineEvaluator,
)
from trainer_hooks_vision.factories import make_image_logger

# --- ConfusedLogitCallback ---


class Lines(nn.Module):
    """Two classes whose scores are the sums of the left and of the right half of the image."""

    def forward(self, images):
        left, right = images[..., :4].sum((1, 2, 3)), images[..., 4:].sum((1, 2, 3))
        return torch.stack([left, right, torch.full_like(left, -100.0)], dim=1)


def test_the_change_is_the_gradient_between_the_two_classes() -> None:
    """Where the classes are the two halves, the change brightens one and darkens the other."""
    images = torch.full((3, 1, 8, 8), 0.5)
    images[0, ..., :4] += 0.001  # nearly equal: class 0, then 1
    images[1, ..., :4] += 0.4  # clear
    images[2, ..., :4] -= 0.01  # nearly equal, less so: class 1, then 0
    callback = ConfusedLogitCallback(max_logit_difference=0.5, min_logit_value=5)
    pictures, captions = callback.confused(Lines(), images)
    assert captions == ["0 or 1", "1 or 0"]
    assert pictures.shape == (8, 1, 8, 8)
    change = pictures[1]
    assert torch.equal(change[..., :4], torch.zeros(1, 8, 4))
    assert torch.equal(change[..., 4:], torch.ones(1, 8, 4))
    assert torch.equal(pictures[5], 1 - change)


def test_a_changed_image_tricks_the_classification() -> None:
    """A step along the change turns the two classes' order about, the opposite settles it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    images = torch.rand(200, 1, 8, 8)
    images[:, 0, 0, 0], images[:, 0, 0, 1] = 0.0, 1.0  # so that they are shown as they are
    callback = ConfusedLogitCallback(
        top_k=200, min_logit_value=-9, max_logit_difference=0.05, step_size=0.3
    )
    pictures, captions = callback.confused(model, images)
    assert len(captions) > 5
    for number, caption in enumerate(captions):
        first, second = (int(word) for word in caption.split(" or "))
        before, tricked, settled = (
            model(pictures[4 * number + place].unsqueeze(0))[0] for place in (0, 2, 3)
        )
        assert 0 <= before[first] - before[second] <= 0.0501
        assert tricked[second] > tricked[first]
        assert settled[first] - settled[second] > before[first] - before[second]


def test_low_scores_and_clear_ones_are_not_confused() -> None:
    """Nothing is shown where scores are apart, or where both are low."""
    images = torch.full((1, 1, 8, 8), 0.5)
    apart = images.clone()
    apart[..., :4] = 1.0
    assert ConfusedLogitCallback().confused(Lines(), apart) is None
    assert ConfusedLogitCallback(min_logit_value=17).confused(Lines(), images) is None
    assert ConfusedLogitCallback(min_logit_value=15).confused(Lines(), images) is not None


def test_only_the_nearest_are_shown() -> None:
    """`top_k` takes those whose scores differ least, the nearest first."""
    images = torch.full((3, 1, 8, 8), 0.5)
    for number, excess in enumerate((0.003, 0.001, 0.002)):
        images[number, ..., :4] += excess
    pictures, captions = ConfusedLogitCallback(top_k=2, max_logit_difference=1).confused(
        Lines(), images
    )
    assert len(captions) == 2
    one, _ = ConfusedLogitCallback(top_k=1, max_logit_difference=1).confused(Lines(), images[1:2])
    assert torch.equal(pictures[:4], one)


def test_confused_digits_are_logged_at_intervals(fit, models) -> None:
    """A classifier of digits is confused at first, and the loggers are given grids of four wide."""
    album = models.Album()
    callback = ConfusedLogitCallback(
        logging_batch_interval=4, min_logit_value=-1, max_logit_difference=0.5
    )
    fit(models.Classifier(), callback, logger=album)
    assert album.pages
    for key, step, [picture], [caption] in album.pages:
        assert (key, step % 4) == ("confused_logits", 0)
        assert picture.shape == (1, 9 * len(caption.split("; ")) + 1, 37)


# --- LatentDimInterpolator ---


class Painter(nn.Module):
    """Paints the first number of a latent vector left, the second one right; one pixel each."""

    latent_dim = 3

    def forward(self, latents):
        assert latents.shape[1] == 3
        return latents[:, :2].reshape(-1, 1, 1, 2)


def test_the_walk_goes_from_left_to_right_and_from_top_to_bottom() -> None:
    """The first number grows along a row and the second one down a column."""
    callback = LatentDimInterpolator(range_start=0, range_end=1, steps=3, num_samples=2)
    grids = callback.interpolate(Painter())
    assert len(grids) == 2
    assert grids[0].shape == (1, 7, 10)
    assert grids[0][0, 1::2, 1::3].tolist() == [[0, 0.5, 1]] * 3
    assert grids[0][0, 1::2, 2::3].tolist() == [[0] * 3, [0.5] * 3, [1] * 3]


def test_a_variational_model_is_walked_through_at_its_interval(fit, models) -> None:
    """Grids come after every second epoch, two of them, and are other ones as it learns."""
    album = models.Album()
    callback = LatentDimInterpolator(interpolate_epoch_interval=2, steps=5)
    fit(models.VAE(), callback, logger=album, max_epochs=4, loaders=(models.loader(256),))
    assert [(key, step) for key, step, _, _ in album.pages] == [
        ("latent_space/0", 8),
        ("latent_space/1", 8),
        ("latent_space/0", 16),
        ("latent_space/1", 16),
    ]
    [early], [late] = album.pages[0][2], album.pages[2][2]
    assert early.shape == (1, 46, 46)
    assert not torch.equal(early, late)


def test_a_module_without_latents_is_told(fit, models) -> None:
    """Before training, it is said what is missing; pictures that are none are told too."""
    with pytest.raises(UsageError, match="latent_dim None of Classifier, for LatentDimInterpolato"):
        fit(models.Classifier(), LatentDimInterpolator())
    callback = LatentDimInterpolator(latent_dim=4, decode=lambda module, latents: latents)
    with pytest.raises(DataError, match=r"pictures of shape \(121, 4\).*must be of shape"):
        callback.interpolate(models.Classifier())


# --- ImageLogger ---


def test_inputs_and_outputs_are_logged(fit, models) -> None:
    """An autoencoder's inputs, outputs and samples are grids; a classifier's have its classes."""
    album = models.Album()
    callback = ImageLogger(8, num_images=6, columns=3, sample=lambda m: m.decode(torch.zeros(2, 2)))
    fit(models.VAE(), callback, logger=album)
    assert [(key, step) for key, step, _, _ in album.pages] == [
        (f"images/{name}", step) for step in (8, 16) for name in ("input", "output", "sample")
    ]
    assert [tuple(images[0].shape) for _, _, images, _ in album.pages[:3]] == [
        (1, 19, 28), (1, 19, 28), (1, 10, 28)
    ]  # fmt: skip
    album = models.Album()
    fit(models.Classifier(), ImageLogger(16, num_images=3, columns=3), logger=album)
    [(key, _, _, [caption])] = album.pages
    assert key == "images/input"
    classes = caption.partition(": ")[2].split(", ")
    assert len(classes) == 3
    assert all(0 <= int(name) <= 9 for name in classes)


def test_flat_images_are_shown_by_their_shape(fit, models) -> None:
    """With `img_dim` rows of numbers are images; without, they are left alone."""
    album = models.Album()
    flat = [(torch.rand(4, 64), torch.zeros(4, dtype=torch.long))]
    pair = (ImageLogger(1, img_dim=(1, 8, 8)), ImageLogger(1))
    for callback in pair:
        fit(models.Classifier(), callback, logger=album, loaders=(flat,))
    assert len(album.pages) == 1


def test_the_environment_switches_the_image_logger_on(monkeypatch) -> None:
    """Nothing is registered without the variable; a wrong one is named."""
    name = "TRAINER_HOOKS_IMAGES_EVERY_N_STEPS"
    monkeypatch.delenv(name, raising=False)
    assert make_image_logger() == []
    monkeypatch.setenv(name, "50")
    assert make_image_logger()[0].every_n_steps == 50
    for value in ("0", "-1", "often", "1.5"):
        monkeypatch.setenv(name, value)
        with pytest.raises(OptionError, match=f"{name}='{value}' in the environment: it must be"):
            make_image_logger()


# --- SSLOnlineEvaluator ---


@pytest.mark.slow
def test_it_learns_the_classes_that_the_model_does_not_see(fit, models) -> None:
    """On a VAE's two numbers it is far better than chance, and better than on random ones."""
    accuracies = []
    for options in ({}, {"get_representations": lambda m, x: torch.ones(len(x), 2)}):
        evaluator = SSLOnlineEvaluator(2, hidden_dim=64, num_classes=10, lr=2e-2, **options)
        loaders = (models.loader(1024), models.loader(256, first=1100, shuffle=False))
        trainer = fit(models.VAE(), evaluator, loaders=loaders, max_epochs=6)
        accuracies.append(float(trainer.callback_metrics["online_val_acc"]))
        assert {"online_train_loss", "online_train_acc"} <= set(trainer.callback_metrics)
    assert accuracies[0] > 0.3
    assert accuracies[1] < 0.2


def test_it_goes_on_bit_exactly_after_a_resume(fit, models, tmp_path) -> None:
    """Classifier, optimizer and random numbers of a resumed run are those of one never cut."""

    class Saver(Callback):
        def on_batch_checkpoint(self, trainer, module):
            if trainer.progress.batches_completed == 3:  # of four in an epoch
                trainer.save_checkpoint(path)
                self.weights = [value.clone() for value in whole.head.parameters()]

    path = tmp_path / "cut.ckpt"
    whole, resumed = (SSLOnlineEvaluator(2, hidden_dim=8, num_classes=10) for _ in range(2))
    saver = Saver()
    for evaluator, others, ckpt_path in ((whole, [saver], None), (resumed, [], path)):
        loaders = (models.loader(256),)
        options = {"loaders": loaders, "max_epochs": 2, "ckpt_path": ckpt_path}
        trainer = fit(models.VAE(), evaluator, *others, **options)
        assert trainer.global_step == 8
    names = dict(whole.head.named_parameters())
    for (name, value), at_cut in zip(names.items(), saver.weights, strict=True):
        assert torch.equal(value, resumed.head.get_parameter(name)), name
        assert not torch.equal(value, at_cut), name
    one, other = (e.optimizer.state_dict()["state"] for e in (whole, resumed))
    assert all(torch.equal(one[k]["exp_avg"], other[k]["exp_avg"]) for k in one)
    assert torch.equal(whole.head.generator.get_state(), resumed.head.generator.get_state())


def test_what_is_no_class_or_representation_is_told(fit, models) -> None:
    """The error names the shape that is needed and how to give it."""
    with pytest.raises(DataError, match=r"representations of shape \(64, 2\).*be 3 numbers"):
        fit(models.VAE(), SSLOnlineEvaluator(3, num_classes=10))
    loaders = ([(torch.rand(4, 1, 8, 8), torch.rand(4))],)
    with pytest.raises(DataError, match="must hold the class of each sample"):
        fit(models.VAE(), SSLOnlineEvaluator(2, num_classes=10), loaders=loaders)


# --- all four ---


@pytest.mark.parametrize(
    ("make", "wrong", "told"),
    [
        (ConfusedLogitCallback, {"top_k": 0}, "top_k 0 of ConfusedLogitCallback"),
        (ConfusedLogitCallback, {"logging_batch_interval": 1.5}, "logging_batch_interval 1.5 of"),
        (ConfusedLogitCallback, {"max_logit_difference": -1}, "max_logit_difference -1 of"),
        (ConfusedLogitCallback, {"min_logit_value": math.nan}, "min_logit_value nan of"),
        (ConfusedLogitCallback, {"forward": 3}, "forward 3 of ConfusedLogitCallback"),
        (LatentDimInterpolator, {"interpolate_epoch_interval": 0}, "interpolate_epoch_interval 0"),
        (LatentDimInterpolator, {"range_start": 5}, "range_end 5 of LatentDimInterpolator"),
        (LatentDimInterpolator, {"steps": 1}, "steps 1 of LatentDimInterpolator"),
        (LatentDimInterpolator, {"num_samples": 0}, "num_samples 0 of"),
        (LatentDimInterpolator, {"normalize": 1}, "normalize 1 of"),
        (LatentDimInterpolator, {"latent_dim": 1}, "latent_dim 1 of"),
        (ImageLogger, {"every_n_steps": 0}, "every_n_steps 0 of ImageLogger"),
        (ImageLogger, {"img_dim": (8, 8)}, r"img_dim \(8, 8\) of ImageLogger"),
        (ImageLogger, {"value_range": (1, 0)}, r"value_range \(1, 0\) of ImageLogger"),
        (SSLOnlineEvaluator, {"z_dim": 0}, "z_dim 0 of SSLOnlineEvaluator"),
        (SSLOnlineEvaluator, {"z_dim": 2}, "num_classes None of SSLOnlineEvaluator"),
        (SSLOnlineEvaluator, {"z_dim": 2, "num_classes": 2, "drop_p": 1}, "drop_p 1 of"),
        (SSLOnlineEvaluator, {"z_dim": 2, "num_classes": 2, "hidden_dim": 0}, "hidden_dim 0 of"),
    ],
)
def test_wrong_arguments_are_told(make, wrong: dict, told: str) -> None:
    """What is outside the rule is an error at construction, with the argument and its value."""
    with pytest.raises(OptionError, match=told):
        make(**wrong)


CASES = {
    "confused": (
        lambda: ConfusedLogitCallback(
            logging_batch_interval=1, min_logit_value=-9, max_logit_difference=9
        ),
        "Classifier",
    ),
    "latent": (lambda: LatentDimInterpolator(1, steps=3), "VAE"),
    "images": (lambda: ImageLogger(1), "VAE"),
    "evaluator": (lambda: SSLOnlineEvaluator(2, hidden_dim=4, num_classes=10), "VAE"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_model_is_trained_as_without(fit, models, case: str) -> None:
    """Weights, gradients, modes and random numbers after a fit are bit-equal to those without."""
    make, kind = CASES[case]
    ends = []
    for callbacks in ((), (make(),)):
        torch.manual_seed(5)
        module = getattr(models, kind)()
        fit(module, *callbacks, logger=models.Album(), loaders=(models.loader(256),))
        values = [*module.parameters(), *[p.grad for p in module.parameters()]]
        modes = [part.training for part in module.modules()]
        ends.append(([v.clone() for v in values], modes, torch.get_rng_state()))
    (weights, modes, numbers), (others, other_modes, other_numbers) = ends
    assert all(torch.equal(one, other) for one, other in zip(weights, others, strict=True))
    assert modes == other_modes
    assert torch.equal(numbers, other_numbers)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.exhaustive if case in ("images", "evaluator") else ())
        for case in CASES
    ],
)
def test_they_keep_the_contract_of_callbacks(models, case: str) -> None:
    """The kit finds no fault, with loggers that are given the pictures."""
    make, kind = CASES[case]
    check_callback(
        make,
        module=getattr(models, f"Kit{kind}"),
        trainer_options={"logger": models.Album()} if case != "evaluator" else None,
    )
