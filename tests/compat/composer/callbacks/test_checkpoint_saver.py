"""CheckpointSaver: when it saves, what it keeps, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from trainer_hooks import Callback, Time, after, every, once
from trainer_hooks.compat.composer.callbacks import CheckpointSaver
from trainer_hooks.errors import CheckpointError, OptionError


def names(folder) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def test_it_saves_each_epoch_and_links_to_the_newest(fit, tmp_path):
    """By default each epoch leaves a file named by what is completed, and a link to the last."""
    saver = CheckpointSaver()
    fit(saver)
    folder = tmp_path / "checkpoints"
    assert names(folder) == ["ep1-ba4-rank0.pt", "ep2-ba8-rank0.pt", "latest-rank0.pt"]
    assert (folder / "latest-rank0.pt").readlink() == Path("ep2-ba8-rank0.pt")
    assert saver.best_model_path == str(folder / "ep2-ba8-rank0.pt")
    assert saver.last_model_path == str(folder / "latest-rank0.pt")
    assert torch.load(folder / "ep1-ba4-rank0.pt", weights_only=True)["global_step"] == 4


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ("3ba", [3, 6, 8]),
        ("4ba", [4, 8]),
        ("2st", [4, 8]),
        (2, [8]),
        ("5ep", [8]),
        ("1iter", [4, 8]),
        (lambda clock: clock.is_epoch_open and clock.steps == 1, [2, 3, 8]),
        ("6sp", [3, 6, 8]),
        (Time("0.25dur"), [2, 4, 6, 8]),
        (every("1ep") | once("3ba"), [3, 4, 8]),
        (every("1ba") & after("0.7dur"), [6, 7, 8]),
    ],
)
def test_when_it_saves(fit, tmp_path, interval, expected):
    """It saves at each multiple of its interval and at the end, and no moment twice."""
    saver = CheckpointSaver(tmp_path, "{batch}.pt", latest_filename=None, save_interval=interval)
    fit(saver, accumulate_grad_batches=2, iteration_length=1)
    assert names(tmp_path) == [f"{number}.pt" for number in expected]


def test_the_oldest_are_removed(fit, tmp_path):
    """As many as are to be kept stay, the newest; the link stays beside them."""
    fit(
        CheckpointSaver(
            tmp_path,
            "{batch}.pt",
            latest_filename="latest.pt",
            save_interval="1ba",
            num_checkpoints_to_keep=3,
        )
    )
    assert names(tmp_path) == ["6.pt", "7.pt", "8.pt", "latest.pt"]


def test_a_resumed_run_removes_what_the_one_before_saved(fit, tmp_path):
    """The list of what is kept is part of the state: rotation goes on over a resume."""

    def saver() -> CheckpointSaver:
        return CheckpointSaver(
            tmp_path,
            "{batch}.pt",
            latest_filename=None,
            save_interval="3ba",
            num_checkpoints_to_keep=2,
        )

    fit(saver(), max_epochs=1)
    assert names(tmp_path) == ["3.pt", "4.pt"]
    fit(saver(), ckpt_path=tmp_path / "4.pt", max_epochs=3)
    # the file that the run was resumed from is never removed by it
    assert names(tmp_path) == ["12.pt", "4.pt", "9.pt"]


def test_a_file_with_one_name_is_written_over(fit, tmp_path):
    """A name without counters holds the newest state; the training's own file is no obstacle."""
    fit(
        CheckpointSaver(
            tmp_path,
            "model.pt",
            latest_filename=None,
            save_interval="3ba",
            num_checkpoints_to_keep=1,
        )
    )
    assert names(tmp_path) == ["model.pt"]
    assert torch.load(tmp_path / "model.pt", weights_only=True)["global_step"] == 8


def test_files_of_another_run_are_refused_before_training(fit, tmp_path):
    """What would be written over is named before the first batch, and nothing is touched."""
    fit(CheckpointSaver(tmp_path / "a"))
    before = {path: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    seen = []

    class Watch(Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            seen.append(batch_idx)

    with pytest.raises(CheckpointError, match=r"'ep1-ba4-rank0.pt', 'ep2-ba8-rank0.pt' in .*/a'"):
        fit(CheckpointSaver(tmp_path / "a"), Watch())
    assert seen == []
    assert {path: path.read_bytes() for path in (tmp_path / "a").iterdir()} == before
    fit(CheckpointSaver(tmp_path / "a", overwrite=True))


def test_a_resumed_run_refuses_only_what_lies_ahead(fit, tmp_path):
    """Files of the run's past are no obstacle; those after the checkpoint are."""
    fit(CheckpointSaver(tmp_path / "a"))
    first = tmp_path / "a" / "ep1-ba4-rank0.pt"
    with pytest.raises(CheckpointError, match=r"files 'ep2-ba8-rank0.pt' in"):
        fit(CheckpointSaver(tmp_path / "a"), ckpt_path=first)
    (tmp_path / "a" / "ep2-ba8-rank0.pt").unlink()
    fit(CheckpointSaver(tmp_path / "a"), ckpt_path=first)
    assert "ep2-ba8-rank0.pt" in names(tmp_path / "a")


def test_other_files_are_no_obstacle(fit, tmp_path):
    """Only names that the template can make count."""
    for name in ("readme.md", "epx-ba4-rank0.pt", "ep1-ba4-rank0.pt.bak", "ep1-ba4-rank01x.pt"):
        (tmp_path / name).write_text("")
    fit(CheckpointSaver(tmp_path))


def test_a_file_that_appears_during_training_is_not_written_over(fit, tmp_path):
    """A name that another process took in the meantime ends the run with its path."""

    class Rival(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            (tmp_path / "2.pt").write_text("mine")

    with pytest.raises(CheckpointError, match=r"files '2.pt' in"):
        fit(
            Rival(),
            CheckpointSaver(tmp_path, "{batch}.pt", latest_filename=None, save_interval="2ba"),
        )
    assert (tmp_path / "2.pt").read_text() == "mine"


def test_a_request_is_saved_and_kept_like_the_others(fit, tmp_path):
    """`request_checkpoint()` saves at once, and the schedule stays as it is."""

    class Asks(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if trainer.global_step == 3:
                trainer.request_checkpoint()

    fit(Asks(), CheckpointSaver(tmp_path, "{batch}.pt", latest_filename=None, save_interval="4ba"))
    assert names(tmp_path) == ["3.pt", "4.pt", "8.pt"]


def test_weights_alone_in_the_background_with_a_metric_in_the_name(fit, tmp_path):
    """What ModelCheckpoint can do with files it can too: it is the same machinery."""
    fit(
        CheckpointSaver(
            tmp_path,
            "sub{epoch}/{loss:.1f}.pt",
            latest_filename=None,
            weights_only=True,
            async_save=True,
        )
    )
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.pt")) == [
        "sub1/1.5.pt",
        "sub2/1.5.pt",
    ]
    saved = torch.load(tmp_path / "sub1" / "1.5.pt", weights_only=True)
    assert "optimizer_states" not in saved


def test_a_dry_run_saves_and_refuses_nothing(fit, tmp_path):
    """`fast_dev_run` leaves the folder alone."""
    (tmp_path / "1.pt").write_text("")
    fit(CheckpointSaver(tmp_path, "{batch}.pt"), fast_dev_run=True)
    assert names(tmp_path) == ["1.pt"]


def test_the_newest_is_found_as_the_last(fit, tmp_path):
    """`ckpt_path="last"` finds its newest file, among files that are not its own."""
    fit(CheckpointSaver(tmp_path / "a"), max_epochs=1)
    (tmp_path / "a" / "notes.pt").write_text("")
    trainer = fit(CheckpointSaver(tmp_path / "a"), ckpt_path="last")
    assert trainer.global_step == 8
    assert names(tmp_path / "a")[:2] == ["ep1-ba4-rank0.pt", "ep2-ba8-rank0.pt"]


def test_files_in_another_store(fit):
    """A folder may be an address: what is there is refused, and rotation works there too."""
    fsspec = pytest.importorskip("fsspec")

    def saver() -> CheckpointSaver:
        return CheckpointSaver(
            "memory://savers/a",
            "{batch}.pt",
            latest_filename=None,
            save_interval="2ba",
            num_checkpoints_to_keep=2,
        )

    fit(saver())
    store = fsspec.filesystem("memory")
    assert sorted(store.ls("/savers/a", detail=False)) == ["/savers/a/6.pt", "/savers/a/8.pt"]
    with pytest.raises(CheckpointError, match=r"files '6.pt', '8.pt' in 'memory://savers/a'"):
        fit(saver())
    store.rm("/savers", recursive=True)


@pytest.mark.parametrize(
    ("saver", "message"),
    [
        (lambda: CheckpointSaver("{run_name}/x"), "run_name.*compat.composer has a run's name"),
        (
            lambda: CheckpointSaver("x", save_interval=lambda state, event: True),
            r"save_interval .*<lambda> of .*a function of the state and the event.*clock alone",
        ),
    ],
)
def test_what_only_composers_trainer_has(fit, saver, message, tmp_path, monkeypatch) -> None:
    """In another trainer the name of a run, and an interval of the state, are errors."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match=message):
        fit(saver())
