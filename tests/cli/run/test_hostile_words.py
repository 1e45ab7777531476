"""Paths and files that are no config and no checkpoint, or mean harm: one line, and no waiting."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import zlib
from pathlib import Path

import pytest
import torch
from quiet_trainers import QUIET_OPTIONS
from samples import one_in

from trainer_hooks import Trainer
from trainer_hooks.checkpoint.file import load_checkpoint
from trainer_hooks.cli.run.config_origins import read_config
from trainer_hooks.errors import CheckpointError

CONFIG = """
model: configured.Trained
data: configured.Points
trainer:
  {accelerator: cpu, max_epochs: 1, enable_progress_bar: false, enable_model_summary: false,
   plugins: false, logger: false, enable_checkpointing: false}
"""
RED = "\x1b[31mred"


@pytest.fixture(autouse=True)
def _no_waiting():
    """Fail a test that opens a pipe, instead of waiting for ever."""

    def ring(*_):
        raise AssertionError("it took a minute")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def is_clean(text: str) -> bool:
    """Whether a text has no control characters but the ends of its lines."""
    return text.replace("\n", "").isprintable()


def faults_of(answer) -> str:
    """What is wrong with an answer that must be a refusal in one line."""
    if (answer.code, answer.out, answer.err.count("\n")) != (2, "", 1):
        return f"code {answer.code}, {answer.out[:200]!r}, {answer.err[-400:]!r}"
    return "" if is_clean(answer.err) and "Traceback" not in answer.err else answer.err


def sealed_folder(name: str, text: str) -> str:
    folder = Path(name)
    folder.mkdir()
    (folder / "seal.json").write_text(f"{text}\n{zlib.crc32(text.encode()):08x}\n")
    return name


@pytest.fixture
def places(here):
    """Paths of this machine that are no file to read."""
    os.mkfifo("pipe")
    Path("broken").symlink_to("nowhere")
    Path("loop").symlink_to("loop")
    Path("folder").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
    (here / RED).write_text("x")
    return [
        "pipe", "broken", "loop", "folder", ".", "socket", "/dev/zero", "/dev/full", "/dev/null",
        "/proc/self/mem", "nowhere", "no/where", f"{RED}/x", "x" * 300, "x/" * 3000, "a\0b", RED,
        "\udcff", "b\u202eidi",
    ]  # fmt: skip


@pytest.fixture
def files(here):
    """Files that are neither a config nor a checkpoint."""
    aliases = "".join(f"k{i}: &k{i} [{', '.join([f'*k{i - 1}' if i else 'x'] * 9)}]\n"
                      for i in range(12))  # fmt: skip
    contents = {
        "brackets": "[" * 20_000,
        "more brackets": "[" * 500_000 + "]" * 500_000,
        "brackets below": "model: " + "[" * 20_000,
        "braces": "{a: " * 3000 + "}" * 3000,
        "dashes": "- " * 100_000,
        "keys": "? " * 100_000,
        "stairs": "".join(" " * depth + "a:\n" for depth in range(500)),
        "bomb": aliases,
        "cycle": "a: &a [*a]\n",
        "bytes": random.Random(0).randbytes(4096),
        "UTF-16": CONFIG.encode("utf-16"),
        "UTF-16 without a mark": CONFIG.encode("utf-16-le"),
        "NUL": "a: 1\0\n",
        "empty": "",
        "null": "null\n",
        "escaped value": f"model: {json.dumps(RED)}\n",
        "escaped key": f"{json.dumps(RED)}: 1\n",
        "raw": f"model: {RED}\n",
        "bidi": "m\u202eb: 3\n",
        "digits": "seed_everything: " + "9" * 5000,
        "code": "a: !!python/object/apply:os.system [id]\n",
        "documents": "a: 1\n---\nb: 2\n",
        "zip": b"PK\x03\x04" + bytes(100),
        "deep pickle": b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".",
        "long integer": b"\x80\x02\x8b\xff\xff\xff\x7f.",
        "high memo": b"\x80\x02]r\xff\xff\xff\x7f.",
    }
    for name, content in contents.items():
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    deep = "[" * 50_000 + "]" * 50_000
    return [
        *contents,
        sealed_folder("deep seal", deep),
        sealed_folder("list seal", "[]"),
        sealed_folder("path seal", '{"saved_at": 1, "files": {"../bomb": [1, 2]}}'),
        sealed_folder("text seal", '{"saved_at": 1, "files": {"run.pt": "12"}}'),
        sealed_folder("bare seal", '{"saved_at": 1, "files": {}}'),
    ]


@pytest.mark.exhaustive
def test_what_is_no_config_is_one_line(ask, places, files) -> None:
    """Whatever `--config` names is told in one line, with code 2, and nothing blocks or grows."""
    paths = [*places, *files]
    faults = {path: faults_of(ask("fit", "--config", path)) for path in paths}
    assert {path[:40]: fault for path, fault in faults.items() if fault} == {}


@pytest.mark.slow
def test_what_is_no_checkpoint_is_one_line(ask, places, files) -> None:
    """So is whatever `--ckpt_path` names, a config too, for each command of a training."""
    Path("run.yaml").write_text(CONFIG)
    faults = {}
    # `null` is the word for no checkpoint
    named = [path for path in files if path != "null"]
    for number, path in enumerate([*places, *named, "run.yaml"]):
        command = ("fit", "validate", "test", "predict")[number % 4]
        faults[path] = faults_of(ask(command, "--config", "run.yaml", "--ckpt_path", path))
    # an empty text is no path, and is told as such
    faults["no text"] = faults_of(ask("fit", "--config", "run.yaml", "--ckpt_path", ""))
    assert {path[:40]: fault for path, fault in faults.items() if fault} == {}


COMMANDS = [
    ("checkpoint", "show", "{}"),
    ("checkpoint", "show", "--json", "{}"),
    ("checkpoint", "diff", "good.ckpt", "{}"),
    ("checkpoint", "export", "--weights-only", "-o", "out.pt", "{}"),
    ("checkpoint", "verify", "{}"),
    ("report", "{}"),
    ("plot", "{}", "loss"),
    ("port", "--check", "{}"),
    ("checkpoint", "prune", "--dry-run", "{}"),
]


@pytest.mark.slow
@pytest.mark.parametrize("command", one_in(3, COMMANDS), ids=" ".join)
def test_other_commands_refuse_them_too(command, ask, places, files) -> None:
    """Each command that takes a path ends by itself, without a traceback or a control character.

    A refusal with code 2 is one line. `verify` and `port` judge many files in one go, each in a
    line of its own, and end with code 1.
    """
    torch.save({"state_dict": {"a": torch.ones(2)}}, "good.ckpt")
    faults = {}
    for path in [*places, *files]:
        answer = ask(*(word.replace("{}", path) for word in command))
        known = (0, 1) if {"verify", "port"} & {*command} else (0,)
        is_told = answer.code in known and answer.err == "" and is_clean(answer.out)
        if not is_told and (fault := faults_of(answer)):
            faults[path[:40]] = fault
    assert faults == {}
    assert not Path("out.pt").exists()


def test_a_folder_of_pipes_is_walked_through(ask, here) -> None:
    """Files that are found in a folder are not waited for either."""
    torch.save({"state_dict": {"a": torch.ones(2)}}, "good.ckpt")
    for name in ("x.ckpt", "x.py", "hook_trace.json", "hparams.json", "metrics.csv", "run.jsonl"):
        os.mkfifo(name)
    Path("loop.ckpt").symlink_to("loop.ckpt")
    assert ask("checkpoint", "prune", ".", "--dry-run").code == 0
    assert ask("checkpoint", "verify", ".").code == 1
    answer = ask("port", ".")
    assert (answer.code, answer.err) == (1, "")
    assert answer.out.startswith("x.py: it cannot be read: it is no regular file")
    assert ask("report", ".").code == 0
    assert "it is no regular file but a pipe" in Path("report.html").read_text()


def test_a_pipe_in_a_sharded_folder_is_not_waited_for(ask, here) -> None:
    """Neither the file of the run nor that of the shards is opened if it is no file."""
    sealed_folder("shards", '{"saved_at": 1, "files": {}}')
    os.mkfifo("shards/run.pt")
    assert faults_of(ask("checkpoint", "show", "shards")) == ""
    with pytest.raises(CheckpointError, match=r"run\.pt: it is no regular file but a pipe"):
        load_checkpoint("shards")


def test_code_that_would_end_the_process_is_told(ask, here) -> None:
    """Brackets and operators that overflow the stack of a parser are a line about the file."""
    for text in ("[" * 5000, "x = " + "-" * 100_000 + "1", "a" + ".b" * 100_000):
        Path("deep.py").write_text(text)
        answer = ask("port", "--check", "deep.py")
        assert answer.out.startswith("deep.py: it cannot be read as Python: "), answer
        assert (answer.code, answer.err) == (1, "")


@pytest.mark.slow
def test_python_gives_one_checkpoint_error(places, files) -> None:
    """`fit(ckpt_path=...)` names the path and the reason; the trainer trains afterwards."""
    import configured

    trainer = Trainer(**QUIET_OPTIONS, max_epochs=1)
    module = configured.Trained()
    for path in [*places, *files]:
        before = {name: value.clone() for name, value in module.state_dict().items()}
        with pytest.raises(CheckpointError) as caught:
            trainer.fit(module, datamodule=configured.Points(), ckpt_path=path)
        assert is_clean(str(caught.value)), path
        assert str(caught.value).startswith("checkpoint ")
        assert all(torch.equal(module.state_dict()[name], before[name]) for name in before)
    trainer.fit(module, datamodule=configured.Points())
    assert trainer.current_epoch == 1


def test_null_is_no_checkpoint(ask, here) -> None:
    """On the command line as in a config, `null` is YAML's word for none."""
    Path("run.yaml").write_text(CONFIG)
    assert ask("fit", "--config", "run.yaml", "--ckpt_path", "null").code == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["pipe", "bomb", "UTF-16", "more brackets", "bytes"])
def test_a_file_that_a_config_names_is_checked_too(name, ask, places, files) -> None:
    """Where an argument takes a config of its own, that is read as carefully as the outer one."""
    Path("run.yaml").write_text(CONFIG)
    Path("outer.yaml").write_text(f"model: configured.Trained\ntrainer: {name}\n")
    Path("model.yaml").write_text(f"model: {name}\n")
    for words in (
        ("--config", "outer.yaml"),
        ("--config", "model.yaml"),
        ("--config", "run.yaml", "--trainer", name),
        ("--config", "run.yaml", "--config", name),
        ("--config", "run.yaml", "--optimizer", name),
    ):
        assert faults_of(ask("fit", *words)) == "", words


@pytest.mark.slow
def test_an_inner_config_is_read(ask, here) -> None:
    """A good one is used, as before."""
    Path("inner.yaml").write_text(CONFIG.partition("trainer:")[2])
    Path("run.yaml").write_text(f"{CONFIG.partition('trainer:')[0]}trainer: inner.yaml\n")
    assert ask("fit", "--config", "run.yaml").code == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("group", ["", "trainer:\n"])
def test_thousands_of_unknown_keys_are_one_short_line(group, ask, here) -> None:
    """The first ones are named, and the others counted, before the parser goes through them."""
    keys = "".join(f"  unknown_{number}: 1\n" for number in range(20_000))
    text = f"{group}{keys}" if group else keys.replace("  ", "")
    Path("run.yaml").write_text(f"model: configured.Trained\n{text}")
    answer = ask("fit", "--config", "run.yaml")
    assert faults_of(answer) == ""
    assert "'unknown_0'" in answer.err
    assert ", nor 'unknown_1', 'unknown_2' and 19,997 more. " in answer.err
    assert " Known: " in answer.err


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("path", "value"),
    [(("state_dict", "layer.weight"), None), (("trainer_hooks", "progress", "stage"), 3),
     (("trainer_hooks", "format"), 99)],
)  # fmt: skip
def test_a_checkpoint_that_the_trainer_refuses_is_one_line(path, value, ask, here, caplog) -> None:
    """No other line comes before the error, though only the restore has found it."""
    Path("run.yaml").write_text(CONFIG)
    data = _saved(here)
    owner = data
    for key in path[:-1]:
        owner = owner[key]
    owner[path[-1]] = value
    torch.save(data, "drawn.ckpt")
    caplog.clear()
    assert faults_of(ask("fit", "--config", "run.yaml", "--ckpt_path", "drawn.ckpt")) == ""
    # where logging is not set up, its records stand beside the error
    assert [one.message for one in caplog.records if one.module != "parser"] == []


@pytest.mark.slow
def test_the_seed_is_told_after_a_restore(ask, here, caplog) -> None:
    """A resume logs the seed before its first other line, and a part for the loop has code 2."""
    Path("run.yaml").write_text(CONFIG.replace("max_epochs: 1", "max_epochs: 2"))
    data = _saved(here)
    caplog.clear()
    assert ask("fit", "--config", "run.yaml", "--ckpt_path", "good.ckpt").code == 0
    words = [message.partition(" ")[0] for message in caplog.messages]
    assert words[words.index("seed") :] == ["seed", "resuming", "fit"]
    del data["trainer_hooks"]["rng"]["torch"]
    torch.save(data, "drawn.ckpt")
    answer = ask("fit", "--config", "run.yaml", "--ckpt_path", "drawn.ckpt")
    assert answer.code == 2
    assert "its part 'rng' does not fit" in answer.err.splitlines()[-1]
    assert "Traceback" not in answer.err


def _saved(folder: Path):
    """Save a checkpoint of a training as good.ckpt, and return it as plain data."""
    import configured

    trainer = Trainer(**QUIET_OPTIONS, max_epochs=1)
    trainer.fit(configured.Trained(), datamodule=configured.Points())
    trainer.save_checkpoint(folder / "good.ckpt")
    return torch.load(folder / "good.ckpt", weights_only=True)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take on the rights of nobody")
def test_a_file_without_rights_is_one_line(ask, here) -> None:
    """A file, and one below a folder, that may not be read."""
    Path("run.yaml").write_text(CONFIG)
    Path("closed").mkdir()
    Path("closed/x").write_text(CONFIG)
    Path("secret").write_text(CONFIG)
    for path in ("closed", "secret"):
        Path(path).chmod(0)
    folders = [here, *here.parents]
    before = [folder.stat().st_mode for folder in folders]
    for folder, mode in zip(folders, before, strict=True):
        folder.chmod(mode | 0o055)
    os.seteuid(65534)
    try:
        answers = [
            ask("fit", *words, path)
            for path in ("secret", "closed/x", "closed")
            for words in (("--config",), ("--config", "run.yaml", "--ckpt_path"))
        ]
    finally:
        os.seteuid(0)
        for folder, mode in zip(folders, before, strict=True):
            folder.chmod(mode)
    assert [fault for answer in answers if (fault := faults_of(answer))] == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("path", ["pipe", "loop", "bomb", "UTF-16", "escaped key", "/dev/zero"])
def test_the_worst_of_each_kind(path, ask, places, files) -> None:
    """As a config, and as a checkpoint: the tests of all paths are slow."""
    Path("run.yaml").write_text(CONFIG)
    assert faults_of(ask("fit", "--config", path)) == ""
    assert faults_of(ask("fit", "--config", "run.yaml", "--ckpt_path", path)) == ""


def mutated(draw: random.Random, content: bytes) -> bytes:
    """A content with bytes changed, cut out, doubled, or put in."""
    for _ in range(draw.randrange(1, 6)):
        at, length = draw.randrange(len(content) + 1), draw.choice([1, 1, 2, 8, 100])
        left, part, right = content[:at], content[at : at + length], content[at + length :]
        new = draw.choice(
            [b"", part * 2, draw.randbytes(length), b"\x1b[31m", b"\0", b"[" * length, b"&a *a ",
             b"\xe2\x80\xae", b"{" * length, b": ", b"\n", b'"\\e[0m"', b"!!", b"9" * 400]
        )  # fmt: skip
        content = left + new + right
    return content


@pytest.mark.slow
def test_mutated_configs_have_one_line_each(here) -> None:
    """Hundreds of drawn mutations are read, or have a fault in one line."""
    path, refused = Path("drawn.yaml"), 0
    for seed in range(500):
        path.write_bytes(mutated(random.Random(seed), CONFIG.encode()))
        fault = read_config(path).fault
        refused += bool(fault)
        assert "\n" not in fault, seed
    assert 250 < refused < 500


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_mutated_configs_end_in_code_0_or_2(ask, here) -> None:
    """The whole command says one line without control characters, whatever the file became."""
    for seed in range(150):
        Path("drawn.yaml").write_bytes(mutated(random.Random(seed), CONFIG.encode()))
        answer = ask("fit", "--config", "drawn.yaml")
        if answer.code == 0:
            assert is_clean(answer.out + answer.err), seed
        else:
            assert faults_of(answer) == "", seed


@pytest.mark.exhaustive
def test_mutated_checkpoints_have_one_line_each(ask, here) -> None:
    """Thousands of drawn mutations of a file are shown, or refused in one line."""
    data = {"state_dict": {f"{RED}.w": torch.ones(3)}, "callbacks": {RED: {"a\u202e": "\x9b"}}}
    data |= {"epoch": 1, "global_step": 2, "pytorch-lightning_version": f"2.0{RED}"}
    torch.save(data, "good.ckpt")
    content = Path("good.ckpt").read_bytes()
    codes = set()
    for seed in range(2000):
        Path("drawn.ckpt").write_bytes(mutated(random.Random(seed), content))
        answer = ask("checkpoint", "verify" if seed % 4 else "show", "drawn.ckpt")
        codes.add(answer.code)
        if answer.code == 2:
            assert faults_of(answer) == "", seed
        else:
            assert answer.code in (0, 1), seed
            assert answer.err == "", seed
            assert is_clean(answer.out), seed
    assert codes == {0, 1, 2}


JUNK = [None, 3, -1, "x", RED, [], {}, [[]], {"a": [1]}, {RED: RED}, float("nan"), torch.ones(2)]


@pytest.mark.slow
@pytest.mark.parametrize("action", one_in(5, ["show", "show --json", "diff", "verify", "export"]))
def test_checkpoints_of_other_contents_are_told(action, ask, here) -> None:
    """Parts of a checkpoint that hold something else end in an answer or in one line."""
    import configured

    trainer = Trainer(**QUIET_OPTIONS, max_epochs=1)
    trainer.fit(configured.Trained(), datamodule=configured.Points())
    trainer.save_checkpoint("good.ckpt")
    for seed in range(100):
        draw = random.Random(seed)
        data = torch.load("good.ckpt", weights_only=True)
        part = data if draw.random() < 0.4 else data["trainer_hooks"]
        part[draw.choice(list(part))] = draw.choice(JUNK)
        torch.save(data, "drawn.ckpt")
        words = {"diff": ["good.ckpt"], "export": ["--weights-only", "--force", "-o", "out.ckpt"]}
        answer = ask("checkpoint", *action.split(), "drawn.ckpt", *words.get(action, []))
        if answer.code == 2:
            assert faults_of(answer) == "", seed
        else:
            assert answer.code in (0, 1), seed
            assert is_clean(answer.out + answer.err), seed


def test_a_resume_refuses_parts_of_other_types(here) -> None:
    """A part that is another kind of value is a CheckpointError that names it."""
    import configured

    options = {**QUIET_OPTIONS, "max_epochs": 1}
    trainer = Trainer(**options)
    trainer.fit(configured.Trained(), datamodule=configured.Points())
    trainer.save_checkpoint("good.ckpt")
    whole = torch.load("good.ckpt", weights_only=True)
    for name in ("callbacks", "optimizer_states", "progress", "metrics", "plugins", "rng", "setup"):
        data = {**whole, "trainer_hooks": {**whole["trainer_hooks"]}}
        (data if name in data else data["trainer_hooks"])[name] = torch.ones(2)
        torch.save(data, "drawn.ckpt")
        with pytest.raises(CheckpointError, match=f"its part '{name}' is a Tensor"):
            trainer.fit(
                configured.Trained(), datamodule=configured.Points(), ckpt_path="drawn.ckpt"
            )
