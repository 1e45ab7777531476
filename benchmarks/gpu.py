"""A training on a GPU: step, transfers, host waits, bf16, compiled modules, CUDA graphs.

    python benchmarks/gpu.py [--rounds 7] [--steps 200] [--case step transfer ...] [--check]

The trainer and the same loop by hand train the same batches in one process, in turns. The first
epoch warms up, the second is timed, with the device synchronised at both ends. The ratio is the
median over the rounds. Cases:

    step      batches that lie on the device
    transfer  batches in pinned host memory, as large as the model is slow; a third contestant is a
              loop that copies the next batch on a stream of its own, beside the computing
    bf16      the same as `step`, with autocast by hand, and with precision="bf16-mixed"
    compiled  the same as `step`, with torch.compile of the network, and of the module
    waits     how often a step makes the host wait for the device, bare and with `log` and a logger
    graphs    whether a step in CUDA graphs (mode="reduce-overhead") trains the weights of a plain
              loop, or is refused

Where there is no GPU, "not measured" is printed. `--device cpu` tries the script itself on one.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from _harness import interleave, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import torch

CASES = ("step", "transfer", "bf16", "compiled", "waits", "graphs")
TARGET = 1.05
"""Of a step of the trainer by one by hand, as on a CPU."""
_EPOCHS = 2


@dataclass
class Size:
    """How large the network and its batches are."""

    width: int
    layers: int
    batch_size: int


STEP, TRANSFER = Size(1024, 4, 512), Size(4096, 2, 4096)
_SMALL = Size(16, 2, 8)


@dataclass
class Trained:
    """What came of a training: seconds a step, and the sum of the absolute weights."""

    seconds: float
    weights: float


class Bench:
    """Trainings on one device, by hand and by the trainer.

    Args:
        device: the device.
        steps: steps of an epoch.
        folder: a folder for the logger's files.
    """

    def __init__(self, device: torch.device, steps: int, folder: str) -> None:
        self.device, self.steps, self.folder = device, steps, folder

    def synchronize(self) -> None:
        """Wait until the device has done its work."""
        import torch

        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def network(self, size: Size) -> Any:
        """Return a network with the same weights each time, on the host."""
        import torch
        from torch import nn

        torch.manual_seed(0)
        blocks = [
            nn.Sequential(nn.Linear(size.width, size.width), nn.ReLU()) for _ in range(size.layers)
        ]
        return nn.Sequential(*blocks, nn.Linear(size.width, 1))

    def batches(self, size: Size, *, on_device: bool) -> list[Any]:
        """Return as many batches as an epoch has steps; eight of them are different."""
        import torch

        source = torch.Generator().manual_seed(1)
        different = []
        for _ in range(8):
            inputs = torch.randn(size.batch_size, size.width, generator=source)
            pair = (inputs, inputs.mean(1, keepdim=True))
            if on_device:
                pair = tuple(tensor.to(self.device) for tensor in pair)
            elif self.device.type == "cuda":
                pair = tuple(tensor.pin_memory() for tensor in pair)
            different.append(pair)
        return [different[number % 8] for number in range(self.steps)]

    def by_hand(
        self,
        size: Size,
        batches: list[Any],
        *,
        bf16: bool = False,
        compiled: str | None = None,
        moved: Callable[[Iterable[Any]], Iterator[Any]] | None = None,
    ) -> Trained:
        """Train in a loop.

        Args:
            size: of the network.
            batches: those of an epoch.
            bf16: whether the forward runs under autocast.
            compiled: a mode of torch.compile for the network, or None to leave it uncompiled.
            moved: yields batches on the device; by default each is copied when it is needed.
        """
        import torch

        plain = self.network(size).to(self.device)
        network = plain if compiled is None else torch.compile(plain, mode=compiled)
        optimizer = torch.optim.SGD(plain.parameters(), lr=0.01)
        begun = 0.0
        for _ in range(_EPOCHS):
            self.synchronize()
            begun = time.perf_counter()
            for inputs, targets in (moved or self.moved_in_turn)(batches):
                optimizer.zero_grad()
                context = (
                    torch.autocast(self.device.type, torch.bfloat16) if bf16 else nullcontext()
                )
                with context:
                    loss = (network(inputs) - targets).square().mean()
                loss.backward()
                optimizer.step()
            self.synchronize()
        return Trained((time.perf_counter() - begun) / self.steps, _sum(plain))

    def by_trainer(
        self,
        size: Size,
        batches: list[Any],
        *,
        compiled: str | None = None,
        logs: bool = False,
        at_epoch: Callable[[int], None] = lambda epoch: None,
        **options: Any,
    ) -> Trained:
        """Train with the trainer.

        Args:
            size: of the network.
            batches: those of an epoch.
            compiled: a mode of torch.compile for the module, or None to leave it uncompiled.
            logs: whether three values are logged at each step, and a CSV logger writes them.
            at_epoch: is called with the epoch's number before its first batch.
            options: the trainer's further options.
        """
        import torch

        from trainer_hooks import Callback, Module, Trainer
        from trainer_hooks.loggers import CSVLogger

        bench = self

        class Net(Module):
            def __init__(self) -> None:
                super().__init__()
                self.network = bench.network(size)

            def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
                loss = (self.network(batch[0]) - batch[1]).square().mean()
                if logs:
                    for name in ("loss", "loss_again", "loss_thrice"):
                        self.log(name, loss, on_step=True, on_epoch=True, batch_size=1)
                return loss

            def configure_optimizers(self) -> torch.optim.Optimizer:
                return torch.optim.SGD(self.parameters(), lr=0.01)

        class Timed(Callback):
            begun = seconds = 0.0

            def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
                at_epoch(trainer.current_epoch)
                bench.synchronize()
                self.begun = time.perf_counter()

            def on_train_batches_end(self, trainer: Any, module: Any) -> None:
                at_epoch(-1)
                bench.synchronize()
                self.seconds = time.perf_counter() - self.begun

        timed, module = Timed(), Net()
        trainer = Trainer(
            accelerator=self.device.type, devices=1, max_epochs=_EPOCHS, callbacks=timed,
            logger=CSVLogger(self.folder) if logs else False, log_every_n_steps=50,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            enable_run_manifest=False, plugins=False, default_root_dir=self.folder, **options,
        )  # fmt: skip
        trainer.fit(module if compiled is None else torch.compile(module, mode=compiled), batches)
        return Trained(timed.seconds / self.steps, _sum(module))

    def moved_in_turn(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield each batch on the device, copied on the stream that computes."""
        for batch in batches:
            yield tuple(tensor.to(self.device, non_blocking=True) for tensor in batch)

    def moved_ahead(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield each batch on the device, copied on a stream of its own while the last computes."""
        import torch

        if self.device.type != "cuda":
            yield from self.moved_in_turn(batches)
            return
        stream, ahead = torch.cuda.Stream(self.device), None
        for batch in [*batches, None]:
            here = ahead
            if batch is not None:
                with torch.cuda.stream(stream):
                    ahead = next(self.moved_in_turn([batch]))
            if here is not None:
                yield here
            torch.cuda.current_stream(self.device).wait_stream(stream)
            for tensor in ahead or ():
                tensor.record_stream(torch.cuda.current_stream(self.device))


def _sum(module: Any) -> float:
    return float(sum(p.detach().double().abs().sum().item() for p in module.parameters()))


def compare(
    contestants: dict[str, Callable[[], Trained]], rounds: int
) -> tuple[list[list[str]], float]:
    """Return a table's rows, and the ratio of the last contestant to the first."""
    results: dict[str, list[Trained]] = {name: [] for name in contestants}
    for _, name in interleave(list(contestants), rounds):
        results[name].append(contestants[name]())
    baseline, *_ = results.values()
    rows, ratio = [], 1.0
    for name, own in results.items():
        ratio = statistics.median(a.seconds / b.seconds for a, b in zip(own, baseline, strict=True))
        microseconds = statistics.median(one.seconds for one in own) * 1e6
        difference = max(abs(a.weights / b.weights - 1) for a, b in zip(own, baseline, strict=True))
        rows.append([name, f"{microseconds:.1f}", f"{ratio:.3f}", f"{difference:.0e}"])
    return rows, ratio


def count_waits(bench: Bench, size: Size) -> list[list[str]]:
    """Return rows with the host waits a step, bare and with values that are logged."""
    import torch

    rows = []
    for name, logs in (("bare", False), ("three log calls, a CSV logger each 50 steps", True)):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")

            def at_epoch(epoch: int) -> None:
                # the first epoch may wait: it is where memory is found
                torch.cuda.set_sync_debug_mode("warn" if epoch == 1 else "default")

            bench.by_trainer(
                size, bench.batches(size, on_device=True), logs=logs, at_epoch=at_epoch
            )
        waits = [str(one.message) for one in seen if "synchroniz" in str(one.message)]
        rows.append([name, str(len(waits)), f"{len(waits) / bench.steps:.3f}"])
    return rows


def try_graphs(bench: Bench, size: Size) -> tuple[list[list[str]], list[str]]:
    """Return rows that say how a training in CUDA graphs went, and a line for each wrong one."""
    batches = bench.batches(size, on_device=True)
    wanted = bench.by_hand(size, batches)
    rows, wrong = [], []
    for name, options in (
        ("each batch a step", {}),
        ("two batches", {"accumulate_grad_batches": 2}),
    ):
        try:
            found = bench.by_trainer(size, batches, compiled="reduce-overhead", **options)
            plain = bench.by_trainer(size, batches, **options) if options else wanted
        except Exception as error:  # noqa: BLE001 - a refusal is a result
            rows.append([name, f"refused: {error!s:.100}", ""])
            continue
        difference = abs(found.weights / plain.weights - 1)
        rows.append([name, "right" if difference < 1e-4 else "WRONG", f"{difference:.0e}"])
        if difference >= 1e-4:
            wrong.append(f"graphs, {name}: the weights differ by {difference:.0e}")
    return rows, wrong


def measure(bench: Bench, cases: list[str], rounds: int, *, small: bool) -> list[str]:
    """Print the cases' tables; return a line for each target that is missed."""
    size, large = (_SMALL, _SMALL) if small else (STEP, TRANSFER)
    near = bench.batches(size, on_device=True)
    missed = []
    timed: dict[str, Callable[[], dict[str, Callable[[], Trained]]]] = {
        "step": lambda: {
            "by hand": lambda: bench.by_hand(size, near),
            "trainer_hooks": lambda: bench.by_trainer(size, near),
        },
        "transfer": lambda: _of_transfer(bench, large),
        "bf16": lambda: {
            "by hand": lambda: bench.by_hand(size, near, bf16=True),
            "trainer_hooks": lambda: bench.by_trainer(size, near, precision="bf16-mixed"),
        },
        "compiled": lambda: {
            "by hand": lambda: bench.by_hand(size, near, compiled="default"),
            "trainer_hooks": lambda: bench.by_trainer(size, near, compiled="default"),
        },
    }
    for case in cases:
        if case in timed:
            rows, ratio = compare(timed[case](), rounds)
            headers = ["", "µs/step", "ratio", "difference of weights"]
            if ratio > TARGET:
                missed.append(f"{case}: {ratio:.3f}, and the target is {TARGET}")
        elif bench.device.type != "cuda":
            print(f"\n{case}: not measured (no CUDA device)")
            continue
        elif case == "waits":
            rows, headers = count_waits(bench, size), ["", "waits", "a step"]
        else:
            rows, wrong = try_graphs(bench, size)
            headers, missed = ["", "result", "difference of weights"], missed + wrong
        print(f"\n{case}\n{table(headers, rows)}")
    return missed


def _of_transfer(bench: Bench, size: Size) -> dict[str, Callable[[], Trained]]:
    far = bench.batches(size, on_device=False)
    return {
        "by hand": lambda: bench.by_hand(size, far),
        "by hand, copied ahead": lambda: bench.by_hand(size, far, moved=bench.moved_ahead),
        "trainer_hooks": lambda: bench.by_trainer(size, far),
    }


def main() -> int:
    """Run the chosen cases; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=200, help="steps of an epoch")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--check", action="store_true", help="exit 1 over a target")
    arguments = parser.parse_args()
    import torch

    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("not measured: torch sees no CUDA device here")
        return 0
    device = torch.device(arguments.device)
    name = torch.cuda.get_device_name() if device.type == "cuda" else "a CPU, small"
    print(f"{name}, torch {torch.__version__}")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        bench = Bench(device, arguments.steps, folder)
        missed = measure(bench, arguments.case, arguments.rounds, small=device.type == "cpu")
    for line in missed:
        print(f"missed: {line}")
    return int(arguments.check and bool(missed))


if __name__ == "__main__":
    sys.exit(main())
