"""The check that a run which died and was resumed is the run that never died."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from trainer_hooks.testing.checks.finding import Findings, Note, raised
from trainer_hooks.testing.contrast import Contrast, Lost
from trainer_hooks.testing.course import THE_END, run_course
from trainer_hooks.testing.report import Defect

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainer_hooks.testing.bench import Bench

__all__ = ["check_resumes"]

_SHOWN = 6
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
"""What can differ: how it is called, and what to do about it."""


def check_resumes(bench: Bench) -> Findings:
    """Find cuts after which the callback, or the run, goes on otherwise than uncut.

    At some batches, validations and epochs, the checkpoint and the folder are kept as they are at
    that moment. A resumed run finds them so, with a new callback, a new module and other random
    numbers. What the callback holds is compared at each moment from there on, the rest at the end.
    """
    archive = bench.folder / "archive"
    with bench.room() as folder:
        cuts = _chosen(run_course(bench, folder).held)
    with bench.room() as folder:
        again = run_course(bench, folder, cuts)
    with bench.room() as folder:
        uncut = run_course(bench, folder, cuts, archive=archive)
    contrast = Contrast(uncut, again, bench.may_differ.union(bench.make().volatile_state))
    lost: dict[str, tuple[str, Lost]] = {}
    found: dict[str, dict[str, str]] = {part: {} for part in _PARTS}
    for cut in uncut.marks:
        shutil.rmtree(folder)
        # the folder must have the same name, which is part of many a state: a file's path
        shutil.copytree(archive / cut, folder)
        try:
            with bench.at(folder):
                resumed = run_course(bench, folder, cuts, is_resumed=True)
        except Exception as error:  # noqa: BLE001 - reported, with the cut
            yield raised(error, f"in a run that was cut after {cut} and resumed")
            continue
        others = contrast.others(cut, resumed)
        if cut in uncut.stopping and "length" in others:  # the rest follows from that
            found["stop"][cut] = others["length"]
            continue
        for place, of_place in contrast.lost(resumed).items():
            # how a run ends says more than how it was on the way
            if place not in lost or lost[place][1].moment != THE_END == of_place.moment:
                lost[place] = cut, of_place
        for part, differing in others.items():
            found[part][cut] = differing
    if lost or any(of_cuts for part, of_cuts in found.items() if part != "stop"):
        found["stop"] = {}  # it may follow from these
    yield from _losses(lost)
    yield from _defects(found)
    yield Note(f"{len(uncut.marks)} cuts")


def _chosen(moments: Iterable[str]) -> frozenset[str]:
    """Return the moments to cut at.

    They are the first batch and epoch, the middle one of each kind, the batch before the middle
    epoch's end, and the last two.
    """
    every = [moment for moment in moments if moment != THE_END]
    kinds: dict[str, list[str]] = {}
    for moment in every:
        kinds.setdefault(moment.partition(" ")[0], []).append(moment)
    firsts = {kinds[kind][0] for kind in ("batch", "epoch") if kind in kinds}
    middles = {kind: of_kind[len(of_kind) // 2] for kind, of_kind in kinds.items()}
    before = every[: every.index(middles["epoch"])] if "epoch" in middles else []
    lasts = [moment for moment in before if moment.startswith("batch ")][-1:]
    return frozenset({*firsts, *middles.values(), *lasts, *every[-2:]})


def _losses(lost: dict[str, tuple[str, Lost]]) -> Findings:
    """Yield a defect for each attribute that a resume changed, up to a number."""
    for place, (cut, of_place) in list(lost.items())[:_SHOWN]:
        name = place.partition(".")[0]
        yield Defect(
            "a run that is cut and resumed goes on with what the callback held",
            f"`{place}` {of_place.seen} (cut after {cut}, compared at {of_place.moment})",
            "Keep it in state_dict() and take it back in load_state_dict(). If it is no state, but "
            "a cache, a time or where this process began, say so in the class: "
            f"volatile_state = frozenset({{{name!r}}}).",
        )
    more = list(lost)[_SHOWN:]
    if more:
        yield Defect(
            "a run that is cut and resumed goes on with what the callback held",
            f"{len(more)} more attributes are others: {', '.join(more[:20])}",
            "As above.",
        )


def _defects(found: dict[str, dict[str, str]]) -> Findings:
    """Yield a defect for each part that differs, with all cuts and the first one's differences."""
    for part, of_cuts in found.items():
        if of_cuts:
            what, remedy = _PARTS[part]
            first = next(iter(of_cuts))
            yield Defect(
                f"a run that is cut anywhere and resumed ends with {what} of an uncut run",
                f"not if cut after {', '.join(of_cuts)}. After {first}, uncut and resumed differ "
                f"at {of_cuts[first]}",
                remedy,
            )
