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
    """One process loads the weights, and resumes from an epoch's end with a word, not inside it."""
    two = launched(case)
    assert two.codes == [0, 0], two.output
    import torch

    from trainer_hooks import Module, Trainer
    from trainer_hooks.errors import CheckpointError, TrainerHooksWarning

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
    with pytest.raises(CheckpointError, match="by 2 processes inside an epoch, and this run has 1"):
        fit(tmp_path / "inside.ckpt", 2)
    module = One.load_from_checkpoint(tmp_path / "end.ckpt")
    values = [v for t in module.state_dict().values() for v in t.double().flatten().tolist()]
    assert values == saved["weights"]
