"""Check that a run which is cut and resumed equals the run that was never cut."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._names import ours
from trainer_hooks.callback import Callback
from trainer_hooks.hooks.band import Band
from trainer_hooks.loggers.base import Logger
from trainer_hooks.runtime import rng
from trainer_hooks.testing.callback_attributes import (
    AttributeValues,
    attribute_values,
    public_values,
)
from trainer_hooks.testing.contract_report import CheckNote, Defect, Findings, defect_from_error
from trainer_hooks.testing.nested_diff import nested_differences, summarize_differences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from trainer_hooks.module.module import Module
    from trainer_hooks.testing.callback_attributes import AttributeValues
    from trainer_hooks.testing.harness import CallbackHarness
    from trainer_hooks.trainer.trainer import Trainer

_MAX_ATTRIBUTES = 6
_MAX_NAMES = 20
_FOLLOWS = "What the callback does to a run must follow from its saved state."
_PARTS = {
    "state": (
        "the callback's state",
        (
            "Return from state_dict everything that the callback goes by, and take it back in "
            "load_state_dict. Reset it in on_fit_start only if trainer.progress.is_new_training. "
            "Name keys that are meant to differ, such as times, in the class's volatile_state."
        ),
    ),
    "training": ("the weights and optimizers, bit for bit,", _FOLLOWS),
    "length": ("the length, and the reason to stop,", _FOLLOWS),
    "metrics": (
        "the metrics",
        f"{_FOLLOWS} Name metrics that are meant to differ in the class's volatile_state.",
    ),
    "hooks": ("the sequence of hooks", _FOLLOWS),
    "files": (
        "the files",
        f"{_FOLLOWS} A file that is written on after a resume is opened to append.",
    ),
}
"""The parts of a trace that can differ, each with its name in a defect and the remedy."""


def check_resumes(harness: CallbackHarness) -> Findings:
    """Yield a defect where the callback, or the run, goes on differently after a resume.

    At some batches, validations and epochs the checkpoint and the folder are copied. A resumed run
    starts from such a copy with a new callback, a new module and other random states. The
    callback's attributes are compared at each later moment, everything else at the end.
    """
    archive = harness.folder / "archive"
    with harness.new_folder() as folder:
        # a first run shows which moments there are: they depend on the module's loaders
        cuts = _choose_cuts(trace_fit(harness, folder).held)
    # both uncut runs save at the cuts, for a callback may act on a save
    with harness.new_folder() as folder:
        again = trace_fit(harness, folder, cuts)
    with harness.new_folder() as folder:
        uncut = trace_fit(harness, folder, cuts, archive=archive)
    diff = TraceDiff(uncut, again, harness.may_differ.union(ours(harness.make()).volatile_state))
    lost: dict[str, tuple[str, LostAttribute]] = {}
    differing: dict[str, dict[str, str]] = {part: {} for part in _PARTS}
    for cut in uncut.marks:
        # what the uncut run wrote after the cut must not be there
        shutil.rmtree(folder)
        # the folder must have the same name, since states hold paths of files
        shutil.copytree(archive / cut, folder)
        try:
            with harness.in_folder(folder):
                resumed = trace_fit(harness, folder, cuts, is_resumed=True)
        except Exception as error:  # noqa: BLE001 - reported, with the cut
            yield defect_from_error(error, f"in a run that was cut after {cut} and resumed")
            continue
        parts = diff.differing_parts(cut, resumed)
        for path, attribute in diff.lost_attributes(resumed).items():
            # a value at the end says more than one on the way
            if path not in lost or lost[path][1].moment != THE_END == attribute.moment:
                lost[path] = cut, attribute
        for part, summary in parts.items():
            differing[part][cut] = summary
    yield from _attribute_defects(lost)
    yield from _part_defects(differing)
    yield CheckNote(f"{len(uncut.marks)} cuts")


def _choose_cuts(moments: Iterable[str]) -> frozenset[str]:
    """Choose the moments to cut at.

    They are the first batch and epoch, the middle one of each kind, the batch before the middle
    epoch's end, and the last two.
    """
    candidates = [moment for moment in moments if moment != THE_END]
    by_kind: dict[str, list[str]] = {}
    for moment in candidates:
        by_kind.setdefault(moment.partition(" ")[0], []).append(moment)
    firsts = {by_kind[kind][0] for kind in ("batch", "epoch") if kind in by_kind}
    middles = {kind: of_kind[len(of_kind) // 2] for kind, of_kind in by_kind.items()}
    before = candidates[: candidates.index(middles["epoch"])] if "epoch" in middles else []
    last_batch = [moment for moment in before if moment.startswith("batch ")][-1:]
    return frozenset({*firsts, *middles.values(), *last_batch, *candidates[-2:]})


def _attribute_defects(lost: dict[str, tuple[str, LostAttribute]]) -> Findings:
    """Yield a defect for each of the first lost attributes, and one for all others."""
    for path, (cut, attribute) in list(lost.items())[:_MAX_ATTRIBUTES]:
        name = path.partition(".")[0]
        yield Defect(
            "a run that is cut and resumed goes on with what the callback held",
            f"`{path}` {attribute.seen} (cut after {cut}, compared at {attribute.moment})",
            "Keep it in state_dict() and take it back in load_state_dict(). If it is no state, but "
            "a cache, a time or where this process began, say so in the class: "
            f"volatile_state = frozenset({{{name!r}}}).",
        )
    others = list(lost)[_MAX_ATTRIBUTES:]
    if others:
        yield Defect(
            "a run that is cut and resumed goes on with what the callback held",
            f"{len(others)} more attributes are others: {', '.join(others[:_MAX_NAMES])}",
            "As above.",
        )


def _part_defects(differing: dict[str, dict[str, str]]) -> Findings:
    """Yield a defect for each part that differs, with all cuts and the first cut's differences."""
    for part, by_cut in differing.items():
        if by_cut:
            part_name, remedy = _PARTS[part]
            first = next(iter(by_cut))
            yield Defect(
                f"a run that is cut anywhere and resumed ends with {part_name} of an uncut run",
                f"not if cut after {', '.join(by_cut)}. After {first}, uncut and resumed differ "
                f"at {by_cut[first]}",
                remedy,
            )


THE_END = "the end"
"""The moment at which the fit is over."""

_SEED = 3
_EPOCHS = 8
"""Epochs of a traced fit, unless the options say otherwise: 24 batches of TinyModule, so that
callbacks which act after some number of batches or epochs do act."""
_CUT_FILE = "cut.ckpt"
_CUT_HOOKS = {
    "on_batch_checkpoint": "batch",
    "on_epoch_checkpoint": "epoch",
    "on_iteration_checkpoint": "iteration",
    "on_validation_batch_start": "validation",
}
"""The hooks in which a run may be cut, with the word that begins the name of such a moment."""
_BEFORE_TRAINING = ("on_init_start", "on_init_end")
_UNTRACED = ("on_log", "on_save_checkpoint")
"""Hooks whose calls follow from other parts of the trace: the logged values and the cuts."""


@dataclass
class RunTrace:
    """The trace of a fit: state, hook calls, logged values and files.

    A moment is named by its kind and count, as in `"batch 3"`.

    Attributes:
        held: the callback's attribute values at each moment at which the run could be cut, and at
            the end.
        results: the callback's public values at the end.
        calls: the hook calls since the training began, each with the batches completed.
        logged: the values logged since then, each with its step.
        marks: for each cut, how many calls and logged values came before.
        stopping: the moments at which the run had already been asked to stop.
        end: the checkpoint at the end.
        closing: the counters and the stop reason at the end.
        metrics: the trainer's `callback_metrics` at the end.
        files: a digest of each file in the folder, by path.
    """

    held: dict[str, AttributeValues] = field(default_factory=dict)
    results: AttributeValues = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    logged: list[tuple[int | None, dict[str, Any]]] = field(default_factory=list)
    marks: dict[str, tuple[int, int]] = field(default_factory=dict)
    stopping: set[str] = field(default_factory=set)
    end: dict[str, Any] = field(default_factory=dict)
    closing: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)


class _TraceLogger(Logger):
    """A logger that records logged values in a trace."""

    def __init__(self, trace: RunTrace) -> None:
        self._trace = trace

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Record the metrics."""
        self._trace.logged.append((step, dict(metrics)))


class _TraceRecorder(Callback):
    """Records hook calls and attribute values in a trace, and saves a checkpoint at each cut.

    At a cut the whole folder is copied. Resumed runs save as well, to the same name: a callback
    that hears of saved checkpoints then hears of the same ones.
    """

    # last in every hook, so that its checkpoint holds the work of all other callbacks
    band = Band.SAVE

    def __init__(
        self,
        trace: RunTrace,
        read_values: Callable[[Module], AttributeValues],
        folder: Path,
        cuts: frozenset[str],
        archive: Path | None,
    ) -> None:
        self._trace = trace
        self._read_values = read_values
        self._folder = folder
        self._cuts = cuts
        self._archive = archive
        self._validation_mark = (0, 0)

    def run_event(self, event: str, *args: Any) -> None:
        """Record a hook call, and cut the run if this is a chosen moment."""
        # the trainer has no counters yet; and no resumed run has a sanity check
        if event in _BEFORE_TRAINING or args[0].sanity_checking:
            return
        trace, progress = self._trace, args[0].progress
        if event == "on_validation_run_start":
            self._validation_mark = len(trace.calls), len(trace.logged)
        if event == "on_train_start":
            # a resumed run has no calls from before its training to compare
            trace.calls.clear()
            trace.logged.clear()
        elif event not in _UNTRACED:
            trace.calls.append(f"{event} after batch {progress.batches_completed}")
        kind = _CUT_HOOKS.get(event)
        if kind is not None:
            is_epoch = kind == "epoch"
            count = progress.epochs_completed if is_epoch else progress.batches_completed
            self._record_moment(args[0], args[1], kind, f"{kind} {count}")

    def _record_moment(self, trainer: Trainer, module: Module, kind: str, moment: str) -> None:
        """Record the attribute values at a moment, and cut the run there if it is chosen."""
        trace = self._trace
        if moment in trace.held:  # only the first batch of a validation counts
            return
        trace.held[moment] = self._read_values(module)
        if trainer.should_stop:
            trace.stopping.add(moment)
        if moment in self._cuts:
            trainer.save_checkpoint(self._folder / _CUT_FILE)
            # a validation that is cut is run again from its start
            position = len(trace.calls), len(trace.logged)
            trace.marks[moment] = self._validation_mark if kind == "validation" else position
            if self._archive is not None:
                shutil.copytree(self._folder, self._archive / moment)


def trace_fit(
    harness: CallbackHarness,
    folder: Path,
    cuts: frozenset[str] = frozenset(),
    *,
    archive: Path | None = None,
    is_resumed: bool = False,
) -> RunTrace:
    """Run a fit with a new callback and a new module, and return its trace.

    Args:
        harness: makes the callback, the module and the trainer.
        folder: the folder to run in.
        cuts: the moments to save a checkpoint at.
        archive: the folder that keeps a copy of `folder` as it is at each cut.
        is_resumed: whether to resume from the checkpoint in the folder.
    """
    trace = RunTrace()
    with rng.isolated():
        # another seed for a resumed run, as in a new process: only the checkpoint may restore it
        rng.reseed(_SEED + is_resumed)
        callback, module = harness.make(), harness.make_module()
        options = {"max_epochs": _EPOCHS, "logger": _TraceLogger(trace), **harness.options}
        ignored = harness.may_differ | ours(callback).volatile_state
        read_values = partial(attribute_values, callback, names=ignored)
        recorder = _TraceRecorder(trace, read_values, folder, cuts, archive)
        trainer = harness.make_trainer(callback, recorder, **options)
        trainer.fit(module, ckpt_path=folder / _CUT_FILE if is_resumed else None)
        trace.held[THE_END] = read_values(module)
        trace.results = public_values(callback, module)
        trace.closing = {
            "epochs": trainer.current_epoch,
            "batches": trainer.progress.batches_completed,
            "steps": trainer.global_step,
            "stop_reason": trainer.stop_reason,
        }
        trace.metrics = {name: value.clone() for name, value in trainer.callback_metrics.items()}
        # before the kit's own checkpoint is among them
        trace.files = _file_digests(folder)
        trainer.save_checkpoint(folder / "end.ckpt")
        trainer.close()
        trace.end = torch.load(folder / "end.ckpt", weights_only=True)
    return trace


def _file_digests(folder: Path) -> dict[str, str]:
    """Return a digest of each file in a folder by its path, without the kit's own checkpoint."""
    return {
        str(path.relative_to(folder)): hashlib.blake2b(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != _CUT_FILE
    }


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
        may_differ: names of state keys, attributes, metrics and hooks that may differ after a
            resume, and paths of files; `*` in them matches any text.
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
        self._has_steady_calls = self._calls(uncut) == self._calls(again)

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
                _first_difference(self._calls(uncut, calls), self._calls(resumed), "call")
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
            # a resumed run has no moments from before its cut
            if moment in first.held and moment in second.held:
                yield from self._lost_at(moment, first.held[moment], second.held[moment])

    def _lost_at(
        self, moment: str, first: AttributeValues, second: AttributeValues
    ) -> Iterator[LostAttribute]:
        """Yield the attributes that differ at a moment; of an object that differs not its parts."""
        reported = ""  # prefix of the paths below the object reported last
        # sorted, so that an object comes before its parts
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
        names = name.split(".")
        paths = {".".join(names[:count]) for count in range(1, len(names) + 1)}
        return any(path in self._unsteady or self._is_ignored(path) for path in paths)

    def _is_ignored(self, name: object) -> bool:
        return any(fnmatchcase(str(name), pattern) for pattern in self._ignored)

    def _steady(self, values: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if not self._may_differ(name)}

    def _calls(self, trace: RunTrace, start: int = 0) -> list[str]:
        """Return the calls from an index on, without those of hooks that may differ."""
        return [
            call for call in trace.calls[start:] if not self._is_ignored(call.partition(" ")[0])
        ]

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
