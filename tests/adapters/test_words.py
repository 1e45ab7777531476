"""The words of other trainers mean the same there as what the table has for them here."""

from __future__ import annotations

import pytest
import torch
from words_table import RATE, Layer, X, Y, loader, net, noted, options_of, train_here

from trainer_hooks.callbacks import ModelCheckpoint

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def require_same(ours, theirs) -> None:
    """Require the same weights in the end, and in each hook."""
    assert ours[1] == theirs[1]
    assert ours[0] == pytest.approx(theirs[0], rel=1e-5)


HF_WORDS = {
    "num_train_epochs": 2, "gradient_accumulation_steps": 2, "max_grad_norm": 0.1,
    "save_total_limit": 2,
}  # fmt: skip
HF_HOOKS = (
    "on_train_begin", "on_epoch_begin", "on_step_begin",
    "on_pre_optimizer_step", "on_optimizer_step", "on_step_end", "on_evaluate", "on_train_end",
)  # fmt: skip


def in_transformers(folder):
    """Train in transformers' Trainer; weights, those in each hook, and the steps of the files."""
    transformers = pytest.importorskip("transformers")

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = net()

        def forward(self, x, labels):
            return {"loss": (self.layer(x) - labels).square().mean()}

    seen: list = []

    def note(name):
        return lambda self, args, state, control, model, **more: seen.append(
            (name, noted(model.layer.weight))
        )

    kind = type("Noting", (transformers.TrainerCallback,), {name: note(name) for name in HF_HOOKS})
    model = Wrapped()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    arguments = transformers.TrainingArguments(
        str(folder), **HF_WORDS, save_strategy="steps", save_steps=2, eval_strategy="epoch",
        per_device_train_batch_size=4, per_device_eval_batch_size=4, use_cpu=True, report_to=[],
        disable_tqdm=True, train_sampling_strategy="sequential",
        average_tokens_across_devices=False,
    )  # fmt: skip
    rows = [{"x": x, "labels": y} for x, y in zip(X, Y, strict=True)]
    constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    transformers.Trainer(
        model, arguments, train_dataset=rows, eval_dataset=rows[:4], callbacks=[kind()],
        optimizers=(optimizer, constant),
    ).train()  # fmt: skip
    steps = sorted(int(path.name.partition("-")[2]) for path in folder.glob("checkpoint-*"))
    return model.layer.weight.flatten().tolist(), seen, steps


def test_transformers(tmp_path, quiet_trainer) -> None:
    """Epochs, accumulation, clipping, kept files, and the moments of the hooks."""
    theirs = in_transformers(tmp_path / "there")
    options, saving = options_of(HF_WORDS)
    saver = ModelCheckpoint(tmp_path / "here", "{step}", every_n_train_steps=2, **saving)
    ours = train_here(quiet_trainer, HF_HOOKS, saver, enable_checkpointing=True, **options)
    require_same(ours, theirs)
    steps = sorted(int(path.stem.partition("=")[2]) for path in (tmp_path / "here").iterdir())
    assert steps == theirs[2] == [4, 6]


KERAS_HOOKS = (
    "on_train_begin", "on_epoch_begin", "on_train_batch_begin", "on_train_batch_end",
    "on_test_begin", "on_test_batch_begin", "on_epoch_end", "on_train_end",
)  # fmt: skip


@pytest.mark.parametrize("clipping", [{"global_clipnorm": 0.1}, {"clipvalue": 0.1}])
def test_keras(clipping, quiet_trainer, monkeypatch) -> None:
    """Epochs, validations each so many, clipping, and the moments of the hooks."""
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras")
    words = {"epochs": 4, "validation_freq": 2}
    seen: list = []

    def note(name):
        # ours of that name ends the epochs of validations, too: docs/coming-from.md says so
        name = {"on_epoch_end": "on_train_epoch_end"}.get(name, name)
        return lambda self, *given, **named: seen.append(
            (name, noted(self.model.layers[0].kernel.value))
        )

    kind = type("Noting", (keras.callbacks.Callback,), {name: note(name) for name in KERAS_HOOKS})
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    layer = net()
    model.layers[0].set_weights([layer.weight.detach().T.numpy(), layer.bias.detach().numpy()])
    model.compile(keras.optimizers.SGD(RATE, **clipping), "mse")
    model.fit(
        X.numpy(), Y.numpy(), batch_size=4, shuffle=False, verbose=0, callbacks=[kind()],
        validation_data=(X[:8].numpy(), Y[:8].numpy()), validation_batch_size=4, **words,
    )  # fmt: skip
    theirs = model.layers[0].get_weights()[0].flatten().tolist(), seen
    hooks = [*KERAS_HOOKS, "on_train_epoch_end"]
    hooks.remove("on_epoch_end")
    ours = train_here(quiet_trainer, hooks, **options_of({**words, **clipping})[0])
    require_same(ours, theirs)


FASTAI_HOOKS = (
    "before_fit", "before_epoch", "before_train", "before_batch", "after_pred", "after_loss",
    "before_backward", "after_backward", "before_step", "after_step", "after_batch", "after_train",
    "before_validate", "after_validate", "after_epoch", "after_fit",
)  # fmt: skip


class Parts(Layer):
    """The layer with its loss apart, as in fastai."""

    def forward(self, batch):
        return self.layer(batch[0])

    def loss(self, outputs, batch):
        return torch.nn.functional.mse_loss(outputs, batch[1])


def test_fastai(quiet_trainer) -> None:
    """Epochs and the moments of the hooks, those of validation batches among them."""
    learner = pytest.importorskip("fastai.learner")
    from fastai.callback.core import Callback as FastaiCallback
    from fastai.data.core import DataLoaders
    from fastai.optimizer import OptimWrapper

    seen: list = []

    def note(name):
        def noting(self):
            # without these, in validations too
            if self.learn.training or name not in ("after_pred", "after_loss"):
                seen.append((name, noted(self.learn.model.weight)))

        return noting

    kind = type("Noting", (FastaiCallback,), {name: note(name) for name in FASTAI_HOOKS})
    learn = learner.Learner(
        DataLoaders(loader(), loader(8)), net(), torch.nn.functional.mse_loss,
        opt_func=lambda groups, lr: OptimWrapper(params=groups, opt=torch.optim.SGD, lr=lr),
        lr=RATE, cbs=[kind()],
    )  # fmt: skip
    with learn.no_logging():
        learn.fit(n_epoch=2)
    theirs = learn.model.weight.flatten().tolist(), seen
    ours = train_here(quiet_trainer, FASTAI_HOOKS, module=Parts(), **options_of({"n_epoch": 2})[0])
    require_same(ours, theirs)
