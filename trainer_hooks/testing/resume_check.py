"""Check that a run which is cut and resumed equals the run that was never cut."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from trainer_hooks.testing.contract_report import CheckNote, Defect, Findings, defect_from_error
from trainer_hooks.testing.trace import THE_END, trace_fit
from trainer_hooks.testing.trace_diff import LostAttribute, TraceDiff

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainer_hooks.testing.harness import CallbackHarness

__all__ = ["check_resumes"]

_MAX_ATTRIBUTES = 6
_MAX_NAMES = 20
_FOLLOWS = "What the callback does to a run must follow from its saved state."
_PARTS = {
    "state": (
        "the callback's state",
        (
            "Return from state_dict everything that the callback goes by, and take it back in "
            "load_state_dict. Reset it in on_fit_start only if trainer.progress.is_fresh. Name "
            "keys that are meant to differ, such as times, in the class's volatile_state."
        ),
    ),
    "training": ("the weights and optimizers, bit for bit,", _FOLLOWS),
    "length": ("the length, and the reason to stop,", _FOLLOWS),
    "stop": (
        "the length, and the reason to stop,",
        (
            "No checkpoint holds that the run was asked to stop. Ask again in on_train_start, if "
            "what was restored says so: `if self.seen >= self.limit: trainer.stop(...)`."
        ),
    ),
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
        cuts = _choose_cuts(trace_fit(harness, folder).held)
    # both uncut runs save at the cuts, for a callback may act on a save
    with harness.new_folder() as folder:
        again = trace_fit(harness, folder, cuts)
    with harness.new_folder() as folder:
        uncut = trace_fit(harness, folder, cuts, archive=archive)
    diff = TraceDiff(uncut, again, harness.may_differ.union(harness.make().volatile_state))
    lost: dict[str, tuple[str, LostAttribute]] = {}
    differing: dict[str, dict[str, str]] = {part: {} for part in _PARTS}
    for cut in uncut.marks:
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
        if cut in uncut.stopping and "length" in parts:  # all other differences follow from it
            differing["stop"][cut] = parts["length"]
            continue
        for path, attribute in diff.lost_attributes(resumed).items():
            # a value at the end says more than one on the way
            if path not in lost or lost[path][1].moment != THE_END == attribute.moment:
                lost[path] = cut, attribute
        for part, summary in parts.items():
            differing[part][cut] = summary
    if lost or any(by_cut for part, by_cut in differing.items() if part != "stop"):
        differing["stop"] = {}  # a late stop may follow from the lost state
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
