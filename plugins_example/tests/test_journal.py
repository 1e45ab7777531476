"""RunJournal on its own: a stand-in for the Trainer calls the hooks."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace

import pytest
from trainer_hooks import Callback
from trainer_hooks.testing import check_callback

SOURCE = Path(__file__).parents[1] / "src"
if str(SOURCE) not in sys.path:  # the tests run from a checkout, installed or not
    sys.path.append(str(SOURCE))

from trainer_hooks_example import RunJournal  # noqa: E402
from trainer_hooks_example.factories import make_callbacks  # noqa: E402
from trainer_hooks_example.journal import Counts, samples_in  # noqa: E402


class FakeTrainer:
    """Has what the journal reads."""

    def __init__(self, *, is_fresh: bool = True) -> None:
        self.progress = SimpleNamespace(is_fresh=is_fresh)
        self.lines: list[str] = []

    def print(self, *words: object) -> None:
        self.lines.append(" ".join(map(str, words)))


def tensor(*shape: int) -> SimpleNamespace:
    """Return what looks like a tensor of that shape."""
    return SimpleNamespace(shape=shape)


def train(journal: RunJournal, trainer: FakeTrainer, sizes: list[int], epochs: int = 1) -> None:
    """Run a fit whose batches have `sizes`."""
    journal.on_fit_start(trainer, None)
    for _ in range(epochs):
        for index, size in enumerate(sizes):
            journal.on_train_batch_end(trainer, None, {}, [tensor(size, 4), tensor(size)], index)
        journal.on_train_epoch_end(trainer, None)
    journal.on_fit_end(trainer, None)
    trainer.progress.is_fresh = False


def test_counts_batches_samples_epochs_and_fits() -> None:
    """After a fit the counts are those of what was trained."""
    journal = RunJournal()
    train(journal, FakeTrainer(), [32, 32, 8], epochs=2)
    assert journal.counts == Counts(batches=6, samples=144, epochs=2, fits=1)


def test_prints_a_line_an_epoch_and_one_at_the_end() -> None:
    """The lines hold the counts, with separators, and go through the trainer."""
    trainer = FakeTrainer()
    train(RunJournal(), trainer, [1000, 437])
    assert trainer.lines == [
        "[run-journal] epoch 1: 2 batches, 1,437 samples so far (resumed 0x)",
        "[run-journal] fit 1 done: 2 batches, 1,437 samples so far (resumed 0x)",
    ]


def test_quiet_counts_and_prints_nothing() -> None:
    """A quiet journal has the same counts and no lines."""
    trainer, journal = FakeTrainer(), RunJournal(quiet=True)
    train(journal, trainer, [4])
    assert trainer.lines == []
    assert journal.counts.samples == 4


def test_goes_on_after_a_resume() -> None:
    """Restored counts are continued, and the resume is counted and printed."""
    before = RunJournal()
    train(before, FakeTrainer(), [4])
    after, trainer = RunJournal(), FakeTrainer(is_fresh=False)
    after.load_state_dict(before.state_dict())
    train(after, trainer, [4])
    assert after.counts == Counts(batches=2, samples=8, epochs=2, fits=2, resumes=1)
    assert trainer.lines[0].endswith("2 batches, 8 samples so far (resumed 1x)")


def test_a_second_fit_is_no_resume() -> None:
    """Training on in one process counts a fit and no resume, also after a resume."""
    journal, trainer = RunJournal(), FakeTrainer(is_fresh=False)
    journal.load_state_dict({"batches": 3})
    train(journal, trainer, [4])
    train(journal, trainer, [4])
    assert (journal.counts.fits, journal.counts.resumes) == (2, 1)


def test_a_fresh_run_starts_over() -> None:
    """A new model in the same Trainer is counted from zero."""
    journal = RunJournal()
    for _ in range(2):
        train(journal, FakeTrainer(), [4])
    assert journal.counts == Counts(batches=1, samples=4, epochs=1, fits=1)


def test_state_is_plain_data() -> None:
    """The state goes through JSON and back, and its key is the class's name."""
    journal = RunJournal()
    train(journal, FakeTrainer(), [4, 4])
    restored = RunJournal()
    restored.load_state_dict(json.loads(json.dumps(journal.state_dict())))
    assert restored.counts == journal.counts
    assert journal.state_key == "RunJournal"
    assert journal.is_stateful


def test_a_state_of_another_release_loads() -> None:
    """A count that is missing starts at zero; one that is not known is left out."""
    journal = RunJournal()
    journal.load_state_dict({"batches": 7, "lunches": 3})
    assert journal.counts == Counts(batches=7)


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        (tensor(32, 8, 8), 32),
        ([tensor(5, 2), tensor(9)], 5),
        ((tensor(5, 2), tensor(9)), 5),
        ({"text": ["a", "b"], "ids": tensor(7, 3)}, 7),
        (OrderedDict(inputs={"a": [tensor(), tensor(6)]}), 6),
        (types.MappingProxyType({"x": tensor(2)}), 2),
        (tensor(), 0),
        ([], 0),
        (None, 0),
        ("text", 0),
    ],
)
def test_samples_are_the_length_of_the_first_tensor(batch: object, samples: int) -> None:
    """The first tensor with a dimension says how many samples a batch has."""
    assert samples_in(batch) == samples


@pytest.mark.parametrize(
    ("value", "quiet"), [("1", True), ("yes", True), ("0", False), ("", False)]
)
def test_the_factory_reads_the_environment_when_called(
    monkeypatch: pytest.MonkeyPatch, value: str, quiet: bool
) -> None:
    """`RUN_JOURNAL_QUIET` counts at the time of the call; unset, the journal prints."""
    monkeypatch.setenv("RUN_JOURNAL_QUIET", value)
    [journal] = make_callbacks()
    assert journal.quiet is quiet
    monkeypatch.delenv("RUN_JOURNAL_QUIET")
    assert not make_callbacks()[0].quiet


def test_the_factory_makes_a_new_callback_each_time() -> None:
    """Two trainers do not share a journal."""
    [first], [second] = make_callbacks(), make_callbacks()
    assert isinstance(first, Callback)
    assert first is not second


def test_it_keeps_the_contract_of_callbacks() -> None:
    """The kit finds no fault; how often a run was resumed differs after a resume, as declared."""
    check_callback(make_callbacks)


def test_importing_the_plugin_prints_nothing() -> None:
    """The import has no output, and loads nothing but the hook layers of trainer_hooks."""
    code = (
        "import sys, trainer_hooks; before = set(sys.modules)\n"
        "import trainer_hooks_example.factories\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "assert 'torch' not in new and 'numpy' not in new, new\n"
    )
    path = [entry for entry in sys.path if entry]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:] = {path!r}\n{code}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
