"""Failures: what an error of a callback does, and which callbacks were disabled by one."""

from __future__ import annotations

import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from trainer_hooks.connector.reports import CallbackReport
from trainer_hooks.connector.state_versions import current_version
from trainer_hooks.errors import StopTraining, add_note, described

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from trainer_hooks.connector.roster import Entry

__all__ = ["Failures"]


class Failures:
    """Decide on errors of callbacks, and keep the books on those that were disabled.

    Args:
        policies: `"raise"` or `"disable"` by state_key or class name; what the user decided.
    """

    def __init__(self, policies: Mapping[str, str]) -> None:
        self._policies = policies
        self._reports: list[CallbackReport] = []
        self._states: dict[str, dict[str, Any]] = {}
        self._versions: dict[str, int] = {}
        self._loaded: dict[str, tuple[dict[str, Any], int]] = {}

    def policy_of(self, entry: Entry) -> str:
        """Return what an error of a callback does: as the user says, or else the callback."""
        for name in entry.names:
            if name in self._policies:
                return self._policies[name]
        return entry.callback.on_error

    def unmatched(self, entries: Iterable[Entry]) -> list[str]:
        """Return the names that the user decided on and no callback has, present or disabled."""
        known = {name for entry in entries for name in entry.names}
        known.update(name for r in self._reports for name in (r.state_key, r.name))
        return [name for name in self._policies if name not in known]

    @contextmanager
    def held_back(
        self, entry: Entry, method: str, disable: Callable[[Entry, str, Exception], None]
    ) -> Iterator[None]:
        """Treat an error of a callback's `method`, which is no hook, like one of a hook.

        Raises:
            Exception: the error, with a note, unless the callback is to be disabled.
        """
        try:
            yield
        except StopTraining:
            raise
        except Exception as error:
            if self.policy_of(entry) == "disable":
                disable(entry, method, error)
                return
            add_note(error, f"raised by {method}() of {entry.label}")
            raise

    def note_loaded(self, entry: Entry, state: dict[str, Any], version: int) -> None:
        """Keep what a callback is given, in case that it cannot give a state itself later."""
        if self.policy_of(entry) == "disable":
            self._loaded[entry.callback.state_key] = (state, version)

    def note_disabled(self, entry: Entry, hook: str, error: Exception) -> CallbackReport:
        """Write down that a callback was disabled, and keep its last state."""
        report = CallbackReport(
            name=type(entry.callback).__qualname__,
            state_key=entry.callback.state_key,
            supplier=entry.supplier,
            band=entry.band.name,
            on_error="disable",
            is_active=False,
            hook=hook,
            error=described(error),
            traceback=_traceback_of(error),
            state=self._keep_state(entry, hook),
        )
        self._reports.append(report)
        return report

    def states(self) -> dict[str, dict[str, Any]]:
        """Return the last states of the disabled callbacks by state_key."""
        return dict(self._states)

    def state_versions(self) -> dict[str, int]:
        """Return the versions of those states."""
        return dict(self._versions)

    def reports(self, entries: Iterable[Entry]) -> tuple[CallbackReport, ...]:
        """Return a report on each callback: those that take part, then the disabled ones."""
        active = [
            CallbackReport(
                name=type(entry.callback).__qualname__,
                state_key=entry.callback.state_key,
                supplier=entry.supplier,
                band=entry.band.name,
                on_error=self.policy_of(entry),
            )
            for entry in entries
        ]
        return (*active, *self._reports)

    def _keep_state(self, entry: Entry, hook: str) -> str:
        """Keep a disabled callback's last state; return what became of it, in words."""
        if not entry.callback.is_stateful:
            return "it has none"
        key = entry.callback.state_key
        if hook not in ("state_dict", "load_state_dict", "upgrade_state_dict"):
            try:
                self._states[key] = entry.callback.state_dict()
                self._versions[key] = current_version(entry)
            except Exception as error:  # noqa: BLE001 - it is broken already; told in the report
                reason = f"state_dict() failed too, with {described(error)}"
            else:
                return "its last state is kept in checkpoints"
        else:
            reason = f"{hook}() is what failed"
        if key in self._loaded:
            self._states[key], self._versions[key] = self._loaded[key]
            return f"the state that it was given on the resume is kept in checkpoints: {reason}"
        return f"its state is lost: {reason}"


def _traceback_of(error: Exception) -> str:
    """Return an error's traceback as Python prints it; without its notes where those fail."""
    try:
        return "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - an error whose attributes fail, in any way
        return "".join([*traceback.format_tb(error.__traceback__), described(error)])
