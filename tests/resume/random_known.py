"""What random configurations are known to find, and how they keep away from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from random_space import SPACE, Options, fitting

if TYPE_CHECKING:
    from collections.abc import Callable

# What is known to go wrong, by number, and why. It is drawn again once its line is taken out.
KNOWN: dict[int, str] = {
    1: "the copy of another framework's averaging callback does not keep non-persistent buffers",
}


# For each number: whether a configuration comes by it, and the options that are made simplest then.
AROUND: dict[int, tuple[Callable[[Options], object], tuple[str, ...]]] = {
    1: (lambda o: o["guest"].endswith("average"), ("memory",)),
}


def allowed(options: Options) -> Options:
    """Return options that go together, without what is known to go wrong."""
    fit = fitting(options)
    for number in KNOWN.keys() & AROUND.keys():
        is_hit, names = AROUND[number]
        if is_hit(fit):
            fit.update({name: SPACE[name][0] for name in names})
    return fitting(fit)
