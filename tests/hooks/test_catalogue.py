"""The hook catalogue, and what is derived from it."""

from __future__ import annotations

import inspect
import re

import pytest
from for_each import for_each

from trainer_hooks.adapters.hook_names import ACCELERATED_NAMES, COMPOSER_NAMES, LIGHTNING_NAMES
from trainer_hooks.hooks.catalogue import Hooks
from trainer_hooks.hooks.spec import ALIASES, HOOKS, overrides

FIRING_ORDER = """
    on_init_start on_init_end
    setup on_configure_model on_after_configure_model
    on_before_load on_before_restore on_load_checkpoint on_after_load on_fit_start
    on_sanity_check_start on_sanity_check_end on_train_start
    on_iteration_start on_epoch_start on_train_epoch_start
    on_before_dataloader on_after_dataloader on_train_batch_start on_before_train_batch
    on_before_zero_grad on_before_forward on_after_forward on_before_loss on_after_loss
    on_before_backward on_after_backward
    on_before_optimizer_step on_after_train_batch on_after_optimizer_step
    on_train_batch_end on_batch_checkpoint on_train_batches_end
    on_validation_run_start on_validation_start on_validation_epoch_start
    on_validation_batch_start on_validation_before_forward on_validation_after_forward
    on_validation_after_loss
    on_validation_batch_end on_validation_epoch_end on_validation_end on_validation_run_end
    on_train_epoch_end on_epoch_end on_epoch_checkpoint on_iteration_end on_iteration_checkpoint
    on_train_end on_fit_end
    on_evaluation_run_start on_evaluation_run_end
    on_test_start on_test_epoch_start on_test_batch_start on_test_batch_end on_test_epoch_end
    on_test_end
    on_predict_start on_predict_epoch_start on_predict_batch_start on_predict_before_forward
    on_predict_after_forward on_predict_batch_end on_predict_epoch_end on_predict_end
    on_save_checkpoint on_checkpoint_saved on_log
    on_stop_training_error on_keyboard_interrupt on_exception teardown on_close on_post_close
""".split()  # noqa: SIM905 - reads as a table

EPOCH_END = FIRING_ORDER[
    FIRING_ORDER.index("on_train_epoch_end") : FIRING_ORDER.index("on_train_end")
]
"""The hooks at the end of an epoch, after its validation."""

LIGHTNING_HOOKS = """
    setup teardown on_fit_start on_fit_end on_sanity_check_start on_sanity_check_end
    on_train_start on_train_end on_train_epoch_start on_train_epoch_end
    on_train_batch_start on_train_batch_end
    on_validation_start on_validation_end on_validation_epoch_start on_validation_epoch_end
    on_validation_batch_start on_validation_batch_end
    on_test_start on_test_end on_test_epoch_start on_test_epoch_end
    on_test_batch_start on_test_batch_end
    on_predict_start on_predict_end on_predict_epoch_start on_predict_epoch_end
    on_predict_batch_start on_predict_batch_end
    on_before_backward on_after_backward on_before_optimizer_step on_before_zero_grad
    on_exception on_save_checkpoint on_load_checkpoint
""".split()  # noqa: SIM905 - reads as a table

LIGHTNING_1_HOOKS = """
    on_init_start on_init_end on_epoch_start on_epoch_end on_keyboard_interrupt
    on_configure_model
""".split()  # noqa: SIM905 - reads as a table

COMPOSER_EVENTS = """
    init before_load after_load fit_start iteration_start epoch_start before_dataloader
    after_dataloader batch_start before_train_batch before_forward after_forward before_loss
    after_loss before_backward after_backward after_train_batch batch_end batch_checkpoint epoch_end
    epoch_checkpoint iteration_end iteration_checkpoint eval_before_all eval_start eval_batch_start
    eval_before_forward eval_after_forward eval_batch_end eval_end eval_after_all fit_end
    eval_standalone_start eval_standalone_end predict_start predict_batch_start
    predict_before_forward predict_after_forward predict_batch_end predict_end close post_close
""".split()  # noqa: SIM905 - reads as a table

ACCELERATED_CALLBACKS = """
    on_init_end on_training_run_start on_train_epoch_start on_train_step_start on_train_step_end
    on_train_epoch_end on_eval_epoch_start on_eval_step_start on_eval_step_end on_eval_epoch_end
    on_training_run_epoch_end on_training_run_end on_evaluation_run_start on_evaluation_run_end
    on_stop_training_error
""".split()  # noqa: SIM905 - reads as a table


def test_firing_order_is_frozen() -> None:
    """The catalogue lists exactly these hooks, in the order in which a run fires them."""
    assert list(HOOKS) == FIRING_ORDER


def test_specs_derive_from_the_methods() -> None:
    """A spec's name, arguments and summary are those of the catalogue's method."""
    public = {name: hook for name, hook in vars(Hooks).items() if not name.startswith("_")}
    assert set(HOOKS) == set(public)
    for name, hook in public.items():
        spec = HOOKS[name]
        assert spec.name == name
        assert ("self", *spec.arguments) == tuple(inspect.signature(hook).parameters)
        assert spec.summary == inspect.getdoc(hook)


@for_each(EPOCH_END)
def test_an_epochs_end_says_if_a_resume_repeats_it(name: str) -> None:
    """Else a checkpoint of a run that an error broke off there would be taken for whole."""
    traits = HOOKS[name].traits
    assert traits.closes_epoch != traits.is_not_repeated


@for_each(FIRING_ORDER)
def test_docstring_says_in_one_sentence_when(name: str) -> None:
    """Every hook's docstring is one sentence that starts with "Called" and says when."""
    summary = HOOKS[name].summary
    assert summary.startswith("Called "), summary
    assert summary.endswith("."), summary
    assert not re.search(r"[.!?]\s", summary), summary


@for_each(FIRING_ORDER)
def test_arguments_start_with_trainer_and_module(name: str) -> None:
    """Every hook takes the trainer and the module first, the two init hooks the trainer alone."""
    arguments = HOOKS[name].arguments
    if name in {"on_init_start", "on_init_end"}:
        assert arguments == ("trainer",)
        assert not HOOKS[name].takes_module
    else:
        assert arguments[:2] == ("trainer", "module")
        assert HOOKS[name].takes_module


@for_each(FIRING_ORDER)
def test_catalogue_methods_do_nothing(name: str) -> None:
    """Each hook of the catalogue can be called with its arguments and returns None."""
    arguments = [object() for _ in HOOKS[name].arguments]
    assert getattr(Hooks(), name)(*arguments) is None


def test_dataloader_idx_may_be_left_out() -> None:
    """Only `dataloader_idx` has a default, so that one loader need not be numbered."""
    optional = {
        (name, parameter.name)
        for name in HOOKS
        for parameter in inspect.signature(getattr(Hooks, name)).parameters.values()
        if parameter.default is not inspect.Parameter.empty
    }
    batch_hooks = {
        f"on_{phase}_batch_{edge}"
        for phase in ("validation", "test", "predict")
        for edge in ("start", "end")
    }
    assert optional == {(name, "dataloader_idx") for name in batch_hooks}


def test_every_lightning_hook_is_known() -> None:
    """The hooks that note a name of Lightning 2.x are exactly its 37, and 1.x has six more."""
    assert {hook for hook, name in LIGHTNING_NAMES.items() if name == "same"} == set(
        LIGHTNING_HOOKS
    )
    assert {hook for hook, name in LIGHTNING_NAMES.items() if name.startswith("1.x")} == set(
        LIGHTNING_1_HOOKS
    )


def test_every_composer_event_is_known() -> None:
    """Each of Composer's events has a hook here, and no other name is claimed for Composer."""
    assert set(COMPOSER_NAMES.values()) == set(COMPOSER_EVENTS)


def test_every_accelerated_callback_method_is_known() -> None:
    """Each callback method of pytorch-accelerated has a hook, and no other name is claimed."""
    assert set(ACCELERATED_NAMES.values()) == set(ACCELERATED_CALLBACKS)


def test_foreign_names_of_training_are_unambiguous() -> None:
    """Outside of evaluation, where validation and test share names, a name means one hook."""
    evaluation = re.compile(r"on_(validation|test)_")
    for table in (COMPOSER_NAMES, ACCELERATED_NAMES):
        names = [name for hook, name in table.items() if not evaluation.match(hook)]
        assert table.keys() <= HOOKS.keys()
        assert sorted(names) == sorted(set(names))


def test_hooks_cannot_be_edited() -> None:
    """The derived catalogue and its aliases are read-only."""
    with pytest.raises(TypeError):
        HOOKS["on_lunch"] = HOOKS["setup"]  # type: ignore[index]
    with pytest.raises(TypeError):
        ALIASES["on_lunch"] = "setup"  # type: ignore[index]


def test_aliases_name_hooks() -> None:
    """An alias is no hook itself and stands for one."""
    for old, new in ALIASES.items():
        assert old not in HOOKS
        assert new in HOOKS


class _Plain(Hooks):
    pass


class _Own(Hooks):
    def setup(self, trainer, module, stage):
        pass


class _Inherits(_Own):
    pass


class _Foreign:
    def on_configure_sharded_model(self):
        pass


def test_overrides_looks_at_class_and_instance() -> None:
    """A hook counts as overridden by the class, a base of it, or an instance attribute."""
    patched = _Plain()
    patched.setup = lambda *args: None  # type: ignore[method-assign]
    assert not overrides(_Plain(), "setup")
    assert overrides(_Own(), "setup")
    assert overrides(_Inherits(), "setup")
    assert overrides(patched, "setup")
    assert not overrides(_Own(), "teardown")


def test_overrides_takes_any_object_and_any_name() -> None:
    """An object that is no Hooks overrides what it has, under an alias too, and slots are fine."""

    class Slotted:
        __slots__ = ()

    assert overrides(_Foreign(), "on_configure_sharded_model")
    assert not overrides(_Foreign(), "on_configure_model")
    assert not overrides(Slotted(), "setup")
