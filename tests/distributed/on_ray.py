"""Train in two workers of Ray Train, on the CPU: on_ray.py FOLDER."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def train(config: dict) -> None:
    """Train as a script does, in each worker."""
    import torch
    from nets import Net, loader, trainer, weights

    torch.manual_seed(1)
    module = Net()
    fit = trainer(devices="auto")
    fit.fit(module, loader())
    found = {
        "weights": weights(module), "place": [fit.global_rank, fit.world_size],
        "is_there": torch.distributed.is_initialized(),
    }  # fmt: skip
    Path(config["folder"], f"rank{fit.global_rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=True)
    TorchTrainer(
        train,
        train_loop_config={"folder": sys.argv[1]},
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
        run_config=RunConfig(storage_path=sys.argv[1]),
    ).fit()
    ray.shutdown()
