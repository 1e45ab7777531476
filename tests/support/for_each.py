"""One test over a table of cases, which lists all that fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def for_each(cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Return a decorator that makes one test of a check without fixtures.

    In place of `pytest.mark.parametrize` where a case takes less time than pytest does around it.
    The test calls the check for each case, also after one has failed.

    Args:
        cases: the check's arguments: a tuple of them, or the only one.
    """
    table = list(cases)

    def decorate(check: Callable[..., None]) -> Callable[[], None]:
        def test() -> None:
            assert table, "there is no case"
            failed = []
            for case in table:
                try:
                    check(*(case if isinstance(case, tuple) else (case,)))
                except BaseException as error:
                    if isinstance(error, KeyboardInterrupt | SystemExit):
                        raise
                    failed.append(f"{case}: {type(error).__name__}: {error}")
            assert not failed, f"{len(failed)} of {len(table)} cases:\n" + "\n\n".join(failed)

        test.__name__, test.__doc__, test.__module__ = (
            check.__name__, check.__doc__, check.__module__,
        )  # fmt: skip
        return test

    return decorate
