"""Logger destinations for experiment trackers, over the loggers of trainer_hooks."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from trainer_hooks.adapters.composer.loggers import NativeDestination
from trainer_hooks.compat.composer.loggers.logger_destination import LoggerDestination
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from trainer_hooks.compat.composer.core.state import State
    from trainer_hooks.compat.composer.loggers.logger import Logger
    from trainer_hooks.loggers.base import Logger as NativeLogger

__all__ = [
    "CometMLLogger",
    "MLFlowLogger",
    "NativeLoggerDestination",
    "TensorboardLogger",
    "WandBLogger",
    "refuse_artifacts",
]


class NativeLoggerDestination(NativeDestination, LoggerDestination):  # type: ignore[misc] # as Callback
    """A destination that writes to a logger of trainer_hooks.

    Args:
        make: a function of the run's name that returns the logger; it is called at `Event.INIT`.

    Attributes:
        logger: the logger; None before `Event.INIT`.

    State: the tracker's id of the run, so that a resume continues it.
    """

    def __init__(self, make: Callable[[str], NativeLogger]) -> None:
        super().__init__()
        self._make = make
        self.logger: NativeLogger | None = None

    @property
    def state_key(self) -> str:
        """The class, with its name as an argument."""
        return self._generate_state_key(logger=type(self).__name__)

    def state_dict(self) -> dict[str, Any]:
        """Return the data by which the logger finds its run again."""
        return {"run": {} if self.logger is None else self.logger.run_state()}

    @checks_state({"run": dict[str, Any]})
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue the run of a checkpoint."""
        if self.logger is not None and state_dict["run"]:
            self.logger.resume_run(dict(state_dict["run"]))

    def init(self, state: State, logger: Logger) -> None:
        """Make the logger, unless it exists from an earlier trainer."""
        if self.logger is None:
            self.logger = self._make(state.run_name)

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Log metrics."""
        if self.logger is not None:
            self.logger.log_metrics(_as_numbers(metrics), step)

    def native_loggers(self) -> list[NativeLogger]:
        """Return the logger in a list; an empty one before `Event.INIT`."""
        return [] if self.logger is None else [self.logger]

    def fit_end(self, state: State, logger: Logger) -> None:
        """Write the logger's buffer."""
        if self.logger is not None:
            self.logger.save()

    def close(self, state: State, logger: Logger) -> None:
        """Finish the run in the tracker."""
        if self.logger is not None:
            self.logger.finalize("success")


class WandBLogger(NativeLoggerDestination):
    """Log to Weights & Biases; the run ends as the trainer is closed.

    Args:
        project: the project of the run.
        group: the group of the run.
        name: the name of the run; the trainer's `run_name` unless given.
        entity: the user or team that owns the run.
        tags: the tags of the run.
        log_artifacts: False; checkpoints go to `save_folder`.
        rank_zero_only: True; rank 0 logs.
        init_kwargs: other arguments of `wandb.init`.

    Raises:
        OptionError: `log_artifacts` is True.
    """

    def __init__(
        self,
        project: str | None = None,
        group: str | None = None,
        name: str | None = None,
        entity: str | None = None,
        tags: list[str] | None = None,
        log_artifacts: bool = False,
        rank_zero_only: bool = True,
        init_kwargs: dict[str, Any] | None = None,
    ) -> None:
        refuse_artifacts("WandBLogger", log_artifacts)
        arguments = {"group": group, "entity": entity, "tags": tags}
        arguments = {key: value for key, value in arguments.items() if value is not None}
        extra = {**(init_kwargs or {}), **arguments}
        # a name or project in init_kwargs is overridden by the argument
        chosen_name = extra.pop("name", None) if name is None else name
        chosen_project = extra.pop("project", None) if project is None else project

        def make(run_name: str) -> NativeLogger:
            from trainer_hooks.loggers import WandbLogger

            return WandbLogger(name=chosen_name or run_name, project=chosen_project, **extra)

        super().__init__(make)

    def post_close(self) -> None:
        """End the run, so that the next trainer of the process begins one of its own."""
        # without the package no run was begun
        run = getattr(sys.modules.get("wandb"), "run", None)
        if self.logger is not None and run is not None and run.id == self.logger.version:
            run.finish(0 if sys.exc_info()[0] is None else 1)


class TensorboardLogger(NativeLoggerDestination):
    """Write files for TensorBoard.

    Args:
        log_dir: the folder, which gets a folder for each run; `tensorboard_logs` unless given.
        flush_interval: kept, and not used.
        rank_zero_only: True; rank 0 logs.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] | None = None,
        flush_interval: int = 100,
        rank_zero_only: bool = True,
    ) -> None:
        def make(run_name: str) -> NativeLogger:
            from trainer_hooks.loggers import TensorBoardLogger

            return TensorBoardLogger(log_dir or "tensorboard_logs", name=None, version=run_name)

        super().__init__(make)
        self.log_dir, self.flush_interval = log_dir, flush_interval


class MLFlowLogger(NativeLoggerDestination):
    """Log to MLflow.

    Args:
        experiment_name: the experiment of the run.
        run_name: the name of the run; the trainer's `run_name` unless given.
        tags: the tags of the run.
        tracking_uri: the address of the tracking server, or a folder.
        rank_zero_only: True; rank 0 logs.
        synchronous: whether each call waits until the server has the value.
        rename_metrics: new names for metrics, by their logged names.
        ignore_metrics: names of metrics that are left out.
    """

    def __init__(
        self,
        experiment_name: str | None = None,
        run_name: str | None = None,
        tags: dict[str, Any] | None = None,
        tracking_uri: str | os.PathLike[str] | None = None,
        rank_zero_only: bool = True,
        *,
        synchronous: bool = False,
        rename_metrics: dict[str, str] | None = None,
        ignore_metrics: list[str] | None = None,
    ) -> None:
        def make(name: str) -> NativeLogger:
            from trainer_hooks.loggers import MLflowLogger

            return MLflowLogger(
                # Composer's default
                experiment_name or "my-mlflow-experiment",
                run_name=run_name or name,
                tracking_uri=None if tracking_uri is None else str(tracking_uri),
                tags=tags,
                synchronous=synchronous,
            )

        super().__init__(make)
        self.rename_metrics, self.ignore_metrics = rename_metrics or {}, ignore_metrics or []

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Log metrics under their new names, without those to ignore."""
        super().log_metrics(
            {
                self.rename_metrics.get(name, name): value
                for name, value in metrics.items()
                if name not in self.ignore_metrics
            },
            step,
        )


def refuse_artifacts(where: str, value: bool) -> None:
    """Raise an error if a destination is to upload files.

    Args:
        where: the class of the destination, for the error.
        value: whether it is to upload files.

    Raises:
        OptionError: it is.
    """
    if value:
        raise OptionError(
            f"{where}: files are not sent to it. Give save_folder an address such as "
            "'s3://bucket/run'."
        )


def _as_numbers(metrics: dict[str, Any]) -> dict[str, Any]:
    """Return metrics with tensors of one element as numbers."""
    return {
        name: value.item() if getattr(value, "numel", None) and value.numel() == 1 else value
        for name, value in metrics.items()
    }


class CometMLLogger(NativeLoggerDestination):
    """Log to Comet.

    Args:
        workspace: the workspace of the experiment.
        project_name: the project of the experiment.
        name: the name of the run; the trainer's `run_name` unless given.
        rank_zero_only: True; rank 0 logs.
        exp_kwargs: other arguments of the experiment.
    """

    def __init__(
        self,
        workspace: str | None = None,
        project_name: str | None = None,
        name: str | None = None,
        rank_zero_only: bool = True,
        exp_kwargs: dict[str, Any] | None = None,
    ) -> None:
        def make(run_name: str) -> NativeLogger:
            from trainer_hooks.loggers import CometLogger

            # a name among the user's arguments takes precedence
            extra = {"experiment_name": name or run_name, **(exp_kwargs or {})}
            return CometLogger(workspace=workspace, project=project_name, **extra)

        super().__init__(make)
