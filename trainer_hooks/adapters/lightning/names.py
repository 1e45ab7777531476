"""The public names of our classes that Lightning's classes have too.

All others belong to the user in a class that was written for Lightning: a method of such a name is
no hook, and an attribute no option. So only the names below are taken from a hosted module or data
module, and the classes of `trainer_hooks.compat.lightning` leave all others to the user.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from trainer_hooks.adapters.hook_names import LIGHTNING_NAMES
from trainer_hooks.hooks.spec import ALIASES

_HOOKS = frozenset(hook for hook, name in LIGHTNING_NAMES.items() if name == "same")
_DATA = frozenset(
    {
        "on_after_batch_transfer", "on_before_batch_transfer", "predict_dataloader", "prepare_data",
        "test_dataloader", "train_dataloader", "transfer_batch_to_device", "val_dataloader",
        "hparams", "hparams_initial", "load_from_checkpoint", "save_hyperparameters", "setup",
        "teardown", "trainer",
    }
)  # fmt: skip

CALLBACK_NAMES = _HOOKS | {"load_state_dict", "log", "log_dict", "state_dict", "state_key"}
"""Names of a callback; Lightning's Trainer sets `log` and `log_dict`."""

BUILT_IN_EXTRAS = frozenset(
    {
        "averaged_module", "candidates", "folders", "follow_validations", "forget", "goes_with",
        "has_named_folder", "is_converted", "is_spike", "notifies_loggers", "num_averaged",
        "open_sources", "own_files",
        "parameters_to_prune", "predict_batch_idx", "remove_checkpoint", "save_before_leaving",
        "save_now", "sparsity", "test_batch_idx", "total_predict_batches",
        "total_test_batches", "train_batch_idx", "tuned_attribute", "val_batch_idx",
        "without_masks",
    }
)  # fmt: skip
"""Names of the built-in callbacks that Lightning's of the same names have not."""

MODULE_NAMES = (
    (_HOOKS - {"on_exception", "on_sanity_check_start", "on_sanity_check_end"})
    | _DATA
    | {
        "all_gather", "automatic_optimization", "backward", "clip_gradients", "configure_callbacks",
        "configure_gradient_clipping", "configure_model", "configure_optimizers", "current_epoch",
        "device", "device_mesh", "dtype", "example_input_array", "freeze", "global_rank",
        "global_step", "local_rank", "log", "log_dict", "logger", "loggers", "lr_scheduler_step",
        "lr_schedulers", "manual_backward", "on_gpu", "on_predict_model_eval",
        "on_test_model_eval", "on_test_model_train", "on_validation_model_eval",
        "on_validation_model_train", "on_validation_model_zero_grad", "optimizer_step",
        "optimizer_zero_grad", "optimizers", "predict_step", "print", "strict_loading",
        "test_step", "to_onnx", "to_torchscript", "toggle_optimizer", "toggled_optimizer",
        "training_step", "unfreeze", "untoggle_optimizer", "validation_step",
    }
)  # fmt: skip
"""Names of a module."""

DATAMODULE_NAMES = _DATA | {"from_datasets", "load_state_dict", "on_exception", "state_dict"}
"""Names of a data module."""

LOGGER_NAMES = frozenset(
    {
        "after_save_checkpoint", "experiment", "finalize", "group_separator", "log_dir",
        "log_graph", "log_hyperparams", "log_metrics", "name", "root_dir", "save", "save_dir",
        "version",
        # those of Lightning's WandbLogger, which callbacks here call on every logger
        "log_image", "log_images", "log_table", "log_text",
    }
)  # fmt: skip
"""Names of a logger."""


def names_of_the_user(kind: type[Any], theirs: frozenset[str]) -> frozenset[str]:
    """Return the public names of a class of ours that Lightning's class has not.

    Args:
        kind: the class.
        theirs: the names that Lightning's class has too.
    """
    # those of torch's own class are neither ours nor the user's
    others = dir(nn.Module) if issubclass(kind, nn.Module) else ()
    names = {name for name in dir(kind) if name[0] != "_"}
    if "on_fit_start" in names:
        # accepted for hooks of ours, and of Lightning 1.x
        names.update(ALIASES)
    return frozenset(names).difference(theirs, others)
