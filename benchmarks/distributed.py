"""Two ranks of DDP with the trainer and with a loop by hand, the same work, in turns.

    python benchmarks/distributed.py [--rounds 5] [--steps 300]

It starts the ranks itself. Printed are the medians of the seconds a step and their ratio, the same
of the processor time, which other work on the machine changes less, what of the trainer's step is
the agreement on what any process asks for, and how many collectives each makes a step.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from contextlib import contextmanager

from _harness import run_two_ranks

WIDTH = 512


def run_rank(rounds: int, steps: int) -> None:
    """Measure in one rank; the first prints."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from trainer_hooks import Callback, Module, Trainer

    torch.set_num_threads(1)
    torch.manual_seed(0)
    batches = [(torch.randn(32, WIDTH), torch.randn(32, 1)) for _ in range(steps)]

    class Net(Module):
        def __init__(self) -> None:
            super().__init__()
            layers = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1)]
            self.net = torch.nn.Sequential(*layers)

        def training_step(self, batch, batch_idx):
            return (self.net(batch[0]) - batch[1]).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    class Timed(Callback):
        """The time from the first batch to the last, in which all ranks begin together."""

        seconds = used = 0.0

        def on_train_epoch_start(self, trainer, module):
            trainer.strategy.barrier()
            self.seconds, self.used = -time.perf_counter(), -time.thread_time()

        def on_train_batches_end(self, trainer, module):
            self.seconds += time.perf_counter()
            self.used += time.thread_time()

    def by_trainer() -> tuple[float, float]:
        timed = Timed()
        trainer = Trainer(
            accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, plugins=False,
            use_distributed_sampler=False, callbacks=timed,
        )  # fmt: skip
        trainer.fit(Net(), batches)
        return timed.seconds / steps, timed.used / steps

    def by_hand() -> tuple[float, float]:
        net = Net()
        wrapped = DistributedDataParallel(net.net)
        optimizer = net.configure_optimizers()
        dist.barrier()
        begun, used = time.perf_counter(), time.thread_time()
        for inputs, targets in batches:
            optimizer.zero_grad()
            (wrapped(inputs) - targets).square().mean().backward()
            optimizer.step()
        return (time.perf_counter() - begun) / steps, (time.thread_time() - used) / steps

    by_trainer()  # makes the process group
    found = _in_turns(by_trainer, by_hand, rounds)
    counts = {name: _collectives(run, steps) for name, run in (("t", by_trainer), ("h", by_hand))}
    if dist.get_rank() == 0:
        _tell(found)
        print(f"reductions a step: trainer {counts['t']:.2f}, by hand {counts['h']:.2f}")


def _in_turns(by_trainer, by_hand, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return what each way took, the trainer also without the agreement."""

    def without_agreement() -> tuple[float, float]:
        with _no_agreement():
            return by_trainer()

    turns = [("trainer", by_trainer), ("hand", by_hand), ("no agreement", without_agreement)]
    found = {name: [] for name, _ in turns}
    for number in range(rounds):
        for name, run in turns if number % 2 else turns[::-1]:
            found[name].append(run())
    return found


@contextmanager
def _no_agreement():
    """Let no process learn what another asks for: what is left is the price of that."""
    from trainer_hooks.loops.rank_consensus import RankConsensus
    from trainer_hooks.runtime import gradient_sync

    kept = gradient_sync.GradientFlag, RankConsensus.after_window
    gradient_sync.GradientFlag = lambda like: None
    RankConsensus.after_window = lambda self: None
    try:
        yield
    finally:
        gradient_sync.GradientFlag, RankConsensus.after_window = kept


def _tell(found: dict[str, list[tuple[float, float]]]) -> None:
    """Print the medians of all ways, and their ratios."""
    for index, what in enumerate(("a step", "its processor time in the main thread")):
        ours, theirs, alone = (
            statistics.median(one[index] for one in found[name]) * 1e6
            for name in ("trainer", "hand", "no agreement")
        )
        print(
            f"{what}: trainer {ours:.0f} us, by hand {theirs:.0f} us, ratio {ours / theirs:.3f}; "
            f"of it the agreement {ours - alone:.0f} us, {(ours - alone) / theirs:.1%}"
        )


def _collectives(run, steps: int) -> float:
    """Return how many reductions gloo makes a step, those at the ends of a run spread over it."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as seen:
        run()
    events = [e for e in seen.events() if e.name in ("gloo:all_reduce", "c10d::allreduce_")]
    names = {name: sum(e.name == name for e in events) for name in {e.name for e in events}}
    return max(names.values(), default=0) / steps


def main() -> None:
    """Start the ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    if "RANK" in os.environ:
        run_rank(options.rounds, options.steps)
        return
    sys.exit(run_two_ranks([sys.executable, *sys.argv]))


if __name__ == "__main__":
    main()
