"""Callback: one implementer of the hooks, with state that survives a resume."""

from __future__ import annotations

from functools import wraps
from inspect import isfunction
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import ref

from trainer_hooks._log import warn
from trainer_hooks.errors import CheckpointError, TrainerHooksWarning
from trainer_hooks.hooks import HOOKS, Band, Hooks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Callback"]

_PACKAGE = f"{__name__.partition('.')[0]}."


class Callback(Hooks):
    """Override the hooks you want; the others cost nothing.

    State: return it from `state_dict()` as plain data, arrays and tensors, take it back in
    `load_state_dict()`. It is kept in checkpoints under `state_key`.

    Where the form of the state changes, count `state_version` up and say how an older state becomes
    a present one; checkpoints that were saved before can then still be resumed from::

        class Counter(Callback):
            state_version = 2

            def upgrade_state_dict(self, state, from_version):
                return {"batches": state["count"]}  # version 1 called it "count"
    """

    band: ClassVar[Band] = Band.OBSERVE
    """When this callback takes its turn at a hook, relative to others."""

    runs_on: ClassVar[str] = "all"
    """In which of several processes it takes part: `"all"`, or `"rank_zero"`, the first alone. One
    of the latter asks (`request_checkpoint`, `stop`), and calls nothing that all must call."""

    on_error: str = "raise"
    """What an error in one of its hooks does: `"raise"` ends the run as any error does; `"disable"`
    reports it once, with its traceback, and takes the callback out. Read when a run begins."""

    state_version: int = 1
    """The version of what `state_dict` returns, from 1 on; it is kept beside the state."""

    volatile_state: ClassVar[frozenset[str]] = frozenset()
    """What may be another after a resume than without one, as a time, a cache or where this process
    began may: names of attributes (also of their parts, as `"bar.width"`), keys of the state, names
    of metrics and paths of files; `*` stands for anything. It is for those who compare, the
    author's test kit above all."""

    _module: Any = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith(_PACKAGE):
            for name in HOOKS.keys() & vars(cls).keys():
                method, spec = vars(cls)[name], HOOKS[name]
                # an empty one is put there to switch off that of a base class
                is_own = isfunction(method) and method is not spec.declared
                if is_own and spec.takes_module and not hasattr(method, "declared_hook"):
                    setattr(cls, name, _with_pl_module(method))

    @classmethod
    def __subclasses__(cls) -> list[type[Callback]]:
        """Return the classes that derive from this one and that somebody may name.

        One that is made for a foreign class, of which it has the name, is none.
        """
        return [kind for kind in type.__subclasses__(cls) if "guest_class" not in vars(kind)]

    def attach_module(self, module: Any) -> None:
        """Tell the callback which module's run it takes part in; the trainer calls this."""
        # not every subclass lets attributes be set
        object.__setattr__(self, "_module", None if module is None else ref(module))

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
        """Log a value as the module that is run would in its hook of the same name.

        Args and errors are those of `Module.log`; outside a run a warning says that it is dropped.
        """
        module = self._logs_through("log", name)
        if module is not None:
            module.log(
                name, value, prog_bar, logger, on_step, on_epoch, reduce_fx, enable_graph,
                sync_dist, sync_dist_group, add_dataloader_idx, batch_size, metric_attribute,
                rank_zero_only,
            )  # fmt: skip

    def log_dict(self, dictionary: Any, *args: Any, **kwargs: Any) -> None:
        """Log every item of a dict, or of a torchmetrics collection, as `Module.log_dict` does."""
        module = self._logs_through("log_dict", dictionary)
        if module is not None:
            module.log_dict(dictionary, *args, **kwargs)

    def _logs_through(self, method: str, what: object) -> Any:
        """Return the module of the run, or None with a warning outside of one."""
        module = None if self._module is None else self._module()
        if module is None:
            warn(
                f"{type(self).__qualname__}.{method}({what!r}) was called on a callback that takes "
                "part in no run: the value is dropped. Call it within fit, validate or test.",
                TrainerHooksWarning,
            )
        return module

    def __getstate__(self) -> Any:
        """Leave the run out of copies and pickles."""
        state = super().__getstate__()
        if isinstance(state, dict):
            return {key: value for key, value in state.items() if key != "_module"}
        return state

    @property
    def state_key(self) -> str:
        """The place of this callback's state in a checkpoint: the class's qualified name.

        Two instances of one class need two keys: return `self._generate_state_key(...)` with the
        arguments that tell them apart. Nothing in it may change between runs.
        """
        return type(self).__qualname__

    def _generate_state_key(self, **kwargs: Any) -> str:
        """Return a key such as `"Counter{'what': 'epochs'}"`."""
        return f"{type(self).__qualname__}{kwargs!r}"

    def state_dict(self) -> dict[str, Any]:
        """Return the state to save.

        It may hold numbers, texts, bytes, dates, times, paths, tensors, NumPy arrays and scalars,
        and lists, tuples, sets, dicts, deques, Counters and defaultdicts of those. What is attached
        to a tensor as an attribute is left out. Anything else, objects of your own and subclasses
        of these types too, is refused when a checkpoint is saved.
        """
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back what `state_dict` returned when the checkpoint was saved."""

    def former_state_key(
        self,
        keys: Sequence[str],  # noqa: ARG002 - for those that override it
    ) -> str | None:
        """Return under which key an older state of this callback is, if its key was another then.

        Called where a checkpoint has nothing under `state_key`.

        Args:
            keys: those of the checkpoint that belong to no present callback.
        """
        return None

    def upgrade_state_dict(
        self,
        state: dict[str, Any],  # noqa: ARG002 - for those that override it
        from_version: int,
    ) -> dict[str, Any]:
        """Return a state of an older version as the present `state_version` would save it.

        Called before `load_state_dict`, and before anything else is restored.

        Args:
            state: what `state_dict` returned then; a copy.
            from_version: the `state_version` of then.

        Raises:
            CheckpointError: unless it is overridden.
        """
        name = type(self).__qualname__
        raise CheckpointError(
            f"the state of {name} was saved by its state_version {from_version}, and it is "
            f"{self.state_version} here: {name} does not say how to upgrade it. Define "
            f"{name}.upgrade_state_dict(self, state, from_version), which returns the state as "
            "load_state_dict takes it now."
        )

    def run_event(self, event: str, *args: Any) -> None:
        """Receive every event in a subclass that overrides this: `event` is the hook's name.

        The named hooks are then the subclass's own to call; `super().run_event(event, *args)` calls
        the one that is named.

        Args:
            event: the name of a hook, or of an event that `trainer.call_event` was given.
            *args: the trainer, the module (None in the two init hooks, before there is one), and
                the hook's other arguments, or what `call_event` was given, in that order.
        """
        if event in HOOKS and not HOOKS[event].takes_module:
            args = args[:1]
        is_hook = event in HOOKS or event.startswith("on_")
        if is_hook or not hasattr(Callback, event):  # `state_dict`, say, is no event
            method = getattr(self, event, None)
            if method is not None:
                method(*(args if is_hook else args[2:]))

    @property
    def routes_events(self) -> bool:
        """Whether it receives every event through a `run_event` of its own."""
        return type(self).run_event is not Callback.run_event or "run_event" in vars(self)

    @property
    def is_stateful(self) -> bool:
        """Whether this callback has a state of its own to save or load."""
        return (
            type(self).state_dict is not Callback.state_dict
            or type(self).load_state_dict is not Callback.load_state_dict
            or not {"state_dict", "load_state_dict"}.isdisjoint(vars(self))
        )


def _with_pl_module(declared: Callable[..., None]) -> Callable[..., None]:
    """Return a hook of ours that takes the module by Lightning's keyword, too.

    So `super().on_fit_start(trainer=trainer, pl_module=pl_module)` does in a subclass. A run calls
    what is declared (`Member.listener`), so that this costs nothing there.
    """

    @wraps(declared)
    def hook(self: Callback, *args: Any, **kwargs: Any) -> None:
        if "pl_module" in kwargs:
            kwargs["module"] = kwargs.pop("pl_module")
        declared(self, *args, **kwargs)

    hook.__dict__["declared_hook"] = declared
    return hook


for _spec in HOOKS.values():
    if _spec.takes_module and _spec.declared is not None:
        _empty = _with_pl_module(_spec.declared)
        _empty.__dict__["is_empty_hook"] = True
        setattr(Callback, _spec.name, _empty)
