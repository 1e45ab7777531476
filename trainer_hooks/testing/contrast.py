"""Contrast: in what the course of a resumed run differs from that of the uncut one."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from trainer_hooks.testing.comparing import differences, listed
from trainer_hooks.testing.course import THE_END

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trainer_hooks.testing.course import Course
    from trainer_hooks.testing.holding import Holdings

__all__ = ["Contrast", "Lost"]

_NOTHING = object()
_LONGEST = 80


@dataclass(frozen=True, slots=True)
class Lost:
    """An attribute that is another after a resume.

    Attributes:
        place: where it is.
        seen: what it is in both runs.
        moment: when.
    """

    place: str
    seen: str
    moment: str


class Contrast:
    """Compares courses with that of the uncut run, less what may differ.

    What two uncut runs do not agree on, such as times, says nothing of a resume either.

    Args:
        uncut: the course of the uncut run.
        again: that of another uncut run.
        may_differ: names of keys of the state, of attributes and of metrics that may be others
            after a resume, and paths of files; `*` in them stands for anything.
    """

    def __init__(self, uncut: Course, again: Course, may_differ: Iterable[str]) -> None:
        self._uncut = uncut
        self._names = tuple(may_differ)
        self._unsteady: frozenset[str] = frozenset()
        self._unsteady = frozenset(
            {
                *(lost.place for lost in self._lost(uncut, again, list(uncut.held))),
                *_unsteady(uncut.results, again.results),
                *_unsteady(uncut.metrics, again.metrics),
                *_unsteady(uncut.files, again.files),
                *_unsteady_metrics(uncut, again),
            }
        )
        self._is_orderly = uncut.calls == again.calls

    def lost(self, resumed: Course) -> dict[str, Lost]:
        """Return the attributes that stay others after the cut, each once.

        How they are at the end is told, where they differ there. Those that others may read must be
        the same at the end even where nothing is left to be done after the cut.
        """
        read = self._lost_at(THE_END, self._uncut.results, resumed.results)
        found = {lost.place: lost for lost in read}
        for lost in self._lost(self._uncut, resumed, _settled(resumed)):
            if lost.moment == THE_END or lost.place not in found:
                found[lost.place] = lost
        return found

    def others(self, cut: str, resumed: Course) -> dict[str, str]:
        """Return what else differs: in what, by the part of a run that it is.

        Args:
            cut: the moment after which the resumed run was cut.
            resumed: its course.
        """
        uncut = self._uncut
        calls, logged = uncut.marks.get(cut, (len(uncut.calls), len(uncut.logged)))
        parts = {
            "state": differences(self._states(uncut), self._states(resumed), "callbacks"),
            "training": differences(_training(uncut), _training(resumed), "checkpoint"),
            "length": differences(uncut.closing, resumed.closing, "run"),
            "metrics": [
                *differences(self._steady(uncut.metrics), self._steady(resumed.metrics), "metrics"),
                *_first_difference(self._logged(uncut, logged), self._logged(resumed), "logged"),
            ],
            "hooks": (
                _first_difference(uncut.calls[calls:], resumed.calls, "call")
                if self._is_orderly and cut not in uncut.stopping
                else []
            ),
            "files": self._files(resumed),
        }
        return {part: listed(found) for part, found in parts.items() if found}

    def _lost(self, first: Course, second: Course, moments: Iterable[str]) -> Iterator[Lost]:
        for moment in moments:
            if moment in first.held and moment in second.held:
                yield from self._lost_at(moment, first.held[moment], second.held[moment])

    def _lost_at(self, moment: str, first: Holdings, second: Holdings) -> Iterator[Lost]:
        above = ""  # what is told of an object need not be told of its parts
        for place in sorted({*first, *second}):
            if (above and place.startswith(above)) or self._may_differ(place):
                continue
            was, now = first.get(place, _NOTHING), second.get(place, _NOTHING)
            if was is _NOTHING or now is _NOTHING or differences(was, now):
                above = f"{place}."
                yield Lost(place, _both(was, now), moment)

    def _may_differ(self, name: str) -> bool:
        """Return whether a name, or that of an object which it is a part of, may differ."""
        steps = name.split(".")
        paths = {name, *(".".join(steps[:count]) for count in range(1, len(steps)))}
        return any(
            path in self._unsteady or any(fnmatchcase(path, given) for given in self._names)
            for path in paths
        )

    def _steady(self, values: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if not self._may_differ(name)}

    def _logged(self, course: Course, after: int = 0) -> list[Any]:
        given = ((step, self._steady(values)) for step, values in course.logged[after:])
        return [(step, values) for step, values in given if values]

    def _states(self, course: Course) -> dict[str, dict[str, Any]]:
        """Return the callbacks' states, less what may be another."""
        return {
            key: {
                name: value
                for name, value in state.items()
                if not any(fnmatchcase(str(name), given) for given in self._names)
            }
            for key, state in course.end["callbacks"].items()
        }

    def _files(self, resumed: Course) -> list[str]:
        first, second = self._steady(self._uncut.files), self._steady(resumed.files)
        return [
            *(f"{path} is missing" for path in first if path not in second),
            *(f"{path} is there as well" for path in second if path not in first),
            *(f"{path} holds something else" for path in first if first[path] != second.get(path)),
        ]


def _settled(resumed: Course) -> list[str]:
    """Return the moments at which a resumed callback has made anew what it makes in each epoch.

    They begin with the second epoch that ends after the cut. What is only a cache, such as what the
    last batch or validation returned, is then as without a cut; what else was lost is still other.
    """
    moments = list(resumed.held)
    ends = [place for place, moment in enumerate(moments) if moment.startswith("epoch ")]
    return moments[ends[1] :] if len(ends) > 1 else moments[-1:] if ends else []


def _training(course: Course) -> dict[str, Any]:
    """Return the rest of a checkpoint, less what is about the process and not the training."""
    return {k: v for k, v in course.end.items() if k not in ("callbacks", "trainer_hooks")}


def _unsteady(first: dict[str, Any], second: dict[str, Any]) -> set[str]:
    return {
        name
        for name in {*first, *second}
        if name not in first or name not in second or differences(first[name], second[name])
    }


def _unsteady_metrics(first: Course, second: Course) -> set[str]:
    """Return the names of logged values that are not the same in two runs, value by value."""
    series: tuple[dict[str, list[Any]], dict[str, list[Any]]] = {}, {}
    for course, values in zip((first, second), series, strict=True):
        for step, given in course.logged:
            for name, value in given.items():
                values.setdefault(name, []).append((step, value))
    return _unsteady(*series)


def _first_difference(first: list[Any], second: list[Any], what: str) -> list[str]:
    """Return the first difference of two sequences, in words."""
    for place, (was, now) in enumerate(zip(first, second, strict=False)):
        found = differences(was, now, f"{what} {place}")
        if found:
            return found[:1]
    if len(first) != len(second):
        return [f"{what}s: {len(first)} and {len(second)}"]
    return []


def _both(was: Any, now: Any) -> str:
    if was is _NOTHING or now is _NOTHING:
        has, has_not = ("uncut run", "after a resume")
        if was is _NOTHING:
            return f"is not there in the uncut run and {_shown(now)} after a resume"
        return f"is {_shown(was)} in the {has} and not there {has_not}"
    if _shown(was) == _shown(now) or max(len(repr(was)), len(repr(now))) > _LONGEST:
        return f"is another after a resume: {differences(was, now)[0].lstrip(': ')[:300]}"
    return f"is {_shown(was)} in the uncut run and {_shown(now)} after a resume"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
