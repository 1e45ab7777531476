"""HostedCallback: what an adapter of another framework's callback derives from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self
from weakref import WeakKeyDictionary

from trainer_hooks.adapters.opaque import opened, sealed
from trainer_hooks.callback import Callback
from trainer_hooks.connector import adopted
from trainer_hooks.hooks import HOOKS

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["HostedCallback"]

_MADE: WeakKeyDictionary[type, dict[tuple[type, ...], type]] = WeakKeyDictionary()
"""The adapter classes of each foreign class, by what they derive from."""


class HostedCallback(Callback):
    """Stand for a callback of another framework, the guest, in a run.

    An adapter derives from it, says in `translated` what is called at which hook, and is registered
    in the entry-point group `trainer_hooks.adapters`. The class of each instance is made for the
    guest's class and has its name, so that labels, reports and errors speak of the guest.

    Args:
        guest: the other framework's callback.
    """

    framework: ClassVar[str] = ""
    """The other framework; it stands before the `state_key`."""

    bases: ClassVar[frozenset[str]] = frozenset()
    """The framework's own base classes, as `package.module.Class`: their methods are empty."""

    translated_hooks: ClassVar[frozenset[str]] = frozenset(HOOKS)
    """All of them: a method of the guest is called where an adapter says so, and nowhere else."""

    opaque_names: frozenset[str] = frozenset()
    """The parts of the guest's state that are kept as pickles; see `keep_opaque`."""

    def __init__(self, guest: Any) -> None:
        self.guest = guest

    @classmethod
    def hosting(cls, guest: Any, *kinds: type[Callback]) -> Self:
        """Return an adapter of `guest`, of a class that is made once for the guest's class.

        Args:
            guest: the other framework's callback.
            kinds: what it counts as, such as `Checkpoint`; a default of that kind steps back.
        """
        made = _MADE.setdefault(type(guest), {})
        bases = (cls, *kinds)
        if bases not in made:
            kind = type(guest)
            made[bases] = type(
                kind.__name__,
                bases,
                {
                    "__module__": kind.__module__,
                    "__qualname__": kind.__qualname__,
                    "__doc__": f"{kind.__qualname__} of {cls.framework}, as a guest.",
                    "guest_class": kind,
                },
            )
        adapter: Self = made[bases](guest)
        return adapter

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return what is called at a hook of trainer_hooks, or None; override it."""
        raise NotImplementedError(f"{type(self).__mro__[1].__qualname__} translates no {hook!r}")

    def guest_has(self, name: str) -> bool:
        """Return whether the guest has a method that is not the framework's empty one."""
        own = getattr(self.guest, "__dict__", {})
        if name in own:
            return own[name] is not None
        for kind in type(self.guest).__mro__:
            if f"{kind.__module__}.{kind.__qualname__}" in self.bases:
                return False
            if name in vars(kind):
                return True
        return False

    def __getattr__(self, name: str) -> Any:
        # what else a guest has, such as `best_model_path` of a saver
        guest = vars(self).get("guest")
        if name.startswith("__") or not (
            name in getattr(guest, "__dict__", {}) or hasattr(type(guest), name)
        ):
            raise AttributeError(
                f"{type(self).__qualname__!r} object has no attribute {name!r}", name=name, obj=self
            )
        return getattr(guest, name)

    @property
    def state_key(self) -> str:
        """The framework, and the guest's own key if it has one, else its class."""
        own = self.guest.state_key if self.guest_has("state_key") else type(self.guest).__qualname__
        return f"{self.framework}:{own}"

    @property
    def is_stateful(self) -> bool:
        """Whether the guest has a state to save or load."""
        return self.guest_has("state_dict") or self.guest_has("load_state_dict")

    def guest_state(self) -> dict[str, Any]:
        """Return the guest's state; override it where the guest has none of its own."""
        state: dict[str, Any] = self.guest.state_dict()
        return state

    def load_guest_state(self, state: Any) -> None:
        """Hand the guest its state back; override it likewise."""
        self.guest.load_state_dict(state)

    def state_dict(self) -> dict[str, Any]:
        """Return the guest's state, with the parts that `keep_opaque` names as bytes."""
        state: dict[str, Any] = sealed(self.guest_state(), self.opaque_names)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Hand the guest its state back.

        Raises:
            CheckpointStateError: parts of it are pickles that are not named.
        """
        owner = f"{self.framework} callback {type(self.guest).__qualname__}"
        self.load_guest_state(opened(state_dict, self.opaque_names, owner))

    @property
    def routes_events(self) -> bool:
        """Never: `translated` says what is called."""
        return False

    def __reduce__(self) -> Any:
        """Copy and pickle the guest, whose adapter is made anew."""
        return _again, (self.guest, self.opaque_names)

    def __repr__(self) -> str:
        """Show the guest."""
        return f"<{self.framework} callback {self.guest!r}>"


def _again(guest: Any, opaque_names: frozenset[str]) -> Any:
    """Return the adapter of a guest that was copied."""
    adapter = adopted(guest)
    if opaque_names:
        adapter.opaque_names = opaque_names
    return adapter
