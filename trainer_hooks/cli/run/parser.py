"""TrainerParser: jsonargparse's parser, with what a training takes."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import jsonargparse
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from trainer_hooks.trainer.options import TrainerConfig, option_docs

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

    from trainer_hooks.trainer import Trainer

__all__ = ["AUTOMATIC", "Made", "TrainerParser"]

AUTOMATIC = "AUTOMATIC"
"""Where an optimizer goes that no argument of the module is linked to: `configure_optimizers`."""


@dataclass(frozen=True, slots=True)
class Made:
    """An optimizer or a scheduler among the arguments.

    Attributes:
        kinds: the class, or those of which it is a subclass.
        is_open: whether any subclass may be given, by its class path.
        link_to: the argument that it is given to, or `AUTOMATIC`.
    """

    kinds: tuple[type, ...]
    is_open: bool
    link_to: str

    def with_class_path(self, values: Any) -> dict[str, Any]:
        """Return class path and arguments."""
        plain: dict[str, Any] = values.as_dict() if hasattr(values, "as_dict") else values
        if self.is_open:
            return plain
        kind = self.kinds[0]
        return {"class_path": f"{kind.__module__}.{kind.__qualname__}", "init_args": plain}


class TrainerParser(jsonargparse.ArgumentParser):
    """Parse what a training takes; it is what the hooks of a `TrainerCLI` are given.

    All of `jsonargparse.ArgumentParser` is there, `link_arguments` and `set_defaults` too.

    Attributes:
        callback_keys: the groups of arguments whose object becomes a callback of the Trainer.
        optimizers: what `add_optimizer_args` added, by key.
        lr_schedulers: what `add_lr_scheduler_args` added, by key.
        method_arguments: the options of the command that go to the Trainer's method.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("allow_abbrev", False)  # a misspelt option would pass for another
        kwargs.setdefault("exit_on_error", False)
        super().__init__(*args, **kwargs)
        self.callback_keys: list[str] = []
        self.optimizers: dict[str, Made] = {}
        self.lr_schedulers: dict[str, Made] = {}
        self.method_arguments: list[str] = []

    @property
    def argument_keys(self) -> frozenset[str]:
        """The keys of all arguments."""
        return frozenset(action.dest for action in self._actions)

    def is_open(self, key: str) -> bool:
        """Return whether a class is given under a key by its class path."""
        return f"{key}.help" in self.argument_keys

    def require_no(self, key: str, name: str) -> None:
        """Let what is given under a key leave out an argument that its class requires."""
        for action in self._actions:
            if action.dest == key and hasattr(action, "sub_add_kwargs"):
                action.sub_add_kwargs.setdefault("linked_targets", set()).add(name)

    def takes(self, key: str, name: str) -> bool:
        """Return whether a class, by short name or class path, may be given under a key."""
        return self.class_of(key, name) is not None

    def class_of(self, key: str, name: str) -> type | None:
        """Return the class of a short name or class path under a key; None if there is none."""
        home, _, last = name.rpartition(".")
        bases = tuple(self._bases(key))
        if not home:
            return next((k for base in bases for k in _below(base) if k.__name__ == name), None)
        try:
            kind = getattr(importlib.import_module(home), last, None)
        except ImportError:
            return None
        return kind if isinstance(kind, type) and issubclass(kind, bases) else None

    def class_names(self, key: str) -> list[str]:
        """Return the short names of the classes that may be given under a key."""
        return sorted({kind.__name__ for base in self._bases(key) for kind in _below(base)})

    def complete_class_names(self) -> None:
        """Let a shell complete short names where classes may stand."""
        for action in self._actions:
            if self.is_open(action.dest):
                names = self.class_names(action.dest)
                action.completer = lambda names=names, **_: names  # type: ignore[attr-defined]

    def _bases(self, key: str) -> list[type]:
        action = next((a for a in self._actions if a.dest == f"{key}.help"), None)
        return [] if action is None else _classes_in(getattr(action, "_typehint", None))

    def add_trainer_args(self, trainer_class: type[Trainer], key: str = "trainer") -> None:
        """Add the options of the Trainer, and what a subclass takes beside them."""
        self.add_class_arguments(TrainerConfig, key, instantiate=False)
        self._entitle(key, "the Trainer")
        docs = {f"{key}.{name}": doc for name, _, doc in option_docs()}
        for name, type_, default in _own_arguments(trainer_class, {n for n, _, _ in option_docs()}):
            self.add_argument(f"--{key}.{name}", type=type_, default=default)
        for action in self._actions:
            if action.dest in docs:
                action.help = docs[action.dest].replace("%", "%%")

    def add_run_args(self, trainer_class: type[Trainer], name: str, skip: set[str]) -> None:
        """Add the options of a method of the Trainer."""
        self.method_arguments = self.add_method_arguments(trainer_class, name, skip=skip)
        self._action_groups[-1].title = f"trainer.{name}"

    def add_class_args(
        self,
        kind: type | Callable[..., Any],
        key: str,
        *,
        subclass_mode: bool = False,
        required: bool = True,
    ) -> list[str]:
        """Add the arguments of a class, or of what makes one, and return their keys.

        Args:
            kind: the class, or a function that says what it returns.
            key: the group in which they stand.
            subclass_mode: whether any subclass may be given, by `class_path` and `init_args`.
            required: whether one must be.
        """
        from trainer_hooks.callback import Callback

        if isinstance(kind, type) and issubclass(kind, Callback):
            self.callback_keys.append(key)
        if subclass_mode and isinstance(kind, type):
            added: list[str] = self.add_subclass_arguments(
                kind, key, fail_untyped=False, required=required
            )
            self._entitle(key, f"{key}: any {kind.__name__}")
        else:
            made = kind if isinstance(kind, type) else jsonargparse.class_from_function(kind)  # type: ignore[attr-defined]
            added = self.add_class_arguments(made, key, fail_untyped=False, sub_configs=True)
        return added

    def add_optimizer_args(
        self,
        optimizer_class: type[Optimizer] | tuple[type[Optimizer], ...] = (Optimizer,),
        nested_key: str = "optimizer",
        link_to: str = AUTOMATIC,
    ) -> None:
        """Add the arguments of an optimizer.

        Args:
            optimizer_class: the class; in a tuple, those of which any subclass may be given.
            nested_key: the group in which they stand.
            link_to: the argument of the module that is given `class_path` and `init_args`; by
                default the optimizer is made of all parameters, in `configure_optimizers`.
        """
        self.optimizers[nested_key] = self._add_made(
            optimizer_class, nested_key, link_to, {"params"}
        )

    def add_lr_scheduler_args(
        self,
        lr_scheduler_class: type | tuple[type, ...] = (LRScheduler, ReduceLROnPlateau),
        nested_key: str = "lr_scheduler",
        link_to: str = AUTOMATIC,
    ) -> None:
        """Add the arguments of a learning rate scheduler, as `add_optimizer_args` does."""
        self.lr_schedulers[nested_key] = self._add_made(
            lr_scheduler_class, nested_key, link_to, {"optimizer"}
        )

    def _entitle(self, key: str, title: str) -> None:
        """Give a group a title that fits a line."""
        group = (self.groups or {}).get(key)
        if group is not None:
            group.title = title

    def _add_made(
        self, kind: type | tuple[type, ...], key: str, link_to: str, skip: set[str]
    ) -> Made:
        if isinstance(kind, tuple):
            self.add_subclass_arguments(
                kind, key, fail_untyped=False, required=False, instantiate=False, skip=skip
            )
            self._entitle(key, f"{key}: any {kind[0].__name__}")
            return Made(kind, is_open=True, link_to=link_to)
        self.add_class_arguments(
            kind, key, fail_untyped=False, instantiate=False, sub_configs=True, skip=skip
        )
        return Made((kind,), is_open=False, link_to=link_to)


def _own_arguments(kind: type, options: Container[str]) -> Iterator[tuple[str, Any, Any]]:
    """Give name, type and default of what a Trainer's subclass takes beside the options."""
    own = [p for p in inspect.signature(kind).parameters.values() if p.name not in options]
    named = [p for p in own if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    hints = get_type_hints(kind.__init__) if named else {}  # type: ignore[misc]
    for parameter in named:
        default = None if parameter.default is parameter.empty else parameter.default
        yield parameter.name, hints.get(parameter.name, Any), default


def _classes_in(hint: Any) -> list[type]:
    """Return the classes of ours or of torch that a type names."""
    if isinstance(hint, tuple):
        return [kind for part in hint for kind in _classes_in(part)]
    if isinstance(hint, type) and not hint.__module__.startswith(("builtins", "datetime", "os")):
        return [hint]
    parts: tuple[Any, ...] = get_args(hint)
    return [kind for part in parts for kind in _classes_in(part)]


def _below(kind: type) -> Iterator[type]:
    """Give a class and those that derive from it, less those that are private."""
    if not kind.__name__.startswith("_") and "<locals>" not in kind.__qualname__:
        yield kind
    below: list[type] = kind.__subclasses__()
    for one in below:
        yield from _below(one)
