"""The examples that pytorch-accelerated ships, `examples/core`, on digits."""

import importlib
import itertools

import torch
from tiny_data import images_and_labels
from torch.utils.data import Subset, TensorDataset

DIFFERENCES = {
    "runs.*.losses": "nothing is seeded: call `seed_everything(42)`",
    "runs.*.metrics": "nothing is seeded: call `seed_everything(42)`",
    "runs.*.weights.*": "nothing is seeded: call `seed_everything(42)`",
}
COPIES = ["examples.core"]
HOSTED = "their Trainers are subclasses of pytorch-accelerated's"
EXAMPLES = (
    "train_mnist", "train_with_metrics_in_callback", "train_with_metrics_in_loop",
    "custom_callback_event",
)  # fmt: skip


class Digits(TensorDataset):
    """In place of torchvision's MNIST: as large as it has to be."""

    class_to_idx = dict.fromkeys(range(10))

    def __init__(self, *args, **kwargs):
        images, labels = images_and_labels(96)
        super().__init__(torch.nn.functional.interpolate(images, 28), labels)


def few(dataset, lengths):
    """Split as `random_split` does, a thousandth of what is asked for."""
    ends = torch.cumsum(torch.tensor([0, *(length // 1000 or 1 for length in lengths)]), 0)
    return [Subset(dataset, range(a, b)) for a, b in itertools.pairwise(ends)]


def main():
    found = {}
    for name in EXAMPLES:
        example = importlib.import_module(f"examples.core.{name}")
        example.MNIST, example.random_split = Digits, few
        train = example.Trainer.train

        def with_few_workers(self, *args, train=train, **options):
            for loader in ("train", "eval"):
                given = options.get(f"{loader}_dataloader_kwargs") or {}
                options[f"{loader}_dataloader_kwargs"] = {**given, "num_workers": 0}
            return train(self, *args, **{**options, "num_epochs": 2})

        example.Trainer.train = with_few_workers
        try:
            torch.manual_seed(0)
            found[name] = example.main()
        finally:
            example.Trainer.train = train
    return found
