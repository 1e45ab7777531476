"""Which tests a command runs: exhaustive cases are drawn by a seed, or asked for."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import sys
from itertools import product
from pathlib import Path

import draw_mutants
import drawn_cases
import pytest
import warm_python
from pytest_runs import pytest_in, written
from samples import one_in

ROOT = Path(__file__).parents[1]

TABLES = {
    "conftest.py": "pytest_plugins = ['drawn_cases']\n",
    "test_table.py": """
        import pytest

        @pytest.mark.exhaustive
        @pytest.mark.parametrize("case", range(21))
        def test_table(case): pass

        def test_always(): pass

        @pytest.mark.exhaustive
        def test_single(): pass
        """,
    **{
        f"test_whole_{name}.py": f"""
        import pytest

        pytestmark = [
            pytest.mark.filterwarnings("ignore"),
            pytest.mark.exhaustive,
        ]

        def test_{name}_first(): pass
        def test_{name}_second(): pass
        """
        for name in ("a", "b")
    },
}
COLLECT = """
import contextlib, io, json, sys
import pytest

chosen = {}
for words in json.loads(sys.argv[1]):
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = pytest.main(["-q", "--collect-only", "-p", "no:cacheprovider", *words])
    ids = sorted(line.partition("::")[2] for line in output.getvalue().splitlines() if "::" in line)
    chosen[" ".join(words)] = [int(code), ids]
    for name in [name for name in sys.modules if name.startswith(("test_", "drawn_"))]:
        del sys.modules[name]
print(json.dumps(chosen))
"""


@pytest.mark.slow
def test_eight_seeds_in_a_row_run_each_exhaustive_case_once(tmp_path) -> None:
    """A file that is exhaustive as a whole is drawn as a whole; other tests run each time."""
    seeds = range(1000, 1008)
    commands = [[f"--draw-seed={seed}"] for seed in seeds]
    commands += [["--exhaustive"], ["-m", "exhaustive"], ["-m", "not slow"], ["test_table.py"]]
    commands += [["test_whole_b.py::test_b_second"]]
    done = pytest_in(written(tmp_path, TABLES), "-c", COLLECT, json.dumps(commands))
    assert done.returncode == 0, done.stderr
    chosen = json.loads(done.stdout)
    assert {code for code, _ in chosen.values()} == {0}
    everything = chosen["--exhaustive"][1]
    assert len(everything) == 27
    drawn = [case for seed in seeds for case in chosen[f"--draw-seed={seed}"][1]]
    assert sorted(drawn) == sorted([*everything, *["test_always"] * 7])
    tables = [[c for c in chosen[f"--draw-seed={s}"][1] if "table" in c] for s in seeds]
    assert {len(cases) for cases in tables} == {2, 3}
    assert chosen["-m exhaustive"][1] == sorted(set(everything) - {"test_always"})
    assert chosen["-m not slow"][1] == ["test_always"]
    assert chosen["test_table.py"][1] == [
        c for c in everything if "_b_" not in c and "_a_" not in c
    ]
    assert chosen["test_whole_b.py::test_b_second"][1] == ["test_b_second"]


@pytest.mark.slow
def test_the_head_of_a_run_names_the_seed_and_the_command_that_draws_it_again(tmp_path) -> None:
    """Without the option the seed is the hash of the commit."""
    folder = written(tmp_path, TABLES)
    done = pytest_in(folder, "-m", "pytest", "-v", "--draw-seed=3", "-k", "a b or not c")
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("exhaustive cases")]
    again = "the same again: pytest -v -k 'a b or not c' --draw-seed=3"
    assert line == f"exhaustive cases: 1 in 8 drawn, seed 3; {again}"
    done = pytest_in(folder, "-m", "pytest", "--collect-only")
    assert f"seed {drawn_cases._seed_of_commit()};" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["--draw-seed=none"],
            "ERROR: --draw-seed 'none': a seed is a whole number from 0 to 9999999.",
        ),
        (
            ["--draw-seed=-3"],
            "ERROR: --draw-seed '-3': a seed is a whole number from 0 to 9999999.",
        ),
        (["test_table.py::test_typo"], "ERROR: not found: "),
        (["-n", "1", "test_table.py::test_typo"], "ERROR: not found: "),
        (["-n", "1", "test_typo.py"], "ERROR: file or directory not found: test_typo.py"),
    ],
)
def test_a_wrong_word_is_one_clear_line(tmp_path, words, line) -> None:
    """The exit code is not 0, with workers too."""
    done = pytest_in(written(tmp_path, TABLES), "-m", "pytest", *words)
    output = (done.stdout + done.stderr).splitlines()
    assert len([text for text in output if text.startswith(line)]) == 1, output
    assert done.returncode != 0


IMPORTED = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
"""In a process that has imported the package, pytest cannot rewrite its assertions."""


def collected(*words: str) -> set[str]:
    """Return the tests that a command would run."""
    done = warm_python.run(
        [sys.executable, "-m", "pytest", "-q", "--collect-only", "-n", "0", *IMPORTED, *words],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 5), done.stdout + done.stderr
    return {line for line in done.stdout.splitlines() if "::" in line}


@pytest.mark.slow
def test_fast_tests_are_those_of_all_that_are_not_slow() -> None:
    """A file that is left out as a whole is not imported; nothing else changes by that."""
    folder = "tests/distributed"
    fast, all_ = collected(folder, "-m", "not slow"), collected(folder, "--exhaustive")
    assert fast == all_ - collected(folder, "-m", "slow or exhaustive")


def test_one_in_so_many_is_run_always() -> None:
    """The first of each group; the marks and names that a value has stay."""
    assert [value.marks[0].name for value in one_in(4, "abc", otherwise="slow")[1:]] == ["slow"] * 2
    named = pytest.param(3, 4, marks=pytest.mark.xfail, id="a name")
    found = one_in(3, ["a", "b", ("c", "d"), "e", named])
    marks = [[mark.name for mark in getattr(value, "marks", ())] for value in found]
    assert marks == [[], ["exhaustive"], ["exhaustive"], [], ["xfail", "exhaustive"]]
    assert (found[2].values, found[4].values, found[4].id) == ((("c", "d"),), (3, 4), "a name")


def test_a_seed_draws_the_same_mutants_each_time(tmp_path) -> None:
    """Their ids are other ones in each session, and annotations are left as they are."""
    operators = ["core/AddNot", "core/ReplaceBinaryOperator_BitOr_Add", "core/NumberReplacer"]
    drawn = []
    for name in ("first", "second"):
        with contextlib.closing(sqlite3.connect(tmp_path / name)) as database, database:
            database.execute("CREATE TABLE work_items (job_id)")
            database.execute(
                "CREATE TABLE mutation_specs (job_id, module_path, start_pos_row, start_pos_col, "
                "operator_name, operator_args, occurrence)"
            )
            for row, operator in product(range(5), operators):
                job = f"{name}, {row}, {operator}" if name == "first" else f"{row}, {operator}"
                database.execute("INSERT INTO work_items VALUES (?)", [job])
                values = [job, "m.py", row, 0, operator, "{}", 0]
                database.execute("INSERT INTO mutation_specs VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        draw_mutants.draw(tmp_path / name, 4, seed=3)
        with contextlib.closing(sqlite3.connect(tmp_path / name)) as database:
            left = database.execute("SELECT start_pos_row, operator_name FROM mutation_specs")
            drawn.append(sorted(left))
            assert database.execute("SELECT count(*) FROM work_items").fetchone() == (4,)
    assert drawn[0] == drawn[1]
    assert not any("BitOr" in operator for _, operator in drawn[0])


def test_each_command_of_the_pages_names_a_marker_that_there_is() -> None:
    """`-m` with an unknown marker would leave nothing out."""
    config = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    known = set(re.findall(r"^    (\w+): ", config, re.MULTILINE))
    for page in ("CONTRIBUTING.md", ".ci/run", ".ci/installed"):
        text = (ROOT / page).read_text(encoding="utf-8")
        for words in re.findall(r'pytest[^\n]*? -m (?:"([^"]+)"|(\w+))', text):
            used = set(re.findall(r"\w+", "".join(words))) - {"not", "and", "or"}
            assert used <= known


def test_the_lines_that_install_and_test_are_the_same_everywhere() -> None:
    """In the README, in CONTRIBUTING and in CI, but for the options that choose other tests."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^ +(pip install .*) && (pytest .*)$", readme, re.MULTILINE)
    install, test = line
    for page in ("CONTRIBUTING.md", ".ci/run"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert install in text.replace("pip install -q", "pip install")
        commands = re.findall(r"pytest [^\n`]*--dist [^\n`|>]*?(?= 2>&1|`|$)", text, re.MULTILINE)
        assert commands
        for command in commands:
            assert re.sub(r" --(touched=main|exhaustive)\b", "", command) == test
