from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from samples import one_in

from trainer_hooks import Callback, Trainer
from trainer_hooks.callbacks import EarlyStopping, LambdaCallback, ModelCheckpoint, Timer
from trainer_hooks.hooks.relay import HookRelay, RelayMember
from trainer_hooks.testing import TinyModule

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
try:
    pages = importlib.import_module("callback_pages")
    docstrings = importlib.import_module("docstrings")
finally:
    sys.path.pop(0)


DOCUMENTED = {**pages.public_callbacks(), **pages.moved_callbacks()}
PAGES = Path(__file__).parents[2] / "docs" / "callbacks"
OF_INSTANCES = {"LambdaCallback", "LoadCheckpoint"}
"""Callbacks whose arguments add hooks, which no row of their page can name."""


class HookCalls:
    """The hooks that relays fire, and those that they call on instances of a class.

    It asks neither the pages nor their generator: a call counts when the function is called.
    """

    def __init__(self, kind: type[Callback], monkeypatch: pytest.MonkeyPatch) -> None:
        self.fired: set[str] = set()
        self.called: set[str] = set()
        listener, connect = RelayMember.listener, HookRelay.connect
        observer = SimpleNamespace(run_event=lambda event, *_: self.fired.add(event))
        witness = RelayMember(observer, "the test", routes_events=True)

        def recording(member, hook, *hooks):
            call = listener(member, hook, *hooks)
            if call is None or type(member.implementer) is not kind:
                return call

            def record(*args):
                self.called.add(hook)
                return call(*args)

            return record

        monkeypatch.setattr(RelayMember, "listener", recording)
        monkeypatch.setattr(
            HookRelay, "connect", lambda relay, members: connect(relay, (*members, witness))
        )


def rows_of(name: str) -> set[str]:
    """Return the hooks in the rows of a callback's page."""
    section = (PAGES / f"{name}.md").read_text(encoding="utf-8").split("## Hooks")[1]
    return set(re.findall(r"^\| `(\w+)` \|", section.split("## Cost")[0], re.MULTILINE))


def assert_rows_are_the_calls(name: str, calls: HookCalls) -> None:
    """Of the hooks that were fired, the page lists exactly those that were called."""
    assert calls.fired
    if name in OF_INSTANCES:
        assert rows_of(name) & calls.fired <= calls.called
    else:
        assert rows_of(name) & calls.fired == calls.called


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* does nothing. it needs a CUDA device:UserWarning")
@pytest.mark.parametrize("name", one_in(4, DOCUMENTED))
def test_the_example_of_a_callback_runs(name, tmp_path, monkeypatch) -> None:
    """The example on each page runs as it stands, and calls the hooks that the page lists."""
    monkeypatch.chdir(tmp_path)
    calls = HookCalls(DOCUMENTED[name], monkeypatch)
    code = pages.example_of(DOCUMENTED[name])
    exec(compile(code, f"the example of {name}", "exec"), {"__name__": "__main__"})
    if calls.called:  # an example that defines a subclass runs an instance of that
        assert_rows_are_the_calls(name, calls)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (EarlyStopping, {"monitor": "val_loss"}),
        (ModelCheckpoint, {}),
        (Timer, {"duration": "1h"}),
        (LambdaCallback, {"on_fit_end": lambda *_: None}),
    ],
)
def test_a_page_lists_the_hooks_that_a_fit_calls(kind, arguments, tmp_path, monkeypatch) -> None:
    """No row is there for a hook that the callback only inherits empty, and none is missing."""
    calls = HookCalls(kind, monkeypatch)
    trainer = Trainer(
        max_epochs=2, callbacks=[kind(**arguments)], default_root_dir=tmp_path, logger=False,
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=None,
    )  # fmt: skip
    trainer.fit(TinyModule())
    assert calls.called
    assert_rows_are_the_calls(kind.__name__, calls)


class Documented:
    """Do a thing.

    More of it.

    Args:
        first: what comes first, as
            long as it is: a sentence.
        **others: the rest.

    Attributes:
        kept: what is kept.

    Raises:
        ValueError: it cannot.

    State: a number, and
    another.

    Example::

        thing = Documented(1)

        print(thing)
    """

    def __init__(self, first: int, second: str = "2", **others: int) -> None: ...


def test_a_docstring_is_read_in_parts(monkeypatch) -> None:
    """Every section of a docstring is found, with lines that go on."""
    monkeypatch.setattr(
        Documented,
        "__doc__",
        inspect.cleandoc(Documented.__doc__).replace("**others", "second: two.\n    **others"),
    )
    read = docstrings.read_class(Documented)
    assert (read.summary, read.body) == ("Do a thing.", "More of it.")
    assert [(a.name, a.default, a.meaning) for a in read.arguments] == [
        ("first", "", "what comes first, as long as it is: a sentence."),
        ("second", "'2'", "two."),
        ("**others", "", "the rest."),
    ]
    assert read.attributes == {"kept": "what is kept."}
    assert read.errors == {"ValueError": "it cannot."}
    assert read.state == "a number, and another."
    assert read.example == "thing = Documented(1)\n\nprint(thing)"


def test_an_argument_that_is_not_documented_is_an_error() -> None:
    """A page cannot be made that leaves an argument out."""
    with pytest.raises(ValueError, match="Documented says nothing of second"):
        docstrings.read_class(Documented)
