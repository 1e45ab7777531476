"""InMemoryLogger keeps what it is given."""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from trainer_hooks.errors import OptionError
from trainer_hooks.loggers import InMemoryLogger


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (torch.zeros(2), r"image of shape \(2,\) logged as 'x': it must be \(H, W\)"),
        (torch.zeros(5, 2, 2), r"image of shape \(5, 2, 2\)"),
        (torch.zeros(3, 0, 2), r"image of shape \(3, 0, 2\)"),
        (np.array([["a"]]), "image of type <U1 logged as 'x': it must be of numbers"),
    ],
)
def test_what_is_no_image(image, message):
    """A thing that is no image is refused with its shape or type and the rule."""
    with pytest.raises(OptionError, match=message):
        InMemoryLogger().log_image("x", [image])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "must be given as columns and data, or as a dataframe"),
        ({"data": [[1]], "dataframe": pd.DataFrame()}, "must be given as columns and data, or"),
        ({"columns": ["a", "b"], "data": [[1, 2], [1]]}, "row 1 of the table .* has 1 cells"),
    ],
)
def test_what_is_no_table(table, message):
    """A table that is given twice, not at all, or with a short row is refused."""
    with pytest.raises(OptionError, match=message):
        InMemoryLogger().log_table("x", **table)


def test_metrics_are_kept_by_step():
    """Values are plain numbers of the moment; without a step the calls are numbered."""
    logger, running = InMemoryLogger(), torch.tensor(1.5)
    logger.log_metrics({"loss": running, "lr": 0.1}, step=7)
    running.add_(1)
    logger.log_metrics({"loss": 2})
    assert logger.metrics == [(7, {"loss": 1.5, "lr": 0.1}), (1, {"loss": 2})]
    assert logger.history("loss") == [(7, 1.5), (1, 2)]
    assert logger.history("lr") == [(7, 0.1)]


@pytest.mark.parametrize(
    ("image", "options"),
    [
        (torch.tensor([[0.0, 0.5], [1.0, 2.0]]), {}),
        (torch.tensor([[[0.0, 0.5], [1.0, 2.0]]]), {}),
        (np.array([[[0.0], [0.5]], [[1.0], [2.0]]]), {"channels_last": True}),
        (torch.tensor([[0, 128], [255, 300]]), {}),
        (torch.tensor([[0.0, 0.5], [1.0, 1.0]], dtype=torch.bfloat16), {}),
    ],
)
def test_every_form_of_an_image_is_the_same_pixels(image, options):
    """Floats from 0 to 1, whole numbers to 255, and each order of dimensions give one image."""
    logger = InMemoryLogger()
    logger.log_image("map", [image], 3, captions=["one"], **options)
    [(step, [pixels])] = logger.images["map"]
    assert (step, pixels.dtype, pixels.shape) == (3, np.uint8, (2, 2, 1))
    assert pixels[..., 0].tolist() == [[0, 128], [255, 255]]
    assert logger.captions["map"] == [["one"]]


def test_composers_form_and_pillows():
    """A batch, one image, and an image of Pillow are taken."""
    logger = InMemoryLogger()
    logger.log_images(torch.zeros(4, 3, 2, 5), name="batch")
    logger.log_images(torch.zeros(3, 2, 5), name="one")
    logger.log_image("photo", [Image.new("RGB", (5, 2), (255, 0, 0))])
    assert [image.shape for image in logger.images["batch"][0][1]] == [(2, 5, 3)] * 4
    assert len(logger.images["one"][0][1]) == 1
    assert logger.images["photo"][0][1][0][0, 0].tolist() == [255, 0, 0]


def test_tables_texts_graphs_and_hyperparameters():
    """Tables of both kinds, texts, models and hyperparameters are found under their names."""
    logger, model, cells = InMemoryLogger(), torch.nn.Linear(1, 1), [[1, "x"]]
    logger.log_table("t", ["a", "b"], cells, step=1)
    cells[0][0] = 9
    logger.log_table("t", dataframe=pd.DataFrame({"a": [1], "b": ["x"]}))
    logger.log_text("note", "hello", 4)
    logger.log_graph(model)
    logger.log_graph(model)
    logger.log_hyperparams(argparse.Namespace(lr=0.1))
    logger.log_hyperparams({"depth": 2})
    assert logger.tables["t"] == [(1, ["a", "b"], [[1, "x"]]), (None, ["a", "b"], [[1, "x"]])]
    assert logger.texts == {"note": [(4, "hello")]}
    assert logger.graphs == [model]
    assert logger.hparams == {"lr": 0.1, "depth": 2}


def test_a_training_is_kept_whole(train):
    """After a fit there are all hand-overs, the hyperparameters, the model and the outcome."""
    logger = InMemoryLogger()
    trainer = train(logger)
    assert [step for step, _ in logger.history("loss_step")] == [1, 3, 5, 7, 9, 11]
    assert len(logger.history("val_loss")) == 2
    assert logger.hparams == {"lr": 0.1, "layers": {"width": 4}}
    assert logger.graphs == [trainer.lightning_module]
    assert logger.status == "success"
    assert logger.experiment is logger
