"""The page of reports about other trainers: a test holds each row."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
REPORTS = "tests/resume/test_reports.py"
HELD_BY = {
    "Lightning 21901": f"{REPORTS}::test_a_backbone_trains_on_after_its_unfreezing",
    "Composer 3725": f"{REPORTS}::test_four_interruptions_inside_windows",
    "Lightning 5334": f"{REPORTS}::test_a_schedule_of_accumulation_is_resumed_at_each_step",
    "Lightning 11665": f"{REPORTS}::test_swa_with_a_lambda_is_resumed_before_and_after_it_began",
    "SchNetPack 785": f"{REPORTS}::test_a_file_that_a_monitor_saved_with_averaged_weights",
    "transformers 38939": f"{REPORTS}::test_a_resume_in_the_last_shorter_window",
    "verl 5725": (
        f"{REPORTS}::test_a_stateful_loader_saved_at_an_epochs_end_begins_the_next_whole"
    ),
    "Keras 20256": (
        "tests/callbacks/test_early_stopping.py"
        "::test_a_stopper_and_a_saver_for_several_fits_begin_afresh"
    ),
    "Lightning 6073": (
        "tests/callbacks/compression/test_model_pruning.py"
        "::test_what_is_pruned_stays_so_after_a_resume"
    ),
    "Lightning 21893": "tests/test_errors_that_help.py::test_an_empty_part_of_a_combined_loader",
    "Lightning 21447": (
        "tests/data/test_loader_sharding.py::test_the_order_of_a_sampler_is_kept_over_two_ranks"
    ),
    "Lightning 21838": (
        "tests/distributed/test_values.py::test_an_uneven_evaluation_is_that_of_one_process"
    ),
    "Lightning 6332": "tests/loops/test_fit.py::test_a_stream_shorter_than_its_limit",
    "Lightning 21553": (
        "tests/loops/test_fit.py::test_an_interval_longer_than_an_epoch_without_validation_data"
    ),
    "Lightning 18687": f"{REPORTS}::test_two_savers_keep_their_best_scores",
    "Ignite 3625": "tests/loops/test_end_epoch.py::test_a_filter_that_ends_the_epoch_is_due_once",
    "Lightning 3325": (
        "tests/distributed/test_training.py::test_loaders_of_unequal_length_end_together"
    ),
    "Lightning 5243": (
        "tests/distributed/test_training.py::test_batches_that_are_left_out_do_not_cut_a_step"
    ),
    "Lightning 20147": "tests/cli/run/test_fit.py::test_links_stand_in_the_config",
    "Lightning 16489": "tests/cli/run/test_fit.py::test_several_processes_train_from_one_config",
    "pluggy 174": (
        "tests/plugins/test_wrong.py::test_each_fault_is_named_once_with_its_cause_and_the_way_out"
    ),
}
"""The first report of each row, and the test of its third column."""


def rows() -> list[list[str]]:
    """Return the cells of each row of the page's table."""
    page = (ROOT / "docs" / "elsewhere.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith("|")]
    return [line.strip("| ").split(" | ") for line in lines[2:]]


def test_a_test_holds_each_row() -> None:
    """The table of tests has the rows of the page, in its order."""
    assert [re.match(r"\[(.+?)\]", cells[0])[1] for cells in rows()] == list(HELD_BY)


def test_each_row_links_to_its_reports() -> None:
    """A report's number is that of its link, and a row has four cells."""
    for cells in rows():
        assert len(cells) == 4, cells
        links = re.findall(
            r"\[(?:[A-Za-z]+ )?(\d+)\]\(https://github\.com/[\w-]+/[\w-]+/(?:issues|pull)/(\d+)\)",
            cells[0],
        )
        assert links
        assert len(links) == cells[0].count("[")
        assert all(number == linked for number, linked in links), cells[0]


def test_each_named_test_exists() -> None:
    """The file of each test has a function of its name at the top level."""
    for held_by in HELD_BY.values():
        path, _, name = held_by.partition("::")
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
