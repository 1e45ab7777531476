"""The pages of the programs in examples/, each made from its file."""

from __future__ import annotations

import ast
from pathlib import Path

__all__ = ["example_pages"]

_EXAMPLES = Path(__file__).parents[1] / "examples"
_NOTE = "<!-- made by docs/generate.py from the programs in examples/: do not edit -->"
_ORDER = (
    "image_classifier", "tabular", "finetune_transformer", "finetune_lora", "gradual_unfreezing",
    "language_model", "gan", "policy_gradient", "streaming", "sweep", "plugin", "slurm",
    "ray_train",
)  # fmt: skip
_INTRODUCTION = """# Examples

Whole programs, on data that packages ship or that the program makes. Each runs on the CPU in
seconds; `--help` shows its options. Kill one and start it again by the same command: it goes on
where it was, and ends with the same weights. The tests do that with each of them."""


def example_pages() -> dict[str, str]:
    """Return the index and the page of each program, by their path below docs/.

    Raises:
        ValueError: a program is not in the order of the index.
    """
    if {path.stem for path in _EXAMPLES.glob("*.py")} != set(_ORDER):
        raise ValueError("docs/example_pages.py: _ORDER must name each program of examples/.")
    pages, rows = {}, []
    for name in _ORDER:
        text = (_EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
        title, _, body = (ast.get_docstring(ast.parse(text)) or "").partition("\n\n")
        code = text.partition('"""\n')[2].strip()  # after the docstring
        pages[f"examples/{name}.md"] = (
            f"# {title.rstrip('.')}\n\n{_NOTE}\n\n{body}\n\n"
            f"```sh\npython examples/{name}.py\n```\n\n```python\n{code}\n```\n"
        )
        rows.append(f"| [{title.rstrip('.')}]({name}.md) | `examples/{name}.py` |")
    index = [_INTRODUCTION, "", _NOTE, "", "| program | file |", "|---|---|", *rows, ""]
    index += ["```{toctree}", ":hidden:", "", *_ORDER, "```", ""]
    return {"examples/index.md": "\n".join(index), **pages}
