"""Words of other trainers lead to ours, or nowhere; never to the opposite."""

from __future__ import annotations

import inspect
import random
import re
from types import FunctionType

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import trainer_hooks
from trainer_hooks import Callback, Module, Trainer, Tuner, callbacks, loggers
from trainer_hooks._words import _GROUPS, advice, instead_of, nearest, words
from trainer_hooks.errors import OptionError
from trainer_hooks.hooks.spec import HOOKS

OPTIONS = tuple(inspect.signature(Trainer).parameters)
PAIRS = [
    (table, owner, name, answer)
    for table, owners in words().items()
    for owner, rows in owners.items()
    for name, answer in rows.items()
]


def texts(answer) -> list[str]:
    return list(answer.values()) if isinstance(answer, dict) else [answer]


def test_no_word_of_the_table_is_ours() -> None:
    """A word that is a name here would be answered by nobody, and stand there in vain."""
    assert not [name for table, _, name, _ in PAIRS if table == "options" and name in OPTIONS]
    assert not [name for table, _, name, _ in PAIRS if table == "hooks" and name in HOOKS]
    assert not [name for table, _, name, _ in PAIRS if table == "calls" and hasattr(Trainer, name)]
    public = {*trainer_hooks.__all__, *callbacks.__all__, *loggers.__all__}
    assert not [name for table, _, name, _ in PAIRS if table == "names" and name in public]


def test_answers_name_what_there_is() -> None:
    """Each keyword is an option, each hook a hook, each class a name of the package."""
    for table, owner, name, answer in PAIRS:
        for text in texts(answer):
            if table == "hooks":
                assert set(re.findall(r"\bon_\w+", text)) <= HOOKS.keys(), name
                assert "on_" in text
            else:
                named = re.findall(r"\b[A-Z]\w+(?=\()", text)
                known = (trainer_hooks, callbacks, loggers, torch.utils.data)
                assert all(any(hasattr(m, n) for m in known) for n in named), (name, named)
            if table == "options" and not text.endswith("."):
                outer = re.sub(r"\(.*?\)+", "", text)
                keywords = set(re.findall(r"(\w+)=", outer))
                assert keywords <= {*OPTIONS, "ckpt_path"}, (owner, name)


def test_a_word_has_one_answer() -> None:
    """Two trainers with one word get one answer, as the message cannot tell them apart."""
    found: dict = {}
    for table, owner, name, answer in PAIRS:
        key = (table, owner if table == "arguments" else "", name)
        assert found.setdefault(key, answer) == answer, key


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"num_train_epochs": 3}, "Write max_epochs=3 instead."),
        ({"epochs": 3}, "Write max_epochs=3 instead."),
        ({"fp16": True}, 'Write precision="16-mixed" instead.'),
        ({"eval_steps": 100}, "Write val_check_interval=100, check_val_every_n_epoch=None"),
        ({"evaluation_strategy": "epoch"}, "Write check_val_every_n_epoch=1 instead."),
        (
            {"save_total_limit": 2},
            'Write callbacks=[ModelCheckpoint(monitor="step", mode="max", save_top_k=2)]; if there',
        ),
        ({"batch_size": 32}, "DataLoader(data, batch_size=32)"),
        ({"output_dir": "out"}, "Write default_root_dir='out' instead."),
        ({"optimizer": object()}, "Return it from the module's configure_optimizers."),
        ({"save_dir": "x" * 99}, "Write default_root_dir=... instead."),
        ({"gpus": 2}, 'Write accelerator="gpu", devices=... instead.'),
    ],
)
def test_an_option_of_another_trainer(given, told) -> None:
    """The message has what to write, with the value that was given."""
    with pytest.raises(OptionError) as caught:
        Trainer(**given)
    assert f"there is no option {next(iter(given))!r}. {told}" in str(caught.value)


def test_several_options_of_another_trainer() -> None:
    """One error answers all of them, so that a call is moved in one go."""
    with pytest.raises(OptionError) as caught:
        Trainer(num_train_epochs=3, max_epochs=3, max_epoch=2, bf16=True, neftune_noise_alpha=5)
    first, *lines = str(caught.value).splitlines()
    assert first.startswith("Trainer(...): there are no such 4 options.")
    assert lines == [
        "  num_train_epochs: Write max_epochs=3 instead.",
        "  max_epoch: Did you mean 'max_epochs'?",
        '  bf16: Write precision="bf16-mixed" instead.',
        "  neftune_noise_alpha: no option is like it.",
    ]


def test_methods_of_other_trainers(quiet_trainer) -> None:
    """The error names methods that a Trainer or a Tuner has; a probe gets its answer."""
    trainer = quiet_trainer()
    for _, _, name, answer in [pair for pair in PAIRS if pair[0] == "calls"]:
        with pytest.raises(AttributeError) as caught:
            getattr(trainer, name)
        assert str(caught.value) == f"'Trainer' object has no attribute {name!r}.{advice(answer)}"
        called = re.findall(r"(trainer|Tuner\(trainer\))\.(\w+)", answer)
        assert all(hasattr(Trainer if of == "trainer" else Tuner, method) for of, method in called)
    assert not hasattr(trainer, "evaluate")
    assert getattr(trainer, "train", None) is None
    with pytest.raises(AttributeError) as caught:
        trainer.max_epoch  # noqa: B018
    assert (caught.value.name, caught.value.obj) == ("max_epoch", trainer)


def test_a_property_that_fails_tells_its_own_error(quiet_trainer) -> None:
    """A subclass's mistake is not told as an attribute that is not there."""

    class Timed(type(quiet_trainer())):
        @property
        def pace(self):
            return self.steps_per_secnd

    with pytest.raises(AttributeError, match="no attribute 'steps_per_secnd'"):
        Timed(logger=False, enable_checkpointing=False).pace  # noqa: B018


def test_imports_of_other_trainers() -> None:
    """The error has a line that runs."""
    for _, _, name, answer in [pair for pair in PAIRS if pair[0] == "names"]:
        with pytest.raises(ImportError) as caught:
            exec(f"from trainer_hooks import {name}")
        assert str(caught.value).endswith(f"/__init__.py).{advice(answer)}")
        if not answer.endswith("."):
            exec(answer)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("from trainer_hooks import EarlyStopping", "Write from trainer_hooks.callbacks import E"),
        ("from trainer_hooks.callbacks import CSVLogger", "Write from trainer_hooks.loggers impo"),
        ("from trainer_hooks.loggers import Trainer", "Write from trainer_hooks import Trainer i"),
        ("from trainer_hooks.callbacks import EarlyStoping", "Did you mean 'EarlyStopping'?"),
        ("from trainer_hooks import Trainr", "Did you mean 'Trainer'?"),
        ("from trainer_hooks import zebra", "__init__.py)."),
    ],
)
def test_an_import_of_a_name_that_is_elsewhere(line, told) -> None:
    """The package that has the name is named, or the nearest name."""
    with pytest.raises(ImportError, match=re.escape(told)):
        exec(line)


def test_a_look_for_a_name_reads_no_table(monkeypatch) -> None:
    """Programs ask modules for names that they lack, as pytest does."""
    monkeypatch.setattr("trainer_hooks._words.words", lambda: pytest.fail("the table was read"))
    assert not hasattr(trainer_hooks, "TrainingArguments")
    assert not hasattr(trainer_hooks, "pytest_plugins")


def test_hooks_of_other_trainers() -> None:
    """A callback with a method of Keras or transformers is told the hook of the same moment."""
    for _, _, name, answer in [pair for pair in PAIRS if pair[0] == "hooks"]:
        if name.startswith("on_"):
            foreign = type("Foreign", (Callback,), {name: lambda self, *given: None})
            with pytest.warns(UserWarning, match=f"Write {answer.split(',')[0]}"):
                Trainer(callbacks=[foreign()], logger=False, enable_checkpointing=False)


def meanings(name: str) -> dict[str, set[int]]:
    found: dict = {}
    for part in name.split("_"):
        for group, sides in _GROUPS.items():
            for number, side in enumerate(sides):
                if part in side.split():
                    found.setdefault(group, set()).add(number)
    return found


@pytest.mark.slow
def test_no_suggestion_names_the_opposite() -> None:
    """Every word of the table, and every hook with its moment turned round: none is misled."""
    turns = (("start", "begin"), ("end", "finished"), ("max", "min"), ("before", "after"))
    names = {name for *_, name, _ in PAIRS}
    names |= {n.replace(a, b) for n in (*OPTIONS, *HOOKS) for a, b in turns}
    names |= {n.replace(b, a) for n in (*OPTIONS, *HOOKS) for a, b in turns}
    for name in names:
        for candidates in (OPTIONS, HOOKS):
            if name in candidates or not (match := nearest(name, candidates)):
                continue
            mine, other = meanings(name), meanings(match)
            for group in mine.keys() & other.keys():
                assert mine[group] == other[group], (name, match)


def misspelt(name: str) -> set[str]:
    places = range(len(name))
    return {
        changed
        for at in places
        for changed in (
            name[:at] + name[at + 1 :],
            name[:at] + "x" + name[at:],
            name[:at] + "x" + name[at + 1 :],
            name[:at] + name[at + 1 : at + 2] + name[at] + name[at + 2 :],
        )
        if changed != name
    }


@pytest.mark.slow
def test_misspelt_names_are_found() -> None:
    """Of names with a letter too few, too many, wrong or swapped, 98% lead right, none wrong."""
    numbers = random.Random(7)
    found = wrong = count = 0
    for candidates in (OPTIONS, tuple(HOOKS)):
        for name in candidates:
            for typo in numbers.sample(sorted(misspelt(name)), 6):
                match = nearest(typo, candidates)
                count += 1
                found += match == name
                wrong += match not in ("", name)
    assert found > 0.98 * count, (found, count)
    assert wrong < 0.005 * count, (wrong, count)


WITHOUT = {
    # they take any keyword, or none, or are no calls for users
    "Band", "Event", "TimeUnit", "WriteInterval", "Hooks", "LambdaCallback", "Module", "Trainer",
    "TrainerHooksError", "TrainerHooksWarning", "StopTraining", "StopTrainingError",
    "TrainingSpikeException", "rank_zero_only", "rank_zero_info", "rank_zero_warn",
    "rank_zero_deprecation",
    "Clock", "Time",  # made in each step
}  # fmt: skip
CALLS = sorted(
    {
        (name, getattr(module, name))
        for module in (trainer_hooks, callbacks, loggers)
        for name in getattr(module, "__all__", dir(module))
        if name not in WITHOUT and isinstance(getattr(module, name), type | FunctionType)
    },
    key=lambda pair: pair[0],
)


def test_public_calls_answer_a_wrong_keyword() -> None:
    """Constructors and functions say which argument was probably meant, as Trainer does."""
    silent = []
    for name, call in CALLS:
        function = call.__init__ if isinstance(call, type) else call
        if not isinstance(function, FunctionType):
            continue  # `object.__init__`: it takes no arguments, and says so
        kinds = inspect.signature(function).parameters.values()
        if any(each.kind is each.VAR_KEYWORD for each in kinds):
            continue
        taken = [each.name for each in kinds if each.name != "self" and len(each.name) > 4]
        if not taken:
            continue
        with pytest.raises(TypeError) as caught:
            call(**{f"{taken[0]}x": 1})
        if f"Did you mean {taken[0]!r}?" not in str(caught.value):
            silent.append(name)
    assert silent == []


class Net(Module):
    """One layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


LOADER = DataLoader(TensorDataset(torch.ones(8, 4)), 4)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"val_dataloader": LOADER}, r"Did you mean 'val_dataloaders'\?"),
        ({"max_epochs": 3}, r"Write Trainer\(max_epochs=3\) instead"),
        ({"epochs": 3}, r"Write Trainer\(max_epochs=3\) instead"),
        ({"validation_data": LOADER}, r"Write val_dataloaders=DataLoader\(\.\.\.\) instead"),
        ({"batch_size": 3}, "the batch size belongs to the loader"),
    ],
)
def test_arguments_of_fit(quiet_trainer, given, told) -> None:
    """A word of another trainer's fit, and an option of the Trainer."""
    with pytest.raises(TypeError, match=told):
        quiet_trainer().fit(Net(), LOADER, **given)


def test_log_answers_without_a_wrapper(quiet_trainer) -> None:
    """The keyword of `self.log` is looked at when its error has been raised, in the step."""

    class Logs(Net):
        def training_step(self, batch, batch_idx):
            self.log("loss", 1.0, on_epochs=True)

    assert not hasattr(Module.log, "__wrapped__")
    with pytest.raises(TypeError, match=r"Module.log\(\).*'on_epochs'\. Did you mean 'on_epoch'"):
        quiet_trainer().fit(Logs(), LOADER)


def test_arguments_of_callbacks() -> None:
    """Keras' words for the callbacks of the same name."""
    with pytest.raises(TypeError, match="Write save_top_k=-1 instead"):
        callbacks.ModelCheckpoint(save_best_only=False)
    assert advice(instead_of("arguments", "baseline", owner="EarlyStopping"), 3) == (
        " Write stopping_threshold=3 instead."
    )
