"""Compare the trace of a resumed run with that of the uncut run."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from trainer_hooks.testing.nested_diff import nested_differences, summarize_differences
from trainer_hooks.testing.trace import THE_END

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trainer_hooks.testing.callback_attributes import AttributeValues
    from trainer_hooks.testing.trace import RunTrace

__all__ = ["LostAttribute", "TraceDiff"]

_MISSING = object()
_MAX_VALUE_LENGTH = 80
_MAX_DIFFERENCE_LENGTH = 300


@dataclass(frozen=True, slots=True)
class LostAttribute:
    """An attribute of the callback with another value after a resume.

    Attributes:
        path: the attribute names that lead to it, as `"box.seen"`.
        seen: its values in the uncut and the resumed run, as text.
        moment: the moment at which they were compared.
    """

    path: str
    seen: str
    moment: str


class TraceDiff:
    """Compares traces of resumed runs with that of the uncut run.

    Values in which two uncut runs differ, such as times, are left out: their difference after a
    resume would prove nothing.

    Args:
        uncut: the trace of the uncut run.
        again: the trace of another uncut run.
        may_differ: names of state keys, attributes and metrics that may differ after a resume, and
            paths of files; `*` in them matches any text.
    """

    def __init__(self, uncut: RunTrace, again: RunTrace, may_differ: Iterable[str]) -> None:
        self._uncut = uncut
        self._ignored = tuple(may_differ)
        # empty while the two uncut runs are compared, which `_lost` does with the same rules
        self._unsteady: frozenset[str] = frozenset()
        self._unsteady = frozenset(
            {
                *(lost.path for lost in self._lost(uncut, again, list(uncut.held))),
                *_differing_names(uncut.results, again.results),
                *_differing_names(uncut.metrics, again.metrics),
                *_differing_names(uncut.files, again.files),
                *_differing_names(_logged_series(uncut), _logged_series(again)),
            }
        )
        self._has_steady_calls = uncut.calls == again.calls

    def lost_attributes(self, resumed: RunTrace) -> dict[str, LostAttribute]:
        """Return the attributes that stay different after the cut, each once, by path.

        An attribute that differs at the end is reported with its values there. Public values must
        be equal at the end even where the cut left nothing to do.
        """
        public = self._lost_at(THE_END, self._uncut.results, resumed.results)
        by_path = {lost.path: lost for lost in public}
        for lost in self._lost(self._uncut, resumed, _settled_moments(resumed)):
            if lost.moment == THE_END or lost.path not in by_path:
                by_path[lost.path] = lost
        return by_path

    def differing_parts(self, cut: str, resumed: RunTrace) -> dict[str, str]:
        """Return the other differences of a resumed run, summarized by the part of the trace.

        Args:
            cut: the moment after which the resumed run was cut.
            resumed: its trace.
        """
        uncut = self._uncut
        calls, logged = uncut.marks.get(cut, (len(uncut.calls), len(uncut.logged)))
        differences = {
            "state": nested_differences(self._states(uncut), self._states(resumed), "callbacks"),
            "training": nested_differences(
                _training_state(uncut), _training_state(resumed), "checkpoint"
            ),
            "length": nested_differences(uncut.closing, resumed.closing, "run"),
            "metrics": [
                *nested_differences(
                    self._steady(uncut.metrics), self._steady(resumed.metrics), "metrics"
                ),
                *_first_difference(self._logged(uncut, logged), self._logged(resumed), "logged"),
            ],
            "hooks": (
                _first_difference(uncut.calls[calls:], resumed.calls, "call")
                # a run that was asked to stop before the cut has other hooks left to call
                if self._has_steady_calls and cut not in uncut.stopping
                else []
            ),
            "files": self._file_differences(resumed),
        }
        return {part: summarize_differences(items) for part, items in differences.items() if items}

    def _lost(
        self, first: RunTrace, second: RunTrace, moments: Iterable[str]
    ) -> Iterator[LostAttribute]:
        for moment in moments:
            if moment in first.held and moment in second.held:
                yield from self._lost_at(moment, first.held[moment], second.held[moment])

    def _lost_at(
        self, moment: str, first: AttributeValues, second: AttributeValues
    ) -> Iterator[LostAttribute]:
        """Yield the attributes that differ at a moment; of an object that differs not its parts."""
        reported = ""  # prefix of the paths below the object reported last
        for path in sorted({*first, *second}):
            if (reported and path.startswith(reported)) or self._may_differ(path):
                continue
            uncut, resumed = first.get(path, _MISSING), second.get(path, _MISSING)
            is_missing = uncut is _MISSING or resumed is _MISSING
            if is_missing or nested_differences(uncut, resumed):
                reported = f"{path}."
                yield LostAttribute(path, _describe_both(uncut, resumed), moment)

    def _may_differ(self, name: str) -> bool:
        """Return whether a name, or the name of an object that it is a part of, may differ."""
        steps = name.split(".")
        paths = {name, *(".".join(steps[:count]) for count in range(1, len(steps)))}
        return any(path in self._unsteady or self._is_ignored(path) for path in paths)

    def _is_ignored(self, name: object) -> bool:
        return any(fnmatchcase(str(name), pattern) for pattern in self._ignored)

    def _steady(self, values: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if not self._may_differ(name)}

    def _logged(self, trace: RunTrace, start: int = 0) -> list[Any]:
        """Return the steady values logged from an index on, each dict with its step."""
        steady = ((step, self._steady(values)) for step, values in trace.logged[start:])
        return [(step, values) for step, values in steady if values]

    def _states(self, trace: RunTrace) -> dict[str, dict[str, Any]]:
        """Return the saved states of the callbacks without the keys that may differ."""
        return {
            state_key: {key: value for key, value in state.items() if not self._is_ignored(key)}
            for state_key, state in trace.end["callbacks"].items()
        }

    def _file_differences(self, resumed: RunTrace) -> list[str]:
        first, second = self._steady(self._uncut.files), self._steady(resumed.files)
        return [
            *(f"{path} is missing" for path in first if path not in second),
            *(f"{path} is there as well" for path in second if path not in first),
            *(f"{path} holds something else" for path in first if first[path] != second.get(path)),
        ]


def _settled_moments(resumed: RunTrace) -> list[str]:
    """Return the moments from the end of the second epoch after the cut on.

    By then a resumed callback has rebuilt the values that it rebuilds in each epoch. A cache, such
    as the outputs of the last batch, equals that of the uncut run again; lost state does not.
    """
    moments = list(resumed.held)
    ends = [index for index, moment in enumerate(moments) if moment.startswith("epoch ")]
    return moments[ends[1] :] if len(ends) > 1 else moments[-1:] if ends else []


def _training_state(trace: RunTrace) -> dict[str, Any]:
    """Return the checkpoint without the callbacks' states and the record of the process."""
    return {k: v for k, v in trace.end.items() if k not in ("callbacks", "trainer_hooks")}


def _differing_names(first: dict[str, Any], second: dict[str, Any]) -> set[str]:
    return {
        name
        for name in {*first, *second}
        if name not in first or name not in second or nested_differences(first[name], second[name])
    }


def _logged_series(trace: RunTrace) -> dict[str, list[Any]]:
    """Return the logged steps and values of each metric, by name."""
    series: dict[str, list[Any]] = {}
    for step, values in trace.logged:
        for name, value in values.items():
            series.setdefault(name, []).append((step, value))
    return series


def _first_difference(first: list[Any], second: list[Any], noun: str) -> list[str]:
    """Return the first difference of two sequences; the lengths if one begins with the other."""
    for index, pair in enumerate(zip(first, second, strict=False)):
        differences = nested_differences(*pair, f"{noun} {index}")
        if differences:
            return differences[:1]
    if len(first) != len(second):
        return [f"{noun}s: {len(first)} and {len(second)}"]
    return []


def _describe_both(uncut: Any, resumed: Any) -> str:
    """Describe the two values of an attribute, or that one run does not have it."""
    if uncut is _MISSING:
        return f"is not there in the uncut run and {_short_repr(resumed)} after a resume"
    if resumed is _MISSING:
        return f"is {_short_repr(uncut)} in the uncut run and not there after a resume"
    first, second = _short_repr(uncut), _short_repr(resumed)
    # where the texts do not show the difference, the path inside the value does
    if first == second or max(len(repr(uncut)), len(repr(resumed))) > _MAX_VALUE_LENGTH:
        difference = nested_differences(uncut, resumed)[0].lstrip(": ")
        return f"is another after a resume: {difference[:_MAX_DIFFERENCE_LENGTH]}"
    return f"is {first} in the uncut run and {second} after a resume"


def _short_repr(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}..."
