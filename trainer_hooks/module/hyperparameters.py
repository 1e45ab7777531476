"""Hyperparameters: the arguments that a module or data module was made with, as attributes.

`checkpoint.hparams` is imported where hyperparameters are used: a training without them does not
load the code of checkpoints.
"""

from __future__ import annotations

import ast
import copy
import csv
import inspect
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks._annotations import signature_of
from trainer_hooks._names import ours, own_property
from trainer_hooks.errors import ModuleError, error_summary

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

    from trainer_hooks.checkpoint.hparams import HyperParameters

    # type checkers know that `cls` is the class under the builtin decorator alone
    MethodOfClass = classmethod
else:

    class MethodOfClass(classmethod):
        """A classmethod that raises if called on an instance, which it would leave unchanged."""

        def __get__(self, instance: Any, owner: type | None = None) -> Callable[..., Any]:
            """Return the method bound to the class; for an instance, a function that raises."""
            return super().__get__(instance, owner) if instance is None else _refusal(owner)


@dataclass(slots=True)
class SavedHyperparameters:
    """The hyperparameters that `save_hyperparameters` keeps.

    Attributes:
        current: the hyperparameters at present.
        saved: those that a checkpoint holds as plain data; None if none were saved.
        objects: those that a checkpoint holds as pickles.
        is_logged: whether loggers get them.
        name: the argument of `__init__` that held all of them, or None.
        initial: their values when they were saved; an object that is no plain data is not copied.
        given: the values of `current` then, each the very object; one that is no longer the same
            was set later.
    """

    current: HyperParameters
    saved: Mapping[str, Any] | None
    objects: Mapping[str, Any]
    is_logged: bool
    name: str | None
    initial: Mapping[str, Any]
    given: Mapping[str, Any]


_CONFIG: ContextVar[Mapping[type, Mapping[str, Any]] | None] = ContextVar("config", default=None)
"""The arguments, as in a config, of the objects that a command line makes now."""


@contextmanager
def made_from_config(arguments: Mapping[type, Mapping[str, Any]]) -> Iterator[None]:
    """Let objects that are made keep an argument of the config in its form there.

    That is a dict of `class_path` and `init_args` where the config names the class of an argument.

    Args:
        arguments: for the class of each object the arguments in the config.
    """
    token = _CONFIG.set(arguments)
    try:
        yield
    finally:
        _CONFIG.reset(token)


class HyperparametersMixin:
    """Base class that keeps the arguments of `__init__` as hyperparameters."""

    _kept: SavedHyperparameters | None = None

    _pickles_hparams: ClassVar[bool] = False
    """Whether checkpoints hold hyperparameters that are no plain data as pickles, as Lightning's
    do; otherwise they are left out."""

    _told_hparams: frozenset[str] = frozenset()
    """The hyperparameters added in `on_save_checkpoint` of which a save has warned."""

    def _hparams_class(self) -> type[Any]:
        """Return the class that is built with the hyperparameters."""
        return type(self)

    def _fit_hparams(self, checkpoint: dict[str, Any], key: str) -> None:
        """Turn hyperparameters in a checkpoint that are no plain data into their form in files."""
        from trainer_hooks.checkpoint.hparams import hparams_for_file

        checkpoint[key], told = hparams_for_file(
            checkpoint[key],
            self._hparams_class(),
            pickles=self._pickles_hparams,
            told=self._told_hparams,
        )
        if told != self._told_hparams:  # most modules have nothing to tell, and stay as they are
            self._told_hparams = told

    def save_hyperparameters(
        self, *args: Any, ignore: Any = None, frame: Any = None, logger: bool = True
    ) -> None:
        """Keep the arguments of `__init__` in `hparams` and in checkpoints.

        Args:
            args: names of the arguments to keep; or one mapping, Namespace or dataclass whose items
                are kept instead. By default all arguments.
            ignore: names to leave out.
            frame: the frame of `__init__`, if it is not the caller's.
            logger: whether loggers get them when fit begins.

        Raises:
            ModuleError: a name is no argument, or this is called outside `__init__`.
        """
        from trainer_hooks.checkpoint.hparams import (
            HyperParameters,
            arguments_of_init,
            is_class_spec,
            is_hparams_object,
            is_omegaconf,
            savable_hparams,
            select_hparams,
            to_plain,
            warn_of_left_out,
            warn_of_pickles,
        )

        if frame is None:
            current = inspect.currentframe()
            # the caller's frame, which must be that of `__init__`
            frame = current.f_back if current is not None else None
        if frame is not None and frame.f_code.co_name == "__post_init__":
            frame = frame.f_back  # a dataclass calls it from its __init__
        is_single_object, is_init = is_hparams_object(args), _is_init(self, frame)
        arguments = {} if is_single_object and not is_init else arguments_of_init(self, frame)
        ignored = {ignore} if isinstance(ignore, str) else set(ignore or ())
        before = {} if self._kept is None else self._kept.current
        # `ignore` also removes arguments that a base class's __init__ has kept
        remaining = {name: value for name, value in before.items() if name not in ignored}
        hparams = HyperParameters({**remaining, **select_hparams(arguments, args, ignore)})
        if self._pickles_hparams and is_init:
            config = (_CONFIG.get() or {}).get(type(self), {})
            named = {n: v for n, v in config.items() if n in hparams and is_class_spec(v)}
            hparams.update(copy.deepcopy(named))
            if named:
                hparams["_instantiator"] = "pytorch_lightning.cli.instantiate_module"
        name = None if self._kept is None else self._kept.name
        if is_single_object:
            # by identity: another argument may be equal to it
            name = next((name for name, value in arguments.items() if value is args[0]), None)
        is_config = (
            self._pickles_hparams
            and is_single_object
            and is_omegaconf(type(args[0]))
            and not (remaining or ignored)
        )
        # a config of omegaconf is plain data, and made again as a whole
        saved = to_plain(args[0]) if is_config else savable_hparams(hparams, type(self))
        others = {name: value for name, value in hparams.items() if name not in saved}
        # by identity: == of arrays and tensors gives no single truth value
        new = {key: value for key, value in others.items() if before.get(key) is not value}
        (warn_of_pickles if self._pickles_hparams else warn_of_left_out)(new, type(self))
        objects, initial = others if self._pickles_hparams else {}, _snapshot(hparams)
        # Lightning gives the config itself
        shown = args[0] if is_config else hparams
        # not of a config, which is saved as a whole
        given = dict(hparams)
        self._kept = SavedHyperparameters(shown, saved, objects, logger, name, initial, given)

    @property
    def hparams(self) -> HyperParameters:
        """The hyperparameters, as a dict with attributes."""
        if self._kept is None:
            from trainer_hooks.checkpoint.hparams import HyperParameters

            # kept, so that `self.hparams.width = 3` works without save_hyperparameters
            self._kept = SavedHyperparameters(HyperParameters(), None, {}, False, None, {}, {})
        return self._kept.current

    @property
    def hparams_initial(self) -> HyperParameters:
        """A copy of the hyperparameters as they were when they were saved."""
        from trainer_hooks.checkpoint.hparams import HyperParameters

        return HyperParameters({} if self._kept is None else _snapshot(self._kept.initial))

    @own_property
    def saved_hparams(self) -> Mapping[str, Any] | None:
        """The hyperparameters that a checkpoint holds; None if none were saved."""
        if self._kept is None or not self._kept.objects:
            return None if self._kept is None else self._kept.saved
        from trainer_hooks.checkpoint.hparams import pickled_hparams

        # pickled at each save: a network has other weights by then
        return {**(self._kept.saved or {}), **pickled_hparams(self._kept.objects)[0]}

    def _hparams_for_checkpoint(self) -> Mapping[str, Any] | None:
        """Return the hyperparameters for a checkpoint: `saved_hparams`, with values set since then.

        `saved_hparams` itself stays as it was, since it tells runs apart.
        """
        saved: Mapping[str, Any] | None = ours(self).saved_hparams
        record = self._kept
        if record is None or saved is None or not isinstance(record.current, dict):
            return saved
        nothing = object()
        later = {
            name: value
            for name, value in record.current.items()
            # by identity: == of arrays and tensors gives no single truth value
            if record.given.get(name, nothing) is not value
        }
        if not later:
            return saved
        from trainer_hooks.checkpoint.hparams import savable_hparams

        # those that are no plain data stay as they were saved, if they were
        return {**saved, **savable_hparams(later, type(self))}

    @own_property
    def hparams_name(self) -> str | None:
        """The argument of `__init__` that held all hyperparameters, if it was one."""
        return None if self._kept is None else self._kept.name

    @own_property
    def hparams_type(self) -> type | None:
        """The class that a loader makes of all hyperparameters together; None for a dict."""
        current = None if self._kept is None else self._kept.current
        return None if current is None or isinstance(current, dict) else type(current)

    @own_property
    def logged_hparams(self) -> Mapping[str, Any] | None:
        """The hyperparameters that loggers get, as they were when they were saved, or None."""
        return self.hparams_initial if self._kept is not None and self._kept.is_logged else None


def _refusal(kind: type[Any]) -> Callable[..., Any]:
    def load_from_checkpoint(*_: Any, **__: Any) -> Any:
        raise ModuleError(
            f"load_from_checkpoint was called on an object of {kind.__qualname__}: it makes a new "
            f"object, and this one would stay as it is. Write loaded = {kind.__name__}."
            "load_from_checkpoint(...)."
        )

    return load_from_checkpoint


def _snapshot(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of plain values; layers and other objects stay the same objects."""
    from trainer_hooks.checkpoint.encoding import find_unsavable

    return {
        name: copy.deepcopy(value) if find_unsavable(value) is None else value
        for name, value in values.items()
    }


def init_arguments_from(
    kind: type[Any],
    saved: Mapping[str, Any],
    name: str | None,
    replaced: Mapping[str, Any],
    path: str,
    *,
    is_trusted: bool = False,
    form: object = None,
) -> dict[str, Any]:
    """Return the arguments with which a module or data module is made again.

    Args:
        kind: its class.
        saved: the hyperparameters in a checkpoint.
        name: the argument that held all of them, or None.
        replaced: arguments that replace or complete them.
        path: the checkpoint, for messages.
        is_trusted: whether pickles are opened, which runs the code that they name.
        form: the pickled class of the object that held all of them, if that was omegaconf's.

    Raises:
        ModuleError: an argument that `__init__` needs is missing, or one cannot be made again.
    """
    from trainer_hooks.checkpoint import hparams
    from trainer_hooks.checkpoint.pickled_object import PickledObject

    parameter = signature_of(kind.__init__).parameters.get(str(name))
    # one argument took them all as an object; **hparams takes them by name, as usual
    if parameter is not None and parameter.kind is not parameter.VAR_KEYWORD:
        items = {key: value for key, value in replaced.items() if key in saved and key != name}
        pickles = [value for value in saved.values() if isinstance(value, PickledObject)]
        whole = {**saved, **items}
        if is_trusted:
            whole = {k: v.open() if isinstance(v, PickledObject) else v for k, v in whole.items()}
        # one that is not opened stands for the whole, which then counts as lacking
        is_whole = is_trusted or not pickles
        made: Any = hparams.HyperParameters(whole) if is_whole else pickles[0]
        if is_whole and isinstance(form, PickledObject):
            made = hparams.rebuild(made, hparams.omegaconf_class(form))
        saved = {str(name): made}
        replaced = {key: value for key, value in replaced.items() if key not in items}
    return hparams.init_arguments_from(kind, saved, replaced, path, is_trusted=is_trusted)


def _is_init(owner: object, frame: FrameType | None) -> bool:
    """Return whether a frame is an `__init__` of `owner`."""
    if frame is None or frame.f_code.co_name != "__init__":
        return False
    names = frame.f_code.co_varnames
    # the first local variable is `self`, whatever its name; another object's __init__ may call
    return bool(names) and frame.f_locals.get(names[0]) is owner


def read_hparams(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the hyperparameters in a YAML file, or in a CSV file of keys and values.

    Raises:
        ModuleError: the file has another suffix, cannot be read, or would need code to be run.
    """
    file = Path(path)
    readers = {".yaml": _yaml, ".yml": _yaml, ".csv": _csv}
    if file.suffix.lower() not in readers:
        raise ModuleError(
            f"load_from_checkpoint(hparams_file={str(path)!r}): must end in .yaml, .yml or .csv."
        )
    try:
        return readers[file.suffix.lower()](file)
    # ValueError also for a file that is not UTF-8
    except (OSError, ValueError) as error:
        raise ModuleError(
            f"load_from_checkpoint(hparams_file={str(path)!r}) cannot be read "
            f"({error_summary(error)}): it must hold plain values by name. Pass the others as "
            "arguments."
        ) from error


def _yaml(file: Path) -> dict[str, Any]:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError as error:
        raise ModuleError(
            f"load_from_checkpoint(hparams_file={str(file)!r}) needs PyYAML. Install it: "
            "pip install pyyaml."
        ) from error
    try:
        # safe: yaml.load could run code that a tag in the file names
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    if not isinstance(content, dict | None):
        raise ValueError(f"it holds {type(content).__name__}")  # noqa: TRY004 - told as the others
    return {str(name): value for name, value in (content or {}).items()}


def _csv(file: Path) -> dict[str, Any]:
    with file.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    if rows and not {"key", "value"} <= set(rows[0]):
        raise ValueError("its columns must be key and value")
    hparams: dict[str, Any] = {}
    for row in rows:
        hparams[row["key"]] = row["value"]
        with suppress(ValueError, SyntaxError):  # any other text is a string
            hparams[row["key"]] = ast.literal_eval(row["value"])
    return hparams
