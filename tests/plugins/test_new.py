"""`trainer-hooks plugins new`, out of the wheel of trainer_hooks, up to the new package's tests."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
import warm_python

ROOT = Path(__file__).parents[2]
OFFLINE = ["--disable-pip-version-check", "--quiet", "--no-deps", "--no-index"]
RULES = "A,ARG001,B,BLE,C4,D,E,ERA,F,FA,I,N,PT,PTH,RET,RUF,SIM,SLF,TC,TRY,UP,W"


def run(*command: object, cwd: Path, path: str = "") -> str:
    """Run Python with those arguments; return what it printed."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("TRAINER_HOOKS_")}
    done = warm_python.run(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        env={**environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build_and_install(project: Path, target: Path) -> None:
    wheels = project / "dist"
    run("-m", "pip", "wheel", *OFFLINE, "--no-build-isolation", "-w", wheels, ".", cwd=project)
    [wheel] = wheels.glob("*.whl")
    run("-m", "pip", "install", *OFFLINE, "--no-compile", "--target", target, wheel, cwd=project)


@dataclass
class Shipped:
    """trainer_hooks as it is shipped, and a plugin that its command wrote.

    Attributes:
        site: the folder with trainer_hooks, from its wheel.
        project: the plugin's project.
        target: the folder with the plugin, from its wheel.
    """

    site: Path
    project: Path
    target: Path


@pytest.fixture(scope="session")
def shipped(once) -> Shipped:
    """The packages, built once for all workers of pytest."""

    def build(folder: Path) -> dict[str, str]:
        source = folder / "source"
        leftovers = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "trainer_hooks", source / "trainer_hooks", ignore=leftovers)
        for name in ("pyproject.toml", "setup.cfg", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, source)
        site, target, copied = folder / "site", folder / "plugin", folder / "copied"
        build_and_install(source, site)
        new = ["-m", "trainer_hooks", "plugins", "new", "Acme.Sample-Rate"]
        run(*new, cwd=folder, path=str(site))
        project = folder / "Acme.Sample-Rate"
        shutil.copytree(project, copied)
        build_and_install(copied, target)
        return {"site": str(site), "project": str(project), "target": str(target)}

    return Shipped(**{name: Path(path) for name, path in once("shipped", build).items()})


@pytest.mark.exhaustive  # builds two wheels and trains in the package's tests
def test_it_installs_and_passes_its_own_tests(shipped: Shipped, tmp_path: Path) -> None:
    """Built into a wheel and installed, it is found, and its tests pass, the contract included."""
    target, copied = shipped.target, tmp_path / "project"
    shutil.copytree(shipped.project, copied)
    assert (target / "acme_sample_rate" / "py.typed").exists()
    path = os.pathsep.join([str(target), str(shipped.site)])
    told = run("-m", "trainer_hooks", "plugins", "list", cwd=tmp_path, path=path)
    assert "callback AcmeSampleRateCallback, state_key 'AcmeSampleRateCallback'" in told
    options = ["-q", "-W", "error", "-p", "no:cacheprovider"]
    told = run("-m", "pytest", *options, copied / "tests", cwd=copied, path=path)
    assert "3 passed" in told


FRAMEWORKS = {
    "in_lightning": "pytorch_lightning", "in_accelerated": "pytorch_accelerated",
    "in_composer": "composer", "in_transformers": "transformers",
}  # fmt: skip
STAND_INS = ROOT / "tests" / "adapters" / "composer" / "stand_ins"
"""For torchvision, which Composer imports for models of its own alone."""


@pytest.mark.exhaustive  # trains in four other trainers
def test_it_passes_the_check_in_the_other_trainers(shipped: Shipped, tmp_path: Path) -> None:
    """`plugins check --everywhere` finds nothing in any trainer that is installed."""
    # its own tests have run the other checks
    left_out = [f"--skip={name}" for name in ("orders", "resumes", "costs", "refits")]
    told = run(
        *("-m", "trainer_hooks", "plugins", "check", "Acme.Sample-Rate", "--everywhere", "--json"),
        *left_out,
        cwd=tmp_path,
        path=os.pathsep.join(map(str, (shipped.target, shipped.site, STAND_INS))),
    )
    [record] = json.loads(told)
    outcomes = {result["name"]: result["outcome"] for result in record["results"]}
    assert {name: outcomes[name] for name in FRAMEWORKS} == {
        name: "passed" if find_spec(package) is not None else "skipped"
        for name, package in FRAMEWORKS.items()
    }


@pytest.mark.slow
def test_it_is_clean(shipped: Shipped) -> None:
    """What is written keeps ruff's default format and a long list of its rules."""
    ruff = ["-m", "ruff"]
    run(*ruff, "format", "--isolated", "--no-cache", "--check", ".", cwd=shipped.project)
    google = 'lint.pydocstyle.convention="google"'
    rules = ["--select", RULES, "--ignore", "D105,D107", "--config", google]
    run(*ruff, "check", "--isolated", "--no-cache", *rules, ".", cwd=shipped.project)
