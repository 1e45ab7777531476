"""Callback: the base class of callbacks, with the hooks and a state that survives a resume."""

from __future__ import annotations

from functools import wraps
from inspect import isfunction
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import ref

from trainer_hooks._log import warn
from trainer_hooks._names import names_left_to_user, ours, own_property
from trainer_hooks.errors import (
    CallbackError,
    CheckpointError,
    TrainerHooksWarning,
    error_summary,
)
from trainer_hooks.hooks.band import Band
from trainer_hooks.hooks.catalogue import Hooks
from trainer_hooks.hooks.check import definition_clash
from trainer_hooks.hooks.spec import (
    ARGUMENT_ALIASES,
    HOOKS,
    declared_hook,
    is_empty_hook,
    mark_declared,
    mark_empty,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Callback"]

_PACKAGE = f"{__name__.partition('.')[0]}."


class Callback(Hooks):
    """Base class of callbacks: override the hooks you need; the others cost nothing.

    To keep a state in checkpoints, return it from `state_dict()` as plain data, arrays and tensors,
    and restore it in `load_state_dict()`. Checkpoints hold it under `state_key`.

    If the form of the state changes, increase `state_version` and convert an older state in
    `upgrade_state_dict`; older checkpoints can then still be resumed from::

        class Counter(Callback):
            state_version = 2

            def upgrade_state_dict(self, state, from_version):
                return {"batches": state["count"]}  # version 1 called it "count"
    """

    band: ClassVar[Band] = Band.OBSERVE
    """The section of the callback order in which this callback has its turn at a hook."""

    runs_on: ClassVar[str] = "all"
    """The ranks in which the callback takes part: `"all"`, or `"rank_zero"`, the first alone. On
    rank 0 alone it may make requests (`request_checkpoint`, `stop`), and must start no collective,
    for which the other ranks would have to be there."""

    on_error: str = "raise"
    """The error policy: with `"raise"` an error in a hook ends the run; with `"disable"` it is
    reported once, with its traceback, and the callback is removed. Read when a run begins."""

    state_version: int = 1
    """The version of the form of the state, from 1 on; checkpoints hold it beside the state."""

    renews_stop: ClassVar[bool] = False
    """Whether the callback decides itself, in `on_train_start` of a resumed run, about a stop that
    it had requested before the checkpoint was saved. If not, the resumed run stops as well."""

    needs_steps: ClassVar[bool] = False
    """Whether the callback runs the module's steps by itself, as a search for a learning rate does,
    or asks for the loaders before the first batch. It cannot take part in a `Run`, whose steps and
    loaders are in lines of the user's loop."""

    volatile_state: ClassVar[frozenset[str]] = frozenset()
    """The names of values that may differ after a resume from those of an uninterrupted run, as
    times and caches do: attributes (also nested ones, as `"bar.width"`), keys of the state, metrics
    and paths of files; `*` matches anything. Comparisons of runs, such as those of the test kit for
    callback authors, leave them out."""

    _run_module: Any = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # the users' own classes stay as they wrote them
        if cls.__module__.startswith(_PACKAGE):
            _accept_argument_aliases(cls)
            return
        # the Trainer checks hooks: an error here would end the import of a plugin whose other
        # callbacks work
        if clash := definition_clash(cls, OWN_NAMES.difference(HOOKS)):
            raise CallbackError(clash)

    @classmethod
    def __subclasses__(cls) -> list[type[Callback]]:
        """Return the subclasses, without those that an adapter makes for a foreign class.

        Such a class has the name of the foreign one, and a search by name must not return it.
        """
        return [kind for kind in type.__subclasses__(cls) if "guest_class" not in vars(kind)]

    def attach_module(self, module: Any) -> None:
        """Set the module of the run in which the callback takes part; the trainer calls this."""
        # a subclass may refuse attributes in its own `__setattr__`
        object.__setattr__(self, "_run_module", None if module is None else ref(module))

    def log(
        self,
        name: str,
        value: Any,
        prog_bar: bool = False,
        logger: bool | None = None,
        on_step: bool | None = None,
        on_epoch: bool | None = None,
        reduce_fx: Any = "mean",
        enable_graph: bool = False,
        sync_dist: bool = False,
        sync_dist_group: Any = None,
        add_dataloader_idx: bool = True,
        batch_size: int | None = None,
        metric_attribute: str | None = None,
        rank_zero_only: bool = False,
    ) -> None:
        """Log a value as the run's module would in its own hook of the same name.

        Arguments and errors are those of `Module.log`. Outside a run the value is dropped with a
        warning.
        """
        module = self._module_of_run("log", name)
        if module is not None:
            module.log(
                name, value, prog_bar, logger, on_step, on_epoch, reduce_fx, enable_graph,
                sync_dist, sync_dist_group, add_dataloader_idx, batch_size, metric_attribute,
                rank_zero_only,
            )  # fmt: skip

    def log_dict(self, dictionary: Any, *args: Any, **kwargs: Any) -> None:
        """Log every item of a dict, or of a torchmetrics collection, as `Module.log_dict` does."""
        module = self._module_of_run("log_dict", dictionary)
        if module is not None:
            module.log_dict(dictionary, *args, **kwargs)

    def _module_of_run(self, method: str, logged: object) -> Any:
        """Return the module of the run; outside a run warn and return None."""
        module = None if self._run_module is None else self._run_module()
        if module is None:
            warn(
                f"{type(self).__qualname__}.{method}({logged!r}) was called on a callback that "
                "takes part in no run: the value is dropped. Call it within fit, validate or test.",
                TrainerHooksWarning,
            )
        return module

    def __getstate__(self) -> Any:
        """Leave the reference to the run's module out of copies and pickles."""
        state = super().__getstate__()
        if isinstance(state, dict):
            return {key: value for key, value in state.items() if key != "_run_module"}
        return state

    @property
    def state_key(self) -> str:
        """The key of this callback's state in a checkpoint: the class's qualified name.

        Two instances of one class need two keys: return `self._generate_state_key(...)` with the
        arguments in which they differ. The key must be the same in every run.
        """
        return type(self).__qualname__

    def _generate_state_key(self, **kwargs: Any) -> str:
        """Return the class's name with arguments, such as `"Counter{'unit': 'epochs'}"`."""
        return f"{type(self).__qualname__}{kwargs!r}"

    def state_dict(self) -> dict[str, Any]:
        """Return the state to save.

        It may hold numbers, texts, bytes, dates, times, paths, tensors, NumPy arrays and scalars,
        and lists, tuples, sets, dicts, deques, Counters and defaultdicts of those. Attributes of
        tensors are left out. Anything else, objects of your own and subclasses of these types too,
        is an error when a checkpoint is saved.
        """
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned when the checkpoint was saved."""

    def former_state_key(
        self,
        keys: Sequence[str],  # noqa: ARG002 - for those that override it
    ) -> str | None:
        """Return the key of an older state of this callback, or None.

        Called when a checkpoint has nothing under `state_key`, as after that key was changed.

        Args:
            keys: the checkpoint's keys that belong to no present callback.
        """
        return None

    def upgrade_state_dict(
        self,
        state: dict[str, Any],  # noqa: ARG002 - for those that override it
        from_version: int,
    ) -> dict[str, Any]:
        """Return a state of an older version in the form of the present `state_version`.

        Called before `load_state_dict`, and before anything else is restored.

        Args:
            state: a copy of the saved state.
            from_version: the `state_version` with which it was saved.

        Raises:
            CheckpointError: unless it is overridden.
        """
        name = type(self).__qualname__
        raise CheckpointError(
            f"the state of {name} was saved by its state_version {from_version}, and it is "
            f"{ours(self).state_version} here: {name} does not say how to upgrade it. Define "
            f"{name}.upgrade_state_dict(self, state, from_version), which returns the state as "
            "load_state_dict takes it now."
        )

    def run_event(self, event: str, *args: Any) -> None:
        """Receive every event in a subclass that overrides this: `event` is the hook's name.

        The named hooks are then the subclass's own to call; `super().run_event(event, *args)` calls
        the one that is named.

        Args:
            event: the name of a hook, or of an event that `trainer.call_event` fires.
            *args: the trainer, the module (None in the two init hooks, which fire before there is
                one), and the other arguments of the hook or of `call_event`, in that order.
        """
        if event in HOOKS and not HOOKS[event].takes_module:
            args = args[:1]
        is_hook = event in HOOKS or event.startswith("on_")
        # an event named as any other method of a callback, such as `state_dict`, calls nothing
        if is_hook or not hasattr(Callback, event):
            method = getattr(self, event, None)
            if method is not None:
                method(*(args if is_hook else args[2:]))

    @own_property
    def routes_events(self) -> bool:
        """Whether it receives every event through a `run_event` of its own."""
        if "run_event" in names_left_to_user(type(self)):
            return False
        return type(self).run_event is not Callback.run_event or "run_event" in vars(self)

    @own_property
    def is_stateful(self) -> bool:
        """Whether this callback has a state of its own to save or load."""
        return any(defines_state_method(self, name) for name in ("state_dict", "load_state_dict"))


def defines_state_method(callback: Callback, name: str) -> bool:
    """Whether a callback, or its class, overrides `state_dict` or `load_state_dict`, by name."""
    return name in vars(callback) or getattr(type(callback), name) is not getattr(Callback, name)


def _accept_argument_aliases(kind: type) -> None:
    """Wrap the hooks that a class defines itself, so that they accept the aliases as keywords.

    The relay calls the method as it was written (`declared_hook`), so that a run pays for no
    wrapper.
    """
    for name in HOOKS.keys() & vars(kind).keys():
        method, spec = vars(kind)[name], HOOKS[name]
        # a class that switches off its base's hook does so with the catalogue's own empty method,
        # which must stay that very object: `overrides` compares by identity
        is_own = isfunction(method) and method is not spec.declared
        if is_own and spec.takes_module and declared_hook(method) is None:
            accepting = _accepting_aliases(method)
            setattr(kind, name, mark_empty(accepting) if is_empty_hook(method) else accepting)


def _accepting_aliases(declared: Callable[..., None]) -> Callable[..., None]:
    @wraps(declared)
    def hook(self: object, *args: Any, **kwargs: Any) -> None:
        for alias, name in ARGUMENT_ALIASES.items():
            if alias in kwargs:
                kwargs[name] = kwargs.pop(alias)
        try:
            declared(self, *args, **kwargs)
        # those of a trainer that lacks an attribute, or has something else under its name
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            wrong = _wrong_trainer(self, declared.__name__, args[0], error) if args else None
            if wrong is None:
                raise
            raise wrong from error

    return mark_declared(hook, declared)


def _wrong_trainer(
    callback: object, hook: str, trainer: Any, error: Exception
) -> CallbackError | None:
    """Return the error for a hook that another framework's trainer called; None if ours did.

    Args:
        callback: the callback.
        hook: the hook.
        trainer: the trainer that the hook was given.
        error: the hook's error, as of an attribute that the trainer lacks.
    """
    ancestry = type(trainer).__mro__
    other = next((kind for kind in ancestry if kind.__name__ == "Trainer"), None)
    is_ours = any(kind.__module__.startswith(_PACKAGE) for kind in ancestry)
    if other is None or is_ours:
        return None
    return CallbackError(
        f"the hook {hook} of {type(callback).__qualname__}, a callback of trainer_hooks, was "
        f"called by {other.__module__}.Trainer and failed: {error_summary(error)}. Import Trainer "
        "from where the callback comes from; or take the callback of that framework; or convert "
        "this one: trainer_hooks.adapters.to_lightning(callback), to_composer and so on."
    )


# the base class itself: `__init_subclass__` is not called for it
for _name, _spec in HOOKS.items():
    if _spec.takes_module and _spec.declared is not None:
        # another function than the catalogue's, so that `overrides` cannot know it by identity
        setattr(Callback, _name, mark_empty(_accepting_aliases(_spec.declared)))


OWN_NAMES = frozenset(name for name in dir(Callback) if name[0] != "_").difference(
    # Lightning's callbacks have these, and their signatures are checked when a Trainer is made
    ("state_key", "state_dict", "load_state_dict", "log", "log_dict", "run_event")
)
"""The public names that a callback of the user's cannot use for anything else."""
