"""A checkpoint's seal: size and checksums cover all that is read; its summary says what it is."""

from __future__ import annotations

import os
import random
import struct
import sys
import zipfile
import zlib

import pytest
import torch

from trainer_hooks.checkpoint import seal
from trainer_hooks.checkpoint.file import (
    read_checkpoint,
    summarize,
    verify_checkpoint,
    write_checkpoint,
)
from trainer_hooks.checkpoint.seal import fast_crc32
from trainer_hooks.errors import CheckpointError

CONTENT = {
    "state_dict": {"weight": torch.arange(24.0), "bias": torch.ones(3)},
    "epoch": 3,
    "global_step": 7,
    "trainer_hooks": {"progress": {"batches_completed": 9}},
    "optimizer_states": [],
    "callbacks": {"A": {"n": [1, "text"]}},
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.ckpt"


@pytest.fixture(params=[True, False], ids=["isal", "zlib"])
def checksum(request, monkeypatch):
    """Both ways to sum up: with isal, and as where it is not installed."""
    if request.param:
        pytest.importorskip("isal")
    else:
        monkeypatch.setitem(sys.modules, "isal", None)
    return request.param


def is_as_written(back) -> bool:
    weights = back.pop("state_dict")
    same = all(torch.equal(weights[name], CONTENT["state_dict"][name]) for name in weights)
    return same and {**back, "state_dict": CONTENT["state_dict"]} == CONTENT


@pytest.mark.exhaustive
def test_each_byte_is_covered(path, checksum):
    """A flip of any byte is refused or changes nothing; of data, directory and pickle, refused."""
    write_checkpoint(CONTENT, path)
    content = path.read_bytes()
    with zipfile.ZipFile(path) as parts:
        regions = {"directory": range(parts.start_dir, content.rindex(b"trainer_hooks:") - 22)}
        for part in parts.infolist():
            name, extra = struct.unpack_from("<HH", content, part.header_offset + 26)
            start = part.header_offset + 30 + name + extra
            regions[part.filename] = range(start, start + part.file_size)
    assert {name.rpartition("/")[2] for name in regions} >= {"directory", "data.pkl", "0", "1"}
    choose, passed = random.Random(4), []
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << choose.randrange(8)
        path.write_bytes(damaged)
        try:
            back = read_checkpoint(path)
        except CheckpointError:
            continue
        assert is_as_written(back), place
        passed.append(place)
    for name, region in regions.items():
        assert not set(region) & set(passed), name


def test_bytes_after_the_end_are_noticed(path):
    """A file that became longer is not what was written either."""
    write_checkpoint(CONTENT, path)
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(CheckpointError, match="is damaged"):
        verify_checkpoint(path)


def test_a_wrong_size_is_told_in_bytes(path):
    """Of a file with bytes put in or taken out in the middle, both sizes are told."""
    write_checkpoint(CONTENT, path)
    content = path.read_bytes()
    path.write_bytes(content[:500] + bytes(64) + content[500:])
    told = f"it has {len(content) + 64} bytes, and {len(content)} were written"
    with pytest.raises(CheckpointError, match=told):
        verify_checkpoint(path)


def test_isal_sums_up_as_zlib_does(checksum):
    """What one has written the other reads."""
    crc32 = fast_crc32()
    assert (crc32 is None) is not checksum
    assert (crc32 or zlib.crc32)(memoryview(b"weights"), 0) == 0x1AD27358


def test_a_file_is_verified_with_a_faster_checksum_or_without(path, checksum):
    """A good file is read, and damage is found."""
    write_checkpoint(CONTENT, path)
    assert is_as_written(read_checkpoint(path))
    content = path.read_bytes()
    bias = torch.ones(3).numpy().tobytes()
    path.write_bytes(content.replace(bias, b"\x01" + bias[1:]))
    with pytest.raises(CheckpointError, match="another checksum"):
        read_checkpoint(path)


@pytest.mark.parametrize("others", [0, 1, 3])
def test_a_tensor_without_elements_is_no_damage(path, checksum, others):
    """Such a part begins where the header of the next one was read, and has its own checksum."""
    weights = {"none": torch.zeros(0), "rows": torch.zeros(0, 4)}
    weights |= {str(number): torch.ones(number + 1) for number in range(others)}
    write_checkpoint({"state_dict": weights}, path)
    back = read_checkpoint(path)["state_dict"]
    assert {name: value.shape for name, value in back.items()} == {
        name: value.shape for name, value in weights.items()
    }


@pytest.mark.posix
def test_with_a_fast_checksum_nothing_is_read_twice(path, monkeypatch):
    """The weights are read once, and summed up on the way."""
    pytest.importorskip("isal")
    weight = torch.arange(100_000.0)
    write_checkpoint({"state_dict": {"weight": weight}}, path)
    read, preadv = [], os.preadv
    monkeypatch.setattr(
        os, "preadv", lambda *args: (read.append(sum(map(len, args[1]))), preadv(*args))[1]
    )
    assert torch.equal(read_checkpoint(path)["state_dict"]["weight"], weight)
    assert weight.nbytes < sum(read) < weight.nbytes + 10_000


def test_a_part_left_out_is_noticed(path):
    """A file of the same parts but with another directory is not what was written."""
    write_checkpoint(CONTENT, path)
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as parts:
        entry = content.index(b"data/1", parts.start_dir)
    content[entry : entry + 6] = b"data/0"  # two entries of one name
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="its directory has another checksum"):
        read_checkpoint(path)


@pytest.mark.parametrize("options", [{}, {"mmap": True}], ids=["read", "mapped"])
def test_torch_opens_a_sealed_file(path, options):
    """torch.load reads the file as if there were no seal."""
    write_checkpoint(CONTENT, path)
    assert is_as_written(torch.load(path, weights_only=True, **options))


def test_a_file_of_torch_has_no_seal_and_is_read(path):
    """What torch.save wrote is verified by the checksums of its parts, and summarized."""
    torch.save(CONTENT, path)
    assert is_as_written(read_checkpoint(path))
    found = summarize(str(path))
    assert (found.saved_at, found.module) == (path.stat().st_mtime_ns, "")
    assert (found.is_resumable, found.epoch, found.batches, found.step) == (True, 3, 9, 7)


@pytest.mark.parametrize("part", [None, [], {"progress": 3}, {"progress": {}}], ids=str)
def test_a_file_that_another_tool_filled_in_another_way(path, part):
    """Counters that are not where they are expected count as 0."""
    torch.save({"state_dict": {}, "trainer_hooks": part, "epoch": "3", "global_step": None}, path)
    found = summarize(str(path))
    assert (found.is_resumable, found.epoch, found.batches, found.step) == (False, 0, 0, 0)


def test_the_summary_is_told_without_loading(path, monkeypatch):
    """When it was saved, of what module, and how far it got is read from the end of the file."""
    write_checkpoint(CONTENT, path, module="Net", saved_at=123)
    monkeypatch.delattr(torch, "load")
    found = summarize(str(path))
    assert (found.saved_at, found.module, found.is_resumable) == (123, "Net", True)
    assert (found.epoch, found.batches, found.step) == (3, 9, 7)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"size": ', b'"size":-'),
        (b'"saved_at": 1', b'"saved_at": "'),
        (b'{"size"', b'["size"'),
        (b'"command": ""}', b'"command": ""]'),
        (b'"saved_at"', b'"saved_by"'),
    ],
    ids=str,
)
def test_a_damaged_seal_is_refused(path, old, new):
    """A seal that cannot be read is damage, for its summary too."""
    write_checkpoint(CONTENT, path, saved_at=123)
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))
    for read in (read_checkpoint, verify_checkpoint, summarize):
        with pytest.raises(CheckpointError, match="is damaged"):
            read(str(path))


@pytest.mark.parametrize("text", [b"[" * 1900, b'{"a":' * 380])
def test_a_seal_of_nested_brackets_is_refused(path, text):
    """A seal that is nothing but openings is damage, and no exhausted stack."""
    write_checkpoint(CONTENT, path, saved_at=123)
    content = path.read_bytes()
    start = content.rindex(b"trainer_hooks:")
    comment = b"trainer_hooks:" + b"0" * 8 + text
    path.write_bytes(content[: start - 2] + struct.pack("<H", len(comment)) + comment)
    for read in (read_checkpoint, verify_checkpoint, summarize):
        with pytest.raises(CheckpointError, match="is damaged"):
            read(str(path))


def test_a_part_that_the_file_ends_in_is_summed_up_to_there(tmp_path):
    """A file that became shorter since its directory was read ends the sum, and gives another."""
    file, part = tmp_path / "part", zipfile.ZipInfo("data")
    file.write_bytes(b"abcd")
    part.file_size = 10
    with file.open("rb") as opened:
        found = seal._sum_of(part, 1, opened.fileno(), zlib.crc32)
    assert found == (3, zlib.crc32(b"bcd"))


def test_a_forged_directory_offset_is_an_error(path):
    """A seal whose numbers lead out of the file is refused, not stumbled over."""
    write_checkpoint(CONTENT, path, saved_at=123)
    content = path.read_bytes()
    start = content.rindex(b"trainer_hooks:")
    text = content[start + 22 :]
    shown = text[text.index(b'"directory": ') :].split(b",")[0]
    forged = text.replace(shown, b'"directory": 9999'[: len(shown)])
    crc = f"{zlib.crc32(forged):08x}".encode()
    path.write_bytes(content[:start] + b"trainer_hooks:" + crc + forged)
    with pytest.raises(CheckpointError, match="is damaged"):
        read_checkpoint(path)
