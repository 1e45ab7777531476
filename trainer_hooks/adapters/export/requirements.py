"""Check a callback as it is converted, and that a host's trainer has the members that it uses.

The hooks are those that it overrides. The attributes of the trainer are read from the code of those
hooks and of the methods and functions that they call: each is loaded from a variable `trainer`.
"""

from __future__ import annotations

import dis
import importlib
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from trainer_hooks.adapters.export.plugins import driver_of
from trainer_hooks.callback import Callback
from trainer_hooks.connector.registry import (
    CallbackEntry,
    check_hooks,
    hooks_declared_by_bases,
    package_note,
    validate_callback,
)
from trainer_hooks.errors import CallbackError
from trainer_hooks.hooks.check import hook_warnings
from trainer_hooks.hooks.discovery import installed_hooks
from trainer_hooks.hooks.spec import HOOKS, declared_hook

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from trainer_hooks.adapters.export.host_trainer import HostTrainer

_PACKAGE = __name__.partition(".")[0]

_NOT_NEEDED = frozenset(
    {
        # nothing of them happens in a host: it has no such moment, or says nothing of it
        *("on_init_start", "on_init_end", "on_sanity_check_start", "on_sanity_check_end"),
        *("on_close", "on_post_close", "on_exception", "on_keyboard_interrupt"),
        *("on_stop_training_error", "on_checkpoint_saved", "on_log", "on_save_checkpoint"),
        *("on_iteration_start", "on_iteration_end", "on_iteration_checkpoint"),
        *("on_evaluation_run_start", "on_evaluation_run_end"),
    }
)
"""Hooks without which a callback does in a fit what it does here."""

_AROUND = frozenset(
    ("setup", "teardown", "on_init_start", "on_init_end", "on_exception", "on_save_checkpoint")
)
"""Hooks that come with the others of a run, and say nothing of which run is meant."""

_ONLY_IN = ("on_test_", "on_predict_", "on_validation_")
"""The beginnings of the names of hooks that belong to another run than a fit without validation."""

_USED_WITH: dict[str, Callable[[Any], bool]] = {
    "save_in_background": lambda callback: bool(callback.async_save),
    "validate_again": lambda callback: getattr(callback, "evaluate_during_training", True),
}
"""Names of our Trainer that a callback reads with some options only, and whether it does."""

_REFUSED_WITH: dict[str, Callable[[Any], bool]] = {
    "SaveBestModelCallback": lambda callback: callback.load_saved_checkpoint,
}
"""Callbacks among those that a host refuses that it refuses with some options only."""


def check_callback(callback: Any, function: str) -> None:
    """Check a callback that is to be converted, as our Trainer checks its callbacks.

    A hook that is probably misspelt is a warning.

    Args:
        callback: the callback, or any other object that the user gave.
        function: the function that the user called, for messages.

    Raises:
        CallbackError: it is no callback of ours, or one that cannot be registered.
    """
    where = f"the callback of {function}(...)"
    kind = callback if isinstance(callback, type) else type(callback)
    if driver_of(callback) is not None or kind.__module__.startswith(__package__):
        raise CallbackError(
            f"{where} is {kind.__qualname__}, which is converted already. Pass it to the trainer "
            "of its framework."
        )
    if not issubclass(kind, Callback | str):
        raise CallbackError(
            f"{where} is {callback!r} of type {type(callback).__qualname__}"
            f"{package_note(callback)}: it must be an instance of trainer_hooks.Callback. Pass a "
            "callback of another framework to that framework's trainer, or to "
            "trainer_hooks.Trainer, as it is."
        )
    validate_callback(callback, where)
    # packages are imported only if their hooks may be meant
    is_doubtful = hook_warnings(callback, HOOKS, hooks_declared_by_bases(callback))
    hooks = {**HOOKS, **installed_hooks()} if is_doubtful else HOOKS
    check_hooks([CallbackEntry(callback, f"{function}(...)")], hooks, is_strict=False)


def check_requirements(
    callback: Callback,
    calls_by_hook: Mapping[str, Callable[..., Any]],
    events: Mapping[str, str],
    trainer: HostTrainer,
    function: str,
) -> frozenset[str]:
    """Return the attributes that a callback will use; check that the host has these and the hooks.

    Args:
        callback: the callback.
        calls_by_hook: the hooks that it overrides, with the function to call for each.
        events: the hooks that are called in the host.
        trainer: the view of the host's trainer.
        function: the function that the user called, for the error.

    Raises:
        CallbackError: it lacks one.
    """
    view = type(trainer)
    name, framework = type(callback).__qualname__, view.framework
    for kind in type(callback).__mro__:
        is_refused = kind.__name__ in view.refuses and kind.__module__.startswith(_PACKAGE)
        if is_refused and _REFUSED_WITH.get(kind.__name__, lambda _: True)(callback):
            raise CallbackError(
                f"{function}({name}): it cannot run in {framework}. {view.refuses[kind.__name__]} "
                "Run the callback in trainer_hooks.Trainer."
            )
    lacking = [
        hook
        for hook in calls_by_hook
        if hook not in events and hook not in _NOT_NEEDED and not hook.startswith(_ONLY_IN)
    ]
    if lacking:
        reasons = "".join(f" {view.lacks[hook]}" for hook in lacking if hook in view.lacks)
        raise CallbackError(
            f"{function}({name}): {framework} has no hook {', '.join(map(repr, lacking))}."
            f"{reasons} Run the callback in trainer_hooks.Trainer, or do what it does there in a "
            "hook that both have."
        )
    calls = [call for hook, call in calls_by_hook.items() if hook in events]
    inside = calls_by_hook.keys() - _AROUND
    if inside and not inside & events.keys():
        listed = ", ".join(map(repr, calls_by_hook))
        raise CallbackError(
            f"{function}({name}): none of its hooks {listed} is called in {framework}, so it would "
            "do nothing. Run the callback in trainer_hooks.Trainer."
        )
    used = used_attributes(callback, calls)
    missing = [
        attribute
        for attribute in used
        # the counters are all there
        if not attribute.startswith("progress.")
        and (attribute in view.lacks or not trainer.offers(attribute.removesuffix(" =")))
        and _USED_WITH.get(attribute, lambda _: True)(callback)
    ]
    # one with a reason first
    for attribute in sorted(missing, key=lambda attribute: attribute not in view.lacks)[:1]:
        reason = view.lacks.get(attribute, "It has no counterpart there.")
        owner = f"{framework}'" if framework.endswith("s") else f"{framework}'s"
        is_set = attribute.endswith(" =")
        lack = f"does not let {attribute[:-2]!r} be set" if is_set else f"has no {attribute!r}"
        raise CallbackError(
            f"{function}({name}): {owner} trainer {lack}, which {name}.{used[attribute]} "
            f"{'does' if is_set else 'reads'}. {reason} Run the callback in trainer_hooks.Trainer."
        )
    return frozenset(used)


def used_attributes(callback: Callback, calls: Iterable[Callable[..., Any]]) -> dict[str, str]:
    """Return the attributes of the trainer that a callback's hooks use, with the method that does.

    A counter is named `progress.samples_completed` and so on.

    Args:
        callback: the callback.
        calls: the functions that are called at its hooks.
    """
    used: dict[str, str] = {}
    seen: set[CodeType] = set()
    read: set[FunctionType] = set()
    waiting = [function for call in calls if (function := _function_of(call)) is not None]
    while waiting:
        function = waiting.pop()
        if function in read:
            continue
        read.add(function)
        # a function that calls others for a hook, such as a class's own and that of an event; all
        # of them have one code, so that it comes before the look at the code
        waiting += _enclosed_functions(function)
        if function.__code__ in seen:
            continue
        for code in _nested(function.__code__):
            seen.add(code)
            for owner, attribute in _loads(code):
                if owner in ("trainer", "_trainer"):
                    used.setdefault(attribute, function.__name__)
                elif owner == "progress":
                    used.setdefault(f"progress.{attribute}", function.__name__)
                elif owner == "self":
                    waiting += _functions_named(callback, attribute)
            waiting += _called_functions(function, code)
    return used


def _function_of(call: Any) -> FunctionType | None:
    inner = getattr(call, "func", call)  # a partial
    inner = inner.__func__ if isinstance(inner, MethodType) else inner
    declared = declared_hook(inner)
    inner = declared if isinstance(declared, FunctionType) else inner
    return inner if isinstance(inner, FunctionType) else None


def _enclosed_functions(function: FunctionType) -> Iterator[FunctionType]:
    """Yield the functions of the package that a function encloses."""
    for cell in function.__closure__ or ():
        try:
            inner = _function_of(cell.cell_contents)
        except ValueError:  # a name that its function has not set yet
            continue
        if inner is not None and inner.__module__.startswith(_PACKAGE):
            yield inner


def _functions_named(callback: Callback, name: str) -> Iterator[FunctionType]:
    """Yield the functions behind an attribute of a callback: a method, property or part of it."""
    part = type(vars(callback).get(name))
    if part.__module__.startswith(_PACKAGE) and not issubclass(part, Callback):
        yield from (item for item in vars(part).values() if isinstance(item, FunctionType))
    value = getattr(type(callback), name, None)
    function = _function_of(value.fget if isinstance(value, property) else value)
    if function is not None:
        yield function


def _called_functions(function: FunctionType, code: CodeType) -> Iterator[FunctionType]:
    """Yield the functions of the package that a code names, and those of its classes."""
    for name in code.co_names:
        value = function.__globals__.get(name)
        if not getattr(value, "__module__", "").startswith(_PACKAGE):
            continue
        if isinstance(value, FunctionType):
            yield value
        # a part of the callback, in its own file; another callback is only asked for
        elif (
            isinstance(value, type)
            and value.__module__ == function.__module__
            and not issubclass(value, Callback)
        ):
            yield from (part for part in vars(value).values() if isinstance(part, FunctionType))


def _nested(code: CodeType) -> Iterator[CodeType]:
    """Yield a code and those of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _loads(code: CodeType) -> Iterator[tuple[str, str]]:
    """Yield the attributes that a code loads, with the name of the variable or attribute before.

    One that it sets is followed by ` =`.
    """
    before: Any = None
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR"):
            # from Python 3.13 on one instruction may load two variables
            owner = before[-1] if isinstance(before, tuple) else before
            is_set = instruction.opname == "STORE_ATTR"
            if isinstance(owner, str):
                yield owner, f"{instruction.argval}{' =' if is_set else ''}"
        before = instruction.argval


def import_host_framework(module: str, framework: str, function: str, install: str) -> Any:
    """Return a module of a host framework.

    Args:
        module: the module's name.
        framework: the host framework, for the error.
        function: the function that the user called, for the error.
        install: the argument of `pip install`, for the error.

    Raises:
        CallbackError: the framework, or a package that it imports, is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or module.partition(".")[0] == error.name.partition(".")[0]:
            lack, wanted = f"{framework} is not installed", f"pip install {install}"
        else:
            lack = f"{framework} cannot be imported, as it lacks {error.name!r}"
            wanted = f"pip install {error.name.partition('.')[0]}"
        raise CallbackError(f"{function}: {lack}. Install it: {wanted}.") from error
