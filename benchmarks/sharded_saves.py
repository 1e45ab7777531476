"""How long a background save of two ranks' shards holds the loop, against a copy of the shard.

    python benchmarks/sharded_saves.py [--rounds 9] [--width 2048]

It starts the ranks itself. Each holds half of the weights and optimizer states. Printed are the
medians, of rank 0: the save of a folder in the background, until the loop goes on, and a copy of
the same bytes into memory that is there.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from _harness import run_two_ranks


def run_rank(rounds: int, width: int, folder: str) -> None:
    """Measure in one rank; the first prints."""
    import torch
    from torch.distributed.tensor import DTensor

    from trainer_hooks import Callback, FSDPStrategy, Module, Trainer

    torch.set_num_threads(1)
    torch.manual_seed(0)

    class Net(Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(4)])

        def training_step(self, batch, batch_idx):
            return self.net(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=1e-4)

    saves: list[float] = []
    copies: list[float] = []

    class Saves(Callback):
        buffers = None

        def on_batch_checkpoint(self, trainer, module):
            states = trainer.optimizers[0].state.values()
            tensors = [*module.parameters(), *(v for one in states for v in one.values() if v.ndim)]
            local = [t.detach().to_local() if isinstance(t, DTensor) else t for t in tensors]
            if self.buffers is None:
                self.buffers = [tensor.clone() for tensor in local]
            trainer.strategy.barrier()
            begun = time.perf_counter()
            for buffer, tensor in zip(self.buffers, local, strict=True):
                buffer.copy_(tensor)
            copies.append(time.perf_counter() - begun)
            trainer.strategy.barrier()
            begun = time.perf_counter()
            save = trainer.save_in_background(Path(folder, "saved.ckpt"))
            saves.append(time.perf_counter() - begun)
            save.wait()
            self.size = sum(tensor.numel() * tensor.element_size() for tensor in local)

    callback = Saves()
    trainer = Trainer(
        accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, plugins=False, callbacks=callback,
        use_distributed_sampler=False,
        strategy=FSDPStrategy(auto_wrap_policy=torch.nn.Linear, state_dict_type="sharded"),
    )  # fmt: skip
    trainer.fit(Net(), [torch.randn(4, width)] * (rounds + 1))
    if trainer.is_global_zero:
        held, copy = (statistics.median(found[1:]) * 1e3 for found in (saves, copies))
        print(
            f"shard {callback.size / 1e6:.0f} MB: held {held:.1f} ms, a copy {copy:.1f} ms, "
            f"ratio {held / copy:.2f}"
        )


def main() -> None:
    """Start the ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if "RANK" in os.environ:
        run_rank(options.rounds, options.width, options.folder)
        return
    with tempfile.TemporaryDirectory() as folder:
        code = run_two_ranks([sys.executable, *sys.argv, "--folder", folder])
    sys.exit(code)


if __name__ == "__main__":
    main()
