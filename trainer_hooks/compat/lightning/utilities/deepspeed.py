"""DeepSpeed, which is not here."""

from __future__ import annotations

from trainer_hooks.compat.refusing import refusing

__all__: list[str] = []

__getattr__ = refusing(
    __name__,
    {
        "convert_zero_checkpoint_to_fp32_state_dict": "use `trainer-hooks checkpoint export`",
        "ds_checkpoint_dir": "there is no DeepSpeed here",
    },
)
