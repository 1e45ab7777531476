"""Train in the workers of Ray Train.

Ray starts the workers, on as many machines as its cluster has, and makes the process group. In each
worker the same function is called, which makes a `Trainer` without a word about processes: it finds
the group, and uses it.

Ray starts the workers again if one fails, up to `max_failures` times. The saver's `dirpath` is in
the storage that all workers see, and `ckpt_path="auto"` goes on from the newest checkpoint there,
with the same result as if none had failed.
"""

import argparse
from pathlib import Path


def train(config: dict):
    """Train in one of the workers, which runs these imports too."""
    import torch
    from sklearn.datasets import load_digits
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    from trainer_hooks import Module, Trainer, seed_everything
    from trainer_hooks.callbacks import ModelCheckpoint

    class Classifier(Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(
                nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10)
            )

        def training_step(self, batch, batch_idx):
            images, targets = batch
            scores = self.net(images)
            hits = (scores.argmax(dim=1) == targets).float().mean()
            self.log("train_acc", hits, on_step=False, on_epoch=True, sync_dist=True)
            return nn.functional.cross_entropy(scores, targets)

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=3e-3)

    seed_everything(1)
    table = load_digits()
    images = torch.tensor(table.data, dtype=torch.float32) / 16
    data = TensorDataset(images, torch.tensor(table.target))
    saver = ModelCheckpoint(f"{config['folder']}/checkpoints", every_n_train_steps=20)
    trainer = Trainer(
        max_epochs=config["epochs"],
        default_root_dir=config["folder"],
        callbacks=[saver],
        enable_progress_bar=False,
        log_every_n_steps=10,
    )
    trainer.fit(Classifier(), DataLoader(data, batch_size=32, shuffle=True), ckpt_path="auto")
    trainer.print(f"accuracy {trainer.callback_metrics['train_acc']:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--folder", default="runs/ray_train")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    folder = str(Path(args.folder).resolve())
    # leave `num_cpus` out on a cluster
    ray.init(num_cpus=args.workers + 1, include_dashboard=False)
    TorchTrainer(
        train,
        train_loop_config={"folder": folder, "epochs": args.epochs},
        scaling_config=ScalingConfig(num_workers=args.workers, use_gpu=False),
        run_config=RunConfig(storage_path=folder, failure_config=FailureConfig(max_failures=2)),
    ).fit()
    ray.shutdown()


if __name__ == "__main__":
    main()
