"""LightningArgumentParser: the parser of a LightningCLI; importing it needs jsonargparse."""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from jsonargparse import Namespace, _typehints

from trainer_hooks.cli.run.parser import TrainerParser
from trainer_hooks.compat.lightning.modules import MODULES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["ArgsType", "LightningArgumentParser", "lightnings_names", "with_paths_here"]

_HERE = __name__.rpartition(".")[0]
_LIGHTNINGS = ("lightning.pytorch.", "pytorch_lightning.")
_ROOMS = ("callbacks", "loggers", "profilers", "strategies")
"""The modules in which a short name is looked for."""

ArgsType = list[str] | dict[str, Any] | Namespace | None
"""The command line that a `LightningCLI` may be given, `args`."""


class LightningArgumentParser(TrainerParser):
    """A `TrainerParser` whose environment variables begin with `PL_`."""

    def __init__(self, *args: Any, env_prefix: str = "PL", **kwargs: Any) -> None:
        super().__init__(*args, env_prefix=env_prefix, **kwargs)

    def add_lightning_class_args(
        self,
        lightning_class: type | Callable[..., Any],
        nested_key: str,
        subclass_mode: bool = False,
        required: bool = True,
    ) -> list[str]:
        """Add the arguments of a class, as `add_class_args` does."""
        return self.add_class_args(
            lightning_class, nested_key, subclass_mode=subclass_mode, required=required
        )

    def class_of(self, key: str, name: str) -> type | None:
        """Return the class of a short name or class path under a key, or None."""
        return super().class_of(key, _path_here(tuple(self._bases(key)), name) or name)


@contextmanager
def lightnings_names() -> Iterator[None]:
    """Let class names in configs and on the command line be those of Lightning's classes here.

    That is so for short names, which otherwise are those of the classes of trainer_hooks, and for
    Lightning's own paths, such as `lightning.pytorch.callbacks.ModelCheckpoint`.
    """
    # the one function through which jsonargparse reads both; the parser has no option for it
    resolve = _typehints.resolve_class_path_by_name

    def resolve_here(kind: Any, name: str) -> str:
        kinds = kind if isinstance(kind, tuple) else (kind,)
        return _path_here(kinds, name) or resolve(kind, name)

    _typehints.resolve_class_path_by_name = resolve_here  # type: ignore[assignment]
    try:
        yield
    finally:
        _typehints.resolve_class_path_by_name = resolve


def with_paths_here(value: Any) -> Any:
    """Return a config in which the class paths of Lightning are those of its classes here."""
    if isinstance(value, list):
        return [with_paths_here(item) for item in value]
    if not isinstance(value, dict):
        return value
    made = {key: with_paths_here(item) for key, item in value.items()}
    path = made.get("class_path")
    if isinstance(path, str):
        made["class_path"] = _path_here((object,), path) or path
    return made


def _path_here(kinds: tuple[Any, ...], name: str) -> str:
    """Return the path of Lightning's class of a name here, "" if there is none of these kinds."""
    package, _, class_name = name.rpartition(".")
    if not package:
        rooms = [room for room in _ROOMS if class_name in MODULES.exports(room)]
    else:
        below = next((package[len(p) :] for p in _LIGHTNINGS if f"{package}.".startswith(p)), None)
        if below is None or class_name not in MODULES.exports(below):
            return ""
        rooms = [below]
    for room in rooms:
        kind = getattr(import_module(f"{_HERE}.{room}".rstrip(".")), class_name)
        if any(isinstance(base, type) and issubclass(kind, base) for base in kinds):
            return f"{_HERE}.{room}.{class_name}"
    return ""
