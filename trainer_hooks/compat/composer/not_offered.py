"""Attributes and options of Composer's classes that are not offered here, with replacements."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ENGINE", "OPTIONS", "STATE", "TRAINER"]

_ALGORITHMS = (
    "algorithms are Composer's own methods of training: write the change into the model, the "
    "loader or a callback"
)
_SHARDED = "train with trainer_hooks.Trainer(strategy='fsdp')"
_STORE = "give an address such as 's3://bucket/run' where a path is taken"
_SAVE = "call trainer.save_checkpoint(path); callbacks have state_dict and load_state_dict"

STATE: Mapping[str, str] = {
    "automicrobatch_fsdp_hook_handles": _SHARDED,
    "dataset_resumption": "data sets with a state go on by themselves",
    "dataset_state": "data sets with a state go on by themselves",
    "device_mesh": _SHARDED,
    "fsdp_config": _SHARDED,
    "fsdp_config_version": _SHARDED,
    "fsdp_device_mesh": _SHARDED,
    "fsdp_enabled": _SHARDED,
    "fsdp_modules": _SHARDED,
    "fsdp_sharded_state_dict_enabled": _SHARDED,
    "fsdp_state_dict_type": _SHARDED,
    "get_model_state_dict": "call state.model.state_dict()",
    "get_optim_state_dict": "call state.optimizers[0].state_dict()",
    "load_model_state": "call state.model.load_state_dict(...)",
    "load_monolith_rank0_only": _SHARDED,
    "load_optim_state": "call state.optimizers[0].load_state_dict(...)",
    "load_state_dict": "pass Trainer(load_path=...)",
    "precision_config": "FP8 is not available",
    "serialized_attributes": "a checkpoint here holds all that a resume needs",
    "state_dict": _SAVE,
    "tp_config": _SHARDED,
}
"""Attributes of State, with their replacements."""

OPTIONS: Mapping[str, tuple[tuple[object, ...], str]] = {
    "algorithms": ((None, [], ()), _ALGORITHMS),
    "algorithm_passes": ((None, [], ()), _ALGORITHMS),
    "spin_dataloaders": ((True,), "a resume always comes back to the same batch"),
    "log_traces": ((False,), "there are no algorithms to trace"),
    "load_object_store": ((None,), _STORE),
    # accepted in any form, as nothing depends on it
    "load_progress_bar": ((True, False), ""),
    "load_ignore_keys": ((None,), "pass a LoadCheckpoint(path, ignore_keys=) callback"),
    "load_exclude_algorithms": ((None, [], ()), _ALGORITHMS),
    "save_metrics": ((False, True), ""),
    "parallelism_config": ((None,), _SHARDED),
    "precision_config": ((None,), "FP8 is not available"),
    "accumulate_train_batch_on_tokens": (
        (False,),
        "return a loss that is a sum divided by the batch's tokens",
    ),
    # both, since options are compared with their types
    "dist_timeout": ((300.0, 300), "train with trainer_hooks.Trainer(strategy=DDPStrategy())"),
    "ddp_sync_strategy": ((None,), "train with trainer_hooks.Trainer(strategy=DDPStrategy())"),
    "profiler": ((None,), "pass trainer_hooks.callbacks.Profiler(...) in callbacks"),
    "compile_config": ((None,), "pass torch.compile'd parts inside of the model"),
}
"""Options of Trainer that have no effect here: the values that are accepted, and a replacement."""

_INSIDE = "it is what Composer's own loop keeps for itself; read trainer.state"

TRAINER: Mapping[str, str] = {
    "accumulate_train_batch_on_tokens": "return a loss that is a sum divided by the tokens",
    "auto_log_hparams": "it is what the trainer was given",
    "cumulative_alloc_retries": _INSIDE,
    "export_for_inference": "pass an ExportForInferenceCallback in callbacks",
    "first_train_batch_complete": "read trainer.state.timestamp.batch",
    "local_hparams": "pass Trainer(auto_log_hparams=True); destinations get them",
    "num_consecutive_non_OOM_batches": _INSIDE,
    "num_consecutive_thrashes": _INSIDE,
    "python_log_level": "it is what the trainer was given",
    "spin_dataloaders": "a resume always comes back to the same batch",
}
"""Members of Trainer, with their replacements."""

ENGINE: Mapping[str, str] = {
    "algorithm_passes": _ALGORITHMS,
    "register_pass": _ALGORITHMS,
    "run_marker_only_event": "pass trainer_hooks.callbacks.Profiler(...) in callbacks",
}
"""Members of Engine, with their replacements."""
