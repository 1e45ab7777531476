"""ConsoleLogger: print a plain line at each flush of metrics, for log files and batch jobs."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

from trainer_hooks._options import STRING, Rule, answers_keywords, check_options
from trainer_hooks._output import losing_output
from trainer_hooks._text import printable
from trainer_hooks.loggers.base import Logger
from trainer_hooks.loggers.conversion import as_dict, as_table, flattened, plain_number

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence
    from typing import TextIO

_RULES = {
    "stream": Rule(
        "an open file",
        lambda value: value is None or hasattr(value, "write"),
        "Pass one, such as sys.stderr or open('train.log', 'a').",
    ),
    "prefix": STRING,
}


class ConsoleLogger(Logger):
    """Print one line for each flush of metrics, without colours and without a bar.

    Each line is written at once, so that `tail -f` on a batch job's log file shows it. Tables,
    texts and images are mentioned in a line of their own.

    Args:
        stream: the file to print to; standard output by default.
        prefix: text before each metric's name, joined by a dash.
        timestamps: whether each line begins with the time.

    Raises:
        OptionError: an argument breaks its rule.

    Example::

        trainer = Trainer(logger=[CSVLogger("logs"), ConsoleLogger()], enable_progress_bar=False)
    """

    @answers_keywords
    def __init__(
        self, stream: TextIO | None = None, prefix: str = "", timestamps: bool = True
    ) -> None:
        check_options("ConsoleLogger", _RULES, stream=stream, prefix=prefix)
        self._stream = stream
        self._prefix = f"{prefix}-" if prefix else ""
        self._has_times = timestamps
        self._logged = 0
        self._hparams = ""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Print the metrics of one moment; calls without a `step` are numbered."""
        values = " ".join(
            f"{self._prefix}{key}={_shown(plain_number(value))}" for key, value in metrics.items()
        )
        self._print(self._logged if step is None else step, values)
        self._logged += 1

    def log_hyperparams(self, params: Mapping[str, Any] | Namespace) -> None:
        """Print the hyperparameters in one line, if they are not those of the last such line."""
        named = flattened(as_dict(params))
        hparams = "hyperparameters " + " ".join(f"{key}={_shown(v)}" for key, v in named.items())
        # each run passes them, also one of many validations
        if hparams != self._hparams:
            self._line(hparams)
        self._hparams = hparams

    def log_image(
        self,
        key: str,
        images: Sequence[Any],
        step: int | None = None,
        *,
        captions: Sequence[str] | None = None,  # noqa: ARG002 - the line has no room for them
        channels_last: bool = False,  # noqa: ARG002
    ) -> None:
        """Print the number of images."""
        self._print(step, f"{key}: {len(images)} image{'s' if len(images) != 1 else ''}")

    def log_table(
        self,
        key: str,
        columns: Sequence[str] | None = None,
        data: Sequence[Sequence[Any]] | None = None,
        dataframe: Any = None,
        step: int | None = None,
    ) -> None:
        """Print the size and the columns of a table."""
        names, rows = as_table(key, columns, data, dataframe)
        self._print(step, f"{key}: table of {len(rows)} rows, columns {', '.join(map(str, names))}")

    def log_text(self, key: str, text: str, step: int | None = None) -> None:
        """Print a text, with its line breaks escaped."""
        self._print(step, f"{key}: {text}")

    def _print(self, step: int | None, text: str) -> None:
        self._line(text if step is None else f"step {step} {text}")

    def _line(self, text: str) -> None:
        time = f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S} " if self._has_times else ""
        # looked up for each line: tests and notebooks replace sys.stdout
        with losing_output(self._stream):
            print(f"{time}{printable(text)}", file=self._stream or sys.stdout, flush=True)


def _shown(value: Any) -> str:
    """Return a float with six digits, and anything else as text."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
