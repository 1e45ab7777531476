"""Stream data, and resume exactly.

The samples lie in many files, too many to keep in memory, so they are read one file after another
and mixed in a buffer. Such a stream has no index to go back to. Without help a resumed run would
read from the start of the epoch all that it had already seen.

So the data set says where it is: `state_dict` has the file, the line and the buffer with its
random numbers. torchdata's `StatefulDataLoader` collects that from its workers, and the trainer
writes it into each checkpoint. A killed run goes on with the very next batch.
"""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from trainer_hooks import Module, Trainer, seed_everything
from trainer_hooks.callbacks import ModelCheckpoint


def write_shards(folder: Path, count: int = 8, lines: int = 100) -> list[Path]:
    """Write files with eight numbers and their target in each line."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(7)
    paths = [folder / f"shard_{number}.txt" for number in range(count)]
    for path in paths:
        numbers = torch.randn(lines, 8, generator=generator)
        rows = torch.cat([numbers, numbers.sum(dim=1, keepdim=True).tanh()], dim=1)
        path.write_text("\n".join(" ".join(f"{x:.4f}" for x in row) for row in rows.tolist()))
    return paths


class Stream(IterableDataset):
    """The lines of the files, mixed in a buffer; an epoch is all files in an order of its own."""

    def __init__(self, paths: list[Path], buffer_size: int = 64):
        self.paths = paths
        self.buffer_size = buffer_size
        self.state = {"epoch": -1, "file": len(paths), "line": 0, "buffer": []}
        self.generator = torch.Generator()
        self.is_restored = False

    def __iter__(self):
        is_done = self.state["file"] == len(self.paths) and not self.state["buffer"]
        if is_done or not self.is_restored:
            self.state = {"epoch": self.state["epoch"] + 1, "file": 0, "line": 0, "buffer": []}
            self.generator.manual_seed(self.state["epoch"])
        self.is_restored = False

        state, buffer = self.state, self.state["buffer"]
        order = torch.Generator().manual_seed(state["epoch"])
        files = [self.paths[index] for index in torch.randperm(len(self.paths), generator=order)]
        while state["file"] < len(files):
            lines = files[state["file"]].read_text().splitlines()
            while state["line"] < len(lines):
                buffer.append(lines[state["line"]])
                state["line"] += 1
                if len(buffer) > self.buffer_size:
                    yield self.take(buffer)
            state["file"] += 1
            state["line"] = 0
        while buffer:
            yield self.take(buffer)

    def take(self, buffer: list[str]):
        index = int(torch.randint(len(buffer), (), generator=self.generator))
        *numbers, target = map(float, buffer.pop(index).split())
        return torch.tensor(numbers), torch.tensor([target])

    def state_dict(self):
        buffer = list(self.state["buffer"])
        return {**self.state, "buffer": buffer, "random": self.generator.get_state()}

    def load_state_dict(self, state_dict):
        self.generator.set_state(state_dict["random"])
        self.state = {name: state_dict[name] for name in ("epoch", "file", "line")}
        self.state["buffer"] = list(state_dict["buffer"])
        self.is_restored = True


class Regressor(Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch, batch_idx):
        numbers, targets = batch
        loss = nn.functional.mse_loss(self.net(numbers), targets)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--folder", default="runs/streaming")
    args = parser.parse_args()

    seed_everything(1)
    data = Stream(write_shards(Path(args.folder, "data")))
    loader = StatefulDataLoader(data, batch_size=20)
    trainer = Trainer(
        max_epochs=args.epochs,
        default_root_dir=args.folder,
        callbacks=[ModelCheckpoint(every_n_train_steps=15)],
        log_every_n_steps=10,
    )
    trainer.fit(Regressor(), loader, ckpt_path="auto")
    print(f"loss {trainer.callback_metrics['train_loss']:.4f}")


if __name__ == "__main__":
    main()
