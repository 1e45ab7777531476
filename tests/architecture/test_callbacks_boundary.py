"""How much of the built-in callbacks `compat` and `adapters` may use."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import trainer_hooks.callbacks

PACKAGE = Path(trainer_hooks.callbacks.__file__).parents[1]
FACE = "trainer_hooks.callbacks"
SHARED = {
    "averaging.running_average", "base", "device_statistics", "monitor_base", "monitored_metric",
    "saver_base",
}  # fmt: skip
"""The modules that say in their docstring that `compat` and `adapters` build on them."""

OFFERED = {
    "early_stopping": {"EarlyStoppingReason"},
    "finetuning": {"multiplicative"},
    "model_table": {"LayerSummary", "named_layers", "summarize", "unwrap_module"},
}
"""Names beside a callback that Lightning has in public, and `compat.lightning` offers."""


def imports_from_callbacks(path: Path) -> list[tuple[str, str]]:
    """The module below `trainer_hooks.callbacks` and the name of each import from there."""
    return [
        (node.module.removeprefix(FACE).removeprefix("."), alias.name)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{FACE}.")
        for alias in node.names
    ]


@pytest.mark.slow
@pytest.mark.parametrize("package", ["adapters", "compat"])
def test_only_public_and_shared_names_of_callbacks_are_used(package: str) -> None:
    """Packages for other frameworks use public callbacks and the shared modules, and no more."""
    private = [
        f"{path.relative_to(PACKAGE)}: {module}.{name}"
        for path in sorted((PACKAGE / package).rglob("*.py"))
        for module, name in imports_from_callbacks(path)
        if not (
            (not module and name in trainer_hooks.callbacks.__all__)
            or module in SHARED
            or name in OFFERED.get(module, ())
        )
    ]
    assert private == []


@pytest.mark.parametrize("module", sorted(SHARED))
def test_a_shared_module_says_so(module: str) -> None:
    """Who changes a shared module reads in its docstring who builds on it."""
    source = (PACKAGE / "callbacks" / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
    assert "compat" in (ast.get_docstring(ast.parse(source)) or "")
