"""Public programs in their own framework, ported, and hosted: what differs is declared."""

from __future__ import annotations

import importlib
import importlib.util
import signal
import sys
from pathlib import Path

import pytest
from lightning_package import stand_in

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PACKAGES = {
    "lightning": "pytorch_lightning",
    "composer": "composer",
    "accelerated": "pytorch_accelerated",
    "transformers": "transformers",
    "ignite": "ignite",
}

IMPORTS = {
    "lightning": ("pytorch_lightning",),
    "transformers": ("transformers.trainer",),
    "ignite": ("ignite.engine", "ignite.handlers"),
}
"""Modules of a framework that take long to import, made once for its programs."""

sys.path.insert(0, str(HERE))
try:
    from compare_programs import COMMON, COMPOSER, objections
    from run_programs import constants, programs, ways
finally:
    sys.path.pop(0)

ALL = [(framework, name) for framework in PACKAGES for name in programs(framework)]
KILLED = [(framework, name, way) for framework, name in ALL for way in ways(framework)]
"""The programs that are killed, and how they run here."""

TABLES = ("differences-from-lightning", "coming-from-composer", "coming-from-pytorch-accelerated",
          "foreign-callbacks")  # fmt: skip
"""The pages of the docs whose rows are reasons."""


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> dict[str, list[Path]]:
    """Where each framework's run looks for packages first."""
    lightning = []
    if importlib.util.find_spec("lightning") is None and _is_installed("lightning"):
        lightning.append(stand_in(tmp_path_factory.mktemp("package")))
    return {**{name: [COMPOSER] for name in PACKAGES}, "lightning": lightning}


def imports_of(framework: str, way: str) -> tuple[str, ...]:
    """Return what is imported beforehand; nothing for ported programs, which need no framework."""
    return () if way == "ported" else IMPORTS.get(framework, ())


def _is_installed(framework: str) -> bool:
    return importlib.util.find_spec(PACKAGES[framework]) is not None


@pytest.mark.exhaustive
@pytest.mark.parametrize("framework", PACKAGES)
def test_programs_do_what_they_do_at_home(results_of, places, framework) -> None:
    """Losses, metrics, weights, hooks and files are the same, but for what a program declares.

    All programs of a framework are one case, since a process runs them together.
    """
    if not _is_installed(framework):
        pytest.skip(f"needs {PACKAGES[framework]}")
    found = {
        way: results_of(
            HERE / "run_programs.py",
            *places[framework],
            words=(framework, way),
            imports=imports_of(framework, way),
        )
        for way in ("own", *ways(framework))
    }
    wrong = []
    for name, file in programs(framework).items():
        declared = constants(file)
        own = found["own"][name]["values"]
        if "raised" in own:
            wrong.append(f"{name} raises at home: {own['raised']}")
        for way in ways(framework):
            if way == "hosted" and "HOSTED" in declared:
                continue
            here = found[way][name]["values"]
            differences = objections(own, here, way, declared.get("DIFFERENCES", {}))
            wrong += [f"{name} {way} {value}: {text}" for value, text in differences.items()]
    assert not wrong, "\n".join(wrong)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("framework", "name", "way"), KILLED)
def test_a_killed_program_goes_on_as_if_it_had_not_been(
    results_of, places, framework, name, way
) -> None:
    """Ported or hosted, a resumed fit has the losses, rates, metrics and weights of the whole."""
    if not _is_installed(framework):
        pytest.skip(f"needs {PACKAGES[framework]}")
    known = constants(programs(framework)[name])
    reasons = ["KILLED", *(["HOSTED", "KILLED_HOSTED"] if way == "hosted" else ["PORTED"])]
    for reason in reasons:
        if reason in known:
            pytest.skip(known[reason])
    found = results_of(
        HERE / "kill_programs.py", *places[framework],
        words=(framework, way, name), imports=imports_of(framework, way),
    )[name]  # fmt: skip
    assert (found["signal"], found["saved"]) == (signal.SIGKILL, True)
    assert "raised" not in {**found["whole"], **found["resumed"]}
    whole, resumed = (found[run]["runs"]["0"] for run in ("whole", "resumed"))
    count = len(resumed["losses"])
    assert 0 < count < len(whole["losses"])
    for values in ("losses", "rates"):  # a rate of a window of batches is one
        assert resumed[values] == whole[values][-len(resumed[values]) :]
    # a summary of transformers is of the part from the resume on, there, too
    summary = {"train_loss"} if framework == "transformers" else set()
    whole_rows, rows = (
        [row for row in run["metrics"] if summary.isdisjoint(row)] for run in (whole, resumed)
    )
    assert rows[-1:] == whole_rows[-1:]
    assert resumed["weights"] == whole["weights"] != {}


def test_each_reason_is_a_row_of_the_docs() -> None:
    """A declared difference is one that the docs tell of, or it is said to be open."""
    pages = "".join((ROOT / f"docs/{page}.md").read_text(encoding="utf-8") for page in TABLES)
    reasons = {
        reason
        for framework in PACKAGES
        for file in programs(framework).values()
        for reason in constants(file).get("DIFFERENCES", {}).values()
    } | {*COMMON.values()}
    assert {one for one in reasons if not one.startswith("open: ") and one not in pages} == set()


def test_each_program_has_a_row_of_the_table() -> None:
    """README.md says what each stands for."""
    table = (HERE / "README.md").read_text(encoding="utf-8")
    listed = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `of_")]
    assert sorted(listed) == sorted(f"of_{framework}/{name}.py" for framework, name in ALL)


def test_new_and_vanished_differences_are_found() -> None:
    """A difference that is not declared is told, and so is a declared one that does not show."""
    own = {"losses": [1.0, 2.0], "runs": {"0": {"weights": {"a": "1"}}}, "files": {"x": True}}
    here = {"losses": [1.0, 2.5], "runs": {"0": {"weights": {"a": "2"}}}, "files": {}}
    wrong = objections(own, here, "hosted", {"hosted:runs.*": "known", "ported:losses": "other"})
    assert set(wrong) == {"losses", "files.x"}
    wrong = objections(own, {**own, "port": [], "foreign": []}, "ported", {"losses": "known"})
    assert wrong == {"losses": "the same by now: take the declared difference away"}


def test_an_error_is_the_only_difference() -> None:
    """The values that a program did not come to are not told one by one."""
    own = {"losses": [1.0], "files": {"x": True}}
    assert set(objections(own, {"raised": "E: no"}, "hosted", {})) == {"raised"}
