"""Public names of our classes that the user's subclasses of a class may use for their own.

Code for another framework derives from a class of a compatibility package, which derives from ours
and inherits names that the other framework's class has not. `leave_to_user` hides them there: a
subclass may use them for anything, the package does not call it, and `ours` still finds the
package's own.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    # type checkers know a property by the builtin decorator alone
    own_property = property
else:

    class own_property(property):  # noqa: N801 - a decorator
        """A property whose error names the cure where somebody sets it for a value of their own."""

        def __set__(self, instance: object, value: object) -> None:
            """Raise an AttributeError with the cure."""
            raise AttributeError(clash_message(type(instance), self.fget.__name__, "is read only"))


_PACKAGE = f"{__name__.partition('.')[0]}."
_TABLE = "__names_left_to_user__"


class _LeftToUser:
    """Hide an inherited name: reading it is an AttributeError, and any value may be set.

    A class of the user's that comes later in the order of bases, as a mixin does, still has it. It
    has no `__set__`, so that a value on the instance comes first; and `nn.Module` looks for a
    parameter, buffer or submodule of the name where reading the class fails.

    Args:
        is_hidden: if False, reading the name returns the package's own attribute.
    """

    def __init__(self, *, is_hidden: bool) -> None:
        self._is_hidden = is_hidden

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> Any:
        for kind in owner.__mro__:
            if self._name in vars(kind) and not is_of_package(kind):
                return _bound(vars(kind)[self._name], instance, owner)
        if not self._is_hidden:
            return _bound(_our_definition(owner, self._name), instance, owner)
        raise AttributeError(
            f"{owner.__qualname__!r} object has no attribute {self._name!r}",
            name=self._name,
            obj=instance,
        )


def _bound(value: Any, instance: object, owner: type) -> Any:
    """Return a class's attribute as Python's own look-up does: functions and properties bound."""
    bind = getattr(type(value), "__get__", None)
    return value if bind is None else bind(value, instance, owner)


class _OurView:
    """The package's own attributes of an object, whatever its user's classes define."""

    __slots__ = ("_owner",)

    def __init__(self, owner: object) -> None:
        self._owner = owner

    def __getattr__(self, name: str) -> Any:
        owner = self._owner
        return _bound(_our_definition(type(owner), name), owner, type(owner))


def _our_definition(kind: type, name: str) -> Any:
    """Return the attribute of a name that the package's own classes among the bases of `kind` hold.

    Raises:
        AttributeError: none of them has the name.
    """
    for base in kind.__mro__:
        value = vars(base).get(name)
        if name in vars(base) and is_of_package(base) and not isinstance(value, _LeftToUser):
            return value
    raise AttributeError(f"{kind.__qualname__!r} has no {name!r} of ours")


def is_of_package(kind: type) -> bool:
    """Return whether a class is defined in this package."""
    return f"{kind.__module__}.".startswith(_PACKAGE)


def clash_message(kind: type, name: str, fault: str) -> str:
    """Return the message for a name of ours that a class or its object uses for its own.

    Args:
        kind: the class.
        name: the name.
        fault: the rule that is broken, as a verb phrase.
    """
    return (
        f"{name!r} of class {kind.__qualname__}: trainer_hooks uses this name itself, and there it "
        f"{fault}. Give yours another name, such as {'my_' + name!r}, unless you mean that one."
    )


def leave_to_user(kind: type, names: Iterable[str], *, is_hidden: bool = True) -> None:
    """Leave names that `kind` inherits to the user's subclasses of it.

    Args:
        kind: the class.
        names: the names.
        is_hidden: whether the class itself has them no longer.
    """
    left = frozenset(names)
    for name in left:
        stand_in = _LeftToUser(is_hidden=is_hidden)
        stand_in.__set_name__(kind, name)
        setattr(kind, name, stand_in)
    setattr(kind, _TABLE, left | names_left_to_user(kind))


def names_left_to_user(kind: type) -> frozenset[str]:
    """Return the names that a class leaves to the user: none unless it derives from such a class.

    In a subclass they are no hooks and no options, whatever stands under them.
    """
    left: frozenset[str] = getattr(kind, _TABLE, frozenset())
    return left


def uncalled_methods(kind: type) -> dict[str, str]:
    """Return the advice for the methods of a user's class that Lightning calls, and nothing here.

    They stand in `uncalled.toml`. A method that the class itself calls is a helper, too, and has no
    advice.
    """
    if is_of_package(kind) or not _bases_of_package(kind):
        return {}
    users = [vars(base) for base in kind.__mro__ if not is_of_package(base)]
    called = {
        word
        for members in users
        for name, value in members.items()
        for word in _names_in(value) - {name}
    }
    return {
        method: advice
        for method, advice in advice_for_methods(kind).items()
        if method not in called and any(callable(members.get(method)) for members in users)
    }


def advice_for_methods(kind: type) -> dict[str, str]:
    """Return the advice for each method that Lightning calls on such a class, and nothing here."""
    bases = _bases_of_package(kind)
    return {
        method: advice
        for advice, methods_of in _uncalled().items()
        for base in methods_of.keys() & bases
        for method in methods_of[base].split()
    }


def _bases_of_package(kind: type) -> set[str]:
    """Return the names of the bases of a class under which `uncalled.toml` may have methods."""
    bases = {base.__name__: base.__module__ for base in kind.__mro__ if is_of_package(base)}
    if not names_left_to_user(kind):
        # here such a class has hooks that Lightning 2 has no longer
        bases = {n: home for n, home in bases.items() if home.startswith(f"{_PACKAGE}callbacks.")}
    return {*bases}


@cache
def _uncalled() -> dict[str, dict[str, str]]:
    import tomllib  # not at the top: only the checks of some users' classes need it

    text = Path(__file__).with_name("uncalled.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _names_in(member: Any) -> set[str]:
    """Return the names of attributes and globals that a member of a class uses."""
    function = getattr(member, "fget", None) or getattr(member, "__func__", member)
    codes = [getattr(function, "__code__", None)]
    names: set[str] = set()
    for code in codes:
        # a lambda or a comprehension has a code of its own, among the constants
        names.update(getattr(code, "co_names", ()))
        codes += [part for part in getattr(code, "co_consts", ()) if hasattr(part, "co_names")]
    return names


def class_attribute(kind: type, name: str) -> Any:
    """Return a class's attribute or None; of a name left to the user the package's own."""
    if name not in names_left_to_user(kind):
        return getattr(kind, name, None)
    try:
        return _bound(_our_definition(kind, name), None, kind)
    except AttributeError:
        return None


def ours_if_left(owner: Any, name: str) -> Any:
    """Return the object from which to read an attribute that the package calls, such as a hook.

    It is `ours(owner)` if its class leaves the name to the user, else `owner` itself.
    """
    return ours(owner) if name in names_left_to_user(type(owner)) else owner


def ours(owner: Any) -> Any:
    """Return an object whose attributes are the package's own, for names that may be the user's.

    It is `owner` itself unless its class leaves names to the user.
    """
    return _OurView(owner) if names_left_to_user(type(owner)) else owner
