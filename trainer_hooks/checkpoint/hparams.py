"""Hyperparameters: a module's arguments, kept in checkpoints so that it can be built again.

Dataclasses, Enums and Namespaces, the usual forms of a configuration, are saved as plain values.
Their classes come from the annotations of the arguments, so that opening a file runs no code that
the file names.
"""

from __future__ import annotations

import copy
import inspect
import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Any, ForwardRef, Union, get_args, get_origin, get_type_hints

from trainer_hooks._annotations import own_annotations, signature_of
from trainer_hooks._log import warn
from trainer_hooks.checkpoint.encoding import Encoder, UnsavableValueError, find_unsavable
from trainer_hooks.checkpoint.pickled_object import PickledObject
from trainer_hooks.errors import ModuleError, TrainerHooksWarning, did_you_mean

if TYPE_CHECKING:
    from types import FrameType

_NAMESPACES = (Namespace, SimpleNamespace)


def to_plain(value: Any) -> Any:
    """Return a value with its dataclasses, Enums and Namespaces as plain data."""
    if is_dataclass(value) and not isinstance(value, type):
        # fields without init are computed by the class, which takes no argument for them
        return {f.name: to_plain(getattr(value, f.name)) for f in fields(value) if f.init}
    if isinstance(value, _NAMESPACES):
        return {name: to_plain(item) for name, item in vars(value).items()}
    if isinstance(value, Enum):
        # not the value, which may be any object
        return value.name
    if is_omegaconf(type(value)):
        from omegaconf import OmegaConf

        # resolved, since an interpolation may lead to a part of the config that is not saved
        return to_plain(OmegaConf.to_container(value, resolve=True))
    if type(value) is dict:
        return {key: to_plain(item) for key, item in value.items()}
    # exact types: a named tuple could not be rebuilt from a list of items
    if type(value) in (list, tuple):
        return type(value)(map(to_plain, value))
    return value


def rebuild(value: Any, annotation: Any) -> Any:
    """Rebuild from plain data the object that an annotation names; other values are returned as is.

    Args:
        value: plain data, as `to_plain` returns it.
        annotation: the type of an argument or a field, or None.

    Raises:
        TypeError: the class takes other arguments than it did when the value was saved.
        ValueError: the class rejects an argument.
    """
    # of a union the first alternative counts that rebuilds anything: `Config | None` is common
    if get_origin(annotation) in (Union, UnionType):
        made = (rebuild(value, kind) for kind in get_args(annotation))
        return next((rebuilt for rebuilt in made if rebuilt is not value), value)
    if get_origin(annotation) in (list, tuple) and type(value) is get_origin(annotation):
        kinds = [kind for kind in get_args(annotation) if kind is not Ellipsis]
        kinds = kinds * len(value) if len(kinds) == 1 else kinds
        items = (rebuild(item, kind) for item, kind in zip(value, kinds, strict=False))
        return type(value)(items) if len(kinds) == len(value) else value
    if not isinstance(annotation, type):
        return value
    if is_class_spec(value) and not issubclass(annotation, Mapping):
        return _object_of_class(value, annotation)
    if is_omegaconf(annotation) and isinstance(value, dict | list):
        from omegaconf import OmegaConf

        # `create` takes no subclass of dict, as HyperParameters is one
        return OmegaConf.create(dict(value) if isinstance(value, dict) else value)
    if isinstance(value, Mapping):
        if is_dataclass(annotation):
            kinds_of = _hints(annotation)
            return annotation(**{k: rebuild(v, kinds_of.get(k)) for k, v in value.items()})
        if issubclass(annotation, _NAMESPACES):
            return annotation(**value)
    elif issubclass(annotation, Enum) and value in annotation.__members__:
        return annotation[value]
    return value


def is_class_spec(value: Any) -> bool:
    """Return whether a value names a class and its arguments, as configs of a command line do."""
    return isinstance(value, dict) and {"class_path"} <= {*value} <= {"class_path", "init_args"}


def _object_of_class(spec: Mapping[str, Any], wanted: type) -> Any:
    """Make the object that a file names by its class.

    Nothing is imported, as the file chooses the class: that is one of a module that is there.

    Raises:
        ValueError: no such class is imported, or it is not one of `wanted`.
    """
    module, _, name = str(spec["class_path"]).rpartition(".")
    kind = getattr(sys.modules.get(module), name, None)
    if not (isinstance(kind, type) and issubclass(kind, wanted)):
        raise ValueError(  # noqa: TRY004 - the value in a file is wrong
            f"{spec['class_path']} is no {wanted.__name__} of an imported module (import it first)"
        )
    kinds_of, arguments = annotations_of(kind), spec.get("init_args") or {}
    return kind(**{key: rebuild(item, kinds_of.get(key)) for key, item in arguments.items()})


def is_omegaconf(kind: type) -> bool:
    """Return whether a class is one of omegaconf's containers, which is not imported for that."""
    return kind.__module__.startswith("omegaconf.") and kind.__name__ in {
        "DictConfig",
        "ListConfig",
    }


def omegaconf_class(form: PickledObject) -> type | None:
    """Return omegaconf's class that a pickle names, or None; the pickle is not opened."""
    try:
        from omegaconf import DictConfig
    except ImportError:
        return None
    config_class: type = DictConfig
    return config_class if form.data == PickledObject.of(config_class).data else None


def annotations_of(kind: type[Any]) -> dict[str, Any]:
    """Return the annotated types of a class's `__init__` arguments, those of its bases included."""
    annotations: dict[str, Any] = {}
    # bases first, so that the annotation of a subclass overrides theirs
    for base in reversed(kind.__mro__):
        made_by = vars(base).get("__init__")
        if inspect.isfunction(made_by):
            annotations.update(_hints(made_by))
    return annotations


def _hints(annotated: Any) -> dict[str, Any]:
    """Return annotations as types; a name that cannot be resolved at run time is left out."""
    try:
        return get_type_hints(annotated)
    except NameError:  # a name imported under TYPE_CHECKING
        hints = own_annotations(annotated)
        return {
            name: hint for name, hint in hints.items() if not isinstance(hint, str | ForwardRef)
        }


class HyperParameters(dict[str, Any]):
    """A dict whose items are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            if not self:
                raise AttributeError(
                    f"no hyperparameter {name!r}: none were saved. Call "
                    "self.save_hyperparameters() in __init__, which keeps its arguments."
                ) from None
            raise AttributeError(
                f"no hyperparameter {name!r}: there are {', '.join(map(repr, self)) or 'none'}."
                f"{did_you_mean(name, self)}"
            ) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __deepcopy__(self, memo: dict[int, Any]) -> HyperParameters:
        return HyperParameters({key: copy.deepcopy(value, memo) for key, value in self.items()})


def arguments_of_init(owner: object, frame: FrameType | None) -> dict[str, Any]:
    """Return the arguments that `owner` is being built with, from the stack's `__init__` frames.

    The arguments of a base class override those of the subclass that calls it.

    Args:
        owner: the object under construction.
        frame: the frame of an `__init__` of it.

    Raises:
        ModuleError: the frame is not of its `__init__`.
    """
    calls: list[dict[str, Any]] = []
    # a base class is entered after its subclass, so its frame comes first here
    while frame is not None and frame.f_code.co_name == "__init__":
        values = inspect.getargvalues(frame)
        if not values.args or values.locals.get(values.args[0]) is not owner:
            break  # the __init__ of another object, which builds this one
        # their present values: what __init__ has assigned to an argument so far is taken as passed
        arguments = {name: values.locals[name] for name in values.args[1:]}
        # getargvalues() does not list keyword-only arguments
        count = frame.f_code.co_argcount
        keyword_only = frame.f_code.co_varnames[count : count + frame.f_code.co_kwonlyargcount]
        arguments.update({name: values.locals[name] for name in keyword_only})
        if values.keywords is not None:
            arguments.update(values.locals[values.keywords])
        calls.append(arguments)
        frame = frame.f_back
    if not calls:
        raise ModuleError(
            f"save_hyperparameters() of {type(owner).__qualname__} was called outside __init__: "
            "call it in __init__, or pass the hyperparameters as a dict."
        )
    merged: dict[str, Any] = {}
    for arguments in calls:
        merged.update(arguments)
    # a method that uses super() or __class__ has a cell of that name among its locals
    return {name: value for name, value in merged.items() if name != "__class__"}


def is_hparams_object(wanted: tuple[Any, ...]) -> bool:
    """Return whether one object holds all hyperparameters: a mapping, Namespace or dataclass."""
    if len(wanted) != 1 or isinstance(wanted[0], type):
        return False
    return isinstance(wanted[0], Mapping | Namespace) or is_dataclass(wanted[0])


def select_hparams(
    arguments: Mapping[str, Any], wanted: tuple[Any, ...], ignore: str | Iterable[str] | None
) -> HyperParameters:
    """Return the wanted arguments, or the items of the object that was passed instead of names.

    Args:
        arguments: the arguments of `__init__`.
        wanted: names of arguments, or one mapping, Namespace or dataclass; empty for all.
        ignore: names to leave out.

    Raises:
        ModuleError: a name is no argument.
    """
    ignored = {ignore} if isinstance(ignore, str) else set(ignore or ())
    if is_hparams_object(wanted):
        (whole,) = wanted
        if isinstance(whole, Mapping | Namespace):
            chosen = dict(whole if isinstance(whole, Mapping) else vars(whole))
        else:
            chosen = {field.name: getattr(whole, field.name) for field in fields(whole)}
    elif wanted:
        for name in wanted:
            if not isinstance(name, str):
                raise ModuleError(
                    f"save_hyperparameters({name!r}): it takes names of arguments of __init__, one "
                    "by one as in save_hyperparameters('a', 'b'), or one dict, Namespace or "
                    "dataclass."
                )
            if name not in arguments:
                raise ModuleError(
                    f"save_hyperparameters({name!r}): no such argument of __init__; there are "
                    f"{', '.join(map(repr, arguments)) or 'none'}."
                    f"{did_you_mean(str(name), arguments)}"
                )
        chosen = {name: arguments[name] for name in wanted}
    else:
        chosen = dict(arguments)
    return HyperParameters({k: v for k, v in chosen.items() if k not in ignored})


def savable_hparams(hparams: Mapping[str, Any], kind: type[Any]) -> dict[str, Any]:
    """Return the hyperparameters that are plain data, or can be rebuilt from it.

    Args:
        hparams: the hyperparameters.
        kind: the class that is built with them; its annotations say which objects can be rebuilt.
    """
    annotations, savable = annotations_of(kind), {}
    for name, value in hparams.items():
        # plain data is saved as it is, all else in its plain form, if that can be turned back
        plain = value
        is_savable = find_unsavable(value, takes_classes=False) is None
        if not is_savable:
            plain = to_plain(value)
            is_plain = find_unsavable(plain, takes_classes=False) is None
            is_savable = is_plain and _comes_back(value, plain, annotations.get(name))
        if is_savable:
            savable[name] = copy.deepcopy(plain)  # the user may change a list or dict later
    return savable


def warn_of_left_out(hparams: Mapping[str, Any], kind: type[Any]) -> None:
    """Warn of each hyperparameter that `savable_hparams` leaves out.

    Args:
        hparams: those that it leaves out.
        kind: the class that is built with them.
    """
    for name, value in hparams.items():
        unsavable = find_unsavable(value, takes_classes=False)
        assert unsavable is not None
        is_config = is_dataclass(value) or isinstance(value, (Enum, Namespace))
        is_config = unsavable[1] is value and (is_config or is_omegaconf(type(value)))
        advice = f"Annotate it in __init__ ({name}: {type(value).__name__}), pass" * is_config
        warn(
            f"hyperparameter {name!r} of {kind.__qualname__} is left out of checkpoints: it holds "
            f"{type(unsavable[1]).__qualname__}, and a checkpoint holds only plain data and "
            f"tensors. {advice or 'Pass'} it to load_from_checkpoint(..., {name}=...) then, or "
            f"leave it out with save_hyperparameters(ignore=[{name!r}]).",
            TrainerHooksWarning,
        )


def pickled_hparams(hparams: Mapping[str, Any]) -> tuple[dict[str, PickledObject], dict[str, str]]:
    """Return hyperparameters as pickles; and of those that cannot be pickled, the reasons."""
    pickled, reasons = {}, {}
    for name, value in hparams.items():
        try:
            pickled[name] = PickledObject.of(value)
        except ValueError as error:
            reasons[name] = str(error)
    return pickled, reasons


def warn_of_pickles(hparams: Mapping[str, Any], kind: type[Any]) -> None:
    """Warn of hyperparameters that are kept as pickles, and of those that cannot be.

    Args:
        hparams: the hyperparameters that are no plain data.
        kind: the class that is built with them.
    """
    pickled, reasons = pickled_hparams(hparams)
    for name, reason in reasons.items():
        warn(
            f"hyperparameter {name!r} of {kind.__qualname__} is left out of checkpoints: a "
            f"{type(hparams[name]).__qualname__} that cannot be pickled ({reason}). Pass it to "
            f"load_from_checkpoint(..., {name}=...) then, or leave it out with "
            f"save_hyperparameters(ignore=[{name!r}]).",
            TrainerHooksWarning,
        )
    if pickled:
        names = list(pickled)
        given = ", ".join(f"{name}=..." for name in names)
        warn(
            f"checkpoints hold the hyperparameters {', '.join(map(repr, names))} of "
            f"{kind.__qualname__} as pickles, since they are no plain data: "
            "load_from_checkpoint(path, weights_only=False) opens them, which runs the code that "
            f"the file names. For a file that you do not trust, pass {given} instead. To leave "
            f"them out, save_hyperparameters(ignore={names!r}).",
            TrainerHooksWarning,
        )


def hparams_for_file(
    hparams: Mapping[str, Any], kind: type[Any], *, pickles: bool, told: frozenset[str]
) -> tuple[dict[str, Any], frozenset[str]]:
    """Return hyperparameters of a checkpoint as it can hold them, those of hooks among them.

    A hook may have added objects that are no plain data: as `save_hyperparameters` does, they are
    kept as pickles or left out, with a warning.

    Args:
        hparams: the hyperparameters.
        kind: the class that is built with them.
        pickles: whether they are kept as pickles.
        told: the names that were warned of.

    Returns:
        The hyperparameters, and the names that were warned of by now.
    """
    others = {name: value for name, value in hparams.items() if find_unsavable(value) is not None}
    if not others:
        return dict(hparams), told
    plain = savable_hparams(others, kind)
    objects = {name: value for name, value in others.items() if name not in plain}
    new = {name: value for name, value in objects.items() if name not in told}
    if new:
        (warn_of_pickles if pickles else warn_of_left_out)(new, kind)
    held = {**plain, **(pickled_hparams(objects)[0] if pickles else {})}
    # in the order in which the hook left them
    values = {name: held.get(name, value) for name, value in hparams.items()}
    left_out = objects.keys() - held.keys()
    return {name: v for name, v in values.items() if name not in left_out}, told | objects.keys()


def is_read_by_torch(value: Any) -> bool:
    """Return whether torch reads a value safely without an encoding of ours."""
    try:
        return Encoder(value, takes_classes=False).encode(value) is value
    except UnsavableValueError:
        return False


def init_arguments_from(
    kind: type[Any],
    saved: Mapping[str, Any],
    replaced: Mapping[str, Any],
    path: str,
    *,
    is_trusted: bool = False,
) -> dict[str, Any]:
    """Return the arguments to build an object with, from its saved hyperparameters.

    Args:
        kind: its class.
        saved: the hyperparameters in a checkpoint.
        replaced: arguments that replace or complete them.
        path: the checkpoint, for messages.
        is_trusted: whether pickles are opened, which runs the code that they name.

    Raises:
        ModuleError: a required argument is missing, or one cannot be rebuilt.
    """
    annotations, arguments = annotations_of(kind), {}
    unopened = set()
    for name, value in saved.items():
        if name in replaced:
            continue
        if isinstance(value, PickledObject):
            if is_trusted:
                arguments[name] = value.open()
            else:
                unopened.add(name)
        else:
            try:
                arguments[name] = rebuild(value, annotations.get(name))
            except (TypeError, ValueError) as error:
                raise ModuleError(
                    f"hyperparameter {name!r} in checkpoint {path!r} does not make a "
                    f"{annotations[name]}: {error}. Pass it: "
                    f"{kind.__qualname__}.load_from_checkpoint(..., {name}=...)."
                ) from error
    arguments.update(replaced)
    parameters = signature_of(kind.__init__).parameters
    # hyperparameters may hold more than arguments, for example of a base class
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        if ignored := [name for name in replaced if name not in parameters]:
            warn(
                f"{kind.__qualname__}.load_from_checkpoint was given {', '.join(ignored)}, which "
                f"{kind.__qualname__}.__init__ does not take: it is left out."
                f"{did_you_mean(ignored[0], parameters)}",
                TrainerHooksWarning,
            )
        arguments = {name: value for name, value in arguments.items() if name in parameters}
    lacking = [
        name
        # without `self`
        for name, parameter in list(parameters.items())[1:]
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        and name not in arguments
    ]
    if lacking:
        given = ", ".join(f"{name}=..." for name in lacking)
        if unopened.issuperset(lacking):
            raise ModuleError(
                f"checkpoint {path!r} holds the hyperparameters {', '.join(map(repr, lacking))} of "
                f"{kind.__qualname__} as pickles, which are not opened: that runs the code that "
                f"the file names. Pass them: {kind.__qualname__}.load_from_checkpoint(..., "
                f"{given}); or, if you trust the file, weights_only=False."
            )
        raise ModuleError(
            f"checkpoint {path!r} holds no hyperparameter {', '.join(map(repr, lacking))}, "
            f"which {kind.__qualname__}.__init__ needs: save_hyperparameters() was not called, or "
            f"left it out. Pass it: {kind.__qualname__}.load_from_checkpoint(..., {given})."
        )
    return arguments


def _comes_back(value: Any, plain: Any, annotation: Any) -> bool:
    """Return whether an equal object is rebuilt from its plain data and the annotation."""
    try:
        rebuilt = rebuild(plain, annotation)
        # omegaconf's containers are equal to plain ones, which have no attributes
        return type(rebuilt) is type(value) and bool(rebuilt == value)
    # the class may reject its own values; comparing arrays gives no single truth value
    except (TypeError, ValueError):
        return False
