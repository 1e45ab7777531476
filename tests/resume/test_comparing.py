"""What a resume cannot put back is found out by the last batch before the cut."""

from __future__ import annotations

import random
import warnings

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from trainer_hooks import Band, Callback
from trainer_hooks.data.stream import TrainStream
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.runtime import rng

pytestmark = pytest.mark.filterwarnings(
    "ignore:a checkpoint was saved in the hook"  # what these look at does not depend on the place
)

GENERATOR = torch.Generator()
"""In a global variable, where no checkpoint finds it."""


def by_the_global_one(inputs):
    return inputs + torch.randn(3, generator=GENERATOR)


class Stream(IterableDataset):
    def __init__(self, samples) -> None:
        self.samples = samples

    def __iter__(self):
        return (self.samples[index] for index in range(len(self.samples)))


def by_index(kit, augment=None):
    return DataLoader(kit.Samples(augment=augment), batch_size=4, shuffle=True)


def in_a_worker(kit, augment=None):
    data = kit.Samples(augment=augment)
    return DataLoader(data, batch_size=4, shuffle=True, num_workers=1)


def iterable(kit, augment=None):
    return DataLoader(Stream(kit.Samples(augment=augment)), batch_size=4)


LOADERS = [by_index, pytest.param(in_a_worker, marks=pytest.mark.slow), iterable]


def warnings_of_a_resume(lab, kit, before, after, name="batch-03", net=None) -> list[str]:
    """Cut a run with one loader, go on with another, and return what was said."""
    net = net or kit.Net
    GENERATOR.manual_seed(1)
    lab.run(lambda: kit.Setup(net(), before()), "uncut", at_slots=True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", TrainerHooksWarning)
        lab.run(lambda: kit.Setup(net(), after()), "resumed", lab.folder / f"uncut/{name}.ckpt")
    return [str(one.message) for one in said if one.category is TrainerHooksWarning]


@pytest.mark.slow
@pytest.mark.parametrize("make", LOADERS)
def test_a_generator_in_a_global_variable_is_found_out(make, lab, kit):
    """One warning names the loader, the part of the batch, and what to look for."""

    def loader():
        return make(kit, by_the_global_one)

    (said,) = warnings_of_a_resume(lab, kit, loader, loader, "batch-07")
    assert "loaded again from <torch.utils.data.dataloader.DataLoader" in said
    assert "its batch[0] is another one" in said
    assert "such as those of a generator in a global variable" in said


@pytest.mark.slow
@pytest.mark.parametrize("make", LOADERS)
def test_changed_data_is_found_out(make, lab, kit):
    """As many samples with other values: the warning says that the data may have changed."""

    def other():
        return make(kit, lambda inputs: inputs + 1)

    (said,) = warnings_of_a_resume(lab, kit, lambda: make(kit), other)
    assert "The data changed, or what makes batches of it" in said


@pytest.mark.slow
def test_a_batch_that_draws_as_it_is_loaded_is_not_compared(lab, kit):
    """By index, the numbers of that moment are gone: no false alarm, from any kind of number."""
    own = random.Random(1)

    def augment(inputs):
        return inputs + torch.randn(3) + random.random() + own.random()

    def loader():
        return by_index(kit, augment)

    assert warnings_of_a_resume(lab, kit, loader, loader) == []


@pytest.mark.slow
@pytest.mark.parametrize("make", [by_index, iterable])
def test_what_training_does_to_its_batch_is_no_other_batch(make, lab, kit):
    """Inputs scaled in place, exchanged, or taken out of the batch raise no alarm."""

    class Net(kit.Net):
        def training_step(self, batch, batch_idx):
            batch[1].mul_(2)
            batch[0] = batch[0] / 2
            loss = super().training_step(batch, batch_idx)
            batch.pop()
            return loss

    assert warnings_of_a_resume(lab, kit, lambda: make(kit), lambda: make(kit), net=Net) == []


def test_a_batch_that_is_not_done_is_not_compared(lab, kit):
    """Saved inside a batch, that is what is said, and no more."""

    class Saving(Callback):
        band = Band.SAVE

        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            if batch_idx == 2:
                trainer.save_checkpoint(lab.folder / "inside.ckpt")

    lab.run(lambda: kit.Setup(kit.Net(), by_index(kit), callbacks=[Saving()]), "uncut")
    off = {"limit_val_batches": 0}
    with pytest.warns(TrainerHooksWarning, match="inside batch 2") as said:
        lab.run(
            lambda: kit.Setup(kit.Net(), by_index(kit), options=off),
            "resumed", lab.folder / "inside.ckpt",
        )  # fmt: skip
    assert len(said) == 1


def test_a_resume_that_is_cut_before_another_batch_is_compared_again():
    """What is known of the last batch goes into the next checkpoint, too."""

    def stream(step):
        return TrainStream([torch.full((2,), float(number * step)) for number in range(5)])

    with rng.isolated():
        first = stream(1)
        batches = first.open(0)
        for _ in range(2):
            first.last.keep(next(batches))
        again = stream(1)
        again.reopen(0, 2, first.state_dict())
        assert again.state_dict()["last_digests"] == first.state_dict()["last_digests"] != {}
        with pytest.warns(TrainerHooksWarning, match="loaded again"):
            stream(2).reopen(0, 2, again.state_dict())


def test_saving_does_not_look_at_a_batch_before_it_is_asked_to(monkeypatch, lab, kit):
    """Without a checkpoint inside the epoch no batch is ever looked at."""
    looked = []
    monkeypatch.setattr("trainer_hooks.data.resume_checks.fingerprint", looked.append)
    lab.run(lambda: kit.Setup(kit.Net(), by_index(kit)), "uncut")
    assert looked == []
