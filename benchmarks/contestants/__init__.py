"""Who takes part. A contestant is a function `(batches, epochs, folder) -> trained model`."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["BASELINE", "CONTESTANTS", "OURS", "Contestant"]

BASELINE = "handwritten"
OURS = "trainer_hooks"


class Contestant(NamedTuple):
    """One row of the table of a case.

    Attributes:
        case: `bare`, `usual` or `rich`.
        name: its name in the table and for `--only`.
        target: `module:function` in this package.
        package: what has to be importable for it.
        distribution: whose version is reported.
    """

    case: str
    name: str
    target: str
    package: str = "torch"
    distribution: str = "torch"

    def __str__(self) -> str:
        return f"{self.case}/{self.name}"


_LIGHTNING = ("lightning", "lightning")

CONTESTANTS = (
    Contestant("bare", BASELINE, "handwritten:bare"),
    Contestant("bare", OURS, "trainer_hooks:bare", "trainer_hooks", "trainer-hooks"),
    Contestant("bare", f"{OURS}+unused", "trainer_hooks:unused", "trainer_hooks", "trainer-hooks"),
    Contestant("bare", f"{OURS}+one", "trainer_hooks:one", "trainer_hooks", "trainer-hooks"),
    Contestant("bare", f"{OURS}+Run", "trainer_hooks:own_loop", "trainer_hooks", "trainer-hooks"),
    Contestant("bare", "ignite", "ignite:bare", "ignite", "pytorch-ignite"),
    Contestant(
        "bare",
        "pytorch-accelerated",
        "pytorch_accelerated:bare",
        "pytorch_accelerated",
        "pytorch-accelerated",
    ),
    Contestant("bare", "lightning-barebones", "lightning:barebones", *_LIGHTNING),
    Contestant("bare", "lightning", "lightning:bare", *_LIGHTNING),
    Contestant("bare", "transformers", "transformers:bare", "transformers", "transformers"),
    Contestant("usual", BASELINE, "handwritten:usual"),
    Contestant("usual", OURS, "trainer_hooks:usual", "trainer_hooks", "trainer-hooks"),
    Contestant("usual", "lightning", "lightning:usual", *_LIGHTNING),
    Contestant("usual", "lightning-rare-bar", "lightning:usual_rare_bar", *_LIGHTNING),
    Contestant("rich", BASELINE, "handwritten:rich"),
    Contestant("rich", OURS, "trainer_hooks:rich", "trainer_hooks", "trainer-hooks"),
)
