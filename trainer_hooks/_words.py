"""Words of other trainers, and suggestions for misspelt names; read when an error is written."""

from __future__ import annotations

import difflib
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

Answer = str | dict[str, str]
"""What to write for a word: one text, or one for each value."""

_SIMILARITY = 0.75
"""The `difflib` ratio from which a name is suggested. Measured on the words of `words.toml` and on
all names with a letter too few, too many, wrong or swapped: tests/test_words.py."""

_SIMILARITY_OF_WORD = 0.65
"""The ratio for names of one word: of three letters, one that is wrong makes 0.67."""

_ALMOST_EQUAL = 0.9
"""The ratio from which a word that a name lacks is taken for a misspelt one, as `on_epoch_ed`."""

_LONGEST_VALUE = 40

_GROUPS = {
    "moment": ("start begin started starts", "end finish finished ended ends done stop"),
    "side": ("before pre", "after post"),
    "extreme": ("min minimum", "max maximum"),
    "way": ("save saved saving", "load loaded restore"),
    "switch": ("enable enabled", "disable disabled no without"),
    "quantity": ("epochs epoch", "steps step", "batches batch", "time duration"),
    "unit": ("size sizes", "dir path folder dirpath", "nodes node", "workers worker"),
    "stage": ("train training fit", "val valid validation validate eval", "test", "predict"),
}
"""Words inside names, by group: names with different ones of a group mean something else."""

_STRICT = frozenset(("moment", "side", "extreme", "way", "switch"))
"""Groups of which a word that only one of two names has makes a difference, too."""

_MEANINGS = {
    word: (group, same)
    for group, meanings in _GROUPS.items()
    for same in meanings
    for word in same.split()
}


@cache
def words() -> dict[str, Any]:
    """Return the table of words that people bring from other trainers."""
    import tomllib  # not at the top: it is for errors alone

    return tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))


def instead_of(table: str, name: str, *, owner: str = "") -> Answer | None:
    """Return the answer of the table of words for a name.

    Args:
        table: `"options"`, `"fit"`, `"hooks"`, `"calls"`, `"names"` or `"arguments"`.
        name: the name.
        owner: the class that takes the argument, for `"arguments"`.
    """
    content: dict[str, dict[str, Answer]] = words()[table]
    if owner:
        return content.get(owner, {}).get(name)
    return next((rows[name] for rows in content.values() if name in rows), None)


def advice(answer: Answer, value: object = ..., template: str = "{}") -> str:
    """Return the sentence for an answer of the table, with a space before it.

    Args:
        answer: the answer of the table.
        value: the value that was given; an ellipsis if it is not known.
        template: the place of the code, such as `"Trainer({})"`.
    """
    if isinstance(answer, dict):
        code = answer.get(str(value))
        if code is None:
            code = ", or ".join(dict.fromkeys(each for each in answer.values() if each[-1] != "."))
    else:
        is_plain = value is None or isinstance(value, str | int | float)
        shown = repr(value) if is_plain and len(repr(value)) <= _LONGEST_VALUE else "..."
        code = answer.replace("{value}", shown)
    is_sentence = code.endswith(".") and not code.endswith("...")
    return f" {code}" if is_sentence else f" Write {template.format(code)} instead."


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Return the candidate that `name` is probably a misspelling of, or an empty string.

    None is that names another moment, quantity or extreme: the end for the start, steps for epochs.
    """
    return _nearest(name, tuple(candidates))


@lru_cache(maxsize=512)  # the methods of a callback are looked for each time that it is used
def _nearest(name: str, names: tuple[str, ...]) -> str:
    # one that differs in capitals alone is nearer than any other: AdamW and not Adam for Adamw
    matches = [candidate for candidate in names if candidate.casefold() == name.casefold()]
    if not matches:
        meanings = _meanings_of(name)
        same = [candidate for candidate in names if _agree(name, meanings, candidate)]
        cutoff = _SIMILARITY if "_" in name else _SIMILARITY_OF_WORD
        matches = difflib.get_close_matches(name, same, n=1, cutoff=cutoff)
        # a word that is cut short, as `optim`
        matches = matches or [
            candidate for candidate in same if len(name) > 2 and candidate.startswith(name)
        ]
    return matches[0] if matches else ""


def _agree(name: str, meanings: dict[str, set[str]], candidate: str) -> bool:
    """Return whether no word of two names tells that they mean different things."""
    others = _meanings_of(candidate)
    for group in meanings.keys() | others.keys():
        mine, other = meanings.get(group), others.get(group)
        if mine is not None and other is not None:
            if mine != other:
                return False
        # a short word that is misspelt may not be seen as such
        elif (
            group in _STRICT
            and ("_" in name or "_" in candidate)
            and difflib.SequenceMatcher(None, name, candidate).ratio() < _ALMOST_EQUAL
        ):
            return False
    return True


@lru_cache(maxsize=1024)  # a name is compared with all names that there are, again and again
def _meanings_of(name: str) -> dict[str, set[str]]:
    """Return the meanings of a name's words by group; a word may be misspelt."""
    meanings: dict[str, set[str]] = {}
    for part in name.lower().replace("-", "_").replace(".", "_").split("_"):
        is_known = part in _MEANINGS
        similar = [part] if is_known else difflib.get_close_matches(part, _MEANINGS, 1, 0.79)
        for word in similar:
            group, meaning = _MEANINGS[word]
            meanings.setdefault(group, set()).add(meaning)
    return meanings
