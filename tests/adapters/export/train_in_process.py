"""A training of `host_fits` in a process of its own, which may be one of several, or be killed.

`python train_in_process.py HOST RESULT [--resume CHECKPOINT] [--kill-at SAMPLE]` writes what the
callbacks did, and a sum of the weights, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[2])]
sys.path.append(str(HERE.parent / "composer" / "stand_ins"))

import host_fits  # noqa: E402

from trainer_hooks import callbacks as built_in  # noqa: E402


def made(host):
    """Return callbacks of ours that go together."""
    return {
        "stopping": built_in.EarlyStopping(host.monitor, patience=5),
        "rates": built_in.LearningRateMonitor("step"),
        "norms": built_in.GradientNormMonitor(clipping="both"),
        "guard": built_in.NaNGuard("rollback", check_every_n_steps=1),
        "spikes": built_in.SpikeDetection(
            rtol=50.0, on_spike="skip", exclude_batches_path="skip.json"
        ),
        "average": built_in.EMAWeightAveraging(decay=0.5),
        "garbage": built_in.GarbageCollection(2),
        "timer": built_in.Timer("1 hours"),
        "manifest": built_in.RunManifest("journal"),
    }


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    name, target, *words = sys.argv[1:]
    options = dict(zip(words[::2], words[1::2], strict=True))
    host = getattr(host_fits, name)()
    host.processes = int(os.environ.get("WORLD_SIZE", "1"))
    data = host_fits.Rows(named=getattr(host, "named", False))
    if "--kill-at" in options:
        at = int(options["--kill-at"])

        def count(_, seen=[0]):  # noqa: B006 - one counter
            seen[0] += 1
            if seen[0] == at:
                os.kill(os.getpid(), signal.SIGKILL)

        data.on_load = count
    callbacks = made(host)
    fit = host.fit(
        *callbacks.values(), data=data, saves=True, resume=options.get("--resume"), epochs=3
    )
    if fit.error is not None:
        raise fit.error
    rank = os.environ.get("RANK", "0")
    Path(f"{target}.{rank}").write_text(
        json.dumps(
            {
                "steps": fit.steps,
                "best": round(float(callbacks["stopping"].best_score), 5),
                "averaged": callbacks["average"].num_averaged,
                "seen": callbacks["spikes"]._losses_seen,
                "weights": [round(float(w.double().sum()), 5) for w in fit.weights],
            }
        )
    )


if __name__ == "__main__":
    main()
