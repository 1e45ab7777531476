"""The pictures as TensorBoard reads them from its event files."""

from __future__ import annotations

import io

import pytest

from trainer_hooks_vision import ConfusedLogitCallback, ImageLogger, LatentDimInterpolator

loggers = pytest.importorskip("trainer_hooks.loggers")
if not hasattr(loggers, "TensorBoardLogger"):
    pytest.skip("this trainer_hooks has no TensorBoardLogger", allow_module_level=True)
pytest.importorskip("tensorboard")


def test_every_picture_is_in_the_event_file(fit, models, tmp_path) -> None:
    """Tags, steps and pixels that are read back are those that the callbacks made."""
    import numpy as np
    from PIL import Image
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    album = models.Album()
    logger = loggers.TensorBoardLogger(tmp_path / "board")
    latent = LatentDimInterpolator(1, steps=3, num_samples=1)
    images = ImageLogger(4, num_images=4, columns=2)
    both = [logger, album]
    fit(models.VAE(), latent, images, logger=both, loaders=(models.loader(256),))
    confused = ConfusedLogitCallback(
        logging_batch_interval=4, min_logit_value=-9, max_logit_difference=9
    )
    fit(models.Classifier(), confused, logger=both, loaders=(models.loader(256),))
    reader = EventAccumulator(logger.log_dir, size_guidance={"images": 0})
    reader.Reload()
    assert {key for key, *_ in album.pages} == {
        "images/input", "images/output", "latent_space/0", "confused_logits"
    }  # fmt: skip
    for key, step, [picture], _ in album.pages:
        [found] = [event for event in reader.Images(f"{key}/0") if event.step == step]
        pixels = np.asarray(Image.open(io.BytesIO(found.encoded_image_string)).convert("L"))
        wanted = (picture[0] * 255).round().numpy()
        assert pixels.shape == wanted.shape
        assert np.abs(pixels - wanted).max() <= 1, key  # halves may be rounded either way
