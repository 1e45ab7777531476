"""ConsoleLogger prints a line for each hand-over."""

from __future__ import annotations

import io
import re

import pytest
import torch

from trainer_hooks.errors import OptionError
from trainer_hooks.loggers import ConsoleLogger


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"stream": "log.txt"}, "stream 'log.txt' of ConsoleLogger: it must be an open file"),
        ({"prefix": 3}, "prefix 3 of ConsoleLogger: it must be a string"),
    ],
)
def test_an_argument_that_breaks_its_rule(arguments, message):
    """A bad argument is refused at construction."""
    with pytest.raises(OptionError, match=message):
        ConsoleLogger(**arguments)


def test_each_call_is_one_line():
    """Metrics in six digits, hyperparameters, tables, texts and images: one line each."""
    stream = io.StringIO()
    logger = ConsoleLogger(stream, prefix="a", timestamps=False)
    logger.log_metrics({"loss": torch.tensor(1 / 3), "epoch": 0}, 49)
    logger.log_metrics({"loss": 1e-9})
    # the same again, as from the next run: nothing new to print
    for _ in range(2):
        logger.log_hyperparams({"lr": 0.1, "net": {"depth": 2}})
    logger.log_image("map", [1, 2], 3)
    logger.log_table("t", ["x", "y"], [[1, 2]], step=4)
    logger.log_text("note", "two\nlines")
    assert stream.getvalue().splitlines() == [
        "step 49 a-loss=0.333333 a-epoch=0",
        "step 1 a-loss=1e-09",
        "hyperparameters lr=0.1 net/depth=2",
        "step 3 map: 2 images",
        "step 4 t: table of 1 rows, columns x, y",
        r"note: two\nlines",
    ]


def test_nothing_steers_the_terminal():
    """Control characters in names and texts are written out, as line breaks are."""
    stream = io.StringIO()
    logger = ConsoleLogger(stream, timestamps=False)
    logger.log_text("note", "red\x1b[31m\r\u2028")
    logger.log_metrics({"a\x07": 1.0}, 0)
    assert stream.getvalue() == "note: red\\x1b[31m\\r\\u2028\nstep 0 a\\x07=1\n"


def test_a_training_prints_to_standard_output(train, capsys):
    """Without a stream the lines go to the standard output of the moment, with the time."""
    train(ConsoleLogger())
    lines = capsys.readouterr().out.splitlines()
    pattern = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d step \d+( \w+=[\d.e-]+){2}"
    assert len([line for line in lines if re.fullmatch(pattern, line)]) == 10


def test_lines_are_written_at_once(tmp_path):
    """Another reader of the file sees a line before the next is printed."""
    with (tmp_path / "train.log").open("w") as file:
        ConsoleLogger(file, timestamps=False).log_metrics({"loss": 1.0}, 0)
        assert (tmp_path / "train.log").read_text() == "step 0 loss=1\n"
