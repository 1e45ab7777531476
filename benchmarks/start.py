"""The time from a command to its first step, and of commands that train nothing, in milliseconds.

Each training has the same MLP (32 -> 64 -> 2) and batches. The loop by hand has no logger, bar or
checkpoint; the trainers have their defaults. A process ends at its first step, so that nothing is
written that is not written before it. The commands of the shell run to their end. Everything runs
in fresh interpreters that take turns; one round that is not measured warms the disk cache. The
figure is the median, and beside it the median of the difference to the loop by hand in the round.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time

from _harness import interleave, table

TARGET_MS = 50.0
_MODEL = """
import os, sys, torch
torch.set_num_threads(1)
layers = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
batches = torch.utils.data.DataLoader(torch.ones(80, 32), batch_size=8)
"""
_BY_HAND = f"""{_MODEL}
optimizer = torch.optim.Adam(layers.parameters())
for batch in batches:
    optimizer.zero_grad()
    layers(batch).square().mean().backward()
    optimizer.step()
    os._exit(0)
"""
_TRAINER = """
class Net(Base):
    def __init__(self):
        super().__init__()
        self.layers = layers

    def training_step(self, batch, batch_idx):
        loss = self.layers(batch).square().mean()
        self.log("loss", loss)
        return loss

    def on_train_batch_end(self, *args):
        os._exit(0)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())

Trainer(max_epochs=1, accelerator="cpu", default_root_dir=sys.argv[1]).fit(Net(), batches)
"""
_OURS = f"{_MODEL}\nfrom trainer_hooks import Module as Base, Trainer\n{_TRAINER}"
_LIGHTNING = f"{_MODEL}\nfrom pytorch_lightning import LightningModule as Base, Trainer\n{_TRAINER}"
_COMMAND = [sys.executable, "-m", "trainer_hooks"]
STARTS = {
    "a loop by hand": [sys.executable, "-c", _BY_HAND],
    "trainer_hooks": [sys.executable, "-c", _OURS],
    "Lightning": [sys.executable, "-W", "ignore", "-c", _LIGHTNING],
    "import torch": [sys.executable, "-c", "import torch"],
    "trainer-hooks --help": [*_COMMAND, "--help"],
    "trainer-hooks plugins list": [*_COMMAND, "plugins", "list"],
    "trainer-hooks fit --help": [*_COMMAND, "fit", "--help"],
}
"""Each command by name; the trainings get a folder as argument."""


def measure(names: list[str], rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of each command in each round."""
    found: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="start-") as folder:
        for number, name in interleave(names, rounds + 1):
            command = STARTS[name]
            extra = [folder] if command[-2] == "-c" else []
            began = time.perf_counter()
            done = subprocess.run([*command, *extra], cwd=folder, capture_output=True, text=True)
            span = (time.perf_counter() - began) * 1e3
            if done.returncode != 0:
                raise SystemExit(f"{name} failed:\n{done.stderr[-2000:]}")
            if number > 0:
                found[name].append(span)
    return found


def main(argv: list[str] | None = None) -> int:
    """Measure, print, and return 1 only if `--check` found the target missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="processes of each kind")
    parser.add_argument("--check", action="store_true", help=f"exit 1 over {TARGET_MS:g} ms")
    arguments = parser.parse_args(argv)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    installed = importlib.util.find_spec("pytorch_lightning") is not None
    names = [name for name in STARTS if name != "Lightning" or installed]
    found = measure(names, arguments.rounds)
    plain = found["a loop by hand"]
    over = {
        name: statistics.median(a - b for a, b in zip(spans, plain, strict=True))
        for name, spans in found.items()
    }
    rows = [
        [name, f"{statistics.median(spans):.0f}", f"{min(spans):.0f}", f"{over[name]:+.0f}"]
        for name, spans in found.items()
    ]
    print(table(["", "ms", "least", "over the loop by hand"], rows))
    return int(arguments.check and over["trainer_hooks"] > TARGET_MS)


if __name__ == "__main__":
    sys.exit(main())
