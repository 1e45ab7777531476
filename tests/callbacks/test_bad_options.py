"""Options that no built-in callback is made with: each error names the option and its value."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest
from bad_options import each_value, refusal_of, require_named
from for_each import for_each
from torch import nn
from torch.nn.utils import prune

from trainer_hooks import callbacks
from trainer_hooks.errors import OptionError
from trainer_hooks.testing import TinyModule

BAD = {
    "StochasticWeightAveraging": {
        "swa_lrs": [0.0, -1.0, "0.1", [], [0.1, 0.0], math.inf, True],
        "swa_epoch_start": [0, 1.5, True],
        "annealing_epochs": [-1, 2.0],
        "annealing_strategy": ["cosine"],
        "avg_fn": [1],
        "device": ["nowhere"],
    },
    "WeightAveraging": {
        "device": ["nowhere", True],
        "use_buffers": [1],
        "avg_fn": [3],
        "multi_avg_fn": ["mean"],
    },
    "EMAWeightAveraging": {
        "decay": [1.5, -0.1, "0.9"],
        "update_every_n_steps": [-1],
        "update_starting_at_step": [-1],
        "update_starting_at_epoch": [1.0],
    },
    "ModelPruning": {
        "pruning_fn": ["l1", prune.l1_unstructured, prune.L1Unstructured(0.5)],
        "pruning_dim": [0],
        "use_global_unstructured": [1],
        "parameters_to_prune": [[("layer", "weight")], nn.Linear(1, 1)],
        "amount": [1.5, -1, True],
        "apply_pruning": ["yes"],
        "make_pruning_permanent": [1],
        "use_lottery_ticket_hypothesis": [None],
        "resample_parameters": [0],
        "verbose": [3],
        "prune_on_train_epoch_end": [1],
    },
    "QuantizationAwareTraining": {
        "qconfig": ["tpu", None],
        "observer_type": ["mean"],
        "collect_quantization": [-1, "all"],
        "modules_to_fuse": [[["conv"]], ["conv", "relu"]],
        "input_compatible": [1],
        "quantize_on_fit_end": [None],
        "observer_enabled_stages": ["train"],
    },
    "ExportForInferenceCallback": {
        "save_format": [None],
        "save_path": ["", 3],
        "save_object_store": ["folder", 3],
        "transforms": [["float"]],
        "input_names": ["x", []],
        "output_names": [[1]],
        "tolerance": [-1, True],
    },
    "BackboneFinetuning": {
        "unfreeze_backbone_at_epoch": [-1, 1.5],
        "lambda_func": [2.0],
        "backbone_initial_ratio_lr": [-0.1],
        "backbone_initial_lr": ["0.1"],
        "should_align": [None],
        "initial_denom_lr": [0],
        "train_bn": [1],
        "verbose": [2],
        "rounding": [-1],
    },
    "GarbageCollection": {"every_n_steps": [0, 1.5, True], "generation": [True]},
    "NaNGuard": {
        "check": ["weights", [], 3],
        "check_every_n_steps": [0],
        "snapshot_every_n_steps": [0],
        "patience": [-1],
        "snapshot_device": ["abacus", 1.5],
        "save_snapshot": [1],
    },
    "SpikeDetection": {
        "mode": ["mean"],
        "window": [0, 2.0],
        "warmup": [-1],
        "atol": [-0.5, "1"],
        "rtol": [float("nan")],
        "finite_only": [1],
        "exclude_batches_path": ["", 3],
        "on_spike": ["stop"],
    },
    "ActivationMonitor": {
        "interval": ["x", 0],
        "ignore_module_types": ["ReLU", [3]],
        "only_log_wandb": [1],
    },
    "DeviceStatsMonitor": {"cpu_stats": [1, "yes", 0.5]},
    "GradientNormMonitor": {
        "norm_type": [-1.0, math.nan, "2"],
        "per_layer": ["weight", 1],
        "clipping": [True],
        "names": ["", [], ["a", 1]],
    },
    "LearningRateMonitor": {
        "logging_interval": ["batch"],
        "log_momentum": [1],
        "log_weight_decay": [None],
    },
    "MemorySnapshot": {
        "skip_batches": [-1],
        "interval": [0, "3 moons", None],
        "max_entries": [0],
        "folder": [3, ""],
        "filename": ["../x"],
        "remote_file_name": ["nowhere://x"],
        "overwrite": [1],
    },
    "OOMObserver": {
        "max_entries": [0],
        "folder": [3],
        "filename": [""],
        "remote_file_name": ["x"],
        "overwrite": [None],
    },
    "Profiler": {
        "wait": [-1],
        "warmup": [0.5],
        "repeat": [None],
        "skip_first": [True],
        "dirpath": ["", 3],
        "filename": ["", "a/b"],
        "activities": [[], 1],
        "with_stack": [1],
        "compress": ["gzip"],
    },
    "SlowStepDetector": {
        "factor": [math.nan, "3"],
        "window": [0],
        "min_steps": [0],
        "max_records": [-1],
        "warn_interval": [-1, math.nan],
        "clock": [3],
    },
    "Throughput": {
        "available_flops": [0, "fast"],
        "world_size": [0],
        "window_size": [1, True],
        "separator": ["", None],
    },
    "ThroughputMonitor": {"batch_size_fn": [3, None], "length_fn": [3]},
    "Generate": {"prompts": [[], [1]], "interval": ["often"], "batch_size": [0]},
    "ImageVisualizer": {
        "interval": [0, "often"],
        "num_images": [0],
        "channels_last": [1],
        "input_key": [0.5],
        "target_key": [True, None],
    },
    "MLPerfCallback": {
        "root_folder": ["", 3],
        "index": [-1, True],
        "benchmark": ["res/net"],
        "target": ["high"],
        "division": ["closed"],
        "metric_label": [3],
        "submitter": [""],
        "system_name": ["my system", ".."],
        "cache_clear_cmd": [[], [1], " "],
        "host_processors_per_node": [0],
        "exit_at_target": [1],
    },
    "Notify": {
        "command": ["", 'echo "x', [], ["echo", 1], 3],
        "on": [[]],
        "timeout": [math.inf],
        "text_field": [""],
        "name": [1],
    },
    "SampleInspector": {
        "max_samples": [0],
        "stages": [[]],
        "inputs": [1.5],
        "targets": [True],
        "mean": ["0"],
        "decode": ["utf-8"],
        "kind": ["picture"],
    },
    "LoadCheckpoint": {
        "load_path": [3, ""],
        "load_weights_only": ["yes"],
        "strict_model_weights": [None],
        "ignore_keys": ["state_dict/*", [3]],
        "event": [3],
    },
    "ModelCheckpoint": {
        "save_interval": ["x", "1iter"],
        "mode": ["avg"],
        "save_top_k": [1.5, True],
        "save_last": [1],
        "monitor": ["", 3],
        "filename": ["", 3],
        "dirpath": [3, "", b"x"],
        "every_n_epochs": [-1, True],
        "every_n_train_steps": [-1, 2.0],
        "verbose": [1],
        "save_on_exception": [None],
        "save_weights_only": ["yes"],
        "auto_insert_metric_name": [0],
        "save_on_train_epoch_end": ["end"],
        "enable_version_counter": [1],
    },
    "OnExceptionCheckpoint": {"dirpath": [None, "", 3], "filename": ["", "b/c", None]},
    "WSDCheckpointCallback": {"initial_checkpoint": [3]},
    "EarlyStopping": {
        "monitor": ["", None],
        "mode": ["auto"],
        "patience": [-1, 1.5, True],
        "min_delta": [math.nan, "0"],
        "stopping_threshold": [math.inf],
        "divergence_threshold": ["big"],
        "strict": [1],
        "check_finite": [None],
        "verbose": ["no"],
        "check_on_train_epoch_end": ["yes"],
        "log_rank_zero_only": [1],
        "name": ["", 1],
    },
    "Timer": {"interval": ["batch", None], "verbose": [1]},
    "BatchSizeFinder": {
        "mode": ["linear"],
        "steps_per_trial": [0],
        "init_val": [0],
        "max_trials": [0],
        "batch_arg_name": [""],
        "margin": [1.0, -0.1],
        "max_val": [0],
    },
    "LearningRateFinder": {
        "max_lr": ["1"],
        "num_training_steps": [1],
        "mode": ["log"],
        "early_stop_threshold": [1],
        "update_attr": ["lr"],
        "attr_name": [None],
    },
}
"""The values by callback and option, each of which breaks the rule of the option alone."""
RULES = [
    ("EMAWeightAveraging", "update_every_n_steps", 0, "nothing would ever be averaged"),
    ("ModelPruning", "pruning_fn", prune.LnStructured, "PRUNING_TYPE is 'structured'"),
    ("ExportForInferenceCallback", "save_format", "onxx", "Did you mean 'onnx'"),
    ("ExportForInferenceCallback", "save_path", "models/", "path of a file"),
    ("ExportForInferenceCallback", "save_path", "nowhere://a/b.pt", "no store called nowhere://"),
    (
        "ExportForInferenceCallback",
        "save_object_store",
        "nowhere://a",
        "no store called nowhere://",
    ),
    ("GarbageCollection", "generation", 3, "0, 1, 2"),
    ("NaNGuard", "action", "ignore", "'raise', 'stop', 'skip', 'rollback'"),
    ("GradientNormMonitor", "norm_type", 0, "it must be above zero"),
    ("GradientNormMonitor", "clipping", "never", "'before', 'after', 'both'"),
    ("MemorySnapshot", "folder", "nowhere://x", "there is no store"),
    ("MemorySnapshot", "filename", None, "it must be the beginning of a name"),
    ("MemorySnapshot", "filename", "{rank", "every brace"),
    ("MemorySnapshot", "remote_file_name", "copies/x", "it must be an address"),
    ("MemorySnapshot", "remote_file_name", "memory://{x", "every brace"),
    ("Profiler", "active", 0, "at least 1"),
    ("Profiler", "dirpath", "s3://bucket/x", "it must be a local"),
    ("Profiler", "activities", "gpu", "'cpu', 'cuda'"),
    ("SlowStepDetector", "factor", 1, "it must be above 1"),
    ("ImageVisualizer", "mode", "Input", "Did you mean 'input'"),
    ("MLPerfCallback", "root_folder", "s3://bucket/a", "a folder of this machine"),
    ("MLPerfCallback", "status", "onprm", "Did you mean 'onprem'"),
    ("Notify", "on", "start", "'end', 'exception'"),
    ("Notify", "timeout", 0, "it must be above zero"),
    ("Notify", "text_field", "status", "already"),
    ("SampleInspector", "stages", "fit", "'train', 'validate'"),
    ("LoadCheckpoint", "load_path", "nowhere://x", "no store called nowhere"),
    ("LoadCheckpoint", "event", "befor_load", "Did you mean 'on_before_load'"),
    ("ModelCheckpoint", "mode", "mn", "Did you mean 'min'"),
    ("ModelCheckpoint", "save_top_k", -2, "at least -1"),
    ("ModelCheckpoint", "save_top_k", 2, "without a monitor it must be"),
    ("ModelCheckpoint", "save_top_k", 2, "Pass monitor="),
    ("ModelCheckpoint", "save_last", "copy", "'link'"),
    ("ModelCheckpoint", "filename", "{epoch", "every brace"),
    ("ModelCheckpoint", "filename", "a}b", "every brace"),
    ("ModelCheckpoint", "filename", "{}", "every brace"),
    ("ModelCheckpoint", "filename", "../best", "inside dirpath"),
    ("ModelCheckpoint", "filename", "/tmp/best", "inside dirpath"),
    ("ModelCheckpoint", "dirpath", "nowhere://x", "no store called nowhere://"),
    ("ModelCheckpoint", "train_time_interval", 60, "'1h30m'; units are s, m"),
    ("ModelCheckpoint", "train_time_interval", "30", "units are s, m"),
    ("ModelCheckpoint", "train_time_interval", "30ba", "'ba' makes no sense here"),
    ("ModelCheckpoint", "train_time_interval", timedelta(0), "above zero"),
]
"""Such a value, and a part of the message that says its rule or the nearest name."""
_DIM = {"pruning_fn": "random_structured", "pruning_dim": 0}
_EACH = {"pruning_fn": "random_structured", "use_global_unstructured": False}
OTHERS = [
    ("WeightAveraging", {"avg_fn": max, "multi_avg_fn": max}, "only one of them"),
    (
        "ModelPruning",
        {"pruning_fn": prune.L1Unstructured, "use_global_unstructured": False},
        "use_global_unstructured False",
    ),
    ("ModelPruning", _DIM, "use_global_unstructured True"),
    ("ModelPruning", _EACH, "pruning_dim None"),
    (
        "ModelPruning",
        {**_DIM, **_EACH, "pruning_fn": "ln_structured"},
        "pruning_norm None",
    ),
    ("ModelPruning", {**_DIM, **_EACH, "pruning_norm": 2}, "pruning_norm 2"),
    ("ModelPruning", {"parameter_names": ["gain"]}, "parameter_names 'gain'"),
    ("QuantizationAwareTraining", {"observer_enabled_stages": ["fit"]}, "stages 'fit' of"),
    ("NaNGuard", {"check": ["loss", "x"]}, "check 'x' of NaNGuard"),
    (
        "NaNGuard",
        {"action": "skip", "check_every_n_steps": 2},
        "check_every_n_steps 2 of NaNGuard with action 'skip'",
    ),
    ("Profiler", {"activities": ["cpu", 1]}, "activities 1 of Profiler"),
    ("ThroughputMonitor", {"window_size": 1}, "window_size 1 of Throughput"),
    ("ThroughputMonitor", {"separator": 1}, "separator 1 of Throughput"),
    ("ThroughputMonitor", {"available_flops": -1}, "available_flops -1 of Throughput"),
    ("MLPerfCallback", {"metric_name": ""}, "monitor ''"),
    ("Notify", {"stages": ["train"]}, "stages 'train' of Notify"),
    ("Notify", {"headers": {"a": 1}}, "headers of Notify"),
    ("Notify", {"extra": ["a"]}, "extra of Notify"),
    ("Notify", {"extra": {"text": "a"}}, "extra 'text' of Notify: the object that is sent has a"),
    ("Notify", {"extra": {"run": "a"}}, "extra 'run' of Notify: the object that is sent has a"),
    ("SampleInspector", {"mean": [], "std": 1}, "mean [] of SampleInspector"),
    ("SampleInspector", {"mean": 0.5, "std": [math.nan]}, "std [nan] of SampleInspector"),
    ("SampleInspector", {"mean": 0.5}, "mean of SampleInspector without std"),
    ("SampleInspector", {"std": 0.5}, "std of SampleInspector without mean"),
    ("SampleInspector", {"kind": "text"}, "kind 'text' of SampleInspector without decode"),
    ("SampleInspector", {"kind": "image", "decode": str}, "kind 'image' of SampleInspector with"),
    ("LoadCheckpoint", {"ignore_keys": ["trainer_hooks/progress"]}, "cannot go on without"),
    ("LoadCheckpoint", {"event": "init"}, "no module"),
    ("LoadCheckpoint", {"event": "fit_start"}, "load_weights_only=True"),
    ("ModelCheckpoint", {"filename": "{loss:.2q}"}, "format '.2q' of 'loss'"),
    (
        "ModelCheckpoint",
        {"save_interval": "1ep", "every_n_epochs": 1},
        "every_n_epochs, save_interval",
    ),
    (
        "ModelCheckpoint",
        {"every_n_epochs": 1, "every_n_train_steps": 5},
        "every_n_train_steps, every_n_epochs",
    ),
    (
        "ModelCheckpoint",
        {"every_n_epochs": 1, "train_time_interval": timedelta(1)},
        "every_n_epochs, train_time_interval of ModelCheckpoint: they exclude each other",
    ),
    ("LearningRateFinder", {"min_lr": 0}, "min_lr 0 and max_lr 1 of LearningRateFinder"),
    ("LearningRateFinder", {"min_lr": 2}, "min_lr 2 and max_lr 1 of LearningRateFinder"),
]
"""Options that exclude each other, or of which a part is wrong, and a part of the message."""
REQUIRED = {
    "StochasticWeightAveraging": {"swa_lrs": 0.1},
    "ModelPruning": {"pruning_fn": "l1_unstructured"},
    "ExportForInferenceCallback": {"save_format": "torchscript", "save_path": "net.pt"},
    "ThroughputMonitor": {"batch_size_fn": len},
    "Generate": {"prompts": "a", "interval": "1ep"},
    "MLPerfCallback": {"root_folder": "a", "index": 0},
    "Notify": {"command": "x"},
    "LoadCheckpoint": {"load_path": "a.ckpt"},
    "OnExceptionCheckpoint": {"dirpath": "a"},
    "EarlyStopping": {"monitor": "val_loss"},
    "Timer": {"duration": "00:00:00:01"},
}
"""The arguments that a callback cannot be made without."""


def refusal(name, options):
    return refusal_of(getattr(callbacks, name), {**REQUIRED.get(name, {}), **options})


@for_each(each_value(BAD))
def test_a_value_outside_its_rule_is_named(name, option, value) -> None:
    """The message begins with the option, its value and the callback."""
    require_named(refusal(name, {option: value}), name, option, value)


@for_each(RULES)
def test_the_rule_is_told(name, option, value, rule) -> None:
    """After the same beginning the message says the rule, or the name that was meant."""
    require_named(refusal(name, {option: value}), name, option, value, rule)


@for_each(OTHERS)
def test_the_wrong_part_or_the_other_option_is_told(name, options, message) -> None:
    """Where more than the option and its value are to be known, the message has that."""
    assert message in refusal(name, options)


@pytest.mark.parametrize(
    ("device", "rule"), [("cuda:99", "finds no such device"), ("meta", "holds no data")]
)
@pytest.mark.parametrize(
    ("name", "option", "others"),
    [
        ("EMAWeightAveraging", "device", {}),
        ("NaNGuard", "snapshot_device", {"action": "rollback"}),
        ("StochasticWeightAveraging", "device", {"swa_lrs": 0.1}),
    ],
)
def test_a_device_that_is_not_there(quiet_trainer, name, option, others, device, rule) -> None:
    """It is refused before the training, and not when it is first needed."""
    callback = getattr(callbacks, name)(**others, **{option: device})
    trainer = quiet_trainer(callbacks=[callback])
    with pytest.raises(OptionError, match=rf"{option} '{device}' of {name}: .*{rule}.*Use 'cpu'"):
        trainer.fit(TinyModule())
    assert trainer.global_step == 0
