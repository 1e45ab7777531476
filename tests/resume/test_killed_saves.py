"""A run that is killed at any change of its folder leaves, once resumed, the uncut run's folder."""

from __future__ import annotations

import json
import os
import random
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import warm_python
from new_processes import forget_trainings
from samples import one_in

from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.callbacks.saving import saver as saver_file
from trainer_hooks.checkpoint.file import read_checkpoint

SCRIPT = Path(__file__).with_name("killed_saves.py")


def run(folder: Path, cases: list[dict[str, Any]]) -> None:
    """Kill the runs of some cases, and fail with the differences of the simplest that has any."""
    done = warm_python.run(
        [sys.executable, str(SCRIPT), str(folder / "runs"), json.dumps(cases)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(lines) == len(cases), done.stderr[-3000:]
    told = [(case, json.loads(line)) for case, line in zip(cases, lines, strict=True)]
    wrong = [(case, problems) for case, problems in told if problems]
    if wrong:
        case, problems = min(wrong, key=lambda each: len(json.dumps(each[0])))
        pytest.fail(f"{len(wrong)} of {len(cases)} cases; {case}:\n" + "\n".join(problems[:5]))


def draw_saver(chance: random.Random) -> dict[str, Any]:
    """Return random options of a saver, without those that are as by default."""
    options: dict[str, Any] = {}
    monitor = chance.choice([None, "score"])
    if monitor:
        options |= {"monitor": monitor, "mode": chance.choice(["min", "max"])}
    trigger = chance.choice(["every_n_train_steps", "every_n_epochs", "save_interval", None])
    if trigger == "save_interval":
        options[trigger] = chance.choice(["2ba", "1ep"])
    elif trigger:
        options[trigger] = chance.choice([1, 2, 3])
    options["save_top_k"] = chance.choice([-1, 0, 1, 2] if monitor else [-1, 0, 1])
    options["save_last"] = chance.choice([None, True, "link"])
    options["async_save"] = chance.random() < 0.3
    if chance.random() < 0.2:
        options["filename"] = "{epoch}={step}/file={step}"
    if chance.random() < 0.2:
        options["save_on_train_epoch_end"] = chance.random() < 0.5
    return options


def draw(seed: int, kills: int) -> dict[str, Any]:
    """Return a random case: one or two savers, in one folder or in two."""
    chance = random.Random(seed)
    savers = [draw_saver(chance) for _ in range(chance.choice([1, 2]))]
    if len(savers) == 2 and savers[0].get("monitor") == savers[1].get("monitor"):
        # the state key does not differ by what else two savers are told
        savers[0] |= {"monitor": "score", "mode": "max"}
        savers[1] |= {"monitor": "val_loss", "mode": "min", "every_n_epochs": 1}
        for trigger in ("every_n_train_steps", "save_interval"):
            savers[1].pop(trigger, None)
    for number, saver in enumerate(savers):
        saver["dirpath"] = chance.choice(["c", f"c{number}"])
    case = {"savers": savers, "kills": kills, "seed": seed}
    case["requests"] = [chance.randrange(1, 7)] if chance.random() < 0.3 else []
    case["val_check_interval"] = chance.choice([1.0, 1.0, 2])
    case["is_async"] = any(saver["async_save"] for saver in savers)
    case["last"] = chance.choice(["last", "last-{step}"])
    return case


class Killed(BaseException):
    """Ends a run where a kill would."""


@pytest.mark.parametrize("at", range(1, 7))
def test_each_part_of_the_saves_of_two_savers(tmp_path, quiet_trainer, Tiny, monkeypatch, at):
    """A link that was not made, a file called last, a saver whose turn had not come are made up."""

    def folder_of(name: str, *ends: int) -> dict[str, int]:
        for end in ends:
            calls = [0]

            def counted(change, *args, calls=calls, end=end, **options):
                calls[0] += 1
                if calls[0] == end:
                    raise Killed
                return change(*args, **options)

            link = {"save_last": "link", "every_n_train_steps": 2}
            last = {"save_last": True, "save_top_k": 2, "monitor": "step", "mode": "max"}
            savers = [ModelCheckpoint(tmp_path / name, filename="a{step}", **link),
                      ModelCheckpoint(tmp_path / name / "b", **last)]  # fmt: skip
            forget_trainings()
            trainer = quiet_trainer(*savers, max_epochs=2, enable_checkpointing=True)
            batches = [torch.full((2, 2), float(number)) for number in range(4)]
            with monkeypatch.context() as patch, suppress(Killed):
                patch.setattr(saver_file, "_link_to", partial(counted, saver_file._link_to))
                save = trainer.save_checkpoint
                patch.setattr(trainer, "save_checkpoint", partial(counted, save))
                trainer.fit(Tiny(), batches, ckpt_path="auto")
        found = (tmp_path / name).rglob("*.*")
        return {
            str(path.relative_to(tmp_path / name)): read_checkpoint(path)["global_step"]
            for path in found
        }

    # at the end of the first epoch both have saved: two files and a link, and two of the other
    assert folder_of("cut", at, 0) == folder_of("whole", 0)


@pytest.mark.slow
@pytest.mark.parametrize("is_first", one_in(2, [True, False]))
def test_a_saver_of_weights_alone(tmp_path, is_first):
    """Its files of after the checkpoint that a resume takes are saved again, in their places.

    It is killed at some of its changes, which are drawn.
    """
    weights = {"dirpath": "w", "save_weights_only": True, "save_last": True, "monitor": "score",
               "save_top_k": 2, "every_n_train_steps": 2}  # fmt: skip
    # first a step earlier: a training that begins anew leaves all files of another alone
    whole = {"dirpath": "c", "every_n_train_steps": 1, "save_last": "link"}
    savers = [weights, whole] if is_first else [whole, weights]
    run(tmp_path, [{"savers": savers, "kills": 12, "seed": int(is_first)}])


@pytest.mark.exhaustive
def test_a_link_and_a_second_saver(tmp_path):
    """Each change of the folder of two savers is one before which the process may be killed."""
    link = {"dirpath": "c", "save_last": "link", "every_n_train_steps": 3}
    last = {"dirpath": "d", "save_last": True, "monitor": "score", "save_top_k": 2}
    run(tmp_path, [{"savers": [link, last], "kills": 0, "seed": 0}])


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", one_in(3, range(3)))
def test_random_savers(tmp_path, number):
    """Each of these cases is drawn, and is killed at some of its changes."""
    run(tmp_path, [draw(8 * number + seed, 4) for seed in range(8)])
