"""Checkpoints of modules whose layers are compiled load with and without torch.compile."""

import pytest
import torch
from saving_callbacks import SaveEachStep

from trainer_hooks import Band, Callback, Module
from trainer_hooks.callbacks import EMAWeightAveraging, ModelPruning
from trainer_hooks.cli.main import main
from trainer_hooks.testing.nested_diff import nested_differences

# torch's compiler reads it of each tensor
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")


class Block(torch.nn.Module):
    """A layer with parameters, buffers, a frozen part, a part in eval mode, and a generator."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.frozen = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
        self.norm, self.dropout = torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5)
        self.generator = torch.Generator().manual_seed(3)

    def forward(self, x):
        x = self.dropout(self.norm(self.frozen(self.first(x))))
        return x + torch.rand(x.shape, generator=self.generator)


class Compiled(Module):
    """Three layers, which are compiled on demand."""

    def __init__(self, compiles: bool = False) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.blocks = torch.nn.ModuleList([Block(), Block()])
        self.head = torch.nn.Linear(3, 1)
        if compiles:
            torch.compiler.reset()
            self.blocks[1] = torch.compile(self.blocks[1], backend="eager")
            self.head = torch.compile(self.head, backend="eager")

    def on_train_epoch_start(self):
        if self.current_epoch == 0:
            self.blocks[1].frozen.requires_grad_(False)
            self.blocks[1].dropout.eval()

    def training_step(self, batch, batch_idx):
        return self.head(self.blocks[1](self.blocks[0](batch))).square().mean()

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.training_step(batch, batch_idx))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.05)


class SaveInWindow(Callback):
    """Save inside a window of accumulated batches."""

    band = Band.SAVE

    def __init__(self, path) -> None:
        self.path = path

    def on_batch_checkpoint(self, trainer, module):
        if trainer.progress.batches_completed == 4:
            trainer.save_checkpoint(self.path)


def plain(tensors) -> dict:
    return {name.replace("_orig_mod.", ""): value for name, value in tensors.items()}


def names_in(value: object) -> list[str]:
    """Return every text in nested containers."""
    if isinstance(value, dict):
        return [name for key, item in value.items() for name in names_in(key) + names_in(item)]
    if isinstance(value, list | tuple):
        return [name for item in value for name in names_in(item)]
    return [value] if isinstance(value, str) else []


def older(value, compiles: bool):
    """Return a checkpoint with the names that older versions gave to compiled layers."""
    if isinstance(value, dict):
        return {older(key, compiles): older(item, compiles) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(older(item, compiles) for item in value)
    if isinstance(value, str):
        for layer in ("blocks.1.", "head."):
            value = value.replace(layer, f"{layer}_orig_mod.")
    return value


@pytest.fixture(params=[False, True], ids=["plain", "compiled"])
def saved(request, quiet_trainer, tmp_path):
    """The path of a checkpoint, and the weights with which its uncut run ended."""
    path, module = tmp_path / "inside.ckpt", Compiled(request.param)
    fit(quiet_trainer, module, SaveInWindow(path))
    return path, plain(module.state_dict())


def fit(quiet_trainer, module, *callbacks, **options):
    data = torch.randn(14, 3, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(2)
    trainer = quiet_trainer(
        max_epochs=2, accumulate_grad_batches=3, callbacks=[EMAWeightAveraging(), *callbacks]
    )
    trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=2, shuffle=True), **options)


@pytest.mark.parametrize("compiles", [False, True])
def test_a_resume_is_exact_with_and_without_compile(saved, quiet_trainer, compiles) -> None:
    """A file inside a window holds no name of a wrapper; either module goes on to the same bits."""
    path, expected = saved
    contents = torch.load(path, weights_only=False)
    assert not [name for name in names_in(contents) if "_orig_mod" in name]
    assert contents["trainer_hooks"]["gradients"]
    module = Compiled(compiles)
    fit(quiet_trainer, module, ckpt_path=path)
    found = plain(module.state_dict())
    assert all(torch.equal(found[name], value) for name, value in expected.items())


@pytest.mark.parametrize("compiles", [False, True])
def test_weights_load_with_and_without_compile(saved, quiet_trainer, tmp_path, compiles) -> None:
    """So do `load_from_checkpoint`, `validate(ckpt_path=)`, exports and files with older names."""
    path, _ = saved
    contents = torch.load(path, weights_only=False)
    old, exported = tmp_path / "old.ckpt", tmp_path / "exported.ckpt"
    weights = contents["state_dict"]
    torch.save({**contents, "state_dict": older(dict(weights), compiles)}, old)
    module = Compiled(compiles)
    module.load_state_dict(weights)  # by the user, or by a callback of another framework
    assert all(torch.equal(plain(module.state_dict())[name], weights[name]) for name in weights)
    for source in (path, old):
        assert main(["checkpoint", "export", str(source), "-o", str(exported), "--force"]) == 0
        assert list(torch.load(exported, weights_only=False)["state_dict"]) == list(weights)
        for file in (source, exported):
            module = Compiled.load_from_checkpoint(file, compiles=compiles)
            found = plain(module.state_dict())
            assert all(torch.equal(found[name], value) for name, value in weights.items())
        module = Compiled(compiles)
        data = torch.ones(2, 3)
        trainer = quiet_trainer(callbacks=[EMAWeightAveraging()])
        trainer.validate(module, [data], ckpt_path=source, verbose=False)
        assert torch.equal(plain(module.state_dict())["head.weight"], weights["head.weight"])


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("is_given", "lottery"),
    [(False, True), (True, False)],
)
def test_compiled_layers_are_pruned(bare, tmp_path, is_given, lottery) -> None:
    """As those that are not, and a resume goes on with the masks, with and without compile."""
    batches = list(torch.randn(3, 2, 3, generator=torch.Generator().manual_seed(1)))

    def run(compiles, *savers, path=None):
        module = Compiled(compiles)
        given = [(module.head, "weight"), (module.blocks[0].first, "weight")]
        pruning = ModelPruning(
            "l1_unstructured", given if is_given else None, ["weight"],
            amount=0.4, use_lottery_ticket_hypothesis=lottery,
        )  # fmt: skip
        torch.manual_seed(2)
        bare(pruning, *savers, max_epochs=3).fit(module, batches, ckpt_path=path)
        return plain(module.state_dict())

    weights = run(False, SaveEachStep(tmp_path / "plain"))
    assert int((weights["head.weight"] == 0).sum()) >= 1
    assert nested_differences(weights, run(True, SaveEachStep(tmp_path / "compiled"))) == []
    for saved in ("plain", "compiled"):
        for compiles in (False, True):
            again = run(compiles, path=tmp_path / saved / "5.ckpt")
            assert nested_differences(weights, again) == []
