"""HostedCallback: the base of adapters of other frameworks' callbacks; `keep_opaque`.

A part of a foreign callback's state that is no plain data can be kept in checkpoints as a pickle,
if the user names it with `keep_opaque`.
"""

from __future__ import annotations

import pickle
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar
from weakref import WeakKeyDictionary

from trainer_hooks.callback import Callback
from trainer_hooks.callbacks import ProgressBar
from trainer_hooks.connector.registry import adapt_if_foreign
from trainer_hooks.errors import CheckpointStateError, UsageError
from trainer_hooks.hooks.spec import HOOKS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

_ADAPTER_CLASSES: WeakKeyDictionary[type, dict[tuple[type, ...], type]] = WeakKeyDictionary()
"""The adapter classes made for each foreign class, by the classes they derive from."""

_PICKLES_KEY = "trainer_hooks.opaque"
"""The key in a saved state under which the pickled parts are, as bytes by name."""


class HostedCallback(Callback):
    """Adapter that lets a callback of another framework take part in a run.

    An adapter derives from it, says in `translated` which function is called at which hook, and is
    registered in the entry-point group `trainer_hooks.adapters`. The class of each instance is made
    for the foreign callback's class and has its name, so that labels, reports and errors show the
    name that the user knows.

    Args:
        guest: the foreign callback.

    Attributes:
        guest: the foreign callback.
    """

    framework: ClassVar[str] = ""
    """The other framework's name, with which the `state_key` begins."""

    bases: ClassVar[frozenset[str]] = frozenset()
    """The framework's own base classes, as `package.module.Class`: their methods are empty."""

    translated_hooks: ClassVar[frozenset[str]] = frozenset(HOOKS)
    """The hooks for which the relay calls `translated(hook)` instead of the method of that name."""

    renews_stop: ClassVar[bool] = False
    """Also where the guest counts as a callback of ours that does: no guest knows of it."""

    opaque_names: frozenset[str] = frozenset()
    """Keys of the foreign state whose values are kept as pickles; see `keep_opaque`."""

    def __init__(self, guest: Any) -> None:
        self.guest = guest

    @classmethod
    def hosting(cls, guest: Any, *kinds: type[Callback]) -> Self:
        """Return an adapter of `guest`, whose class is made once for each foreign class.

        Args:
            guest: the foreign callback.
            kinds: classes that it counts as, such as `Checkpoint`; a default of such a class steps
                back.
        """
        classes = _ADAPTER_CLASSES.setdefault(type(guest), {})
        parents = (cls, *kinds)
        if parents not in classes:
            guest_class = type(guest)
            classes[parents] = type(
                guest_class.__name__,
                parents,
                {
                    "__module__": guest_class.__module__,
                    "__qualname__": guest_class.__qualname__,
                    "__doc__": f"Adapter of {guest_class.__qualname__} of {cls.framework}.",
                    "guest_class": guest_class,
                },
            )
        adapter: Self = classes[parents](guest)
        return adapter

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return the function that the relay calls at a hook of ours, or None; override it."""
        raise NotImplementedError(f"{type(self).__mro__[1].__qualname__} translates no {hook!r}")

    def guest_has(self, name: str) -> bool:
        """Return whether the foreign callback overrides a method, in its class or itself."""
        attributes = getattr(self.guest, "__dict__", {})
        # set on the object itself, as a test or another callback does; None takes the method away
        if name in attributes:
            return attributes[name] is not None
        for kind in type(self.guest).__mro__:
            # its methods do nothing, and all classes after it in the order are the framework's too
            if f"{kind.__module__}.{kind.__qualname__}" in self.bases:
                return False
            if name in vars(kind):
                return True
        return False

    def __getattr__(self, name: str) -> Any:
        # attributes of the foreign callback, such as `best_model_path` of a saver; not those of
        # Python's protocols, which would copy or pickle the adapter as if it were that callback
        guest = vars(self).get("guest")
        # hasattr() of the class: that of a callback of pytorch-accelerated would raise, as its own
        # __getattr__ raises an error that is no AttributeError
        if name.startswith("__") or not (
            name in getattr(guest, "__dict__", {}) or hasattr(type(guest), name)
        ):
            raise AttributeError(
                f"{type(self).__qualname__!r} object has no attribute {name!r}", name=name, obj=self
            )
        return getattr(guest, name)

    @property
    def state_key(self) -> str:
        """The framework, and the foreign callback's own key if it has one, else its class."""
        key = self.guest.state_key if self.guest_has("state_key") else type(self.guest).__qualname__
        return f"{self.framework}:{key}"

    @property
    def is_stateful(self) -> bool:
        """Whether the foreign callback has a state to save or load."""
        return self.guest_has("state_dict") or self.guest_has("load_state_dict")

    def guest_state(self) -> dict[str, Any]:
        """Return the foreign callback's state; override it where there is no `state_dict`."""
        state: dict[str, Any] = self.guest.state_dict()
        return state

    def load_guest_state(self, state: Any) -> None:
        """Restore the foreign callback's state; override it where there is no `load_state_dict`."""
        self.guest.load_state_dict(state)

    def state_dict(self) -> dict[str, Any]:
        """Return the foreign callback's state, with the parts that `keep_opaque` names as bytes."""
        state: dict[str, Any] = _pickle_parts(self.guest_state(), self.opaque_names)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the foreign callback's state.

        Raises:
            CheckpointStateError: parts of it are pickles that `keep_opaque` does not name.
        """
        owner = f"{self.framework} callback {type(self.guest).__qualname__}"
        self.load_guest_state(_unpickle_parts(state_dict, self.opaque_names, owner))

    def keeping_opaque_keys(self, hook: str, call: Callable[..., object]) -> Callable[..., object]:
        """Return the function to call at a hook that is handed a checkpoint, or `call` itself.

        The keys that `keep_opaque` names, and that the foreign callback puts into the checkpoint,
        are kept as pickles.

        Args:
            hook: the hook.
            call: the function to call at the hook.
        """
        if hook == "on_save_checkpoint" and self.opaque_names:
            return partial(self._save_keys, call)
        if hook == "on_load_checkpoint":
            return partial(self._load_keys, call)
        return call

    def _save_keys(
        self, call: Callable[..., object], trainer: Any, module: Any, checkpoint: dict[str, Any]
    ) -> None:
        before = set(checkpoint)
        call(trainer, module, checkpoint)
        names = sorted(self.opaque_names & (set(checkpoint) - before))
        if names:
            parts = {name: checkpoint.pop(name) for name in names}
            pickles = checkpoint.setdefault(_PICKLES_KEY, {})
            pickles[self.state_key] = _pickle_parts(parts, self.opaque_names)

    def _load_keys(
        self, call: Callable[..., object], trainer: Any, module: Any, checkpoint: dict[str, Any]
    ) -> None:
        pickles = checkpoint.get(_PICKLES_KEY)
        pickles = pickles.get(self.state_key) if isinstance(pickles, dict) else None
        if pickles is not None:
            owner = f"{self.framework} callback {type(self.guest).__qualname__}"
            checkpoint.update(_unpickle_parts(pickles, self.opaque_names, owner))
        call(trainer, module, checkpoint)

    @property
    def routes_events(self) -> bool:
        """Whether `run_event` is called: never, as `translated` decides."""
        return False

    def __reduce__(self) -> Any:
        """Copy and pickle the foreign callback, whose adapter is made anew."""
        # pickle looks a class up by name: for this one, made at run time, it finds the foreign one
        return _rebuild_adapter, (self.guest, self.opaque_names)

    def __repr__(self) -> str:
        """Show the foreign callback."""
        return f"<{self.framework} callback {self.guest!r}>"


_A = TypeVar("_A", bound=HostedCallback)


def ancestor_names(instance: object) -> tuple[str, ...]:
    """Return the names of an object's class and of its bases, as `package.module.Class`.

    Adapters compare names, so that no framework is imported to look.
    """
    return tuple(f"{kind.__module__}.{kind.__qualname__}" for kind in type(instance).__mro__)


def choose_adapter(
    callback: Any,
    default: type[_A],
    special: Mapping[str, type[_A]],
    counterparts: Mapping[str, type[Callback]],
    packages: Collection[str] = (),
) -> _A:
    """Return the adapter of a foreign callback, by the names of the classes it derives from.

    Args:
        callback: the foreign callback.
        default: the class of the adapter, unless there is a special one.
        special: the adapters of callbacks that need more, by class; the first that fits is taken.
        counterparts: the class of ours that a callback counts as, by class; a default of that class
            steps back.
        packages: prefixes to cut off the foreign names before they are compared, for a framework
            that is published under several.
    """
    names = set(ancestor_names(callback))
    for package in packages:
        # `lightning.pytorch` and `pytorch_lightning` have the same modules below them
        names |= {name.removeprefix(f"{package}.") for name in names}
    counts_as = [kind for name, kind in counterparts.items() if name in names]
    # in the order of the table, not of inheritance: a subclass needs its row before its base's
    adapters = (adapter for name, adapter in special.items() if name in names)
    return next(adapters, default).hosting(callback, *counts_as)


def _rebuild_adapter(callback: Any, opaque_names: frozenset[str]) -> Any:
    """Return the adapter of a foreign callback that was copied or unpickled."""
    adapter = adapt_if_foreign(callback)
    if opaque_names:
        adapter.opaque_names = opaque_names
    return adapter


class ForeignProgressBar(ProgressBar):
    """Mixin for adapters of progress bars: enabling and printing are the foreign callback's own."""

    guest: Any

    @property
    def is_enabled(self) -> bool:
        """Whether the foreign bar draws and prints for the trainer; one needs `print` for it."""
        # the class, as in HostedCallback.__getattr__; the bars of some frameworks have no `print`
        kind = type(self.guest)
        return hasattr(kind, "print") and (
            not hasattr(kind, "is_enabled") or bool(self.guest.is_enabled)
        )

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print without breaking the foreign callback's bar."""
        self.guest.print(*args, **kwargs)

    def enable(self) -> None:
        """Draw the foreign callback's bar from now on."""
        self.guest.enable()

    def disable(self) -> None:
        """Stop drawing the foreign callback's bar."""
        self.guest.disable()


# --- parts of a state that are pickled ---


def keep_opaque(callback: Any, *names: str) -> HostedCallback:
    """Return the adapter of a foreign callback that keeps parts of its state as pickles.

    Opening a pickle runs the code that it names. Whoever can write the checkpoint can run code
    where it is resumed, so do it only with files that you trust. Parts that are not named are plain
    data as ever, and a resume that names none of them opens none.

    Args:
        callback: the callback of another framework; pass the returned adapter to the Trainer in its
            place.
        names: the keys whose values are pickled: of its `state_dict()`, and those that it puts into
            the checkpoint itself in `on_save_checkpoint`.

    Raises:
        UsageError: the callback is no foreign one, no name is given, or its adapter keeps the state
            in a way of its own.

    Example::

        trainer = Trainer(callbacks=[keep_opaque(TheirCallback(), "history")])
    """
    adapter = adapt_if_foreign(callback)
    kind = type(adapter)
    if not isinstance(adapter, HostedCallback) or kind.state_dict is not HostedCallback.state_dict:
        raise UsageError(
            f"keep_opaque({kind.__qualname__}): it is for callbacks of other frameworks, whose "
            "adapter says what `guest_state` is. Return plain data from state_dict()."
        )
    if not names or not all(isinstance(name, str) for name in names):
        raise UsageError(
            f"keep_opaque({kind.__qualname__}, ...): names {names!r} must be keys of its state. "
            "Name those that are no plain data."
        )
    adapter.opaque_names = frozenset(names)
    return adapter


def _pickle_parts(state: Any, names: Collection[str]) -> Any:
    """Return a state with the named parts as pickles, under a key of their own.

    Args:
        state: the foreign callback's state.
        names: the keys of the parts.
    """
    if not names or not isinstance(state, dict):
        return state
    pickles = {name: pickle.dumps(state[name]) for name in state if name in names}
    plain = {name: value for name, value in state.items() if name not in pickles}
    return {**plain, _PICKLES_KEY: pickles} if pickles else plain


def _unpickle_parts(state: Any, names: Collection[str], owner: str) -> Any:
    """Return a state as it was before `_pickle_parts`.

    Args:
        state: the saved state.
        names: the keys of the parts that may be unpickled.
        owner: the framework and the foreign callback's class, for messages.

    Raises:
        CheckpointStateError: a part is a pickle and not named; no pickle is opened then.
    """
    pickles = state.get(_PICKLES_KEY) if isinstance(state, dict) else None
    if pickles is None:
        return state
    # the user decides, not the file: the names in it were chosen by whoever wrote it
    unnamed = sorted(set(pickles) - set(names))
    if unnamed:
        listed = ", ".join(map(repr, unnamed))
        raise CheckpointStateError(
            f"the checkpoint holds {listed} of the state of {owner} as a pickle, which was not "
            "opened: doing so runs whatever code it names. If you trust the file, pass "
            f"trainer_hooks.adapters.keep_opaque(callback, {listed}) to the Trainer; if not, "
            "resume without the callback."
        )
    plain = {name: value for name, value in state.items() if name != _PICKLES_KEY}
    return {**plain, **{name: pickle.loads(raw) for name, raw in pickles.items()}}
