"""A config of omegaconf as the only hyperparameter, as programs of hydra have it."""

from __future__ import annotations

import pytest
import torch

from trainer_hooks.compat.lightning import LightningDataModule, LightningModule, Trainer
from trainer_hooks.compat.lightning.loggers import CSVLogger

OmegaConf = pytest.importorskip("omegaconf").OmegaConf


class Net(LightningModule):
    def __init__(self, conf):
        super().__init__()
        self.save_hyperparameters(conf)
        self.layer = torch.nn.Linear(self.hparams.model.width, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)


class Data(LightningDataModule):
    def __init__(self, conf):
        super().__init__()
        self.save_hyperparameters(conf)

    def train_dataloader(self):
        return [torch.ones(2, self.hparams.model.width)]


@pytest.fixture
def config():
    return OmegaConf.create({"lr": 0.1, "half": "${lr}", "model": {"width": 3}})


@pytest.fixture
def saved(config, tmp_path):
    """Return the path of a checkpoint of a fit with that config, and the fit's folder of logs."""
    options = {"enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    logger = CSVLogger(tmp_path)
    trainer = Trainer(max_epochs=1, logger=logger, default_root_dir=tmp_path, **options)
    trainer.fit(Net(config), datamodule=Data(config))
    return trainer.checkpoint_callback.best_model_path


def test_the_config_itself_is_there(config):
    """It can be handed to all that takes a config; a change is in it."""
    net = Net(config)
    assert net.hparams is config
    net.hparams.lr = 0.2
    assert OmegaConf.to_container(net.hparams, resolve=True)["half"] == 0.2
    assert net.hparams_initial["lr"] == 0.1


@pytest.mark.parametrize("kind", [Net, Data])
@pytest.mark.parametrize("weights_only", [None, False])
def test_it_comes_back_as_a_config(kind, saved, config, weights_only):
    """With the same values, resolved; no pickle is opened for that."""
    loaded = kind.load_from_checkpoint(saved, weights_only=weights_only)
    assert OmegaConf.is_config(loaded.hparams)
    resolved = OmegaConf.to_container(config, resolve=True)
    assert OmegaConf.to_container(loaded.hparams, resolve=True) == resolved


def test_lightning_reads_it(saved, config):
    """The file has the keys that Lightning makes a config of."""
    found = torch.load(saved, weights_only=False)
    assert found["hparams_type"] is type(config)
    assert found["hparams_name"] == "conf"
    assert found["hparams_type"](found["hyper_parameters"]) == config


def test_with_others_it_is_a_dict_as_before(config):
    """A class that keeps more than one object has a dict of them."""

    class More(Net):
        def __init__(self, conf, depth=2):
            super().__init__(conf)
            self.save_hyperparameters("depth")

    assert More(config).hparams == {**config, "depth": 2}
