"""BuiltInCallback: pytorch-accelerated's callback for classes that work by our hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from trainer_hooks import callback
from trainer_hooks._log import warn
from trainer_hooks.compat.accelerated.trainer_callback import EVENT_NAMES, TrainerCallback
from trainer_hooks.errors import TrainerHooksAdvice
from trainer_hooks.hooks.spec import HOOKS, is_empty_hook, mark_empty, overrides

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["built_in"]


class BuiltInCallback(TrainerCallback):
    """A callback of pytorch-accelerated's package, with both hooks and that system's events.

    Its work is in hooks of trainer_hooks. A subclass that overrides an event of `works_at` replaces
    the work of that event, as in pytorch-accelerated; `super()` does it all the same.

    Attributes:
        requested: the events whose work the subclass has asked for by `super()`, since they fired
            last.
    """

    translated_hooks: ClassVar[frozenset[str]] = frozenset(HOOKS)
    """Hooks for which `translated` returns the function to call."""

    works_at: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """The hooks in which the class does the work that an event does in pytorch-accelerated."""

    works_at_once: ClassVar[bool] = False
    """Whether `super()` does the work, by the first hook; otherwise the hooks do it, later on."""

    works_anyway_at: ClassVar[frozenset[str]] = frozenset()
    """Events whose work is done before they fire, so that a subclass cannot replace it."""

    _own_hooks: ClassVar[dict[str, Callable[..., object]]] = {}
    """The class's own hooks that have the name of an event, by name."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Advise where a subclass overrides an event of `works_anyway_at`."""
        super().__init_subclass__(**kwargs)
        for event in sorted(cls.works_anyway_at & vars(cls).keys()):
            if not is_empty_hook(vars(cls)[event]):
                base = next(kind for kind in cls.__mro__[1:] if "guest_class" in vars(kind))
                warn(
                    f"{cls.__qualname__}.{event} does not replace the work of {base.__name__}, "
                    "which is done in other hooks here. To replace it, derive the class from "
                    f"TrainerCallback, or override the hooks of {base.__name__}.",
                    TrainerHooksAdvice,
                )

    @property
    def requested(self) -> set[str]:
        """The events whose work was asked for by `super()`."""
        # not in __init__, which a subclass need not call
        contents: dict[str, Any] = self.__dict__
        return cast("set[str]", contents.setdefault("_requested", set()))

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return the function to call at a hook: that of the event, then the class's own."""
        event, own_hook = super().translated(hook), self._own_hook(hook)
        if event == own_hook:  # no event is at this hook
            event = None
        replaced = {name for name, hooks in self.works_at.items() if hook in hooks}
        replaced = {name for name in replaced if self._has_event(name)}
        if own_hook is not None and replaced:
            own_hook = None if self.works_at_once else self._if_requested(own_hook, replaced)
        if own_hook is None or event is None:
            return own_hook or event
        first, second = (event, own_hook) if replaced else (own_hook, event)

        def both(*args: Any) -> None:
            first(*args)
            second(*args)

        return both

    def _own_hook(self, hook: str) -> Callable[..., object] | None:
        if hook in self._own_hooks:
            method: Callable[..., object] = self._own_hooks[hook].__get__(self)
            return method
        is_own = overrides(self, hook) and hook not in EVENT_NAMES
        return getattr(self, hook) if is_own else None

    def _if_requested(self, hook: Callable[..., object], events: set[str]) -> Callable[..., None]:
        def call(*args: Any) -> None:
            if self.requested & events:
                hook(*args)

        return call

    def _event_method(self, name: str) -> Callable[..., object]:
        method = super()._event_method(name)
        if name not in self.works_at or self.works_at_once:
            return method

        def call(*args: Any, **kwargs: Any) -> None:
            self.requested.discard(name)
            method(*args, **kwargs)

        return call

    def _work(self, event: str, trainer: Any) -> None:
        """Do the work of an event, or have its hooks do it."""
        if not self.works_at_once:
            self.requested.add(event)
            return
        hook = self.works_at[event][0]
        own_hook = self._own_hook(hook)
        assert own_hook is not None  # the class has each hook of its table
        stage = (trainer.state.fn,) if hook.startswith("on_evaluation_run") else ()
        own_hook(trainer, trainer.module, *stage)


def _event_with_work(name: str) -> Callable[..., None]:
    def event(self: BuiltInCallback, trainer: Any, **_: Any) -> None:
        self._work(name, trainer)

    event.__name__ = name
    event.__doc__ = f"Do the work of the callback at `{name}`; override it to replace that."
    # as long as no subclass overrides it, the work is done in the class's own hooks
    return mark_empty(event)


K = TypeVar("K", bound="callback.Callback")


def built_in(
    kind: type[K],
    package: str = "",
    works_at: Mapping[str, tuple[str, ...]] | None = None,
    works_at_once: bool = False,
    works_anyway_at: Iterable[str] = (),
) -> type[K]:
    """Return a class of trainer_hooks as one of pytorch-accelerated's, a subclass of both.

    Args:
        kind: the class.
        package: the package in which it is found by the same name, if not in its own.
        works_at: the class's hooks that do what an event of pytorch-accelerated's class does; a
            subclass that overrides the event replaces them.
        works_at_once: whether `super()` there calls the first of these hooks; otherwise they are
            called at their moment, which must not be before the event's.
        works_anyway_at: events whose work cannot be replaced; a subclass is told so.
    """
    works_at = works_at or {}
    # a class that only adds to one of trainer_hooks has its name, and is found as that
    origin = kind if not kind.__name__.startswith("_") else kind.__mro__[1]
    own_hooks = {
        name: getattr(kind, name)
        for name in EVENT_NAMES & HOOKS.keys()
        if getattr(kind, name) is not getattr(callback.Callback, name)
    }
    contents = {
        "__module__": package or kind.__module__,
        "__doc__": kind.__doc__,
        # a search by name, as for a command line, finds the class of trainer_hooks
        "guest_class": origin,
        "_own_hooks": own_hooks,
        # a subclass that overrides such an event calls this one by super(), and not the hook
        **{name: getattr(TrainerCallback, name) for name in own_hooks},
        **{name: _event_with_work(name) for name in works_at},
        "works_at": works_at,
        "works_at_once": works_at_once,
        "works_anyway_at": frozenset(works_anyway_at),
    }
    return type(origin.__name__, (kind, BuiltInCallback), contents)
