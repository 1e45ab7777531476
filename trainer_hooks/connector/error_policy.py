"""ErrorPolicies: the effect of a callback's error, and the callbacks that one has disabled."""

from __future__ import annotations

import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer_hooks._names import ours
from trainer_hooks.errors import StopTraining, add_note, error_summary, is_interruption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from trainer_hooks.connector.registry import CallbackEntry


@dataclass(frozen=True, slots=True)
class CallbackReport:
    """The status of a callback in a run.

    Attributes:
        name: qualified name of the callback's class.
        state_key: key of its state in checkpoints.
        supplier: who supplied it, in words.
        band: name of its band, as in `"OBSERVE"`.
        on_error: its error policy, `"raise"` or `"disable"`.
        is_active: whether it takes part; else it was disabled.
        hook: the hook or method that failed, if it was disabled.
        error: type and message of the error, if it was disabled.
        traceback: traceback of the error, if it was disabled.
        state: whether its state is kept in checkpoints, in words, if it was disabled.
    """

    name: str
    state_key: str
    supplier: str
    band: str
    on_error: str
    is_active: bool = True
    hook: str = ""
    error: str = ""
    traceback: str = ""
    state: str = ""


class ErrorPolicies:
    """The error policy of each callback, and the reports and states of the disabled callbacks.

    Args:
        policies: the user's choices: `"raise"` or `"disable"` by state_key or class name.

    Attributes:
        states: the last states of the disabled callbacks by state_key.
        state_versions: the versions of those states by state_key.
    """

    def __init__(
        self,
        policies: Mapping[str, str],
        disable: Callable[[CallbackEntry, str, BaseException], None],
    ) -> None:
        self._policies, self._disable = policies, disable
        self._reports: list[CallbackReport] = []
        self.states: dict[str, dict[str, Any]] = {}
        self.state_versions: dict[str, int] = {}
        self._loaded: dict[str, tuple[dict[str, Any], int]] = {}

    def policy_of(self, entry: CallbackEntry) -> str:
        """Return a callback's error policy: the user's choice, or else the callback's own."""
        # the state_key comes first, as it tells two instances of one class apart
        for name in entry.names:
            if name in self._policies:
                return self._policies[name]
        policy: str = ours(entry.callback).on_error
        return policy

    def unmatched(self, entries: Iterable[CallbackEntry]) -> list[str]:
        """Return the names in the user's choices that no callback has, present or disabled."""
        names = {name for entry in entries for name in entry.names}
        # a callback that was disabled in an earlier run is gone, but its name was no mistake
        names.update(name for r in self._reports for name in (r.state_key, r.name))
        return [name for name in self._policies if name not in names]

    @contextmanager
    def handling_errors(self, entry: CallbackEntry, method: str) -> Iterator[None]:
        """Apply a callback's error policy to a call of its `method`, which is no hook.

        Args:
            entry: the callback.
            method: the method's name.

        Raises:
            BaseException: the error, with a note, if the policy is `"raise"`.
        """
        try:
            yield
        except BaseException as error:
            # requests, to which no error policy applies
            if isinstance(error, StopTraining) or is_interruption(error):
                raise
            if self.policy_of(entry) == "disable":
                # a return from a generator after an error suppresses it in the `with` statement
                self._disable(entry, method, error)
                return
            add_note(error, f"raised by {method}() of {entry.label}")
            raise

    def note_loaded(self, entry: CallbackEntry, state: dict[str, Any], version: int) -> None:
        """Keep a state that a callback loads, in case it is disabled and cannot return a state."""
        # otherwise nobody reads it, and a large state would stay in memory
        if self.policy_of(entry) == "disable":
            self._loaded[entry.callback.state_key] = (state, version)

    def note_disabled(
        self, entry: CallbackEntry, hook: str, error: BaseException
    ) -> CallbackReport:
        """Keep the last state of a disabled callback; add and return a report on it."""
        report = CallbackReport(
            name=type(entry.callback).__qualname__,
            state_key=entry.callback.state_key,
            supplier=entry.supplier,
            band=entry.band.name,
            on_error="disable",
            is_active=False,
            hook=hook,
            # as texts: an error keeps its frames alive, with the batches and tensors in them
            error=error_summary(error),
            traceback=_traceback_of(error),
            state=self._keep_state(entry, hook),
        )
        self._reports.append(report)
        return report

    def reports(self, entries: Iterable[CallbackEntry]) -> tuple[CallbackReport, ...]:
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

    def _keep_state(self, entry: CallbackEntry, hook: str) -> str:
        """Keep a disabled callback's last state; return in words whether there is one."""
        if not entry.is_stateful:
            return "it has none"
        key = entry.callback.state_key
        if hook not in ("state_dict", "load_state_dict", "upgrade_state_dict"):
            # now, and not at the next save: nothing calls the callback from here on
            try:
                self.states[key] = entry.callback.state_dict()
                self.state_versions[key] = entry.state_version
            except BaseException as error:  # it is broken already; the report says why
                if is_interruption(error):
                    raise
                reason = f"state_dict() failed too, with {error_summary(error)}"
            else:
                return "its last state is kept in checkpoints"
        else:
            reason = f"{hook}() is what failed"
        if key in self._loaded:
            self.states[key], self.state_versions[key] = self._loaded[key]
            return f"the state that it was given on the resume is kept in checkpoints: {reason}"
        return f"its state is lost: {reason}"


def _traceback_of(error: BaseException) -> str:
    """Return an error's traceback as Python prints it; without its notes where those fail."""
    try:
        return "".join(traceback.format_exception(error))
    except BaseException as another:  # reading the error's attributes may fail in any way
        if is_interruption(another):
            raise
        return "".join([*traceback.format_tb(error.__traceback__), error_summary(error)])
