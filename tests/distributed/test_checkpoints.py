"""One checkpoint of two processes."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("case", ["resumes", "resumes_inside"])
def test_a_resume_of_two_processes_is_exact(ended, case):
    """Weights, buffers, metrics, and each rank's random numbers and states, are the uncut run's."""
    found = ended.found(case)
    for one in found:
        weights, drawn, metrics, steps = one["uncut"]
        assert one["resumed"][0] == weights
        assert one["resumed"][1] == drawn
        assert one["resumed"][2] == metrics
        assert one["resumed"][3] == steps
    assert found[0]["uncut"][1] != found[1]["uncut"][1]


@pytest.mark.parametrize("kind", ["known", "unknown"])
def test_ranks_with_unequal_loaders_resume_exactly_from_every_slot(ended, kind):
    """Also from the shortest loader's last batch, where the other rank's loader has more."""
    for one in ended.found("resumes_from_slots"):
        found = dict(one[kind])
        assert found.pop("batches") == 8
        assert found == dict.fromkeys(found, True)
        assert len(found) == 10


def test_a_stop_that_one_rank_requested_comes_again_in_a_resume(ended):
    """Also where the ranks had yet to agree on it, and after the same batch as in the uncut run."""
    found = ended.found("resumes_before_a_stop")
    assert found[0] == found[1]
    batches = {"on_train_batch_end": 3, "on_train_epoch_end": 4}
    for rank in range(2):
        for hook, expected in batches.items():
            done, same = found[0][f"{rank} {hook}"]
            assert done == expected
            assert len(same) > 2
            assert same == dict.fromkeys(same, True)


def test_a_stop_that_one_rank_alone_restores(ended):
    """Its callback is on rank 0 alone: the ranks disagree at first, and must not wait for ever."""
    first, second = ended.found("resumes_a_stop_that_waits")
    told = [place for place, (_, reason) in first.items() if reason]
    assert len(told) > 3
    for place in told:
        assert first[place] == [7, "enough"]
        assert second[place] == [7, "enough (on rank 0)"]


def test_a_request_of_one_rank_is_served_in_a_resume(ended):
    """A validation, a checkpoint or an epoch's end comes after the batch of the uncut run."""
    found = ended.found("resumes_before_requests")
    for cases in found:
        for name, (batches, served, same) in cases.items():
            _, _, kind = name.partition(" ")
            # requested after the backward of the second batch, and served after the third
            if kind == "epoch's end":
                assert served == [["validation", 3], ["epoch", 3]]
            else:
                assert served[0] == [kind, 3]
            assert batches == (3 if kind == "epoch's end" else 4)
            assert {"batch1", "batch2"} < same.keys()
            assert same == dict.fromkeys(same, True), name


def test_loggers_files_and_prints_are_rank_zeros(ended):
    """Both ranks know the same folders and files, which are written once."""
    first, second = ended.found("loggers_and_files")
    assert first == second
    assert first["logs"] == 1
    assert len(first["files"]) == 1
    assert ended.output.count("printed once") == 1


@pytest.mark.parametrize(
    ("case", "strategy"),
    [("makes_files", "auto"), ("fsdp_makes_folders", "fsdp")],
    ids=["file", "folder"],
)
def test_a_checkpoint_of_two_serves_one(launched, tmp_path, case, strategy):
    """One process loads the weights, and resumes from anywhere with a word."""
    two = launched(case)
    assert two.codes == [0, 0], two.output
    import torch

    from trainer_hooks import Module, Trainer
    from trainer_hooks.errors import TrainerHooksWarning

    saved = two.found(case)[0]

    class One(Module):
        def __init__(self):
            super().__init__()
            parts = [torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 8), torch.nn.ReLU()]
            self.net = torch.nn.Sequential(*parts, torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))

        def training_step(self, batch, batch_idx):
            return self.net(batch).mean()

        def validation_step(self, batch, batch_idx):
            self.log("val", self.net(batch).mean())

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.01)

    def fit(path, epochs):
        trainer = Trainer(
            accelerator="cpu", logger=False, enable_checkpointing=False, max_epochs=epochs,
            enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
            strategy=strategy,
        )  # fmt: skip
        module = One()
        batches = torch.utils.data.DataLoader(torch.ones(64, 5), 4)
        trainer.fit(module, batches, ckpt_path=path)
        return trainer, module

    with pytest.warns(TrainerHooksWarning) as told:
        trainer, _ = fit(tmp_path / "end.ckpt", 2)
    assert "was saved by 2 processes, and this run has 1" in str(told[0].message)
    assert trainer.global_step == saved["steps"] + 16
    with pytest.warns(TrainerHooksWarning, match="goes on at batch 6 of each process, where each"):
        trainer, _ = fit(tmp_path / "inside.ckpt", 2)
    assert trainer.global_step == 3 + 10 + 16
    module = One.load_from_checkpoint(tmp_path / "end.ckpt")
    values = [v for t in module.state_dict().values() for v in t.double().flatten().tolist()]
    assert values == saved["weights"]


@pytest.mark.parametrize(("before", "after", "left"), [(2, 3, 40), (3, 2, 32), (2, 1, 40)])
def test_an_epoch_goes_on_in_another_number_of_processes(launched, before, after, left):
    """Weights, optimizer and steps are the same, and so is the order of the samples that are left.

    Where the place is inside a batch of all, that batch comes again. One process alone draws its
    order otherwise than several.
    """
    some = launched("sees_some", processes=before)
    assert not any(some.codes), some.output
    rest = launched("sees_the_rest", processes=after)
    assert not any(rest.codes), rest.output
    first, second = some.found("sees_some"), rest.found("sees_the_rest")
    for one in second:
        assert one["began"] == first[0]["ended"]
        assert one["ended"] == second[0]["ended"]
    assert [bool(one["told"]) for one in second] == [True] + [False] * (after - 1)
    assert f"was saved by {before} processes, and this run has {after}" in second[0]["told"][0]
    seen, others = ([n for one in found for n in one["seen"]] for found in (first, second))
    assert len(seen) == 3 * 4 * before
    assert len(others) - left in range(after)  # each process gets as many, so some come twice
    if after > 1:
        assert set(seen) | set(others) == set(range(64))
