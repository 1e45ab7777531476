"""HyperparametersMixin: the hyperparameters of a Module or DataModule, as attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import ModuleError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainer_hooks.checkpoint.hparams import HyperParameters
    from trainer_hooks.module.hyperparameters import SavedHyperparameters

    MethodOfClass = classmethod
else:

    class MethodOfClass(classmethod):
        """A classmethod that raises if called on an instance, which it would leave unchanged."""

        def __get__(self, instance: Any, owner: type | None = None) -> Callable[..., Any]:
            """Return the method bound to the class; for an instance, a function that raises."""
            return super().__get__(instance, owner) if instance is None else _refusal(owner)


__all__ = ["HyperparametersMixin", "MethodOfClass"]


class HyperparametersMixin:
    """Base class that keeps the arguments of `__init__` as hyperparameters.

    The modules that do the work are imported when hyperparameters are first used: a training
    without them does not load the code of checkpoints.
    """

    _kept: SavedHyperparameters | None = None

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
        from trainer_hooks.module.hyperparameters import collect_hyperparameters

        # it looks two frames up for `__init__`, so it must be called directly
        self._kept = collect_hyperparameters(self, self._kept, args, ignore, frame, logger)

    @property
    def hparams(self) -> HyperParameters:
        """The hyperparameters, as a dict with attributes."""
        if self._kept is None:
            from trainer_hooks.module.hyperparameters import SavedHyperparameters

            self._kept = SavedHyperparameters()
        return self._kept.current

    @property
    def hparams_initial(self) -> HyperParameters:
        """A copy of the hyperparameters as they were when they were saved."""
        from trainer_hooks.checkpoint.hparams import HyperParameters

        return HyperParameters() if self._kept is None else self._kept.copied()

    @property
    def saved_hparams(self) -> Mapping[str, Any] | None:
        """The hyperparameters that a checkpoint holds; None if none were saved."""
        return None if self._kept is None else self._kept.saved

    @property
    def hparams_name(self) -> str | None:
        """The argument of `__init__` that held all hyperparameters, if it was one."""
        return None if self._kept is None else self._kept.name

    @property
    def logged_hparams(self) -> Mapping[str, Any] | None:
        """The hyperparameters that loggers get, or None."""
        return self.hparams if self._kept is not None and self._kept.is_logged else None


def _refusal(kind: type[Any]) -> Callable[..., Any]:
    def load_from_checkpoint(*_: Any, **__: Any) -> Any:
        raise ModuleError(
            f"load_from_checkpoint was called on an object of {kind.__qualname__}: it makes a new "
            f"object, and this one would stay as it is. Write loaded = {kind.__name__}."
            "load_from_checkpoint(...)."
        )

    return load_from_checkpoint
