"""A run cut at a batch or at the end of an epoch goes on as if it had not been cut."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from samples import one_in
from torch import Tensor, nn
from torch.optim.lr_scheduler import OneCycleLR, ReduceLROnPlateau, StepLR
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, Sampler

from trainer_hooks import Callback, CombinedLoader
from trainer_hooks.callbacks import EarlyStopping, ModelCheckpoint, Timer

# of several loaders, one of which ends or begins again
pytestmark = pytest.mark.filterwarnings(
    "ignore:the first dimensions of the tensors in a batch disagree"
)


def shuffled(kit: Any, **kwargs: Any) -> DataLoader:
    """Return a shuffled loader of five batches."""
    kwargs = {"batch_size": kit.BATCH_SIZE, "shuffle": True, **kwargs}
    return DataLoader(kwargs.pop("dataset", kit.Samples()), **kwargs)


def validation(kit: Any, **kwargs: Any) -> DataLoader:
    """Return a validation loader of two batches."""
    return DataLoader(kit.Samples(7), batch_size=4, **kwargs)


def seeded(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# --- loaders ---


def shuffle(kit):
    return kit.Setup(kit.Net(), shuffled(kit), validation(kit))


def shuffle_with_generator(kit):
    return kit.Setup(kit.Net(), shuffled(kit, generator=seeded()), validation(kit))


def drop_last(kit):
    return kit.Setup(kit.Net(), shuffled(kit, drop_last=True))


class Batches(torch.utils.data.Dataset):
    """A dataset whose items are batches already."""

    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        places = slice(index * 4, index * 4 + 4)
        data = self.samples
        return data.inputs[places], data.targets[places], torch.tensor([index])


def no_batching(kit):
    loader = DataLoader(Batches(kit.Samples(20)), batch_size=None, shuffle=True)
    return kit.Setup(kit.Net(), loader, validation(kit))


class EpochSampler(Sampler):
    """Another order each epoch, without any generator."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self):
        assert self.epoch >= 0, "set_epoch was not called"
        return iter(torch.randperm(self.count, generator=seeded(self.epoch)).tolist())

    def __len__(self) -> int:
        return self.count


def sampler_with_set_epoch(kit):
    loader = shuffled(kit, shuffle=False, sampler=EpochSampler(kit.SAMPLES))
    return kit.Setup(kit.Net(), loader, validation(kit))


def batch_sampler_with_set_epoch(kit):
    sampler = BatchSampler(EpochSampler(kit.SAMPLES), batch_size=4, drop_last=False)
    return kit.Setup(kit.Net(), DataLoader(kit.Samples(), batch_sampler=sampler))


class GrowingBatches(EpochSampler):
    """A batch sampler of fewer and larger batches in each epoch."""

    @property
    def size(self) -> int:
        return 4 + max(self.epoch, 0)

    def __iter__(self):
        return iter(torch.tensor(list(super().__iter__())).split(self.size))

    def __len__(self) -> int:
        return -(-self.count // self.size)


def batch_sampler_whose_length_follows_set_epoch(kit):
    loader = DataLoader(kit.Samples(), batch_sampler=GrowingBatches(kit.SAMPLES))
    return kit.Setup(kit.Net(), loader)


class EagerSampler(EpochSampler):
    """Draws its order from the global random numbers as soon as it is asked for an iterator."""

    def __iter__(self):
        return iter(torch.randperm(self.count).tolist())


def sampler_drawing_at_once(kit):
    return kit.Setup(kit.Net(), shuffled(kit, shuffle=False, sampler=EagerSampler(kit.SAMPLES)))


class RandomBatches:
    """A batch sampler that draws batch after batch from a generator of its own."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.generator = seeded()

    def __iter__(self):
        for _ in range(5):
            yield torch.randint(self.count, (4,), generator=self.generator).tolist()

    def __len__(self) -> int:
        return 5


def batch_sampler_drawing_as_it_goes(kit):
    return kit.Setup(kit.Net(), DataLoader(kit.Samples(), batch_sampler=RandomBatches(kit.SAMPLES)))


def sampler_with_replacement(kit):
    sampler = RandomSampler(range(kit.SAMPLES), replacement=True, num_samples=18)
    return kit.Setup(kit.Net(), shuffled(kit, shuffle=False, sampler=sampler))


class Wandering(RandomBatches):
    """Draws sample after sample without replacement, from the global random numbers, as it goes."""

    def __iter__(self):
        left = list(range(self.count))
        while left:
            place = int(torch.randint(len(left), ())) + random.randrange(9) + np.random.randint(9)
            yield left.pop(place % len(left))

    def __len__(self) -> int:
        return self.count


def sampler_drawing_as_it_goes(kit):
    data = kit.Samples(augment=augment_with_torch)
    loader = shuffled(kit, dataset=data, shuffle=False, sampler=Wandering(kit.SAMPLES))
    return kit.Setup(kit.Net(), loader, validation(kit))


def batch_sampler_drawing_global_numbers_as_it_goes(kit):
    class Sized(Wandering):
        def __iter__(self):
            order = list(Wandering(self.count))
            for start in range(0, 16, 4):
                yield [order[(start + np.random.randint(9)) % len(order)], *order[start:][:2]]

        def __len__(self) -> int:
            return 4

    return kit.Setup(kit.Net(), DataLoader(kit.Samples(), batch_sampler=Sized(kit.SAMPLES)))


class Kept:
    """Augments by generators of its own, one of each kind."""

    def __init__(self) -> None:
        self.numpy = np.random.default_rng(4)
        self.others = {"python": random.Random(5), "old": np.random.RandomState(6)}
        self.torch = seeded(7)

    def __call__(self, inputs: Tensor) -> Tensor:
        noise = self.numpy.normal() + self.others["python"].random() + self.others["old"].normal()
        return inputs + noise + torch.randn(3, generator=self.torch)


def augmented_by_kept_generators(kit):
    data, val = kit.Samples(augment=Kept()), kit.Samples(7, augment=Kept())
    return kit.Setup(kit.Net(), shuffled(kit, dataset=data), DataLoader(val, batch_size=4))


def augment_with_torch(inputs: Tensor) -> Tensor:
    return inputs + torch.randn(3)


def augment_with_numpy(inputs: Tensor) -> Tensor:
    return inputs + torch.from_numpy(np.random.normal(size=3)).float()


def augment_with_python(inputs: Tensor) -> Tensor:
    return inputs + random.gauss(0.0, 1.0)


def augmented_by_torch(kit):
    data = kit.Samples(augment=augment_with_torch)
    return kit.Setup(kit.Net(), shuffled(kit, dataset=data), validation(kit))


def augmented_by_numpy(kit):
    data = kit.Samples(augment=augment_with_numpy)
    return kit.Setup(kit.Net(), shuffled(kit, dataset=data))


def augmented_by_python(kit):
    data = kit.Samples(augment=augment_with_python)
    return kit.Setup(kit.Net(), shuffled(kit, dataset=data))


class Numbers(IterableDataset):
    """Samples in a stream; with a length if `count` is told."""

    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __iter__(self):
        return (self.samples[index] for index in range(len(self.samples)))


class SizedNumbers(Numbers):
    def __len__(self) -> int:
        return len(self.samples)


def stream_without_length(kit):
    return kit.Setup(kit.Net(), DataLoader(Numbers(kit.Samples()), batch_size=4), validation(kit))


def stream_with_length(kit):
    loader = DataLoader(SizedNumbers(kit.Samples()), batch_size=4)
    return kit.Setup(kit.Net(), loader, validation(kit))


class TooLong(SizedNumbers):
    def __len__(self) -> int:
        return super().__len__() + 8


def stream_shorter_than_it_says(kit):
    loader = DataLoader(TooLong(kit.Samples()), batch_size=4)
    options = {"accumulate_grad_batches": 2}
    return kit.Setup(kit.Net(), loader, validation(kit), options)


def stream_without_length_accumulated(kit):
    loader = DataLoader(Numbers(kit.Samples()), batch_size=4)
    return kit.Setup(kit.Net(), loader, options={"accumulate_grad_batches": 2})


def augmented_stream_with_length(kit):
    loader = DataLoader(SizedNumbers(kit.Samples(augment=augment_with_torch)), batch_size=4)
    return kit.Setup(kit.Net(), loader)


def augment_in_all_ways(inputs: Tensor) -> Tensor:
    return augment_with_torch(augment_with_numpy(augment_with_python(inputs)))


def augmented_stream_without_length(kit):
    data = Numbers(kit.Samples(augment=augment_in_all_ways))
    return kit.Setup(kit.Net(), DataLoader(data, batch_size=4), validation(kit))


class Buffered(Numbers):
    """Shuffles through a buffer, drawing from the global random numbers."""

    def __iter__(self):
        buffer = [self.samples[index] for index in range(6)]
        for index in range(6, len(self.samples) + 6):
            yield buffer.pop(int(torch.randint(len(buffer), ())))
            if index < len(self.samples):
                buffer.append(self.samples[index])


def stream_through_a_buffer(kit):
    return kit.Setup(kit.Net(), DataLoader(Buffered(kit.Samples()), batch_size=4), validation(kit))


class Plain:
    """An iterable of batches that is no DataLoader, with a length or without."""

    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __iter__(self):
        left = list(range(len(self.samples)))
        while left:
            rows = [left.pop(np.random.randint(len(left))) for _ in range(min(4, len(left)))]
            noise = torch.randn(len(rows), 3)
            yield self.samples.inputs[rows] + noise, self.samples.targets[rows], torch.tensor(rows)


class SizedPlain(Plain):
    def __len__(self) -> int:
        return 5


def own_iterable(kit):
    return kit.Setup(kit.Net(), Plain(kit.Samples()), validation(kit))


def own_iterable_with_length(kit):
    return kit.Setup(kit.Net(), SizedPlain(kit.Samples()), validation(kit))


def list_of_batches(kit):
    return kit.Setup(kit.Net(), list(shuffled(kit, shuffle=False)), validation(kit))


class OwnLoader(DataLoader):
    """A loader of a class that torch does not know."""


def own_loader(kit):
    data = kit.Samples(augment=augment_in_all_ways)
    loader = OwnLoader(data, batch_size=4, sampler=Wandering(kit.SAMPLES))
    return kit.Setup(kit.Net(), loader, validation(kit))


class OwnState:
    """A loader that keeps its position itself, and shuffles by the numbers it keeps."""

    def __init__(self, samples: Any, *, sized: bool) -> None:
        self.samples = samples
        self.epoch = self.place = 0
        if sized:
            self.__class__ = SizedOwnState

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.place = state["epoch"], state["place"]

    def __iter__(self):
        order = torch.randperm(20, generator=seeded(self.epoch)).tolist()
        while self.place < 5:
            rows = order[self.place * 4 : self.place * 4 + 4]
            self.place += 1
            yield self.samples.inputs[rows], self.samples.targets[rows], torch.tensor(rows)
        self.epoch, self.place = self.epoch + 1, 0


class SizedOwnState(OwnState):
    def __len__(self) -> int:
        return 5


def own_state_without_length(kit):
    return kit.Setup(kit.Net(), OwnState(kit.Samples(20), sized=False), validation(kit))


def own_state_with_length(kit):
    return kit.Setup(kit.Net(), OwnState(kit.Samples(20), sized=True), validation(kit))


def two_loaders(kit):
    return kit.Setup(kit.PairNet(), [shuffled(kit), shuffled(kit)], validation(kit))


def two_loaders_one_starting_again(kit):
    short = shuffled(kit, dataset=kit.Samples(11, augment_with_torch))
    shorter = shuffled(kit, dataset=kit.Samples(7, augment_with_python), generator=seeded())
    return kit.Setup(kit.PairNet(), [shuffled(kit), short, shorter], validation(kit))


def two_loaders_by_name(kit):
    loaders = {"a": shuffled(kit), "b": shuffled(kit, dataset=kit.Samples(9))}
    return kit.Setup(kit.PairNet(), CombinedLoader(loaders, mode="min_size"))


def three_loaders_to_the_longest(kit):
    short = shuffled(kit, dataset=kit.Samples(7, augment_in_all_ways))
    loaders = [shuffled(kit), short, Plain(kit.Samples(9))]
    return kit.Setup(kit.PairNet(), CombinedLoader(loaders, mode="max_size"), validation(kit))


def three_loaders_to_the_shortest(kit):
    data = kit.Samples(13, augment_in_all_ways)
    loaders = {
        "a": shuffled(kit, shuffle=False, sampler=Wandering(kit.SAMPLES)),
        "b": shuffled(kit, dataset=data, generator=seeded()),
    }
    return kit.Setup(kit.PairNet(), CombinedLoader(loaders, mode="min_size"), validation(kit))


def loaders_of_which_one_keeps_its_position(kit):
    loaders = [shuffled(kit), OwnState(kit.Samples(20), sized=True)]
    return kit.Setup(kit.PairNet(), loaders, validation(kit))


def limited_to_a_share(kit):
    options = {"limit_train_batches": 0.7, "limit_val_batches": 0.5, "max_epochs": 4}
    return kit.Setup(kit.Net(), shuffled(kit), validation(kit, shuffle=True), options)


def limited(kit):
    return kit.Setup(
        kit.Net(), shuffled(kit), validation(kit), {"limit_train_batches": 3, "max_epochs": 4}
    )


def limited_stream(kit):
    loader = DataLoader(Numbers(kit.Samples()), batch_size=4)
    return kit.Setup(kit.Net(), loader, options={"limit_train_batches": 3})


# --- optimization ---


def adam_by_steps(kit):
    def make(net):
        optimizer = torch.optim.Adam(net.parameters(), lr=0.02, amsgrad=True)
        scheduler = {"scheduler": StepLR(optimizer, 2, 0.7), "interval": "step"}
        return [optimizer], [scheduler]

    return kit.Setup(kit.Net(make), shuffled(kit), validation(kit))


def by_epochs(kit):
    def make(net):
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.02)
        return [optimizer], [StepLR(optimizer, 1, 0.5)]

    return kit.Setup(kit.Net(make), shuffled(kit), validation(kit))


def one_cycle(kit):
    def make(net):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
        total = int(net.trainer.estimated_stepping_batches)
        cycle = OneCycleLR(optimizer, 0.1, total_steps=total)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": cycle, "interval": "step"}}

    options = {"accumulate_grad_batches": 2, "gradient_clip_val": 0.5}
    return kit.Setup(kit.Net(make), shuffled(kit), options=options)


def plateau(kit):
    def make(net):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        scheduler = ReduceLROnPlateau(optimizer, patience=0, threshold=10.0)
        return {"optimizer": optimizer, "lr_scheduler": scheduler, "monitor": "val_loss"}

    return kit.Setup(kit.Net(make), shuffled(kit), validation(kit), {"max_epochs": 4})


def accumulated(kit):
    return kit.Setup(kit.Net(), shuffled(kit), validation(kit), {"accumulate_grad_batches": 3})


def microbatches(kit):
    options = {"microbatch_size": 2, "accumulate_grad_batches": 2}
    return kit.Setup(kit.Net(), shuffled(kit), validation(kit), options)


def microbatches_that_fit(kit):
    """The size that was found goes on after a cut, though at first more would seem to fit."""

    class Small(kit.Net):
        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            # only the second batch of the run is too large
            if self.global_step == 1 and len(batch[0]) > 2:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return loss

    return kit.Setup(Small(), shuffled(kit), validation(kit), {"microbatch_size": "auto"})


def accumulated_with_skipped_batches(kit):
    class Skipping(kit.Net):
        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            return None if batch_idx in (0, 3) else loss

    return kit.Setup(Skipping(), shuffled(kit), options={"accumulate_grad_batches": 2})


class Opponents:
    """Makes a module with two optimizers that it steps itself."""

    def __new__(cls, kit: Any) -> Any:
        class Gan(kit.Net):
            def __init__(self):
                super().__init__()
                self.automatic_optimization = False
                self.judge = nn.Sequential(nn.Linear(1, 4), nn.Dropout(0.3), nn.Linear(4, 1))

            def configure_optimizers(self):
                maker = torch.optim.Adam(self.layers.parameters(), lr=0.02, betas=(0.5, 0.9))
                judge = torch.optim.SGD(self.judge.parameters(), lr=0.02, momentum=0.5)
                return [maker, judge], [StepLR(maker, 2, 0.8)]

            def training_step(self, batch, batch_idx):
                self.seen.append((batch_idx, batch[2].tolist(), batch[0].tolist()))
                maker, judge = self.optimizers()
                made = self.layers(batch[0] + torch.randn_like(batch[0]))
                loss = -self.judge(made).mean()
                maker.zero_grad()
                self.manual_backward(loss)
                maker.step()
                verdict = self.judge(made.detach()).mean() - self.judge(batch[1]).mean()
                judge.zero_grad()
                self.manual_backward(verdict)
                judge.step()
                if batch_idx % 2:
                    self.lr_schedulers().step()
                self.log_dict({"maker": loss, "judge": verdict}, on_epoch=True)
                return {"loss": loss + verdict}

        return Gan()


def manual_with_two_optimizers(kit):
    return kit.Setup(Opponents(kit), shuffled(kit), validation(kit))


def manual_accumulation(kit):
    class Manual(kit.Net):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            self.manual_backward(loss / 3)
            if self.trainer.progress.batches_completed % 3 == 2:
                self.optimizers().step()
                self.optimizers().zero_grad()
            return loss

    return kit.Setup(Manual(), shuffled(kit))


def gradients_kept_over_windows(kit):
    class Keeping(kit.Net):
        def optimizer_zero_grad(self, epoch, batch_idx, optimizer):
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        parameter.grad.mul_(0.5)

    return kit.Setup(Keeping(), shuffled(kit))


def lbfgs(kit):
    def make(net):
        return torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=3, history_size=2)

    return kit.Setup(kit.Net(make), shuffled(kit), validation(kit))


def own_optimizer_step(kit):
    class Stepping(kit.Net):
        def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure=None):
            for group in optimizer.param_groups:
                group["lr"] = 0.01 * (self.trainer.global_step + 1)
            optimizer.step(closure=optimizer_closure)

    return kit.Setup(Stepping(), shuffled(kit), options={"accumulate_grad_batches": 2})


def bf16_mixed(kit):
    return kit.Setup(kit.Net(), shuffled(kit), validation(kit), {"precision": "bf16-mixed"})


def double(kit):
    return kit.Setup(kit.Net(), shuffled(kit), validation(kit), {"precision": "64-true"})


def bf16_true(kit):
    return kit.Setup(kit.Net(), shuffled(kit), validation(kit), {"precision": "bf16-true"})


# --- validation, logging, callbacks, ends ---


def validation_inside_the_epoch(kit):
    val = validation(kit, shuffle=True, generator=seeded(8))
    return kit.Setup(kit.Net(), shuffled(kit), val, {"val_check_interval": 0.4})


def validation_over_epochs(kit):
    options = {"val_check_interval": 3, "check_val_every_n_epoch": None}
    return kit.Setup(kit.Net(), shuffled(kit), validation(kit, shuffle=True), options)


def validation_every_other_epoch(kit):
    val = [validation(kit, shuffle=True), validation(kit)]

    class Two(kit.Net):
        def validation_step(self, batch, batch_idx, dataloader_idx):
            super().validation_step(batch, batch_idx)

    return kit.Setup(Two(), shuffled(kit), val, {"check_val_every_n_epoch": 2, "max_epochs": 4})


def largest_minus_smallest(values: Tensor) -> Tensor:
    return values.max() - values.min()


def logged_in_all_ways(kit):
    class Logging(kit.Net):
        def on_train_epoch_start(self):
            self.log("drawn", torch.rand(()))

        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            self.log("range", loss, on_step=True, on_epoch=True, reduce_fx=largest_minus_smallest)
            self.log("function", loss, on_epoch=True, reduce_fx=torch.mean)
            self.log("sum", loss, on_epoch=True, reduce_fx="sum", logger=False)
            self.log("weighted", loss, on_epoch=True, batch_size=batch_idx + 1)
            self.log("number", float(batch_idx), on_step=True, on_epoch=True)
            return loss

        def on_train_epoch_end(self):
            self.log("mean_so_far", self.trainer.callback_metrics["loss_epoch"] * 2)

    return kit.Setup(Logging(), shuffled(kit), validation(kit), {"log_every_n_steps": 3})


def metric_objects_that_are_no_part_of_the_module(kit):
    torchmetrics = pytest.importorskip("torchmetrics")

    class Measured(kit.Net):
        def __init__(self):
            super().__init__()
            self.kept = {"error": torchmetrics.MeanSquaredError()}
            self.listed = [torchmetrics.MeanMetric(), torchmetrics.CatMetric()]

        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            self.kept["error"](loss.detach().reshape(1), torch.zeros(1))
            self.log("error", self.kept["error"], on_step=True, on_epoch=True)
            self.listed[0].update(loss.detach())
            self.listed[1].update(loss.detach())
            return loss

        def on_train_epoch_end(self):
            self.log("mean", self.listed[0].compute() + self.listed[1].compute()[0])
            for metric in self.listed:
                metric.reset()

    class Measuring(Callback):
        def __init__(self):
            self.worst = torchmetrics.MaxMetric()

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            self.worst.update(outputs["loss"].detach())

        def on_train_epoch_end(self, trainer, module):
            module.log("worst_of_all", self.worst.compute())

    return kit.Setup(Measured(), shuffled(kit), validation(kit), callbacks=[Measuring()])


def metric_objects(kit):
    torchmetrics = pytest.importorskip("torchmetrics")

    class Measured(kit.Net):
        def __init__(self):
            super().__init__()
            self.error = torchmetrics.MeanSquaredError()
            self.both = torchmetrics.MetricCollection(
                {"r2": torchmetrics.R2Score(), "mean": torchmetrics.MeanMetric()}
            )
            self.all_values = torchmetrics.CatMetric()

        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            with torch.no_grad():
                predicted = self.layers(batch[0])
            self.error(predicted, batch[1])
            self.log("error", self.error, on_step=True, on_epoch=True)
            self.both["r2"].update(predicted, batch[1])
            self.both["mean"].update(loss.detach())
            if batch_idx == 1:
                self.log_dict(self.both, on_epoch=True)
            self.all_values.update(loss.detach())
            return loss

        def on_train_epoch_end(self):
            self.log("last_value", self.all_values.compute()[-1])
            self.log("first_value", self.all_values.compute()[0])
            self.all_values.reset()

    return kit.Setup(Measured(), shuffled(kit), validation(kit))


class Counter(Callback):
    """Counts one kind of event; two of them take part."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.count = 0
        self.noise = torch.zeros(2)

    @property
    def state_key(self) -> str:
        return self._generate_state_key(what=self.what)

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        self.noise = self.noise * 0.5 + torch.rand(2)
        self.count += self.what == "batches"

    def on_train_epoch_end(self, trainer, module) -> None:
        self.count += self.what == "epochs"

    def state_dict(self):
        return {"count": self.count, "noise": self.noise}

    def load_state_dict(self, state_dict) -> None:
        self.count, self.noise = state_dict["count"], state_dict["noise"]


class Averaging(Callback):
    """Keeps an average of the weights, and validates with it in the last epoch."""

    def __init__(self, **how: Any) -> None:
        self.how = how
        self.average: AveragedModel | None = None

    def on_fit_start(self, trainer, module) -> None:
        if self.average is None:
            self.average = AveragedModel(module.layers, **self.how)

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        self.average.update_parameters(module.layers)

    def on_train_epoch_end(self, trainer, module) -> None:
        first = next(iter(self.average.module.parameters()))
        module.log("averaged", first.sum().detach())

    def state_dict(self):
        return {} if self.average is None else dict(self.average.state_dict())

    def load_state_dict(self, state_dict) -> None:
        layers = nn.Sequential(
            nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.4), nn.Linear(4, 1)
        )
        self.average = AveragedModel(layers, **self.how)
        self.average.load_state_dict(state_dict)


def averaged_exponentially(kit):
    averaging = Averaging(multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    return kit.Setup(kit.Net(), shuffled(kit), validation(kit), callbacks=[averaging])


def averaged_and_annealed(kit):
    def make(net):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        annealing = SWALR(optimizer, swa_lr=0.02, anneal_epochs=4)
        return [optimizer], [{"scheduler": annealing, "interval": "step", "frequency": 2}]

    return kit.Setup(kit.Net(make), shuffled(kit), validation(kit), callbacks=[Averaging()])


class Drawing(Callback):
    """Draws random numbers wherever it can."""

    def on_before_dataloader(self, trainer, module) -> None:
        torch.rand(1)

    def on_train_epoch_start(self, trainer, module) -> None:
        torch.rand(1)

    def on_validation_batch_start(self, trainer, module, *args) -> None:
        torch.rand(1)


def callbacks_that_draw(kit):
    return kit.Setup(kit.Net(), shuffled(kit), validation(kit), callbacks=[Drawing()])


def several_callbacks(kit):
    folder = kit.folder / "best"
    saver = {"dirpath": folder, "enable_version_counter": False}
    callbacks = [
        Counter("batches"),
        Counter("epochs"),
        EarlyStopping("val_loss", patience=9),
        ModelCheckpoint(monitor="val_loss", save_top_k=2, **saver),
        ModelCheckpoint(monitor="loss", every_n_train_steps=4, save_last=True, **saver),
    ]
    return kit.Setup(kit.Net(), shuffled(kit), validation(kit), callbacks=callbacks)


def stopped_early(kit):
    stopping = EarlyStopping("val_loss", patience=1, min_delta=100.0)
    options = {"max_epochs": 6, "val_check_interval": 0.4}
    return kit.Setup(kit.Net(), shuffled(kit), validation(kit), options, [stopping])


def stopped_early_but_not_yet(kit):
    stopping = EarlyStopping("val_loss", patience=1, min_delta=100.0)
    options = {"max_epochs": 6, "min_epochs": 4}
    return kit.Setup(kit.Net(), shuffled(kit), validation(kit), options, [stopping])


def within_a_time(kit):
    # the time that has passed is saved, and is another one in each run
    timer = Timer("00:01:00:00").state_key
    options = {"max_time": "00:01:00:00"}
    return kit.Setup(kit.Net(), shuffled(kit), validation(kit), options, ignores=[timer])


def ended_by_steps(kit):
    options = {"max_epochs": -1, "max_steps": 8}
    return kit.Setup(kit.Net(), shuffled(kit), validation(kit), options)


def iterations(kit):
    return kit.Setup(kit.Net(), shuffled(kit), options={"iteration_length": 2, "max_epochs": 4})


SCENARIOS = [
    shuffle,
    shuffle_with_generator,
    drop_last,
    no_batching,
    sampler_with_set_epoch,
    batch_sampler_with_set_epoch,
    batch_sampler_whose_length_follows_set_epoch,
    sampler_drawing_at_once,
    batch_sampler_drawing_as_it_goes,
    sampler_with_replacement,
    augmented_by_torch,
    augmented_by_numpy,
    augmented_by_python,
    stream_without_length,
    stream_with_length,
    pytest.param(
        stream_shorter_than_it_says,
        marks=pytest.mark.filterwarnings("ignore:the training loader .* ended after"),
        id="stream_shorter_than_it_says",
    ),
    stream_without_length_accumulated,
    augmented_stream_with_length,
    own_state_without_length,
    own_state_with_length,
    sampler_drawing_as_it_goes,
    batch_sampler_drawing_global_numbers_as_it_goes,
    augmented_by_kept_generators,
    augmented_stream_without_length,
    stream_through_a_buffer,
    own_iterable,
    own_iterable_with_length,
    list_of_batches,
    own_loader,
    three_loaders_to_the_longest,
    three_loaders_to_the_shortest,
    loaders_of_which_one_keeps_its_position,
    limited_to_a_share,
    two_loaders,
    two_loaders_one_starting_again,
    two_loaders_by_name,
    limited,
    limited_stream,
    adam_by_steps,
    by_epochs,
    one_cycle,
    plateau,
    accumulated,
    pytest.param(
        accumulated_with_skipped_batches,
        marks=pytest.mark.filterwarnings("ignore:.*training_step returned None"),
    ),
    microbatches,
    microbatches_that_fit,
    manual_with_two_optimizers,
    manual_accumulation,
    gradients_kept_over_windows,
    lbfgs,
    own_optimizer_step,
    bf16_mixed,
    double,
    bf16_true,
    validation_inside_the_epoch,
    validation_over_epochs,
    validation_every_other_epoch,
    logged_in_all_ways,
    metric_objects,
    metric_objects_that_are_no_part_of_the_module,
    averaged_exponentially,
    averaged_and_annealed,
    within_a_time,
    callbacks_that_draw,
    several_callbacks,
    stopped_early,
    stopped_early_but_not_yet,
    ended_by_steps,
    iterations,
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "scenario",
    one_in(10, SCENARIOS),
    ids=lambda scenario: scenario.__name__,
)
def test_a_cut_at_any_batch_or_epoch_changes_nothing(scenario, lab, kit):
    """A resumed run ends with the uncut run's weights, states, metrics, calls and batches.

    Each scenario is cut at four slots; which these are is drawn by its name.
    """
    assert lab.check(lambda: scenario(kit)) >= 5


DECIDED_BY_THE_TRAINER = [
    microbatches,
    microbatches_that_fit,
    manual_with_two_optimizers,
    manual_accumulation,
    lbfgs,
    own_optimizer_step,
]
"""Scenarios in which the Trainer splits batches, or the module steps by itself."""
WITH_A_LENGTH = [
    one_cycle,
    stream_shorter_than_it_says,
    batch_sampler_whose_length_follows_set_epoch,
]
"""Scenarios that ask for the number of batches before the loop, or compare it with the loader's."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the loop called no run.backward")
@pytest.mark.parametrize(
    "scenario",
    one_in(
        20,
        [
            scenario
            for scenario in SCENARIOS
            if getattr(scenario, "values", (scenario,))[0] not in DECIDED_BY_THE_TRAINER
        ],
    ),
    ids=lambda scenario: scenario.__name__,
)
def test_a_cut_of_an_own_loop_changes_nothing(scenario, own_lab, kit):
    """The same holds for a loop by Run that does what fit does."""
    if scenario in WITH_A_LENGTH and own_lab.loop != "run":
        pytest.skip("the length is known only from the loop on")
    assert own_lab.check(lambda: scenario(kit), drawn=3) >= 5
