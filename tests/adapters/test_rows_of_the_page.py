"""Each difference that docs/foreign-callbacks.md tells of is shown by a test.

The tables map the first words of a row of the page to a test, `FILE::NAME`, or several, or to a
program of `tests/programs` that declares it. Events of Composer whose row tells of a difference are
rows, too.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from named_tests import definitions

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "foreign-callbacks.md"

BOTH_SIDES = {
    # Lightning
    "On a resume there is no sanity check": (
        "lightning/programs/checkpointing.py::resume_and_the_sanity_check"
    ),
    "The loaders are made before `on_fit_start`": (
        "adapters/lightning/test_internals.py::test_what_is_reached_for_is_the_same"
    ),
    "After a search of `LearningRateFinder` or `BatchSizeFinder`": (
        "adapters/lightning/test_cases.py::test_it_does_what_it_does_at_home"
    ),
    "What a callback of Lightning keeps in no state": (
        "adapters/lightning/test_cases.py::test_it_does_what_it_does_at_home"
    ),
    "The epoch in which `StochasticWeightAveraging` measures": (
        "adapters/lightning/test_cases.py::test_it_does_what_it_does_at_home"
    ),
    "Training loaders are shuffled only if they were": (
        "adapters/lightning/test_distributed.py::test_training_loaders_keep_their_order"
    ),
    "Parameters that a finetuning callback unfreezes later": (
        "adapters/lightning/test_distributed.py"
        "::test_weights_that_are_unfrozen_later_are_those_of_all_ranks"
    ),
    "`LearningRateFinder` searches in one process only": (
        "adapters/lightning/test_distributed.py::test_a_search_of_a_learning_rate_takes_one_process"
    ),
    # Composer
    "`before_dataloader`": (
        "adapters/composer/test_composer.py::test_it_resumes_inside_an_epoch_as_in_composer",
        "adapters/composer/isolated_checks.py::test_a_window_is_a_batch",
    ),
    "`init`": (
        "adapters/composer/isolated_checks.py"
        "::test_optimizers_are_made_by_the_fit_that_follows_the_init"
    ),
    "`epoch_end`": (
        "adapters/composer/isolated_checks.py::test_a_stop_inside_an_epoch_evaluates_as_at_home"
    ),
    "`fit_end`": (
        "adapters/composer/isolated_checks.py"
        "::test_an_end_by_steps_inside_an_epoch_evaluates_before_the_end_of_the_fit"
    ),
    # pytorch-accelerated
    "Their counts, such as the patience that is left": (
        "adapters/accelerated_and_transformers/test_cases.py::test_a_resume_goes_on_where_it_was"
    ),
    "A callback that sets a loader of its own is refused": (
        "adapters/accelerated_and_transformers/test_data_attributes.py"
        "::test_a_loader_that_a_guest_puts_in_is_refused"
    ),
    "`ModelEmaCallback` validates its average": (
        "adapters/accelerated_and_transformers/test_cases.py::test_it_does_what_it_does_at_home"
    ),
    "If a callback's own `on_train_step_end` evaluates": (
        "adapters/accelerated_and_transformers/test_data_attributes.py"
        "::test_an_evaluation_in_an_overridden_end_of_a_step_comes_after_the_step"
    ),
    "`LimitEvalStepsCallback` limits nothing": (
        "adapters/accelerated_and_transformers/test_cases.py::test_it_does_what_it_does_at_home"
    ),
    "`SaveTrainingStateCallback` and `WSDCheckpointCallback` write": (
        "adapters/accelerated_and_transformers/test_data_attributes.py"
        "::test_a_state_is_a_file_that_neither_trainer_resumes_from"
    ),
    # transformers
    "A log has the values that the module logs": (
        "adapters/accelerated_and_transformers/test_logs.py"
        "::test_logs_and_gradients_are_those_of_home"
    ),
    "`total_flos` is 0": (
        "adapters/accelerated_and_transformers/test_logs.py::test_operations_are_not_counted"
    ),
    "The summary of a training is told to each callback": (
        "adapters/accelerated_and_transformers/test_logs.py"
        "::test_the_summary_and_the_end_come_callback_by_callback"
    ),
    "No checkpoint is in `args.output_dir`": "programs/of_transformers/adapters.py",
    "Weights that were just evaluated are not evaluated again": (
        "programs/of_transformers/first_evaluation.py"
    ),
    "`model` is the module that is trained": "programs/hosted_model.py::save_pretrained",
    # Ignite
    "A validation is over before `EPOCH_COMPLETED`": (
        "adapters/ignite/test_handlers.py::test_a_validation_is_over_before_the_end_of_the_epoch"
    ),
    "`EarlyStopping(trainer=...)` gets the training's engine": (
        "adapters/ignite/test_cases.py::test_it_does_what_it_does_at_home"
    ),
    "A handler on an event of your own is refused": (
        "adapters/ignite/test_handlers.py::test_an_event_of_ones_own_is_refused",
        "adapters/ignite/test_handlers.py::test_a_resume_inside_an_epoch_begins_it_again",
    ),
    "`engine.interrupt()` fires `INTERRUPT`": (
        "adapters/ignite/test_handlers.py::test_an_interrupt_ends_the_fit_without_its_last_events"
    ),
    "`engine.state.max_epochs` may be set": (
        "adapters/ignite/test_handlers.py::test_a_handler_changes_the_number_of_epochs",
        "adapters/ignite/test_handlers.py::test_a_new_batch_of_a_handler_is_refused",
    ),
    "A handler that is added to an event in the middle": (
        "adapters/ignite/test_handlers.py"
        "::test_a_handler_that_is_added_in_a_run_needs_another_beside_it"
    ),
    # callbacks of trainer_hooks in the other trainers
    "`skip_batch()` leaves a batch's gradients out": (
        "adapters/export/every_host.py::test_it_has_the_same_effect"
    ),
    "Parameters that a finetuning callback freezes": (
        "adapters/export/every_host.py::test_it_has_the_same_effect"
    ),
}
"""Rows whose test runs both sides."""

HERE_ALONE = {
    # Lightning
    "A saver's `on_train_epoch_end`, `on_train_batch_end`": tuple(
        f"adapters/lightning/isolated_checks.py::{test}"
        for test in (
            "test_a_resume_from_a_savers_file_fires_no_hook_twice",
            "test_the_words_find_the_files_of_guests",
            "test_a_guest_saves_when_the_process_is_told_to_end",
            "test_a_guest_saves_when_it_is_asked",
        )
    ),
    "A value that is logged without `sync_dist=True`": (
        "adapters/lightning/test_distributed.py::test_what_is_not_synced_is_decided_by_rank_zero"
    ),
    # Composer
    "`after_dataloader`": "adapters/composer/isolated_checks.py::test_a_window_is_a_batch",
    **dict.fromkeys(
        ("`before_forward`", "`after_forward`", "`before_loss`", "`after_loss`"),
        "adapters/composer/isolated_checks.py::test_a_step_of_its_own_has_the_same_events",
    ),
    **dict.fromkeys(
        ("`batch_start`", "`after_train_batch`", "`batch_end`"),
        "adapters/composer/isolated_checks.py"
        "::test_the_batch_of_a_window_is_its_first_and_then_its_last",
    ),
    "`eval_after_forward`": (
        "adapters/composer/isolated_checks.py"
        "::test_an_evaluation_by_a_step_of_its_own_shows_the_return_value"
    ),
    "`eval_end`": (
        "adapters/distributed/test_cases.py"
        "::test_callbacks_and_models_of_composer_know_their_process"
    ),
    "`close`": ("adapters/composer/isolated_checks.py::test_it_is_closed_once_also_after_an_error"),
    "`post_close`": (
        "adapters/composer/isolated_checks.py::test_a_trainer_that_is_gone_has_closed_its_callbacks"
    ),
    # pytorch-accelerated
    "A loss that a callback assigns": (
        "adapters/accelerated_and_transformers/test_data_attributes.py"
        "::test_an_assigned_loss_that_would_be_ignored_is_refused"
    ),
    "At `on_train_step_end` `batch_output` has": (
        "adapters/accelerated_and_transformers/test_data_attributes.py"
        "::test_what_a_step_returns_beside_its_loss_is_asked_for_in_vain"
    ),
    # transformers
    "A checkpoint keeps `log_history` without times": (
        "adapters/accelerated_and_transformers/test_logs.py"
        "::test_a_checkpoint_has_the_history_without_times"
    ),
    # Ignite
    "In `state.output` of a step that returns a dict": (
        "adapters/ignite/test_handlers.py::test_the_loss_of_a_step_that_returns_more_is_a_tensor"
    ),
    "The `state_key` is `ignite:`": (
        "adapters/ignite/test_handlers.py::test_two_handlers_of_one_class_need_two_keys"
    ),
    '`ModelCheckpoint` saves `{"model": module}`': (
        "adapters/ignite/test_handlers.py::test_a_saver_of_models_saves_the_module_unless_told"
    ),
    "`ReduceLROnPlateauScheduler` resumes with this run's": (
        "adapters/ignite/test_cases.py::test_a_resumed_run_is_the_uncut_one"
    ),
}
"""Rows whose test runs this side."""


def rows_of_the_page() -> list[str]:
    """Return the differences on the page: items of lists, and events that have a difference."""
    rows = []
    is_in_list = is_in_table = False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("The differences"):
            is_in_list = True
        elif is_in_list and line and not line.startswith(("- ", "  ")):
            is_in_list = False
        elif line.startswith("| there |"):
            is_in_table = line.endswith("| differences |")
        if is_in_list and line.startswith("- "):
            rows.append(line.removeprefix("- "))
        if is_in_table and line.startswith("| `"):
            event, _, difference = (part.strip() for part in line.strip("|").split("|"))
            rows += [event] if difference else []
    return rows


def test_each_row_has_one_entry() -> None:
    """No row is without a test, and no entry is of a row that is gone."""
    entries = [*BOTH_SIDES, *HERE_ALONE]
    rows = rows_of_the_page()
    assert len(rows) > 50
    found = {row: [entry for entry in entries if row.startswith(entry)] for row in rows}
    assert {row: of_row for row, of_row in found.items() if len(of_row) != 1} == {}
    assert sorted(itertools.chain.from_iterable(found.values())) == sorted(entries)


@pytest.mark.parametrize(("row", "places"), [*BOTH_SIDES.items(), *HERE_ALONE.items()])
def test_the_test_of_a_row_is_there(row: str, places: str | tuple[str, ...]) -> None:
    """The file defines the test; a program declares the row itself."""
    for place in [places] if isinstance(places, str) else places:
        file, _, name = place.partition("::")
        if name:
            assert name in definitions(TESTS / file)
        else:
            assert row in (TESTS / file).read_text(encoding="utf-8")
