"""Destinations over the loggers of trainer_hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.compat.composer.loggers.destination import LoggerDestination
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from trainer_hooks.compat.composer.core.state import State
    from trainer_hooks.compat.composer.loggers.logger import Logger as Fan
    from trainer_hooks.loggers import Logger

__all__ = [
    "Hosted",
    "MLFlowLogger",
    "TensorboardLogger",
    "WandBLogger",
    "refuse_artifacts",
]


class Hosted(LoggerDestination):
    """Hand everything to a logger of trainer_hooks.

    Args:
        make: makes it, of the name of the run; it is called at `Event.INIT`.

    Attributes:
        logger: it, once it is made; None before.

    State: what finds the run again.
    """

    def __init__(self, make: Callable[[str], Logger]) -> None:
        super().__init__()
        self._make = make
        self._found: dict[str, Any] | None = None
        self.logger: Logger | None = None

    @property
    def state_key(self) -> str:
        """The class's name and those of its logger."""
        return self._generate_state_key(logger=type(self).__name__)

    def state_dict(self) -> dict[str, Any]:
        """Return what finds the run again."""
        return {"run": {} if self.logger is None else self.logger.run_state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with the run of a checkpoint."""
        if self.logger is not None and state_dict["run"] and state_dict["run"] != self._found:
            self._found = dict(state_dict["run"])
            self.logger.resume_run(self._found)

    def init(self, state: State, logger: Fan) -> None:
        """Make the logger."""
        if self.logger is None:
            self.logger = self._make(state.run_name)

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Hand values on."""
        if self.logger is not None:
            self.logger.log_metrics(_plain(metrics), step)

    def log_hyperparameters(self, hyperparameters: dict[str, Any]) -> None:
        """Hand hyperparameters on."""
        if self.logger is not None:
            self.logger.log_hyperparams(hyperparameters)

    def log_table(
        self,
        columns: list[str],
        rows: list[list[Any]],
        name: str = "Table",
        step: int | None = None,
    ) -> None:
        """Hand a table on."""
        if self.logger is not None:
            self.logger.log_table(name, columns, rows, step=step)

    def log_images(
        self,
        images: Any,
        name: str = "Images",
        channels_last: bool = False,
        step: int | None = None,
        masks: dict[str, Any] | None = None,
        mask_class_labels: dict[int, str] | None = None,
        use_table: bool = True,
    ) -> None:
        """Hand images on, without masks."""
        if self.logger is not None:
            self.logger.log_images(images, name, channels_last, step)

    def fit_end(self, state: State, logger: Fan) -> None:
        """Write out what is still in memory."""
        if self.logger is not None:
            self.logger.save()

    def close(self, state: State, logger: Fan) -> None:
        """Finish the run."""
        if self.logger is not None:
            self.logger.finalize("success")


class WandBLogger(Hosted):
    """Log to Weights & Biases.

    Args:
        project: the project.
        group: the group.
        name: the name of the run; the trainer's `run_name` unless given.
        entity: the user or team.
        tags: tags.
        log_artifacts: False; checkpoints go to `save_folder`.
        rank_zero_only: True; the first process logs.
        init_kwargs: what else `wandb.init` is given.

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
        given = {"group": group, "entity": entity, "tags": tags}
        extra = {**(init_kwargs or {}), **{key: v for key, v in given.items() if v is not None}}
        wanted = extra.pop("name", None) if name is None else name
        place = extra.pop("project", None) if project is None else project

        def make(run_name: str) -> Logger:
            from trainer_hooks.loggers import WandbLogger

            return WandbLogger(name=wanted or run_name, project=place, **extra)

        super().__init__(make)


class TensorboardLogger(Hosted):
    """Write files for TensorBoard.

    Args:
        log_dir: the folder; `tensorboard_logs` unless given. Each run has one of its own in it.
        flush_interval: kept, and not used.
        rank_zero_only: True; the first process logs.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] | None = None,
        flush_interval: int = 100,
        rank_zero_only: bool = True,
    ) -> None:
        def make(run_name: str) -> Logger:
            from trainer_hooks.loggers import TensorBoardLogger

            return TensorBoardLogger(log_dir or "tensorboard_logs", name=None, version=run_name)

        super().__init__(make)
        self.log_dir, self.flush_interval = log_dir, flush_interval


class MLFlowLogger(Hosted):
    """Log to MLflow.

    Args:
        experiment_name: the experiment.
        run_name: the run; the trainer's `run_name` unless given.
        tags: tags.
        tracking_uri: where to.
        rank_zero_only: True; the first process logs.
        synchronous: whether each call waits until it is written.
        rename_metrics: other names for metrics.
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
        def make(name: str) -> Logger:
            from trainer_hooks.loggers import MLflowLogger

            return MLflowLogger(
                experiment_name or "my-mlflow-experiment",
                run_name=run_name or name,
                tracking_uri=None if tracking_uri is None else str(tracking_uri),
                tags=tags,
                synchronous=synchronous,
            )

        super().__init__(make)
        self.rename_metrics, self.ignore_metrics = rename_metrics or {}, ignore_metrics or []

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Hand values on, under their other names."""
        super().log_metrics(
            {
                self.rename_metrics.get(name, name): value
                for name, value in metrics.items()
                if name not in self.ignore_metrics
            },
            step,
        )


def refuse_artifacts(where: str, value: bool) -> None:
    """Make sure that a destination is not asked to keep files."""
    if value:
        raise OptionError(
            f"{where}: files are not sent to it. Give save_folder an address such as "
            "'s3://bucket/run'."
        )


def _plain(metrics: dict[str, Any]) -> dict[str, Any]:
    """Return tensors of one element as numbers."""
    return {
        name: value.item() if getattr(value, "numel", None) and value.numel() == 1 else value
        for name, value in metrics.items()
    }
