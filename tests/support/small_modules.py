"""Small modules that many tests train; a test that needs a special method subclasses one."""

from __future__ import annotations

import torch

from trainer_hooks import Module


class LinearModule(Module):
    """Linear layer of three parameters with plain SGD; the loss is the mean of its outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class ValidatedLinear(LinearModule):
    """Linear module with a validation step that computes and logs nothing."""

    def validation_step(self, batch, batch_idx):
        pass


class EvaluatedLinear(LinearModule):
    """Linear module whose training step is its step in the other stages, too."""

    validation_step = test_step = predict_step = LinearModule.training_step


class ManualLinear(LinearModule):
    """Linear module in manual optimization: gradients are computed, and no optimizer steps."""

    automatic_optimization = False

    def training_step(self, batch, batch_idx):
        self.manual_backward(self.layer(batch).mean())


class ScheduledLinear(LinearModule):
    """Linear module whose learning rate falls to a tenth after each epoch."""

    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


class UnoptimizedLinear(LinearModule):
    """Linear module without an optimizer."""

    def configure_optimizers(self):
        return None


class LinearWithAdam(LinearModule):
    """Linear module with Adam; the loss is the mean square of its outputs."""

    def training_step(self, batch, batch_idx):
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.1)


class LinearWithHyperparameters(Module):
    """Linear layer of a given width with Adam, a schedule, and batches of one tensor."""

    def __init__(self, width: int = 2, rate: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(width, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams.rate)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]
