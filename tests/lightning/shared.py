"""What programs of several sections do alike."""

from __future__ import annotations

from typing import Any

__all__ = ["cut_run", "fitted", "limited", "watching"]


def watching(x: Any) -> Any:
    """Make a callback that writes down what is trained and validated."""
    return x.hooks(
        "on_train_epoch_start", "on_train_batch_start", "on_validation_epoch_start",
        "on_validation_batch_start", "on_train_epoch_end",
    )  # fmt: skip


def limited(x: Any, val: Any = None, **options: Any) -> dict[str, Any]:
    """Fit with options; tell what was run and where it ended."""
    hooks, module = watching(x), x.Net()
    trainer = x.trainer(hooks, **options)
    trainer.fit(module, x.loader(6), val)
    return {
        "calls": hooks.calls,
        "counters": x.counters(trainer),
        "weights": x.weights(module),
        "num_training_batches": trainer.num_training_batches,
        "num_val_batches": trainer.num_val_batches if val else None,
    }


def fitted(
    x: Any, module: Any, *callbacks: Any, batches: int = 4, **options: Any
) -> dict[str, Any]:
    trainer = x.trainer(*callbacks, **options)
    trainer.fit(module, x.loader(batches))
    counters = x.counters(trainer)
    return {
        "weights": x.weights(module),
        "steps": counters.pop("global_step"),
        "counters": counters,
    }


def cut_run(x: Any, *callbacks: Any, epochs: int = 1, module: Any = None, **options: Any) -> Any:
    """Train for some epochs and save; return the path."""
    trainer = x.trainer(*callbacks, max_epochs=epochs, **options)
    trainer.fit(module or x.Net(), x.loader(3), x.loader(1))
    trainer.save_checkpoint(x.folder / "cut.ckpt")
    return x.folder / "cut.ckpt"
