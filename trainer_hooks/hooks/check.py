"""Checks of an object's hooks before anything runs: misspelt names and wrong signatures."""

from __future__ import annotations

import inspect
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from trainer_hooks._annotations import signature_of
from trainer_hooks._names import (
    clash_message,
    is_of_package,
    names_left_to_user,
    ours,
    ours_if_left,
    uncalled_methods,
)
from trainer_hooks.errors import ModuleError, suggest
from trainer_hooks.hooks.spec import (
    ALIASES,
    EVENT_NAMES,
    HOOKS,
    HookSpec,
    declared_hook,
    overridden,
    overrides,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_STATE = (
    HookSpec("state_dict", (), ""),
    HookSpec("load_state_dict", ("state_dict",), ""),
)
"""Methods of a callback that are no hooks, and that fail as late as hooks if uncallable."""

_MAX_ARGUMENTS = max(len(spec.arguments) for spec in HOOKS.values())
"""The largest number of arguments of a hook."""

_OTHER_SIGNATURE = frozenset(("__wrapped__", "__signature__"))
"""Attributes by which a function has another signature than its code, as decorators set them."""

REMOVED_METHODS = {
    "training_epoch_end": "on_train_epoch_end(), and keep outputs in an attribute,",
    "validation_epoch_end": "on_validation_epoch_end(), and keep outputs in an attribute,",
    "test_epoch_end": "on_test_epoch_end(), and keep outputs in an attribute,",
    "predict_epoch_end": "on_predict_epoch_end(), and keep outputs in an attribute,",
    "training_step_end": "on_train_batch_end(outputs, batch, batch_idx)",
    "validation_step_end": "on_validation_batch_end(outputs, batch, batch_idx)",
    "test_step_end": "on_test_batch_end(outputs, batch, batch_idx)",
    "predict_step_end": "on_predict_batch_end(outputs, batch, batch_idx)",
    "training_end": "on_train_epoch_end()",
    "validation_end": "on_validation_epoch_end()",
    "test_end": "on_test_epoch_end()",
}
"""Methods of a module that Lightning 1.x and older called, and the method to define now."""

# reversed: of validation and test, which share the eval events, validation's hook is named
_COMPOSER_METHODS = {EVENT_NAMES[hook]: hook for hook in reversed(list(EVENT_NAMES))}
"""Methods that Composer calls on its callbacks, and the hooks of the same moments."""

_COMMON_WORDS = {"close", "init", "post_close", "state_dict", "load_state_dict"}
"""Names that a callback may well use itself: Composer's only if the arguments are named so."""


def hook_warnings(
    implementer: object,
    hooks: Mapping[str, HookSpec] = HOOKS,
    known: Collection[str] = (),
    skip: int = 0,
) -> tuple[str, ...]:
    """Return a warning for each method that was probably meant as a hook and is never called.

    A public method that starts with `on_` and is no hook is almost always a typo; one of Composer's
    names that takes a state and a logger was written for Composer. The two init hooks of a module
    are never called, since they fire before the trainer has a module. A class for another framework
    may have methods that its trainer calls, and this one does not.

    Args:
        implementer: a callback or a module.
        hooks: all known hooks by name.
        known: other names starting with `on_` that are called on such an object.
        skip: number of leading arguments that its hooks do not take: 2 for a module.
    """
    # `dir` of the class: that of a module of torch lists parameters and submodules, too
    names = {*dir(type(implementer)), *getattr(implementer, "__dict__", ())}
    # such a method is another framework's user's own, and meant for nobody but its class
    names -= names_left_to_user(type(implementer))
    warnings = [
        f"nothing calls the hook {spec.name!r} of a module, as it fires while the trainer is made, "
        "before there is a module. Put the hook into a callback, or its work into setup(stage)."
        for spec in hooks.values()
        if skip and not spec.takes_module and overrides(implementer, spec.name, hooks)
    ]
    fires_own_events = getattr(type(implementer), "fires_own_events", False)
    uncalled = uncalled_methods(type(implementer))
    warnings += [
        f"nothing calls the method {name!r} here: {advice}." for name, advice in uncalled.items()
    ]
    names -= uncalled.keys()
    # `close` and `init` do not begin with `on_`, so that the check below would not see them
    for name in sorted((names & _COMPOSER_METHODS.keys()).difference(hooks, known)):
        if _is_composer_method(name, _attribute(implementer, name)):
            warnings.append(
                f"the method {name!r} is Composer's, so nothing calls it. Derive the class from "
                "trainer_hooks.compat.composer.Callback, or define the hook "
                f"{_COMPOSER_METHODS[name]!r} instead."
            )
    for name in sorted(names.difference(hooks, ALIASES, known)):
        if fires_own_events and is_own_event(name, hooks):
            continue
        if name.startswith("on_") and callable(_attribute(implementer, name)):
            warnings.append(
                f"the method {name!r} is no hook, so nothing calls it."
                f"{suggest('hooks', name, hooks)} If it is meant to be a method of its own, give "
                "it a name that does not start with 'on_'."
            )
    return tuple(warnings)


def is_own_event(name: str, hooks: Mapping[str, HookSpec] = HOOKS) -> bool:
    """Return whether a name that begins with `on_` is no hook, and not nearly written as one.

    Args:
        name: the name of an event of the user's.
        hooks: all known hooks by name.
    """
    return name not in hooks and name not in ALIASES and not suggest("hooks", name, hooks)


def hook_errors(
    implementer: object, hooks: Mapping[str, HookSpec] = HOOKS, skip: int = 0
) -> tuple[str, ...]:
    """Return an error message for each hook that cannot be called.

    A hook that is no method, is `async` or a generator, or cannot take its arguments would fail
    when it fires, perhaps hours into a run.

    Args:
        implementer: a callback or a module.
        hooks: all known hooks by name.
        skip: number of leading arguments that its hooks do not take: 2 for a module.
    """
    return tuple(_hook_errors(implementer, hooks, skip))


def _hook_errors(implementer: object, hooks: Mapping[str, HookSpec], skip: int) -> Iterator[str]:
    if skip:
        left = names_left_to_user(type(implementer))
        for name, instead in REMOVED_METHODS.items():
            # in the class alone: an attribute of the instance is data of that name, as a submodule
            if name not in left and callable(getattr(type(implementer), name, None)):
                yield (
                    f"the method {name!r} is of Lightning 1.x, and nothing calls it. Define "
                    f"{instead} instead."
                )
    # an adapter translates the arguments of these, so their signatures are another framework's
    translated = getattr(type(implementer), "translated_hooks", ())
    for name in overridden(implementer, hooks):
        spec = hooks[ALIASES.get(name, name)]
        # a module's hook that takes no module is never called, which `hook_warnings` reports
        if name not in translated and (spec.takes_module or not skip):
            yield from _uncallable(implementer, name, "hook", spec, skip)
    if skip == 0:
        for spec in _STATE:
            if hasattr(implementer, spec.name):
                yield from _uncallable(implementer, spec.name, "method", spec, 0)
        yield from _run_event_errors(implementer)


def check_stage_methods(datamodule: object) -> None:
    """Check that `setup` and `teardown` of a data module take the stage.

    Raises:
        ModuleError: one does not.
    """
    for name in ("setup", "teardown"):
        for fault in _uncallable(datamodule, name, "method", HookSpec(name, ("stage",), ""), 0):
            raise ModuleError(f"{type(datamodule).__qualname__}: {fault}")


def _run_event_errors(implementer: object) -> Iterator[str]:
    """Yield a message if a `run_event` override cannot take the arguments of every hook."""
    if not getattr(ours(implementer), "routes_events", False):
        return
    method = _attribute(implementer, "run_event")
    spec = HookSpec("run_event", ("event", "trainer", "module"), "")
    # first with the arguments that every event has, for the clearer message
    errors = tuple(_uncallable(implementer, "run_event", "method", spec, 0))
    yield from errors
    longest = ("event", *(f"argument {n}" for n in range(_MAX_ARGUMENTS)))
    if not errors and not _takes(method, longest):
        yield (
            "the method 'run_event' cannot take what an event brings: the trainer, the module and "
            f"the hook's other arguments, {_MAX_ARGUMENTS} in all. Define run_event(self, event, "
            "*args), or derive the class from trainer_hooks.compat.composer.Callback for "
            "Composer's run_event(self, event, state, logger)."
        )


def _uncallable(
    implementer: object, name: str, kind: str, spec: HookSpec, skip: int
) -> Iterator[str]:
    """Yield a message if a method cannot be called with the arguments that `spec` declares.

    Args:
        implementer: the object with the method.
        name: the method's name; an older name of the hook, perhaps.
        kind: the noun for messages, `"hook"` or `"method"`.
        spec: the arguments, of which the first `skip` are left out.
        skip: number of leading arguments that are not passed.
    """
    method = _attribute(implementer, name)
    arguments = spec.arguments[skip:]
    expected, fault = f"{name}({', '.join(('self', *arguments))})", ""
    if not callable(method):
        fault = (
            f"is no method but {method!r}, so it cannot be called. Define {expected}, or leave it "
            "out."
        )
    # calling a coroutine or generator function runs none of its body, and raises nothing
    elif inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        fault = (
            "is `async`, so it would never run: hooks are called, not awaited. Define it with a "
            "plain `def`."
        )
    elif inspect.isgeneratorfunction(method):
        fault = (
            "has a `yield`, so it would never run: hooks are called, not iterated. Define it "
            "without."
        )
    elif not _takes(method, arguments):
        fault = f"cannot take what it is called with, positionally. Define {expected}."
    if fault:
        yield f"the {kind} {name!r} {fault}"


def definition_clash(kind: type, names: frozenset[str], skip: int = 0) -> str:
    """Return a message for the names of ours that a user's class defines as something else.

    Args:
        kind: the class. One that leaves names to the user has none.
        names: the names.
        skip: number of leading arguments that its hooks do not take: 2 for a module.
    """
    if is_of_package(kind) or names_left_to_user(kind):
        return ""
    defined: dict[str, object] = {}
    for parent in kind.__mro__:
        for name in vars(parent).keys() & names:
            defined.setdefault(name, parent if is_of_package(parent) else vars(parent)[name])
    faults = {
        name: value_fault(kind, name, value, skip, of_class=True)
        for name, value in defined.items()
        if not (isinstance(value, type) and is_of_package(value))
    }
    return " Also, ".join(
        clash_message(kind, name, fault) for name, fault in sorted(faults.items()) if fault
    )


def instance_clash(owner: object, names: frozenset[str]) -> str:
    """Return a message for the first name of ours that an object itself has as something else.

    Args:
        owner: the object, whose class was checked when it was defined.
        names: the names.
    """
    kind = type(owner)
    if names_left_to_user(kind):
        return ""
    for name in sorted(vars(owner).keys() & names):
        if fault := value_fault(kind, name, vars(owner)[name]):
            return clash_message(kind, name, fault)
    return ""


def value_fault(kind: type, name: str, value: Any, skip: int = 0, *, of_class: bool = False) -> str:
    """Return why a value cannot stand under a name of ours, as a verb phrase; empty if it can.

    Args:
        kind: the class of the object.
        name: the name, which one of the classes of this package declares.
        value: the value.
        skip: number of leading arguments that its hooks do not take: 2 for a module.
        of_class: whether it is what the class holds, so that a function takes `self` too.
    """
    declared = next(
        vars(base)[name] for base in kind.__mro__ if is_of_package(base) and name in vars(base)
    )
    if isinstance(declared, property):
        is_fit = isinstance(value, (property, bool)) or value is None
        return "" if is_fit else "is a property"
    if not inspect.isfunction(declared):
        is_fit = isinstance(value, (property, type(declared))) or (
            isinstance(declared, frozenset) and isinstance(value, (set, list, tuple))
        )
        return "" if is_fit else f"is {declared!r} or another {type(declared).__name__}"
    # None switches a hook off; a property is read, and a hook that never fires warned of, in a run
    if name in HOOKS and (
        value is None or isinstance(value, property) or (skip and not HOOKS[name].takes_module)
    ):
        return ""
    if name in HOOKS:
        arguments = HOOKS[name].arguments[skip:]
    else:
        positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = signature_of(declared).parameters.values()
        arguments = tuple(
            parameter.name for parameter in parameters if parameter.kind is positional
        )[1:]
    expected = f"is the method {name}({', '.join(('self', *arguments))})"
    if isinstance(value, (staticmethod, classmethod)):
        of_class, value = isinstance(value, classmethod), value.__func__
    if not callable(value):
        return expected
    # of other callables of a class, such as a partialmethod, only the bound form is known
    takes_self = ("self",) if of_class and inspect.isfunction(value) else ()
    return "" if _takes(value, (*takes_self, *arguments)) else expected


def _is_composer_method(name: str, method: object) -> bool:
    """Return whether a method takes a state and a logger, as those that Composer calls do."""
    if not callable(method):
        return False
    if name in _COMMON_WORDS:
        try:
            return tuple(signature_of(method).parameters) == ("state", "logger")
        except (TypeError, ValueError):
            return False
    return _takes(method, ("state", "logger"))


def _attribute(implementer: object, name: str) -> object:
    """Return an attribute, or the exception that reading it raised, which is no callable."""
    try:
        return getattr(ours_if_left(implementer, name), name)
    except Exception as error:  # noqa: BLE001 - a property may fail in any way
        return error


def _takes(method: object, arguments: tuple[str, ...]) -> bool:
    """Return whether `method` takes `arguments` by position, with or without `dataloader_idx`."""
    # a run passes the index only where there are several loaders
    needed = [name for name in arguments if name != "dataloader_idx"]
    counts = len(arguments), len(needed)
    plain = _plain_function(method)
    if plain is not None:
        function, given = plain
        return any(_takes_count(function, given + count) for count in counts)
    try:
        signature = signature_of(method)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # some callables written in C have no signature
        return True
    for count in counts:
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        return True
    return False


def _plain_function(method: object) -> tuple[FunctionType, int] | None:
    """Return the function behind a method and the number of arguments that it brings, or None.

    None stands for a callable that is no plain function, of which `inspect.signature` knows more.
    """
    given = 0
    if isinstance(method, MethodType):
        method, given = method.__func__, 1
    # the relay calls a hook without the wrapper that accepts other names of its arguments
    method = declared_hook(method) or method
    if not isinstance(method, FunctionType) or _OTHER_SIGNATURE & method.__dict__.keys():
        return None
    return method, given


def _takes_count(function: FunctionType, count: int) -> bool:
    """Return whether a function takes that many positional arguments, and needs no others."""
    # not `inspect.signature`, which takes longer than all the other checks of a run's start
    code, defaults = function.__code__, function.__kwdefaults__ or {}
    keywords = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
    has_room = count <= code.co_argcount or code.co_flags & inspect.CO_VARARGS
    least = code.co_argcount - len(function.__defaults__ or ())
    return bool(has_room) and count >= least and all(name in defaults for name in keywords)
