"""Callbacks of Lightning that write weights or change optimizers, resumed: `resumed.py FILE`.

Each plan is trained in our Trainer, uncut and resumed, and uncut in Lightning's.
"""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace
from typing import Any

warnings.simplefilter("ignore")

import changing_optimizers  # noqa: E402
import pytorch_lightning as pl  # noqa: E402
import torch  # noqa: E402
from foreign_programs import prepare_process, quiet_folder, write_results  # noqa: E402

import trainer_hooks  # noqa: E402

SEEDS = 20


def averages() -> dict[str, Any]:
    """Return what makes a callback that averages weights, by name."""
    theirs = pl.callbacks
    return {
        "WeightAveraging": theirs.WeightAveraging,
        "EMAWeightAveraging": lambda: theirs.EMAWeightAveraging(decay=0.5),
        "EMAWeightAveraging, every 2": lambda: theirs.EMAWeightAveraging(
            decay=0.8, update_every_n_steps=2
        ),
    }


def names_for(average: Any = None) -> SimpleNamespace:
    """Return the classes of a plan: Lightning's, and ours for the saver."""
    finetuning = pl.callbacks.BaseFinetuning
    return SimpleNamespace(
        Module=pl.LightningModule, Callback=pl.Callback, BaseFinetuning=finetuning,
        OurCallback=trainer_hooks.Callback, more=[] if average is None else [average],
    )  # fmt: skip


def at_home(plan: Any, names: Any, folder: Any) -> dict[str, torch.Tensor]:
    """Return the weights after the plan in Lightning's own Trainer."""
    torch.manual_seed(0)
    module, callbacks = changing_optimizers.parts(plan, names)
    pl.Trainer(callbacks=callbacks, **changing_optimizers.options(plan, folder)).fit(
        module, changing_optimizers.data()
    )
    return module.state_dict()


def main(target: str) -> None:
    prepare_process()
    results: dict[str, Any] = {}
    for kind, average in {"none": None, **averages()}.items():
        names = names_for(average)
        for seed in range(SEEDS if average is None else SEEDS // 4):
            plan = changing_optimizers.draw(seed)
            with quiet_folder() as folder:
                found = changing_optimizers.attempt(plan, names, folder)
                here = changing_optimizers.train(plan, names, folder, None, None)["weights"]
                there = at_home(plan, names, folder)
            same = all(torch.equal(value, there[name]) for name, value in here.items())
            results[f"{kind} {seed}"] = {"plan": str(plan), "found": found, "as at home": same}
    write_results(target, results)


if __name__ == "__main__":
    main(*sys.argv[1:])
