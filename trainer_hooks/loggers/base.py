"""Logger: where a run's metrics and hyperparameters are written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence

    from torch import nn

__all__ = ["Logger"]


class Logger(ABC):
    """Write metrics and hyperparameters somewhere. Only `log_metrics` must be defined.

    The trainer calls a logger on the main process only, with plain numbers. What a logger has no
    place for, as images in a CSV file, it leaves out: callbacks hand everything to every logger.

    In a run an error of a logger is held back, reported, and what the logger was given is kept and
    given again later. So a method that raises must have taken nothing of that call.
    """

    on_error: str = "report"
    """What an error does in a run: `"report"` reports the first with its traceback, and goes on and
    tries again; `"raise"` ends the run as any error does. Read at each error."""

    in_background: bool = False
    """Whether a run calls this logger from a thread of its own, in order, so that a slow server
    holds no step. Read when a run begins."""

    @property
    def name(self) -> str | None:
        """Return the name of the experiment."""
        return type(self).__name__

    @property
    def version(self) -> int | str | None:
        """Return what tells this run from others of the same name."""
        return None

    @property
    def save_dir(self) -> str | None:
        """Return the folder under which the files of all runs lie, if there are files."""
        return None

    @property
    def log_dir(self) -> str | None:
        """Return the folder of this run; asking for it creates nothing."""
        return self.save_dir

    @property
    def experiment(self) -> Any:
        """Return the object of the library that does the writing, made if need be; or None."""
        return None

    @abstractmethod
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Take the values of one moment; `step` is their place on the x axis."""

    def log_hyperparams(  # noqa: B027 - optional
        self, params: Mapping[str, Any] | Namespace
    ) -> None:
        """Take the hyperparameters of the run; a later call adds to them."""

    def log_graph(self, model: nn.Module, input_array: Any = None) -> None:  # noqa: B027
        """Take the model's graph.

        Args:
            model: the model.
            input_array: an input for its forward; `model.example_input_array` unless given.
        """

    def log_image(  # noqa: B027
        self,
        key: str,
        images: Sequence[Any],
        step: int | None = None,
        *,
        captions: Sequence[str] | None = None,
        channels_last: bool = False,
    ) -> None:
        """Take images.

        Args:
            key: the name that they are found under.
            images: tensors or arrays, each `(H, W)`, `(C, H, W)`, or `(H, W, C)` with
                `channels_last`; whole numbers from 0 to 255, or others from 0 to 1.
            step: their place on the x axis.
            captions: a text for each.
            channels_last: whether colours are the last dimension.
        """

    def log_images(
        self,
        images: Any,
        name: str = "Images",
        channels_last: bool = False,
        step: int | None = None,
    ) -> None:
        """Take images as `log_image` does, with Composer's arguments.

        Args:
            images: one image, a sequence of them, or a batch of shape `(N, C, H, W)`.
            name: the name that they are found under.
            channels_last: whether colours are the last dimension.
            step: their place on the x axis.
        """
        is_one = getattr(images, "ndim", 4) < 4 and not isinstance(images, list | tuple)
        self.log_image(
            name, [images] if is_one else list(images), step, channels_last=channels_last
        )

    def log_table(  # noqa: B027
        self,
        key: str,
        columns: Sequence[str] | None = None,
        data: Sequence[Sequence[Any]] | None = None,
        dataframe: Any = None,
        step: int | None = None,
    ) -> None:
        """Take a table.

        Args:
            key: the name that it is found under.
            columns: the names of its columns.
            data: its rows.
            dataframe: a pandas frame, instead of columns and rows.
            step: its place on the x axis.
        """

    def log_text(self, key: str, text: str, step: int | None = None) -> None:  # noqa: B027
        """Take a text.

        Args:
            key: the name that it is found under.
            text: it.
            step: its place on the x axis.
        """

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:  # noqa: B027
        """Learn that a checkpoint was saved, and is durable.

        Args:
            checkpoint_callback: a checkpoint callback of the trainer, its books up to date; for a
                logger in the background what these said at that moment, as attributes of the same
                names: `state_key`, `save_top_k`, `best_model_path`, `last_model_path` and
                `best_k_models`.
        """

    def run_state(self) -> dict[str, Any]:
        """Return, as plain data, what finds this run again and how far it is.

        Each checkpoint holds it; it is what `resume_run` is given.
        """
        return {}

    def resume_run(self, state: dict[str, Any]) -> None:  # noqa: B027 - optional
        """Go on with the run of a checkpoint, unless the user has chosen another one.

        What was logged after the checkpoint is going to be logged again; it must not stand there
        twice. Nothing is written before the first call that logs something.

        Args:
            state: what `run_state` returned when the checkpoint was saved.
        """

    def save(self) -> None:  # noqa: B027 - optional
        """Write out what is still held in memory."""

    def finalize(self, status: str) -> None:  # noqa: ARG002 - for those who override it
        """Finish after a run; `status` is `"success"` or `"failed"`.

        The logger may be used again afterwards: a trainer can fit twice.
        """
        self.save()
