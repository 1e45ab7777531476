"""Destinations over the loggers of trainer_hooks for Comet and Neptune."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.compat.composer.loggers.hosted import Hosted, refuse_artifacts

if TYPE_CHECKING:
    from trainer_hooks.loggers import Logger

__all__ = ["CometMLLogger", "NeptuneLogger"]


class CometMLLogger(Hosted):
    """Log to Comet.

    Args:
        workspace: the workspace.
        project_name: the project.
        name: the name of the run; the trainer's `run_name` unless given.
        rank_zero_only: True; the first process logs.
        exp_kwargs: what else the experiment is given.
    """

    def __init__(
        self,
        workspace: str | None = None,
        project_name: str | None = None,
        name: str | None = None,
        rank_zero_only: bool = True,
        exp_kwargs: dict[str, Any] | None = None,
    ) -> None:
        def make(run_name: str) -> Logger:
            from trainer_hooks.loggers import CometLogger

            extra = {"experiment_name": name or run_name, **(exp_kwargs or {})}
            return CometLogger(workspace=workspace, project=project_name, **extra)

        super().__init__(make)


class NeptuneLogger(Hosted):
    """Log to Neptune.

    Args:
        project: the project.
        api_token: the token; that of the environment unless given.
        rank_zero_only: True; the first process logs.
        upload_artifacts: False; checkpoints go to `save_folder`.
        base_namespace: what is put before each name.
        neptune_kwargs: what else the run is given.

    Raises:
        OptionError: `upload_artifacts` is True.
    """

    def __init__(
        self,
        *,
        project: str | None = None,
        api_token: str | None = None,
        rank_zero_only: bool = True,
        upload_artifacts: bool = False,
        base_namespace: str = "training",
        **neptune_kwargs: Any,
    ) -> None:
        refuse_artifacts("NeptuneLogger", upload_artifacts)

        def make(run_name: str) -> Logger:
            from trainer_hooks.loggers import NeptuneLogger as Native

            return Native(
                api_key=api_token,
                project=project,
                prefix=base_namespace,
                **{"name": run_name, **neptune_kwargs},
            )

        super().__init__(make)
