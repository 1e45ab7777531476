"""Lightning's plugins, which are options of the trainer and its strategies here."""

from __future__ import annotations

from trainer_hooks.compat.refusing import refusing

__all__: list[str] = []

_SAVING = (
    "checkpoints go to any path or fsspec address, whole or not at all; for saves in the "
    "background pass ModelCheckpoint(async_save=True)"
)
_SYNC = "pass Trainer(sync_batchnorm=True)"

__getattr__ = refusing(
    __name__,
    {
        "AsyncCheckpointIO": _SAVING,
        "CheckpointIO": _SAVING,
        "TorchCheckpointIO": _SAVING,
        "XLACheckpointIO": "there are no TPUs here",
        "LayerSync": _SYNC,
        "TorchSyncBatchNorm": _SYNC,
        "BitsandbytesPrecision": "quantize layers in configure_model",
        "DeepSpeedPrecision": "pass Trainer(precision=...)",
        "DoublePrecision": "pass Trainer(precision='64-true')",
        "FSDPPrecision": "pass Trainer(precision=...), or FSDPStrategy(mixed_precision=...)",
        "HalfPrecision": "pass Trainer(precision='bf16-true') or '16-true'",
        "MixedPrecision": "pass Trainer(precision='bf16-mixed') or '16-mixed'",
        "Precision": "pass Trainer(precision=...)",
        "TransformerEnginePrecision": "replace layers in configure_model",
        "XLAPrecision": "there are no TPUs here",
    },
)
