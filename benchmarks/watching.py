"""What a training costs more while another process follows its folder.

An MLP (32 -> 64 -> 2), a logged loss and a CSV logger that writes a row each step. Trainings take
turns: nobody follows them, `trainer-hooks watch` does on a terminal, or a page of `trainer-hooks
report --live` does, which is asked for as often as a browser asks. Each is a process of its own
with one thread. The table has the median over the rounds of the ratio to the training that nobody
follows: of the seconds of processor of all steps, and of their time. It also has the processor that
the follower used, in percent of one core, without its start.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from _harness import environment, interleave, run_child, table

STEPS = 20_000
PAUSE_S = 1.0
FOLLOWERS = ("nobody", "watch", "report --live")
_COMMAND = {"watch": ["watch", "."], "report --live": ["report", "--live", ".", "--port", "0"]}
_START_S = 2.0
"""Seconds that the training waits for the follower to start and to find the run."""


def processor_seconds(pid: int) -> float:
    """Return the user and system time of a running process."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def ask(address: str, ended: threading.Event) -> None:
    """Ask for the page until the training has ended, as the page's own script does."""
    version = ""
    while not ended.wait(PAUSE_S):
        request = urllib.request.Request(address, headers={"If-None-Match": version})
        try:
            with urllib.request.urlopen(request) as answer:
                version = answer.headers.get("ETag", "")
                answer.read()
        except urllib.error.HTTPError as error:
            if error.code != 304:
                raise


class Follower:
    """Another process that follows a folder, and a browser's questions if it has a page.

    Args:
        name: one of `FOLLOWERS`.
        folder: the folder of the training.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._ended = threading.Event()
        self._asking: threading.Thread | None = None
        if name == "nobody":
            return
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trainer_hooks", *_COMMAND[name]],
            cwd=folder, text=True, env=environment(0),
            stdout=subprocess.PIPE if "--live" in name else None,
        )  # fmt: skip
        if self._process.stdout is not None:
            address = re.search(r"http://\S+", self._process.stdout.readline())
            assert address is not None
            self._asking = threading.Thread(target=ask, args=(address[0], self._ended))
            self._asking.start()

    def processor_seconds(self) -> float:
        """Return the seconds of processor that the process has used."""
        return 0.0 if self._process is None else processor_seconds(self._process.pid)

    def end(self) -> None:
        """End the process and its questions."""
        self._ended.set()
        if self._asking is not None:
            self._asking.join()
        if self._process is not None:
            self._process.terminate()
            self._process.wait()


def make_net() -> Any:
    """Return the module that is trained."""
    import torch

    from trainer_hooks import Module

    class Net(Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)
            )

        def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
            loss = self.layers(batch).square().mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.01)

    return Net()


def measure(name: str, folder: Path) -> dict[str, float]:
    """Train, and return the seconds of the steps and the follower's share of a core."""
    import torch

    from trainer_hooks import Callback, Trainer
    from trainer_hooks.loggers import CSVLogger

    class Timed(Callback):
        """Times the steps after those in which the follower starts."""

        def clocks(self) -> tuple[float, float, float]:
            return time.perf_counter(), time.process_time(), self.follower.processor_seconds()

        def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
            if trainer.global_step == 100:
                self.follower = Follower(name, folder)
                time.sleep(_START_S)
                self.began = self.clocks()

        def on_train_end(self, trainer: Any, *args: Any) -> None:
            self.spans = [end - start for start, end in zip(self.began, self.clocks(), strict=True)]
            self.follower.end()

    torch.set_num_threads(1)
    timed = Timed()
    trainer = Trainer(
        max_epochs=1, accelerator="cpu", log_every_n_steps=1, callbacks=[timed],
        logger=CSVLogger(folder), enable_progress_bar=False, enable_model_summary=False,
        enable_checkpointing=False, default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(make_net(), [torch.ones(8, 32)] * STEPS)
    seconds, processor, other = timed.spans
    return {"seconds": seconds, "processor": processor, "share": 100 * other / seconds}


def main(arguments: list[str]) -> int:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args(arguments).rounds
    found: dict[str, list[dict[str, float]]] = {name: [] for name in FOLLOWERS}
    for number, name in interleave(FOLLOWERS, rounds):
        found[name].append(run_child([sys.executable, __file__, "--of", name], hash_seed=number))
    rows = []
    for name, measured in found.items():
        ratios = {
            key: statistics.median(
                each[key] / alone[key]
                for each, alone in zip(measured, found["nobody"], strict=True)
            )
            for key in ("processor", "seconds")
        }
        share = statistics.median(each["share"] for each in measured)
        rows.append(
            (name, f"{ratios['processor']:.3f}", f"{ratios['seconds']:.3f}", f"{share:.1f}")
        )
    print(table(("followed by", "processor", "time", "follower, % of a core"), rows))
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--of"]:
        with tempfile.TemporaryDirectory() as place:
            result = measure(sys.argv[2], Path(place))
        Path(sys.argv[3]).write_text(json.dumps(result), encoding="utf-8")
        sys.exit(0)
    sys.exit(main(sys.argv[1:]))
