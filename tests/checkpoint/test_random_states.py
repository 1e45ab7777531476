"""Random states come back equal and of their type, or are refused by name before any batch."""

from __future__ import annotations

import collections
import datetime as dt
import enum
import io
import pathlib
import random
import sys
import warnings
from typing import NamedTuple

import numpy as np
import pytest
import torch

from trainer_hooks import Callback
from trainer_hooks.checkpoint.encoding import Encoder, decode, find_unsavable
from trainer_hooks.errors import CheckpointStateError, TrainerHooksWarning


class Colour(enum.Enum):
    """Its values are of several types, one of which no checkpoint can hold."""

    RED = 1
    GREEN = ("a", 2.5)
    BLUE = object()
    CRIMSON = 1  # noqa: PIE796 - another name of RED


class Text(enum.StrEnum):
    """Like Lightning's TrainerFn."""

    FIT = "fit"
    TEST = "test"


class Mixed(str, enum.Enum):  # noqa: UP042 - the older form, which many packages have
    """Text and Enum."""

    A = "a"


class Number(enum.IntEnum):
    """A number."""

    ONE = 1


class Bits(enum.Flag):
    """Its members can be combined."""

    READ = 1
    WRITE = 2


Pair = collections.namedtuple("Pair", "left right")


class Score(NamedTuple):
    """A named tuple with a default."""

    value: object
    step: int = 0


class Outer:
    """Holds a class."""

    class Inner(enum.Enum):
        """Found by its qualified name."""

        X = "x"


class Sneaky(NamedTuple):
    """Its `__new__` is never called by a file."""

    value: int


Other = collections.namedtuple("Misnamed", "a")


def refused() -> list[object]:
    """Return values that only code could rebuild."""
    local = enum.Enum("Local", "A B")
    attached = type("Attached", (Pair,), {})(1, 2)
    attached.note = "lost"
    return [local.A, Other(1), attached, object(), range(3), type("T", (str,), {})("a"), int]


def leaf(draw: random.Random) -> object:
    """Return a value of a random type that can be saved."""
    return draw.choice(
        [
            None, True, draw.randrange(10), draw.random(), "text", b"bytes", 2**3000,
            *Colour, *Text, *Mixed, *Number, *Bits, Bits.READ | Bits.WRITE, Bits(0), Outer.Inner.X,
            pathlib.Path("a/b"), dt.date(2026, 1, draw.randrange(1, 28)),
            dt.datetime(2026, 1, 2, tzinfo=dt.UTC), dt.timedelta(seconds=3),
            np.float32(draw.random()), np.int64(3), np.bool_(True), np.datetime64("2026-01-02"),
            np.arange(draw.randrange(4)), torch.arange(draw.randrange(4)), np.str_("n"),
        ]
    )  # fmt: skip


def key(draw: random.Random) -> object:
    return draw.choice(
        ["a", "b", 3, Colour.RED, Text.FIT, Pair(1, Number.ONE), dt.date(2026, 1, 1)]
    )


def state(draw: random.Random, depth: int = 4) -> object:
    """Return a random nested state."""
    kind = draw.randrange(9) if depth else 0
    if kind < 2:
        return leaf(draw)
    items = [state(draw, depth - 1) for _ in range(draw.randrange(4))]
    if kind == 2:
        return tuple(items)
    if kind == 3:
        return collections.deque(items, maxlen=draw.choice([None, 9]))
    if kind == 4:
        return Pair(state(draw, depth - 1), items)
    if kind == 5:
        return Score(items, draw.randrange(9))
    if kind == 6:
        return items
    made = {key(draw): item for item in items}
    return collections.OrderedDict(made) if kind == 7 else made


def same(one: object, other: object) -> bool:
    """Return whether two states are of one type and equal, all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, enum.Enum):
        return one is other
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if isinstance(one, list | tuple | collections.deque):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def file_of(value: object) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(Encoder(value).encode(value), file)
    file.seek(0)
    return file


@pytest.mark.parametrize("block", range(10))
def test_random_states_come_back(block) -> None:
    """Hundreds of states, of a file that torch opens safely."""
    for seed in range(40):
        draw = random.Random(block * 1000 + seed)
        value = {"state": state(draw)}
        assert find_unsavable(value) is None, seed
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            back = decode(torch.load(file_of(value), weights_only=True), "a.ckpt", warns=True)
        assert same(value, back), seed


def replaced(value: object, draw: random.Random, by: object) -> tuple[object, str]:
    """Return a state with one random item replaced, and the path to that."""
    if isinstance(value, dict) and value:
        name = draw.choice(list(value))
        item, path = replaced(value[name], draw, by)
        return {**value, name: item}, f"[{name!r}]{path}"
    if isinstance(value, Pair):
        item, path = replaced(value.right, draw, by)
        return value._replace(right=item), f".right{path}"
    if type(value) in (list, tuple) and value:
        index = draw.randrange(len(value))
        item, path = replaced(value[index], draw, by)
        items = [*value[:index], item, *value[index + 1 :]]
        return type(value)(items), f"[{index}]{path}"
    return by, ""


@pytest.mark.parametrize("block", range(len(refused())))
def test_random_states_with_one_bad_value_are_refused_by_path(block) -> None:
    """The check and the save refuse the same value at the same path."""
    for seed in range(30):
        draw, bad = random.Random(seed), refused()[block]
        value, path = replaced({"state": state(draw)}, draw, bad)
        found = find_unsavable(value)
        assert found is not None, seed
        assert (found[0], found[1] is bad) == (path, True)


class Holds(Callback):
    """Holds a state, and counts what is asked of it."""

    state_key = "Holds"

    def __init__(self, value: object) -> None:
        self.value = value
        self.batches = self.asked = 0

    def state_dict(self):
        self.asked += 1
        random.random()
        torch.rand(1)
        return {"value": self.value}

    def load_state_dict(self, state_dict):
        self.value = state_dict["value"]

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self.batches += 1


def test_a_state_is_tried_before_the_first_batch(bare, Tiny, batches, tmp_path) -> None:
    """The error names the callback, the path and the cure; without a saver nothing is tried."""
    for seed, bad in enumerate(refused()):
        draw = random.Random(seed)
        value, path = replaced([state(draw)], draw, bad)
        holds = Holds(value)
        trainer = bare(holds, enable_checkpointing=True, default_root_dir=tmp_path / str(seed))
        with pytest.raises(CheckpointStateError) as caught:
            trainer.fit(Tiny(), batches(2))
        assert f"at state['value']{path}:" in str(caught.value)
        assert "callback Holds (state_key 'Holds'" in str(caught.value)
        assert "rebuild the object in load_state_dict" in str(caught.value)
        assert holds.batches == 0
    holds = Holds(object())
    bare(holds).fit(Tiny(), batches(2))
    assert (holds.batches, holds.asked) == (2, 0)


def test_the_trial_leaves_no_trace(bare, Tiny, batches, tmp_path) -> None:
    """One call and no random number; a state that is not there yet is no error."""
    draws = []

    class Draws(Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            draws.append((random.random(), torch.rand(1).item()))

    class Late(Callback):
        state_key = "Late"

        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            self.seen = 1

        def state_dict(self):
            return {"seen": self.seen}

    storage = torch.zeros(1000)

    class Asks(Holds):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            self.asked_before = self.asked

    for is_saving in (False, True):
        random.seed(3)
        torch.manual_seed(3)
        asks = Asks([storage[:1], np.zeros(3), Text.FIT])
        trainer = bare(
            asks, Draws(), Late(), enable_checkpointing=is_saving, default_root_dir=tmp_path
        )
        trainer.fit(Tiny(), batches(1))
        assert asks.asked_before == int(is_saving)
    assert draws[0] == draws[1]


@pytest.mark.parametrize("value", [torch.zeros(1000)[:1], np.zeros(1000)])
def test_the_check_copies_nothing(value, monkeypatch) -> None:
    """A view of a large tensor is not cloned, nor an array turned into bytes."""

    def copies(*_: object, **__: object) -> None:
        raise AssertionError("copied")

    monkeypatch.setattr(torch.Tensor, "clone", copies)
    monkeypatch.setattr(torch, "frombuffer", copies)
    assert find_unsavable({"a": [value]}) is None


def test_a_tolerated_callback_is_disabled(bare, Tiny, batches, tmp_path) -> None:
    """Its state is its own fault, too."""
    holds = Holds(object())
    holds.on_error = "disable"
    trainer = bare(holds, enable_checkpointing=True, default_root_dir=tmp_path)
    with pytest.warns(TrainerHooksWarning, match="failed in hook 'state_dict'"):
        trainer.fit(Tiny(), batches(2))
    assert (trainer.global_step, holds.batches) == (2, 0)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Text.FIT, "fit"), (Number.ONE, 1), (Colour.GREEN, ("a", 2.5)), (Colour.BLUE, "BLUE"),
        (Bits.READ | Bits.WRITE, 3), (Pair(1, Text.FIT), (1, "fit")),
    ],
)  # fmt: skip
def test_a_class_that_is_not_loaded_leaves_the_plain_value(value, plain, monkeypatch) -> None:
    """Nothing is imported for a file: a warning says what to import."""
    read = torch.load(file_of({"a": value}), weights_only=True)
    # as another program, which has this module not loaded
    monkeypatch.delitem(sys.modules, __name__)
    with pytest.warns(TrainerHooksWarning, match="has not loaded such a class") as caught:
        back = decode(read, "a.ckpt", warns=True)
    assert same(back, {"a": plain})
    assert __name__ in str(caught[0].message)
    assert __name__ not in sys.modules


def test_a_class_that_changed_leaves_the_plain_value(monkeypatch) -> None:
    """Another field, or a member that is gone."""
    read = torch.load(file_of([Pair(1, 2), Text.FIT, Colour.RED]), weights_only=True)
    module = sys.modules[__name__]
    monkeypatch.setattr(module, "Pair", collections.namedtuple("Pair", "a b"))
    monkeypatch.setattr(module, "Text", enum.StrEnum("Text", "TEST"))
    monkeypatch.setattr(module, "Colour", Holds)
    assert same(decode(read, "a.ckpt"), [(1, 2), "fit", 1])


@pytest.mark.parametrize("module", ["os", "trainer_hooks", "builtins", "nowhere", 5])
@pytest.mark.parametrize("kind", ["enum", "namedtuple"])
def test_a_file_names_no_code(module, kind) -> None:
    """No name of a file is called, and no module's `__getattr__` is asked."""
    before = set(sys.modules)
    for name in ("system", "exec", "Trainer", "path.join", "", 7):
        last = ["x", "plain"] if kind == "enum" else [["x"], ["plain"]]
        value = {"__trainer_hooks__": kind, "parts": [module, name, *last]}
        assert decode(value, "a.ckpt") in ("plain", ("plain",))
    assert set(sys.modules) == before
