"""RankReducer: of which names it says that a rank has not logged them."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import pytest

from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.metrics.rank_reduction import RankReducer, _Layout

METRIC = ({"call": {}, "suffix": "", "rank_zero_only": False}, False)


def told(*names_of_ranks: tuple[tuple[str, int], ...]) -> list[str]:
    """Let ranks agree on names, each with the index of its loader, and return the warnings."""
    gathered = [{("scope", loader, name): METRIC for name, loader in of} for of in names_of_ranks]
    reducer = RankReducer(SimpleNamespace(gather=lambda _: gathered))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TrainerHooksWarning)
        reducer._agree_on_names(_Layout(), {}, [])
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    "names_of_ranks",
    [
        ((("a", 0),), (("a", 0),)),
        ((("a", 0), ("b", 1)), (("a", 0),)),  # its shard of the second loader is empty
    ],
    ids=["alike", "an empty loader"],
)
def test_nothing_is_told_where_nothing_is_missing(names_of_ranks) -> None:
    """A name that all log is no news, nor is one of a loader for which a rank logs nothing."""
    assert told(*names_of_ranks) == []


def test_a_name_that_a_rank_has_not_logged_is_told() -> None:
    """It is named with the ranks that have it."""
    [message] = told((("a", 0), ("b", 0)), (("b", 0),))
    assert message.startswith("log('a') was called in rank 0 and not in the others")
