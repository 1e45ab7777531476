"""What a run says of its callbacks: how they fared, and what a restore of their states found."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CallbackReport", "LoadReport"]


@dataclass(frozen=True, slots=True)
class CallbackReport:
    """How a callback fares.

    Attributes:
        name: its class's qualified name.
        state_key: where its state is kept.
        supplier: who supplied it, in words.
        band: its band's name, as in `"OBSERVE"`.
        on_error: what an error of it does: `"raise"` or `"disable"`.
        is_active: whether it takes part; else it was disabled.
        hook: the hook or method that failed, if it was disabled.
        error: the error's type and message, likewise.
        traceback: the error's traceback, likewise.
        state: what becomes of its state, likewise.
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


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a restore of callback states found.

    Attributes:
        restored: state_keys whose state was handed to a callback.
        missing: state_keys of stateful callbacks for which the checkpoint holds nothing.
        unexpected: state_keys in the checkpoint for which there is no callback.
        plugins: plugins that the checkpoint was saved with and that are gone or have another
            version now, in words.
        upgraded: states that an older version of their callback had saved, in words.
    """

    restored: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    upgraded: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The differences in one sentence, or an empty string if there are none."""
        parts = []
        if self.missing:
            parts.append(f"no state for {', '.join(map(repr, self.missing))}")
        if self.unexpected:
            parts.append(f"state without a callback: {', '.join(map(repr, self.unexpected))}")
        parts.extend(self.plugins)
        return "; ".join(parts)
