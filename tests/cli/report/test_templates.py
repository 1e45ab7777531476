"""The report's markup: all of it is in templates, and no name can add to it."""

from __future__ import annotations

import ast
import base64
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import trainer_hooks.cli.report
from trainer_hooks.cli.main import main

pytest.importorskip("jinja2")

SOURCES = sorted(Path(trainer_hooks.cli.report.__file__).parent.glob("*.py"))
TEMPLATES = sorted(Path(trainer_hooks.cli.report.__file__).parent.glob("templates/*.html"))
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
HARMLESS = "harmless"


def fill(folder, name):
    """Write the folder of a run in which all that users can name has one name."""
    folder.mkdir(parents=True)
    quoted = name.replace('"', '""')
    (folder / "metrics.csv").write_text(f'step,epoch,"{quoted}","lr-{quoted}"\n0,0,1,2\n1,0,3,4\n')
    named = {"name": name, "supplier": name, "hook": name}
    plugin = {"distribution": name, "version": name, "status": name, "reason": name}
    facts = {
        "module": name, "stage": "fit", "resumed_from": name, "precision": name, "command": [name],
        "git": {"commit": name, "branch": name}, "environment": {name: name}, "seeds": {name: 1},
        "versions": {name: name, "python": name}, "callbacks": [{**named, "band": name}],
        "hardware": {"host": name, "device": name, "gpus": [{"name": name}]},
        "plugins": [{**plugin, "name": name}],
    }  # fmt: skip
    start = {"event": "start", "run": "a", "time": 1e9, "step": 0, "global_step": 0, **facts}
    error = {"type": name, "message": name}
    end = {"event": "end", "run": "a", "time": 1e9 + 9, "status": "failed", "error": error}
    end |= {"stop_reason": name, "disabled": [{**named, "error": name}]}
    before = {**start, "run": "b", "time": 1e9 - 9, "precision": f"not {name}"}
    (folder / "run.jsonl").write_text("".join(json.dumps(r) + "\n" for r in (before, start, end)))
    (folder / "hparams.json").write_text(json.dumps({name: {name: name}, "list": [name]}))
    costs = [{**named, "calls": 1, "total": 1.0, "mean": 1.0, "max": 1.0, "share": 0.5}]
    trace = {"otherData": {"costs": costs, "training_batches": 1, "batch_seconds": 2.0}}
    (folder / "hook_trace.json").write_text(json.dumps(trace))
    (folder / "samples").mkdir()
    (folder / "samples" / "a.png").write_bytes(PIXEL)
    listed = [{"file": "a.png", "caption": name, "text": name}, {"file": f"no {name}"}]
    (folder / "samples" / "samples.json").write_text(json.dumps(listed))
    (folder / f"{name.replace('/', '')}.ckpt").write_bytes(b"\0garbage")
    return folder


class _Reader(HTMLParser):
    """Reads what elements a page has, with which attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.values: dict[str, set[str]] = {}
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, tuple(name for name, _ in attrs if name != "class")))
        for name, value in attrs:
            self.values.setdefault(name, set()).add(value)

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """Write the pages of a run and of two runs in which all is named so; return them, read."""

    def read(name):
        root = tmp_path_factory.mktemp("named")
        folders = [fill(root / f"{n} {name.replace('/', '')}", name) for n in (1, 2)]
        pages = []
        for chosen in (folders[:1], folders):
            words = ["report", *map(str, chosen), "-o", str(root / "page.html")]
            # with all that is in the journals, the host's name included
            assert main([*words, "--with-machine"]) == 0
            pages.append(_Reader((root / "page.html").read_text(encoding="utf-8")))
        return pages

    return read


@pytest.fixture(scope="module")
def harmless(read):
    return read(HARMLESS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "<script>alert(1)</script>",
        "</script><script>alert(1)</script><!--",
        "\"><img src=x onerror='alert(1)'>",
        "' onmouseover='alert(1)' x=\"",
        "javascript:alert(1)",
        "{{ 7 * 7 }}{% include 'page.html' %}{# x #}",
        "&lt;b&gt; &amp; </td></pre></title></style>",
    ],
)
def test_no_name_changes_what_the_page_is_made_of(name, read, harmless) -> None:
    """Whatever runs, metrics, values and paths are called, elements and attributes are the same."""
    for page, expected in zip(read(name), harmless, strict=True):
        assert page.elements == expected.elements
        assert all(address.startswith("#") for address in page.values["href"] - {"data:,"})
        assert all(address.startswith("data:image/png;") for address in page.values["src"])
        text = "\n".join(page.texts)
        wanted = "\n".join(expected.texts)
        assert text.count(name) >= wanted.count(HARMLESS) // 2 > 20


def test_a_text_of_several_lines_keeps_them(tmp_path, read) -> None:
    """A sample is shown line by line, with what would steer a terminal written out."""
    folder = fill(tmp_path / "run", HARMLESS)
    told = [{"text": "first line\n\n  second\x1b[31m", "caption": "said"}]
    (folder / "samples" / "samples.json").write_text(json.dumps(told))
    assert main(["report", str(folder)]) == 0
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "<pre>\nfirst line\n\n  second\\x1b[31m\n</pre>" in page


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_no_markup_is_written_in_python(source) -> None:
    """No string of the report's modules holds a tag, but for the `(?<!` of patterns."""
    strings = [
        node.value
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert [text for text in strings if re.search(r"(?<!\(\?)</?[A-Za-z!]", text)] == []


def test_uplot_alone_is_let_in_as_it_is() -> None:
    """One value is not escaped, the script that a library made; no template switches that off."""
    written = "\n".join(path.read_text(encoding="utf-8") for path in TEMPLATES)
    assert re.findall(r"\w+\s*\|\s*safe\b", written) == ["uplot|safe"]
    assert "autoescape" not in written
