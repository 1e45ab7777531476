"""`trainer-hooks checkpoint prune FOLDER`: what goes, what never goes, and who is asked."""

from __future__ import annotations

import fcntl
import io
import os
import sys
import time
from typing import TYPE_CHECKING

import pytest
import torch

from trainer_hooks.checkpoint import folder_retention as pruning
from trainer_hooks.checkpoint.folder_retention import RetentionRule, plan_retention
from trainer_hooks.cli.checkpoint import prune as checkpoint_prune

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings(
    "ignore:a checkpoint was saved in the hook"  # what these look at does not depend on the place
)


@pytest.fixture
def folder(save, tmp_path) -> Path:
    """Five checkpoints of one run: after 0, 1, 2 and 3 batches, and `end.ckpt`."""
    (tmp_path / "run").mkdir()
    save("run/end.ckpt", at={1: "run/one.ckpt", 2: "run/two.ckpt", 3: "run/three.ckpt"})
    return tmp_path / "run"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_newest_stays(folder, ask) -> None:
    """Without a number one is kept: the newest by its counters, whatever the clock says."""
    for age, path in enumerate(sorted(folder.iterdir())):
        os.utime(path, (1e9 + age, 1e9 + age))
    os.utime(folder / "one.ckpt", (2e9, 2e9))
    answer = ask("prune", folder, "--yes")
    assert (answer.code, answer.err) == (0, "")
    assert names(folder) == {"end.ckpt"}
    assert answer.out.splitlines()[-1].startswith("removed 3 files, ")


def test_as_many_as_are_wanted_stay(folder, ask) -> None:
    """`--keep` counts from the newest; what goes and how much room it takes are told."""
    size = (folder / "one.ckpt").stat().st_size
    answer = ask("prune", folder, "--keep", 3, "--yes")
    assert names(folder) == {"end.ckpt", "three.ckpt", "two.ckpt"}
    lines = [line.split() for line in answer.out.splitlines()]
    assert ["keep", "two.ckpt", f"{size / 1000:.1f}", "kB", "among", "the", "newest"] in lines
    assert ["remove", "one.ckpt", f"{size / 1000:.1f}", "kB", "old"] in lines
    assert answer.out.endswith(f"removed 1 file, {size / 1000:.1f} kB\n")


def test_more_than_there_are(folder, ask) -> None:
    """Where all are kept, nobody is asked."""
    answer = ask("prune", folder, "--keep", 9)
    assert answer.code == 0
    assert answer.out.endswith("nothing to remove\n")
    assert len(names(folder)) == 4


def test_a_dry_run_removes_nothing(folder, ask) -> None:
    """It tells what would go, and asks nobody."""
    answer = ask("prune", folder, "--dry-run")
    assert answer.code == 0
    assert answer.out.splitlines()[-1].startswith("would remove 3 files, ")
    assert len(names(folder)) == 4


@pytest.mark.parametrize(("mode", "best"), [("min", "two.ckpt"), ("max", "one.ckpt")])
def test_the_best_stay(mode, best, folder, ask, changed) -> None:
    """The best by a logged metric are kept beside the newest; NaN is never the best."""
    for name, value in {"one": 3.0, "two": 1.0, "three": float("nan"), "end": 2.0}.items():
        metric = {"callback_metrics": {"loss": torch.tensor(value)}}
        path = folder / f"{name}.ckpt"
        changed(path, path, lambda saved, m=metric: saved["trainer_hooks"]["metrics"].update(m))
    answer = ask("prune", folder, "--keep-best", 1, "--monitor", "loss", "--mode", mode, "--yes")
    assert answer.code == 0
    assert names(folder) == {"end.ckpt", best}
    assert "among the best by loss" in answer.out


def test_a_metric_that_nobody_logged(folder, ask) -> None:
    """A monitor that no file has a value of is an error that names the ones there are."""
    options = ("--keep-best", 1, "--monitor", "los", "--mode", "min", "--yes")
    error = ask("prune", folder, *options).error
    assert "there are 'loss'. Did you mean 'loss'?" in error
    assert len(names(folder)) == 4


def test_the_newest_whole_one_stays_where_newer_ones_are_damaged(folder, ask) -> None:
    """A damaged file counts for nothing, and stays unless it is to go too."""
    for name in ("end.ckpt", "three.ckpt"):
        path = folder / name
        path.write_bytes(path.read_bytes()[:-100])
    ask("prune", folder, "--yes")
    assert names(folder) == {"end.ckpt", "three.ckpt", "two.ckpt"}
    ask("prune", folder, "--yes", "--damaged")
    assert names(folder) == {"two.ckpt"}
    ask("prune", folder, "--yes", "--damaged")
    assert names(folder) == {"two.ckpt"}


def test_a_folder_whose_name_is_not_utf_8_holds_whole_files(folder, ask) -> None:
    """Torch cannot map such a file; it is read, and not called damaged and removed."""
    odd = folder.with_name(os.fsdecode(b"run\xff"))
    folder.rename(odd)
    assert ask("verify", odd).code == 0
    assert ask("show", odd / "end.ckpt").code == 0
    ask("prune", odd, "--yes", "--damaged", "--keep", "2")
    assert names(odd) == {"end.ckpt", "three.ckpt"}


def test_what_a_resume_needs_stays(folder, ask, save) -> None:
    """Where the newest holds weights alone, the newest to go on from stays too."""
    save("run/weights.ckpt", weights_only=True)
    os.utime(folder / "weights.ckpt", (2e9, 2e9))
    for path in ("end", "three", "two"):
        (folder / f"{path}.ckpt").unlink()
    answer = ask("prune", folder, "--yes")
    assert names(folder) == {"weights.ckpt", "one.ckpt"}
    assert "the newest that a training can go on from" in answer.out


def test_files_of_others_stay(folder, ask, changed) -> None:
    """Whatever else lies there is left alone: other tools' files, newer ones, texts, folders."""
    torch.save({"state_dict": {}, "pytorch-lightning_version": "2"}, folder / "lightning.ckpt")
    torch.save({"a": torch.ones(1)}, folder / "weights.ckpt")
    torch.save({"state_dict": {}, "net": torch.nn.Linear(1, 1)}, folder / "code.ckpt")
    (folder / "text.ckpt").write_text("mine")
    (folder / "old.pt").write_bytes((folder / "one.ckpt").read_bytes())
    (folder / "sub.ckpt").mkdir()
    (folder / ".hidden").touch()
    (folder / ".x.part").touch()
    os.utime(folder / ".x.part", (1, 1))
    changed(
        folder / "one.ckpt",
        folder / "new.ckpt",
        lambda saved: saved["trainer_hooks"].update(format=99),
    )
    before = names(folder)
    ask("prune", folder, "--yes", "--damaged")
    assert before - names(folder) == {"one.ckpt", "two.ckpt", "three.ckpt"}


def test_links_and_what_they_point_to_stay(folder, ask) -> None:
    """A link is no copy: it is not counted, and its checkpoint is not pulled from under it."""
    (folder / "last.ckpt").symlink_to("two.ckpt")
    (folder / "gone.ckpt").symlink_to("nowhere.ckpt")
    answer = ask("prune", folder, "--yes")
    assert names(folder) == {"end.ckpt", "two.ckpt", "last.ckpt", "gone.ckpt"}
    assert "a link points to it" in answer.out


def test_what_killed_saves_left_goes(folder, ask) -> None:
    """An unfinished file goes once nobody has written to it for an hour."""
    stale, fresh = folder / ".a.ckpt.0a1b2c3d.part", folder / ".b.ckpt.0a1b2c3d.part"
    for path, age in ((stale, 3700), (fresh, 3500)):
        path.write_bytes(b"x" * 1000)
        os.utime(path, (time.time() - age,) * 2)
    answer = ask("prune", folder, "--keep", 9, "--yes")
    assert not stale.exists()
    assert fresh.exists()
    assert "left by a killed save" in answer.out
    assert "a save may be under way" in answer.out
    assert answer.out.endswith("removed 1 file, 1.0 kB\n")


def test_an_unfinished_file_of_a_live_process_stays(folder, ask) -> None:
    """A save that has hung for hours holds its file by a lock; once it is killed, the file goes."""
    path = folder / ".a.0a1b2c3d.trainer_hooks.part"
    with path.open("wb") as file:
        os.utime(path, (1e9, 1e9))
        fcntl.flock(file, fcntl.LOCK_EX)
        ask("prune", folder, "--yes")
        assert path.exists()
    ask("prune", folder, "--yes")
    assert not path.exists()


def test_a_file_that_was_written_anew_meanwhile_stays(folder, ask, monkeypatch) -> None:
    """A training that goes on may save over an old name between the look and the removal."""
    plan = pruning.plan_retention

    def plan_and_save(*arguments):
        entries = plan(*arguments)
        content = (folder / "end.ckpt").read_bytes()
        (folder / "one.ckpt").unlink()
        (folder / "one.ckpt").write_bytes(content)
        (folder / "two.ckpt").unlink()
        return entries

    monkeypatch.setattr(checkpoint_prune, "plan_retention", plan_and_save)
    answer = ask("prune", folder, "--yes")
    assert answer.code == 1
    assert "one.ckpt' stays: it was written anew meanwhile" in answer.err
    assert names(folder) == {"end.ckpt", "one.ckpt"}


class Keyboard(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "code", "left"),
    [("y\n", 0, 1), ("YES\n", 0, 1), ("n\n", 1, 4), ("\n", 1, 4), ("yep\n", 1, 4), ("", 1, 4)],
)
def test_it_asks_first(typed, code, left, folder, ask, monkeypatch) -> None:
    """On a terminal the answer decides; anything but yes is no."""
    monkeypatch.setattr(sys, "stdin", Keyboard(typed))
    answer = ask("prune", folder)
    assert answer.code == code
    assert "Remove 3 files, " in answer.out
    assert len(names(folder)) == left
    assert ("nothing was removed" in answer.out) is (code == 1)


def test_without_a_terminal_it_refuses(folder, ask, monkeypatch) -> None:
    """Nobody can be asked, so nothing goes: code 2."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    answer = ask("prune", folder)
    assert answer.code == 2
    assert "give --yes, or --dry-run" in answer.err
    assert len(names(folder)) == 4


@pytest.mark.parametrize(
    "options",
    [
        ("--keep", "0"),
        ("--keep", "-1"),
        ("--keep", "x"),
        ("--keep-best", "0"),
        ("--keep-best", "1"),
        ("--keep-best", "1", "--monitor", "loss"),
        ("--monitor", "loss"),
        ("--mode", "max"),
        ("--mode", "best"),
    ],
)
def test_options_that_make_no_sense(options, folder, ask, capsys) -> None:
    """Refused as argparse does, before a file is looked at."""
    with pytest.raises(SystemExit) as exit_:
        ask("prune", folder, "--yes", *options)
    assert exit_.value.code == 2
    assert "error: " in capsys.readouterr().err
    assert len(names(folder)) == 4


def test_what_is_no_folder(ask, save, tmp_path) -> None:
    """A file or a missing folder is an error, an empty folder has nothing to remove."""
    assert "must be a folder" in ask("prune", save(), "--yes").error
    assert "must be a folder" in ask("prune", tmp_path / "none", "--yes").error
    (tmp_path / "empty").mkdir()
    answer = ask("prune", tmp_path / "empty")
    assert (answer.code, answer.out) == (0, "nothing to remove\n")


def test_no_rule_removes_them_all(folder) -> None:
    """Whatever the rule, the newest whole checkpoint is in no plan to be removed."""
    for keep in (0, 1, 2):
        plan = plan_retention(folder, RetentionRule(keep=keep, is_damaged_removed=True), 99)
        assert [entry.path.name for entry in plan if entry.is_kept][:1] == ["end.ckpt"]
