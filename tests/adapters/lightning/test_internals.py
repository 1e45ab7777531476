"""What callbacks of Lightning reach for is in our Trainer what it is in its own, in every hook."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).with_name("internals.py")
LINES = [
    line
    for line in SCRIPT.read_text(encoding="utf-8").split('"""')[3].splitlines()
    if line and not line.startswith("#")
]
BEFORE = {"setup", "on_fit_start", "on_sanity_check_start"}
"""The hooks before the first batches: ours has made its loaders before Lightning."""
STALE = (
    "on_train_epoch_start", "setup", "on_validation_start", "on_validation_epoch_start",
    "on_validation_batch_start", "on_validation_batch_end", "on_validation_epoch_end",
    "on_validation_end", "on_test_start", "on_test_epoch_start", "on_test_batch_start",
    "on_test_batch_end", "on_test_epoch_end", "on_test_end", "on_predict_start",
    "on_predict_epoch_start", "on_predict_batch_start", "on_predict_batch_end",
    "on_predict_epoch_end", "on_predict_end", "teardown",
)  # fmt: skip
"""Where Lightning still tells what was true of the last training epoch."""
DIFFERS = {
    "type(trainer.train_dataloader)": {*BEFORE, *STALE},
    "trainer.num_training_batches": {*BEFORE, *STALE},
    "trainer.num_test_batches": STALE,
    "sorted(trainer.callback_metrics)": {"setup", "on_before_zero_grad"},
    "sorted(trainer.progress_bar_metrics)": {"setup", "on_before_zero_grad"},
    "trainer.max_steps": STALE,
    "trainer.fit_loop.epoch_loop.batch_idx": STALE,
    "trainer.fit_loop.epoch_loop.batch_progress": STALE,
    "trainer.state": {"teardown"},
    "trainer.predict_loop.epoch_batch_indices": {
        "on_predict_start", "on_predict_epoch_start", "on_predict_batch_start",
        "on_predict_batch_end", "on_predict_end", "teardown",
    },
}  # fmt: skip
"""The hooks in which what a line tells may differ: before loaders are made, of an epoch or run that
is over, of a step before its forward, and of a batch that is being predicted."""

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("pytorch_lightning") is None, reason="needs pytorch-lightning"
    ),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def results(results_of) -> dict:
    """What was seen there and here."""
    return results_of(SCRIPT, imports=("pytorch_lightning",))


def test_the_same_hooks_are_called(results) -> None:
    """A callback that looks in every hook is called as often, in the same order."""
    there, here = ([look[:3] for look in results[side]["seen"]] for side in ("there", "here"))
    assert here == there


@pytest.mark.parametrize("line", LINES)
def test_what_is_reached_for_is_the_same(results, line: str) -> None:
    """Each line of the list tells in every hook what it tells in Lightning's own Trainer."""
    pairs = zip(results["there"]["seen"], results["here"]["seen"], strict=True)
    allowed = next((hooks for start, hooks in DIFFERS.items() if line.startswith(start)), ())
    wrong = [
        (count, hook, there, here[3])
        for (count, hook, asked, there), here in pairs
        if asked == line and there != here[3] and hook not in allowed
    ]
    assert not wrong
    assert any(asked == line for _, _, asked, _ in results["here"]["seen"])


def test_a_setting_of_the_optimizers_reaches_the_step(results) -> None:
    """Optimizers that are set, and a rate that is set in them, make the weights that they make."""
    assert results["here"]["swapped"] == results["there"]["swapped"]


def test_a_data_module_is_called_as_there(results) -> None:
    """Its methods are called in the same order; loaders are made before a state is handed back."""

    def parts(calls: list) -> dict[str, list]:
        found: dict[str, list] = {}
        for call in calls:
            if str(call).startswith("-- "):
                name = call.removeprefix("-- ")
                found[name] = []
            else:
                found[name].append(call)
        return found

    there, here = parts(results["there"]["calls"]), parts(results["here"]["calls"])
    for verb in ("validate", "test", "predict", "saved"):
        assert here[verb] == there[verb]
    made = {"train", "val"}
    for verb in ("fit", "failed"):
        assert [c for c in here[verb] if str(c) not in made] == [
            c for c in there[verb] if str(c) not in made
        ]
    assert made <= {str(c) for c in here["fit"]}
    assert here["resumed"][:5] == [
        "prepare_data", ["setup", "fit", True], "train", "val", ["load_state_dict", {"seen": 7}],
    ]  # fmt: skip
    assert ["load_state_dict", {"seen": 7}] in there["resumed"]
