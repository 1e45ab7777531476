"""Find and set a number that a module or data module keeps under a name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainer_hooks.module import DataModule, Module

__all__ = ["Setting", "find_setting"]


class Setting:
    """A number that a training goes by, wherever its module or data module keeps it.

    Args:
        name: its name.
        owners: the module and data module that have it, as an attribute or in `hparams`.
    """

    def __init__(self, name: str, owners: Iterable[Any]) -> None:
        self.name = name
        self._owners = tuple(owners)

    def read(self) -> Any:
        """Return it; an attribute comes before hyperparameters."""
        for owner in self._owners:
            if hasattr(owner, self.name):
                return getattr(owner, self.name)
        return _hparams(self._owners[0])[self.name]

    def write(self, value: Any) -> None:
        """Set it in every place where it is kept, checkpoints' hyperparameters included."""
        for owner in self._owners:
            hparams = _hparams(owner)
            if self.name in hparams:
                keep = getattr(owner, "save_hyperparameters", None)
                if keep is None:
                    hparams[self.name] = value
                else:
                    keep({self.name: value}, logger=owner.logged_hparams is not None)
            if hasattr(owner, self.name):
                setattr(owner, self.name, value)


def find_setting(
    names: tuple[str, ...], module: Module, datamodule: DataModule | None, where: str, option: str
) -> Setting:
    """Return the first of `names` that the module or data module has.

    Raises:
        UsageError: neither has any of them.
    """
    parts = [part for part in (module, datamodule) if part is not None]
    for name in names:
        owners = [part for part in parts if hasattr(part, name) or name in _hparams(part)]
        if owners:
            return Setting(name, owners)
    known = [name for part in parts for name in (*vars(part), *_hparams(part))]
    raise UsageError(
        f"{where}: {type(module).__qualname__} has no {' and no '.join(map(repr, names))}, neither "
        f"as an attribute nor in hparams.{nearest(names[0], known)} Set self.{names[0]} in "
        f"__init__ and use it, or pass {option} the name that it has."
    )


def _hparams(owner: Any) -> Any:
    found = getattr(owner, "hparams", None)
    return found if isinstance(found, Mapping) else {}
