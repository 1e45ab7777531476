"""TunedAttribute: an attribute or hyperparameter of a module or data module that a finder sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainer_hooks._names import ours
from trainer_hooks.errors import UsageError, did_you_mean
from trainer_hooks.module.hyperparameters import HyperparametersMixin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainer_hooks.module.datamodule import DataModule
    from trainer_hooks.module.module import Module


class TunedAttribute:
    """A number that a module or data module keeps as an attribute, a hyperparameter, or both.

    Args:
        name: its name.
        owners: the module and data module that have it, as an attribute or in `hparams`.
    """

    def __init__(self, name: str, owners: Iterable[Any]) -> None:
        self.name = name
        self._owners = tuple(owners)

    def read(self) -> Any:
        """Return the value; an attribute takes precedence over a hyperparameter."""
        for owner in self._owners:
            if hasattr(owner, self.name):
                return getattr(owner, self.name)
        return _hparams(self._owners[0])[self.name]

    def write(self, value: Any) -> None:
        """Set the value in every owner, including the hyperparameters of checkpoints."""
        for owner in self._owners:
            hparams = _hparams(owner)
            if self.name in hparams:
                # not Lightning's, which would change the initial values and the argument's name
                is_ours = isinstance(owner, HyperparametersMixin)
                save = getattr(owner, "save_hyperparameters", None) if is_ours else None
                if save is None:
                    hparams[self.name] = value
                else:
                    # it updates the copies for checkpoints and loggers too; `logger` stays as it
                    # was
                    save({self.name: value}, logger=ours(owner).logged_hparams is not None)
            if hasattr(owner, self.name):
                # beside `hparams`: a module may have copied the hyperparameter to an attribute
                setattr(owner, self.name, value)


def find_tuned_attribute(
    names: tuple[str, ...], module: Module, datamodule: DataModule | None, where: str, option: str
) -> TunedAttribute:
    """Return the first of `names` that the module or data module has.

    Args:
        names: possible names, the preferred one first.
        module: the module, also one of Lightning.
        datamodule: the data module, also one of Lightning, or None.
        where: the finder, for the message.
        option: the finder's option that takes another name, for the message.

    Raises:
        UsageError: neither has an attribute of these names.
    """
    # of an adapter the object behind it, which has the attributes and the hyperparameters
    parts = [
        getattr(part, "lightning_object", part) for part in (module, datamodule) if part is not None
    ]
    for name in names:
        owners = [part for part in parts if hasattr(part, name) or name in _hparams(part)]
        if owners:
            return TunedAttribute(name, owners)
    attributes = [name for part in parts for name in (*vars(part), *_hparams(part))]
    raise UsageError(
        f"{where}: {type(module).__qualname__} has no {' and no '.join(map(repr, names))}, neither "
        f"as an attribute nor in hparams.{did_you_mean(names[0], attributes)} "
        f"Set self.{names[0]} in __init__ and use it, or pass {option} the name that it has."
    )


def _hparams(owner: Any) -> Any:
    hparams = getattr(owner, "hparams", None)
    return hparams if isinstance(hparams, Mapping) else {}
