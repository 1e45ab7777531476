"""Where hooks stand in the loop, and the lines that show it."""

from __future__ import annotations

from trainer_hooks._text import Branch
from trainer_hooks.hooks.loop_tree import (
    FUNCTIONS,
    HookPosition,
    LoopBlock,
    positions_of,
    tree_branches,
)


def test_a_place_is_told_with_its_neighbours() -> None:
    """A place has the lines around it, and the hooks above and below; each place is told."""
    assert positions_of("on_close") == (HookPosition(("trainer.close()",), "", "on_post_close"),)
    first, *others = positions_of("on_validation_start")
    assert first.path == ("fit", "if there is a sanity check", "the validation loop")
    assert (first.above, first.below) == ("on_sanity_check_start", "on_epoch_start")
    assert [place.path[0] for place in others] == ["fit", "fit", "validate"]
    assert positions_of("on_lunch") == ()


def shown(block: LoopBlock) -> str:
    """Return a block as indented lines."""

    def lines(branch, depth=0):
        yield "  " * depth + branch.text
        for below in branch.branches:
            yield from lines(below, depth + 1)

    return "\n".join(lines(tree_branches([block])[0]))


def test_what_stands_twice_is_told_once() -> None:
    """A block that says so is shown in full where it first stands, and by name after that."""
    twice = LoopBlock("inner", ("setup",), is_shown_once=True)
    assert shown(LoopBlock("outer", (twice, "teardown", twice))) == (
        "outer\n  inner\n    setup\n  teardown\n  inner (as above)"
    )
    assert shown(FUNCTIONS["fit"]).count("on_validation_start") == 1
    assert shown(FUNCTIONS["validate"]).count("on_validation_start") == 1


def test_a_block_is_faint_where_all_its_hooks_are() -> None:
    """A block that holds one hook of interest is of interest too."""

    def leaf(hook):
        return Branch(hook, is_faint=hook != "setup")

    inner = LoopBlock("inner", ("teardown",), is_shown_once=True)
    (outer,) = tree_branches([LoopBlock("outer", (inner, "setup", inner))], leaf)
    assert [branch.is_faint for branch in outer.branches] == [True, False, True]
    assert not outer.is_faint
