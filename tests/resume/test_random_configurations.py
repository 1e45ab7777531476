"""Configurations drawn at random are resumed exactly, wherever they are cut."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from samples import one_in


@pytest.fixture
def fuzzer(monkeypatch):
    """The module that draws, runs and compares; it stands beside this file, and is a command."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    return importlib.import_module("random_configurations")


def simplest(fuzzer) -> dict:
    """Return the configuration in which each option is the simplest."""
    return {name: values[0] for name, values in fuzzer.SPACE.items()}


@pytest.fixture
def chains(fuzzer, monkeypatch):
    """The module of chains; stages without a framework are forked from this process."""
    chains = importlib.import_module("random_chains")
    stages = importlib.import_module("random_stages")
    groups: list[int] = []

    class Here:
        def ask(self, task):
            return stages.end_groups(groups) if task is None else stages.run_stage(task, groups)

    start = chains.zygote_for
    monkeypatch.setattr(chains, "zygote_for", lambda needs: start(needs) if needs else Here())
    importlib.import_module("torch._dynamo")  # else each stage imports it
    return chains


@pytest.mark.slow
@pytest.mark.parametrize("first", one_in(8, range(0, 64, 8)))
def test_a_run_that_is_cut_and_resumed_is_the_uncut_one(fuzzer, first, draw_seed, capfd) -> None:
    """Weights, states, metrics, random numbers, and every later hook call are the same bits.

    Each commit tries a few others; `random_configurations.py --seeds 0:1000` as many as one likes.
    """
    first += draw_seed * 64
    seeds = [seed for seed in range(first, first + 8) if seed % fuzzer.CHAINS_OF]
    assert fuzzer.failures(seeds) == []


@pytest.mark.slow
@pytest.mark.parametrize("first", one_in(4, range(0, 8, 2)))
def test_a_chain_of_cuts_is_the_uncut_run(chains, fuzzer, first, draw_seed) -> None:
    """Killed, told to end and failing several times over, a run still ends as the uncut one.

    Its files, links, rows and events are the same, too. Guests are left to the command and to the
    test below, since a framework takes seconds to import.
    """
    drawn = range(120 * draw_seed, 120 * (draw_seed + 1), fuzzer.CHAINS_OF)
    plain = [seed for seed in drawn if fuzzer.draw(seed)["guest"] == "none"][:8]
    # those with event files come last: their stages start in a process that has their package
    plain.sort(key=lambda seed: chains.needs_of(fuzzer.draw(seed)))
    assert fuzzer.failures(plain[first : first + 2]) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "changed"),
    [
        (153, {"samples": 15, "val_check_interval": "2ba or 1ep"}),
        (335, {"second_cut": True, "asks": True, "ends": "7 steps"}),
        (
            2589,
            {
                "samples": 15,
                "val": "two",
                "evaluators": "3ba",
                "metric_objects": True,
                "val_check_interval": 2,
            },
        ),
        (3389, {"cut": "signal in validation", "batch_norm": True, "average": "ema"}),
        (800347, {"scheduler": "plateau by step", "average": "swa"}),
        (
            800027,
            {
                "cut": "signal in validation",
                "average": "validated ema",
                "limit_train_batches": 3,
                "memory": "in place",
            },
        ),
        (5336, {"evaluators": "1ep", "asks": True, "val_check_interval": "2ba or 1ep"}),
    ],
    ids=[
        "due once more",
        "request of the last slot",
        "metric object of two loaders",
        "buffers of exchanged weights",
        "due, and its scheduler is gone",
        "average of buffers from before a validation",
        "due, and nobody goes by it",
    ],
)
def test_what_was_found_once_does_not_come_back(fuzzer, tmp_path, seed, changed) -> None:
    """The smallest configurations that once differed are the same run now."""
    runs = importlib.import_module("random_runs")
    options = simplest(fuzzer) | changed
    assert runs.examine(options, tmp_path, seed).status == "same"


@pytest.mark.slow
def test_a_chain_is_cut_resumed_and_compared(chains, fuzzer, tmp_path) -> None:
    """One that is cut in each way has the weights, rows, files and links of the uncut run."""
    options = simplest(fuzzer) | {
        "chain": (
            ("SIGTERM", "on_train_batch_end", 3),
            ("error", "on_epoch_end", 1),
            ("SIGKILL", "fsync", 5),
            ("SIGINT", "on_before_backward", 2),
        ),
        "dropout": True,
        "save_every": 2,
        "logger": "csv",
    }
    result = chains.examine_chain(options, tmp_path)
    assert (result.status, result.details) == ("same", [])
    assert len((tmp_path / "stages" / "warnings.txt").read_text()) == 0


@pytest.mark.slow
def test_a_defect_is_found_in_a_chain(chains, fuzzer, tmp_path) -> None:
    """A state that a checkpoint leaves out fails, told with each stage and what differs."""
    options = simplest(fuzzer) | {
        "chain": (("SIGKILL", "on_train_batch_end", 4),),
        "counts": ("on_train_batch_end",),
    }
    result = chains.examine_chain(options, tmp_path, plant="forgotten_count")
    assert result.status == "differs"
    told = fuzzer.told(3, result, options)
    assert "stage 0: from the start, cut by ('SIGKILL', 'on_train_batch_end', 4): code -9" in told
    assert "stage 1: resumed, to the end" in told
    assert "['count']" in told
    assert "random_configurations.py --seeds 3 --options" in told


@pytest.mark.slow
def test_a_file_that_a_chain_leaves_is_found(chains, fuzzer, tmp_path) -> None:
    """A killed save's old file that nobody deletes any more is told by its name."""
    options = simplest(fuzzer) | {"chain": (("SIGKILL", "unlink", 6),), "save_last": True}
    result = chains.examine_chain(options, tmp_path, plant="unkept_files")
    assert result.status == "differs"
    assert any("only the chain has it" in line for line in result.details)


def test_a_chain_is_made_as_short_as_it_can_be(fuzzer) -> None:
    """Cuts that the failure does not need go, and those that stay become simple."""
    kill = ("SIGKILL", "rename", 3)
    options = simplest(fuzzer) | {
        "chain": (
            ("SIGTERM", "on_epoch_end", 2),
            kill,
            ("error", "teardown", 1),
            ("SIGINT", "on_train_end", 1),
        ),
        "dropout": True,
        "async_save": True,
    }

    def fails(candidate) -> bool:
        places = [(how != "SIGKILL", place, number) for how, place, number in candidate["chain"]]
        ends = [place for is_told, place, _ in places if is_told]
        return (False, "rename", 2) in places or ((False, "rename", 3) in places and bool(ends))

    shrunk = fuzzer.changed(fuzzer.shrink(options, fails))
    assert shrunk == {"chain": (("SIGKILL", "rename", 2),)}


def test_a_run_that_cannot_be_exact_is_counted_by_its_message(fuzzer) -> None:
    """Numbers and paths are left out, so that equal causes are one line."""
    runs = importlib.import_module("random_runs")
    statuses, reasons = Counter(), Counter()
    for number in (3, 14):
        told = f"checkpoint '/tmp/{number}/a.ckpt': saved inside batch {number}, not exact."
        fuzzer._count(runs.Result("warned", [told]), statuses, reasons)
    fuzzer._count(runs.Result("same"), statuses, reasons)
    assert statuses == {"warned": 2, "same": 1}
    assert reasons == {"warned: checkpoint PATH: saved inside batch N, not exact.": 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed",
    [
        {
            "chain": (("SIGKILL", "on_train_batch_end", 2), ("error", "on_train_start", 1)),
            "second_saver": "on exception",
        },
    ],
    ids=["a save before the loop has restored its part"],
)
def test_what_was_found_once_in_a_chain_does_not_come_back(
    chains, fuzzer, tmp_path, changed
) -> None:
    """The smallest chains that once differed are the uncut run now."""
    result = chains.examine_chain(simplest(fuzzer) | changed, tmp_path)
    assert (result.status, result.details) == ("same", [])


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "guest",
    one_in(5, [
        "lightning: stateful", "composer: stateful", "accelerated: stateful",
        "transformers: stateful", "ignite: early stopping",
    ]),
)  # fmt: skip
def test_guests_are_resumed_in_a_loop_of_ones_own(monkeypatch, fuzzer, tmp_path, guest) -> None:
    """Callbacks of five frameworks in a `Run` that is killed, told to end, and gone on with."""
    chains = importlib.import_module("random_chains")
    cuts = (("SIGKILL", "on_train_batch_end", 4), ("SIGTERM", "on_train_epoch_end", 2))
    options = simplest(fuzzer) | {"loop": "run", "guest": guest, "chain": cuts}
    zygote = chains.Zygote(chains.needs_of(options))
    monkeypatch.setattr(chains, "zygote_for", lambda needs: zygote)
    try:
        result = chains.examine_chain(options, tmp_path)
    finally:
        zygote.close()
    assert (result.status, result.details) == ("same", [])


def test_a_failure_is_made_as_small_as_it_can_be(fuzzer) -> None:
    """Of a configuration only what the failure needs stays, in its simplest form."""
    drawn = fuzzer.draw(13)
    options = {**drawn, "data": "map", "order": "own: by epoch", "dropout": True, "workers": 2}

    def fails(candidate) -> bool:
        return candidate["order"].startswith("own") and candidate["workers"] > 0

    assert fuzzer.changed(fuzzer.shrink(options, fails)) == {"order": "own: at once", "workers": 1}


@pytest.mark.exhaustive
def test_the_command_finds_its_modules() -> None:
    """In a shell, where nobody has set a path for it."""
    command = Path(__file__).with_name("random_configurations.py")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    told = subprocess.run(
        [sys.executable, command, "--seeds", "4:4"],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.startswith("0 configurations")


def test_a_seed_is_one_configuration(fuzzer) -> None:
    """A seed always draws the same, and others draw others."""
    drawn = [fuzzer.draw(seed) for seed in range(120)]
    assert drawn == [fuzzer.draw(seed) for seed in range(120)]
    assert len({str(options) for options in drawn}) == 120
    chains = [options["chain"] for options in drawn if options["chain"]]
    assert len(chains) == 40
    assert {len(chain) for chain in chains} == {1, 2, 3, 4, 5, 6}
    assert all(options["saver"] == "none" for options in drawn if options["chain"])
    assert not any(options["guest"] != "none" for options in drawn if not options["chain"])


@pytest.mark.slow
def test_a_difference_is_found_and_told(fuzzer, monkeypatch, tmp_path) -> None:
    """What the fuzzer is there for: a state that a checkpoint leaves out fails, with its seed."""
    runs = importlib.import_module("random_runs")
    modules = importlib.import_module("random_modules")
    monkeypatch.setattr(modules.Counter, "state_dict", lambda self: {"count": 0, "noise": 0.0})
    monkeypatch.setattr(modules.Counter, "load_state_dict", lambda self, state: None)
    options = simplest(fuzzer)
    options["counts"] = ("on_train_batch_end",)
    result = runs.examine(options, tmp_path, 3)
    assert result.status == "same"
    monkeypatch.setattr(modules.Counter, "state_dict", lambda self: {"count": self.count})
    result = runs.examine(options, tmp_path, 3)
    assert result.status == "differs"
    told = fuzzer.told(3, result, options)
    assert told.startswith("seed 3: {'counts': ('on_train_batch_end',)}\n    cut by error at ")
    assert "Counter" in told
