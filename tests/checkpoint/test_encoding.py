"""Values that torch does not know come back equal, of the same type, from a file that it opens."""

from __future__ import annotations

import collections
import datetime as dt
import io
import pathlib
import subprocess
import sys
import zoneinfo

import numpy as np
import pytest
import torch

from trainer_hooks.checkpoint.encoding import (
    TAG,
    Encoder,
    UnsavableValueError,
    decode,
    find_unsavable,
)
from trainer_hooks.errors import CheckpointError


def through_a_file(value):
    """Return a value as it comes back, by way of a file that torch opens safely by itself."""
    file = io.BytesIO()
    torch.save(Encoder(value).encode(value), file)
    file.seek(0)
    return decode(torch.load(file, weights_only=True), "a.ckpt")


def same(one, other) -> bool:
    """Return whether two values are of one type and equal, all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and (one == other).all()
    if isinstance(one, dict):
        both_ways = [list(one.items()), list(other.items())]
        return same(*both_ways) and getattr(one, "default_factory", 0) == getattr(
            other, "default_factory", 0
        )
    if isinstance(one, list | tuple | collections.deque):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, set | frozenset):
        return one == other and {type(x) for x in one} == {type(x) for x in other}
    return one == other


BERLIN = dt.timezone(dt.timedelta(hours=1), "MEZ")

VALUES = {
    "deque": collections.deque([1, 2.5, "a"]),
    "deque with maxlen": collections.deque([1, 2], maxlen=3),
    "empty deque": collections.deque(maxlen=0),
    "defaultdicts": [
        collections.defaultdict(kind, {"a": kind()})
        for kind in (int, float, str, bool, list, tuple, dict, set, frozenset, bytes, complex)
    ],
    "defaultdict of None": collections.defaultdict(None, {1: 2}),
    "nested defaultdict": collections.defaultdict(
        list, {"a": [collections.defaultdict(int, {(1, "b"): 3})]}
    ),
    "ordered": collections.OrderedDict([("b", 1), ("a", {1})]),
    "ordered with dates": collections.OrderedDict({dt.date(2026, 1, 2): 1, "a": pathlib.Path()}),
    "counter": collections.Counter("aab"),
    "counter of dates": collections.Counter([dt.date(2026, 1, 2)] * 3),
    "frozenset": frozenset({1, "a", frozenset()}),
    "set of dates": {dt.date(2026, 1, 2), 5},
    "set of tuples": {(1, dt.date(2026, 1, 2)), (2,)},
    "tuple keys": {(1, frozenset({2})): 3, pathlib.PurePosixPath("a"): 4, 5: 6},
    "path": pathlib.Path("a") / ".." / "b.ckpt",
    "odd path": pathlib.Path("\udcff"),
    "pure paths": [pathlib.PurePosixPath("/a"), pathlib.PureWindowsPath(r"C:\a")],
    "date": dt.date(1, 1, 1),
    "time": dt.time(23, 59, 59, 999999, tzinfo=dt.UTC, fold=1),
    "datetime": dt.datetime(2026, 2, 3, 4, 5, 6, 7),  # noqa: DTZ001 - these come back too
    "datetime with zone": dt.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1),
    "timedelta": dt.timedelta(days=-1, seconds=1, microseconds=999999),
    "zones": [dt.UTC, BERLIN, dt.timezone(dt.timedelta(hours=-3, minutes=-30))],
    "huge ints": [2**5000, -(2**5000), 2**2000, 2**64],
    "odd texts": ["\ud800", "\0", "", "ä"],
    "bytes": [bytes(range(256)), b"", bytearray(b"\0a"), bytearray()],
    "arrays": [
        np.arange(6).astype(kind).reshape(2, 3) for kind in "?bBhHiIlLqQefdgFDG"
    ],
    "array views": [np.arange(10)[::-2], np.arange(6).reshape(2, 3).T, np.ones((2, 3), order="F")],
    "empty arrays": [np.zeros((0, 3)), np.zeros((2, 0), dtype="U5"), np.zeros(3, dtype="U0")],
    "0-d array": np.array(3.5),
    "big-endian": np.arange(3, dtype=">i4"),
    "dates of NumPy": np.array(["2026-01-02", "2027-01-01"], dtype="datetime64[ns]"),
    "durations of NumPy": np.array([1, 2], dtype="timedelta64[ms]"),
    "texts of NumPy": np.array(["a", "äöü"]),
    "bytes of NumPy": np.array([b"a", b"bc"]),
    "records": np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8", (2,))]),
    "scalars": [
        np.float64(0.1), np.float32(0.1), np.float16(1), np.int64(-3), np.uint8(3), np.bool_(True),
        np.complex64(1j), np.datetime64("2026-01-02T03", "h"), np.timedelta64(3, "D"),
        np.longdouble(1) / 3,
    ],
    "texts as scalars": [np.str_("a\0"), np.str_(""), np.bytes_(b"a\0")],
    "nested": {"a": [collections.deque([{"b": (np.float64(1), {dt.date(2026, 1, 2): {3}})}])]},
    "tensors": [
        torch.arange(3), torch.tensor(1.5, dtype=torch.bfloat16), torch.zeros(0),
        torch.nn.Parameter(torch.ones(2), requires_grad=False), torch.tensor([1j]).conj(),
        torch.arange(6).reshape(2, 3).t(), torch.zeros(1).expand(1000, 1000),
    ],
    "sparse": torch.eye(3).to_sparse(),
    "types": [torch.float16, torch.device("cpu"), torch.Size([1, 2]), torch.strided],
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Validating sparse tensor invariants:UserWarning")
@pytest.mark.parametrize("name", VALUES)
def test_it_comes_back_equal_and_of_its_type(name):
    """Every kind of value survives a file that torch opens without knowing of this package."""
    value = VALUES[name]
    back = through_a_file(value)
    if name == "sparse":
        back, value = back.to_dense(), value.to_dense()
    assert same(back, value)


def test_what_the_comparison_above_tells_apart():
    """The test's own comparison sees another type, value, dtype, factory, and order."""
    assert not same(1, True)
    assert not same([1], [2])
    assert not same(np.zeros(2, "f4"), np.zeros(2, "f8"))
    assert not same(collections.defaultdict(int), collections.defaultdict(list))
    assert not same(collections.deque([1, 2]), collections.deque([2, 1]))


def test_folds_zones_and_bounds_survive():
    """What equality does not see comes back too: fold, a zone's name, a deque's bound."""
    back = through_a_file(
        [VALUES["datetime with zone"], VALUES["deque with maxlen"], VALUES["zones"]]
    )
    assert back[0].fold == 1
    assert back[0].tzname() == "MEZ"
    assert back[1].maxlen == 3
    assert back[2][0] is dt.UTC
    assert [str(zone) for zone in back[2]] == [str(zone) for zone in VALUES["zones"]]


def test_an_array_that_came_back_can_be_written_to():
    """A restored array is the callback's own, not a window on the file."""
    back = through_a_file({"a": np.zeros(2)})["a"]
    back += 1
    assert back.tolist() == [1, 1]


@pytest.mark.parametrize(
    "value",
    [
        {TAG: "deque", "items": [1], "maxlen": None},
        {TAG: "nonsense"},
        {TAG: {TAG: {TAG: 1}}},
        {TAG: "date", "parts": [1, 2, 3], 5: dt.date(2026, 1, 2)},
        collections.OrderedDict({TAG: "deque", "items": [], "maxlen": None}),
        collections.Counter({TAG: 2}),
        {"a": [{TAG: "dict", "items": [[1, 2]]}]},
        [TAG, {"b": TAG}],
    ],
    ids=str,
)
def test_a_dict_that_looks_like_an_encoded_value_is_not_mistaken_for_one(value):
    """The tag is no reserved word: a user's dict may have it as a key."""
    assert same(through_a_file(value), value)


def test_what_torch_knows_is_left_as_it_is():
    """Plain values are not copied, and another tool finds them unchanged."""
    value = {"a": [1, (2, "b")], "c": torch.ones(2), "d": {3}}
    assert Encoder(value).encode(value) is value
    assert decode(value, "a.ckpt") is value


def test_what_is_shared_stays_shared():
    """One object at two places is one object again, whether it had to be encoded or not."""
    shared, dates = [1], collections.deque([dt.date(2026, 1, 2)])
    tensor = torch.ones(2)
    back = through_a_file({"a": [shared, dates, tensor], "b": [shared, dates, tensor]})
    assert all(one is other for one, other in zip(back["a"], back["b"], strict=True))


def recursive(kind):
    """Return a container that holds itself."""
    if kind in ("list", "deque"):
        made = [] if kind == "list" else collections.deque()
        made.append({"inner": made})
    else:
        made = {} if kind == "dict" else collections.defaultdict(list)
        made["inner"] = ([made],)
    return made


@pytest.mark.parametrize("kind", ["list", "deque", "dict", "defaultdict"])
def test_a_container_that_holds_itself_is_refused(kind):
    """Recursion is found and named, and is no RecursionError."""
    value = {"history": recursive(kind)}
    with pytest.raises(UnsavableValueError) as caught:
        Encoder(value).encode(value)
    assert caught.value.rule == "it holds itself"
    assert caught.value.path.startswith("['history']")


def nested(depth, kind=list):
    value = kind()
    for _ in range(depth - 1):
        value = kind([value]) if kind is not dict else {dt.date(2026, 1, 2): value}
    return value


@pytest.mark.slow
@pytest.mark.parametrize("kind", [list, tuple, collections.deque, dict])
def test_nesting_up_to_a_limit_comes_back(kind):
    """Up to 64 levels come back, of every form; one more is refused, and so are 100000."""
    assert same(through_a_file(nested(64, kind)), nested(64, kind))
    for depth in (65, 100_000):
        value = nested(depth, kind)
        found = find_unsavable(value)
        assert found is not None
        assert len(found[0]) < 100
        while value:  # or Python itself would stumble when it is freed
            value = value.popitem()[1] if isinstance(value, dict) else value[0]


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (np.array([1, "a"], dtype=object), "dtype object"),
        (np.zeros(1, dtype=[("a", object)]), "plain bytes"),
        (np.ma.masked_array([1]), ""),
        (np.dtype("f4"), ""),
        (np.random.default_rng(), ""),
        (collections.defaultdict(lambda: 1), "must be one of int, float"),
        (collections.namedtuple("Pair", "a b")(1, 2), ""),
        (dt.datetime(2026, 1, 2, tzinfo=zoneinfo.ZoneInfo("UTC")), ""),
        (type("Text", (str,), {})("a"), ""),
        (type("Number", (int,), {})(1), ""),
        (type("Table", (dict,), {})(), ""),
        (type("Weight", (torch.Tensor,), {})(torch.ones(1)), ""),
        (torch.Generator(), ""),
        (torch.empty(2, device="meta"), "has no values"),
        (torch.nn.Parameter(torch.empty(2, device="meta")), "has no values"),
        (lambda: 1, ""),
        (range(3), ""),
        (int, ""),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_only_code_could_rebuild_is_refused(value, rule):
    """Objects, subclasses of plain types, and arrays of objects are found, with the reason."""
    with pytest.raises(UnsavableValueError) as caught:
        Encoder([value]).encode([{"a": value}])
    assert caught.value.path.startswith("[0]['a']")
    assert rule in caught.value.rule


@pytest.mark.parametrize("mapping", [collections.OrderedDict, collections.Counter])
def test_an_object_attached_to_a_mapping_is_refused(mapping):
    """An attribute of a mapping would be saved with it, and could not be loaded."""
    value = mapping()
    value.note = object()
    assert find_unsavable(value) is not None


def test_the_versions_in_a_state_dict_are_kept():
    """A module's state_dict whose values had to be encoded keeps its metadata."""
    weights = torch.nn.BatchNorm1d(2).state_dict()
    weights["extra"] = np.float64(1)
    back = through_a_file(weights)
    assert back._metadata[""] == {"version": 2}
    assert type(back["extra"]) is np.float64


def size_of(value) -> int:
    file = io.BytesIO()
    torch.save(Encoder(value).encode(value), file)
    return len(file.getvalue())


def test_a_small_view_does_not_bring_all_that_it_is_a_view_of():
    """Of a view of ten million numbers the file holds those that are seen."""
    big = torch.zeros(2_500_000)
    assert size_of({"a": big[:3], "b": torch.nn.Parameter(big[5:6])}) < 10_000
    back = through_a_file({"a": torch.arange(100.0)[10:12], "b": torch.nn.Parameter(big[5:6])})
    assert back["a"].tolist() == [10, 11]
    assert type(back["b"]) is torch.nn.Parameter
    assert back["b"].requires_grad


def test_views_that_show_the_whole_stay_views_of_one_memory():
    """Parts that together make up their memory are written as it is, once."""
    whole = torch.zeros(100_000)
    parts = {str(number): whole[number * 10_000 : (number + 1) * 10_000] for number in range(10)}
    assert size_of(parts) < 420_000
    back = through_a_file({"whole": whole, "part": whole[:10]})
    back["whole"][0] = 7
    assert back["part"][0] == 7


def test_what_is_attached_to_a_tensor_is_left_out():
    """An object attached to a tensor would make the file one that cannot be opened."""
    tensor, parameter = torch.ones(2, requires_grad=True), torch.nn.Parameter(torch.ones(2))
    tensor.note = parameter.note = object()
    back = through_a_file([tensor, parameter])
    assert same(back, [tensor, parameter])
    assert all(item.requires_grad and not vars(item) for item in back)


@pytest.mark.slow
def test_numpy_is_not_imported_where_nothing_of_it_is():
    """Encoding and decoding plain values does not cost the import of NumPy."""
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "from collections import deque\n"
        "from trainer_hooks.checkpoint.encoding import Encoder\n"
        "from trainer_hooks.checkpoint.encoding import decode\n"
        "value = {'a': deque([1]), 'b': {1.5: None}}\n"
        "assert decode(Encoder(value).encode(value), '') == value\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "value",
    [
        {TAG: "module", "parts": ["os"]},
        {TAG: ["deque"]},
        {TAG: "deque"},
        {TAG: "date", "parts": [2026, 13, 1]},
        {TAG: "date", "parts": 5},
        {TAG: "path", "parts": ["system", "a"]},
        {TAG: "defaultdict", "items": [], "factory": "eval"},
        {TAG: "frozenset", "items": [[1]]},
        {TAG: "numpy.ndarray", "parts": ["O", [1], torch.zeros(8, dtype=torch.uint8)]},
        {TAG: "numpy.ndarray", "parts": ["f8", [1000], torch.zeros(8, dtype=torch.uint8)]},
        {TAG: "int", "parts": ["x"]},
        {TAG: "timedelta", "parts": [10**12, 0, 0]},
        recursive("dict") | {"a": {TAG: "deque", "items": [], "maxlen": 1}},
        nested(1000),
    ],
    ids=[*map(str, range(12)), "recursive", "deep"],
)
def test_an_encoded_value_that_makes_no_sense_is_one_clear_error(value):
    """A changed or newer file is refused by name, whatever stands in it."""
    with pytest.raises(CheckpointError, match=r"'a\.ckpt' holds a value that cannot be put tog"):
        decode({"callbacks": value}, "a.ckpt")
