"""The demo's data: real digits, split the same way in every process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from trainer_hooks.cli.demo.digits import SIZES, DigitsData

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the digits in it."""
    pytest.importorskip("sklearn")
    folder = tmp_path_factory.mktemp("digits")
    DigitsData(folder).prepare_data()
    return folder


def test_all_images_are_there_in_three_parts(folder: Path) -> None:
    """1,797 images of 8 x 8 from 0 to 1, each in one part, each class in each part."""
    data = DigitsData(folder)
    data.setup("fit")
    assert {name: len(part) for name, part in data.parts.items()} == SIZES
    assert sum(SIZES.values()) == 1797
    for part in data.parts.values():
        images, labels = part.tensors
        assert images.shape[1:] == (1, 8, 8)
        assert images.min() == 0
        assert images.max() == 1
        assert labels.unique().tolist() == list(range(10))


def test_the_split_does_not_depend_on_the_seed(folder: Path, tmp_path: Path) -> None:
    """Another seed gives the same parts, and preparing draws no global random number."""
    torch.manual_seed(1)
    before = torch.get_rng_state()
    other = DigitsData(tmp_path)
    other.prepare_data()
    other.setup("fit")
    assert torch.equal(torch.get_rng_state(), before)
    data = DigitsData(folder)
    data.setup("fit")
    for name in SIZES:
        assert torch.equal(data.parts[name].tensors[0], other.parts[name].tensors[0])


def test_what_is_prepared_is_not_prepared_again(folder: Path) -> None:
    """A second process finds the file, so it needs no scikit-learn."""
    data = DigitsData(folder)
    before = data.file.stat().st_mtime_ns
    data.prepare_data()
    assert data.file.stat().st_mtime_ns == before


def test_training_images_are_shuffled_and_the_others_are_not(folder: Path) -> None:
    """Two passes over the training loader differ, two over validation and test do not."""
    data = DigitsData(folder)
    data.setup("fit")

    def labels(loader: object) -> list[int]:
        return torch.cat([y for _, y in loader]).tolist()  # type: ignore[attr-defined]

    assert labels(data.train_dataloader()) != labels(data.train_dataloader())
    assert labels(data.val_dataloader()) == labels(data.val_dataloader())
    assert labels(data.test_dataloader()) == labels(data.test_dataloader())
