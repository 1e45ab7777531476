"""Logger: the base class of everything that metrics and hyperparameters are written to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks.errors import OptionError
from trainer_hooks.hooks.check import definition_clash

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence

    from torch import nn


OWN_NAMES = frozenset(
    {"in_background", "on_error", "owns_run", "resume_run", "run_state", "unwritten_steps"}
)
"""Names that a logger of the user's cannot use for anything else."""


class GuardedCall(partial[None]):
    """The method of a logger that a run's guard has put in its place; copies leave it out."""


class Logger(ABC):
    """Base class of a logger. Only `log_metrics` must be defined.

    The trainer calls a logger on rank 0 only, with plain numbers. Callbacks pass every image, table
    and text to every logger; a logger ignores what it cannot show, such as images in a CSV file.

    During a run an error of a logger is reported and does not end the run: the call is kept and
    made again later. So a method that raises must not have stored any part of that call.
    """

    on_error: str = "report"
    """What an error does in a run: `"report"` reports the first with its traceback, and goes on and
    tries again; `"raise"` ends the run as any error does. Read at each error."""

    in_background: bool = False
    """Whether a run calls this logger from a thread of its own, in order, so that a slow server
    holds no step. Read when a run begins."""

    _connections: ClassVar[tuple[str, ...]] = ()
    """The attributes with open files or connections, which a copy opens again when it writes."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes for a copy or a pickle, without the run and open connections."""
        state: dict[str, Any] = {}
        for name, value in vars(self).items():
            if not isinstance(value, GuardedCall):
                state[name] = value
            elif name in value.func.__self__.own_methods:  # type: ignore[attr-defined]
                state[name] = value.func.__self__.own_methods[name]  # type: ignore[attr-defined]
        state.update((name, None) for name in self._connections if name in state)
        if "_lock" in state:
            state["_lock"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the attributes of a copy or a pickle."""
        vars(self).update(state)
        if "_lock" in state:
            self._lock = RLock()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if clash := definition_clash(cls, OWN_NAMES):
            raise OptionError(clash)

    @property
    def name(self) -> str | None:
        """Return the name of the experiment."""
        return type(self).__name__

    @property
    def version(self) -> int | str | None:
        """Return the number or name that tells this run from others of the same experiment."""
        return None

    @property
    def save_dir(self) -> str | None:
        """Return the folder that holds the files of all runs, or None without files."""
        return None

    @property
    def root_dir(self) -> str | None:
        """Return the folder of the experiment's runs, or None without one."""
        return None

    @property
    def log_dir(self) -> str | None:
        """Return the folder of this run; reading the property creates nothing."""
        return self.save_dir

    @property
    def experiment(self) -> Any:
        """Return the library's own object that does the writing, or None; made on first use."""
        return None

    @property
    def group_separator(self) -> str:
        """Return the text between a group and a name in a metric's name, as in `train/loss`."""
        return "/"

    # in a run a guard stands in for this and the other methods that write: see guard.py
    @abstractmethod
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Write the metrics of one moment.

        Args:
            metrics: values by name.
            step: their position on the x axis.
        """

    def log_hyperparams(  # noqa: B027 - optional
        self, params: Mapping[str, Any] | Namespace
    ) -> None:
        """Write the hyperparameters of the run; a later call adds to them."""

    def log_graph(self, model: nn.Module, input_array: Any = None) -> None:  # noqa: B027
        """Write the model's graph.

        Args:
            model: the model.
            input_array: an input for its forward; by default `model.example_input_array`.
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
        """Write images.

        Args:
            key: the name to store them under.
            images: tensors or arrays, each `(H, W)`, `(C, H, W)`, or `(H, W, C)` with
                `channels_last`; integers from 0 to 255, or floats from 0 to 1.
            step: their position on the x axis.
            captions: a caption for each image.
            channels_last: whether the last dimension is the colour.
        """

    def log_images(
        self,
        images: Any,
        name: str = "Images",
        channels_last: bool = False,
        step: int | None = None,
    ) -> None:
        """Write images as `log_image` does, with the arguments in Composer's order.

        Args:
            images: one image, a sequence of images, or a batch of shape `(N, C, H, W)`.
            name: the name to store them under.
            channels_last: whether the last dimension is the colour.
            step: their position on the x axis.
        """
        # a list has no `ndim`, and is taken for a sequence of images
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
        """Write a table.

        Args:
            key: the name to store the table under.
            columns: the names of its columns.
            data: its rows.
            dataframe: a pandas frame, instead of columns and rows.
            step: its position on the x axis.
        """

    def log_text(self, key: str, text: str, step: int | None = None) -> None:  # noqa: B027
        """Write a text.

        Args:
            key: the name to store the text under.
            text: the text.
            step: its position on the x axis.
        """

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:  # noqa: B027
        """React to a checkpoint that was saved and is durable.

        Args:
            checkpoint_callback: the checkpoint callback that saved. A logger in the background gets
                a copy of its state at that moment instead, with the attributes `state_key`,
                `save_top_k`, `best_model_path`, `last_model_path` and `best_k_models`.
        """

    def run_state(self) -> dict[str, Any]:
        """Return plain data from which `resume_run` finds this run and its progress again.

        Every checkpoint holds it.
        """
        return {}

    def owns_run(self, state: dict[str, Any]) -> bool:  # noqa: ARG002 - for those who override it
        """Return whether the run of a checkpoint is one that `resume_run` would continue.

        Of several loggers of one class, each gets a state that is its own, and else the one in its
        place.

        Args:
            state: the return value of `run_state` of a logger of this class.
        """
        return True

    def resume_run(self, state: dict[str, Any]) -> None:  # noqa: B027 - optional
        """Continue the run of a checkpoint, unless the user has chosen another run.

        Everything logged after the checkpoint will be logged again, and must not be stored twice.
        Write nothing before the first call that logs something.

        Args:
            state: the return value of `run_state` when the checkpoint was saved.
        """

    def unwritten_steps(self) -> list[int]:
        """Return the step of each row that the logger holds in memory, not written yet.

        The report at the end of a run counts them; every checkpoint must hold them, in `run_state`.
        """
        return []

    def save(self) -> None:  # noqa: B027 - optional
        """Write out everything that is held in memory."""

    def finalize(self, status: str) -> None:  # noqa: ARG002 - for those who override it
        """Finish a run; `status` is `"success"` or `"failed"`.

        The logger may be used again afterwards: a trainer can fit twice.
        """
        self.save()
