from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
try:
    pages = importlib.import_module("callback_pages")
    docstrings = importlib.import_module("docstrings")
finally:
    sys.path.pop(0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* does nothing. it needs a CUDA device:UserWarning")
@pytest.mark.parametrize("name", [*pages.public_callbacks(), *pages.moved_callbacks()])
def test_the_example_of_a_callback_runs(name, tmp_path, monkeypatch) -> None:
    """The example on each page runs as it stands."""
    monkeypatch.chdir(tmp_path)
    code = pages.example_of({**pages.public_callbacks(), **pages.moved_callbacks()}[name])
    exec(compile(code, f"the example of {name}", "exec"), {"__name__": "__main__"})


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
        Documented.__doc__.replace("**others", "second: two.\n        **others"),
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
