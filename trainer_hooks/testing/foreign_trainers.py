"""Check a callback in the trainers of other frameworks: a fit, a checkpoint and a resume in each.

`check_callback(..., everywhere=True)` runs these checks. A framework is imported when its check
runs.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import warnings
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from trainer_hooks import adapters
from trainer_hooks._names import ours
from trainer_hooks.errors import CallbackError
from trainer_hooks.testing.contract_report import Check, Defect, defect_from_error
from trainer_hooks.testing.nested_diff import nested_differences, summarize_differences

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trainer_hooks.callback import Callback
    from trainer_hooks.testing.contract_report import Findings
    from trainer_hooks.testing.harness import CallbackHarness

_BATCHES = 3


class _Points(Dataset[Any]):
    """Six points in the plane with their classes, as tuples or as dicts."""

    def __init__(self, is_named: bool = False) -> None:
        self._is_named = is_named

    def __len__(self) -> int:
        return 2 * _BATCHES

    def __getitem__(self, index: int) -> Any:
        point = torch.tensor([index, index + 1.0]).sin()
        label = (point.sum() > 0).long()
        return {"points": point, "labels": label} if self._is_named else (point, label)


class _TransformersModel(nn.Module):
    """A model in the manner of transformers: it takes keywords and returns its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, points: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return the loss and the scores."""
        scores = self.layer(points)
        return {"loss": nn.functional.cross_entropy(scores, labels), "logits": scores}


def _fit_in_lightning(
    make: Callable[[], Any], folder: Path, on_start: Callable[[], None], *, resumes: bool
) -> None:
    """Train for an epoch in Lightning's Trainer and save a checkpoint.

    Args:
        make: returns the callback in Lightning's terms; called once Lightning is imported.
        folder: the folder of the checkpoint.
        on_start: is called when the training begins, after the callback's own hook.
        resumes: whether to resume from the checkpoint and train for a second epoch.
    """
    foreign_callback = make()
    # Lightning is either of two packages, `lightning` and `pytorch_lightning`: take the adapter's
    base = next(kind for kind in type(foreign_callback).__mro__ if kind.__name__ == "Callback")
    pl: Any = importlib.import_module(base.__module__.partition(".callbacks")[0])

    class LightningNet(pl.LightningModule):  # type: ignore[misc]  # the base is known at run time only
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def _loss(self, batch: tuple[Tensor, Tensor], name: str) -> Tensor:
            loss = nn.functional.cross_entropy(self.layer(batch[0]), batch[1])
            self.log(name, loss)
            return loss

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return self._loss(batch, "train_loss")

        def validation_step(self, batch: Any, batch_idx: int) -> Tensor:
            return self._loss(batch, "val_loss")

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=1 + resumes,
        callbacks=[
            foreign_callback,
            type("Start", (base,), {"on_train_start": lambda *_: on_start()})(),
        ],
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader: DataLoader[Any] = DataLoader(_Points(), batch_size=2)
    path = folder / "cut.ckpt"
    trainer.fit(LightningNet(), loader, loader, ckpt_path=path if resumes else None)
    trainer.save_checkpoint(path)


def _fit_in_accelerated(
    make: Callable[[], Any], folder: Path, on_start: Callable[[], None], *, resumes: bool
) -> None:
    """Train in pytorch-accelerated's Trainer; the arguments are `_fit_in_lightning`'s."""
    pa: Any = importlib.import_module("pytorch_accelerated")
    base = importlib.import_module("pytorch_accelerated.callbacks").TrainerCallback
    start = type("Start", (base,), {"on_training_run_start": lambda *_, **__: on_start()})
    model = nn.Linear(2, 2)
    trainer = pa.Trainer(
        model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 0.1), [make(), start()]
    )
    trainer.train(
        _Points(),
        1 + resumes,
        _Points(),
        per_device_batch_size=2,
        max_num_train_steps=_BATCHES * (1 + resumes),
        train_dataloader_kwargs={"num_workers": 0, "pin_memory": False},
        eval_dataloader_kwargs={"num_workers": 0, "pin_memory": False},
        resume_from=str(folder / "state") if resumes else None,
    )
    trainer.save_training_state(folder / "state")


def _fit_in_composer(
    make: Callable[[], Any], folder: Path, on_start: Callable[[], None], *, resumes: bool
) -> None:
    """Train in Composer's Trainer; the arguments are `_fit_in_lightning`'s."""
    composer: Any = importlib.import_module("composer")
    base: Any = composer.ComposerModel

    class ComposerNet(base):  # type: ignore[misc]  # the base is known at run time only
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, batch: Any) -> Any:
            return self.layer(batch[0])

        def loss(self, outputs: Any, batch: Any) -> Tensor:
            return nn.functional.cross_entropy(outputs, batch[1])

    model = ComposerNet()
    start = type("Start", (composer.Callback,), {"fit_start": lambda *_: on_start()})
    loader: DataLoader[Any] = DataLoader(_Points(), batch_size=2)
    path = folder / "cut.pt"
    trainer = composer.Trainer(
        model=model,
        train_dataloader=loader,
        eval_dataloader=loader,
        optimizers=torch.optim.SGD(model.parameters(), 0.1),
        max_duration=f"{1 + resumes}ep",
        callbacks=[make(), start()],
        device="cpu",
        progress_bar=False,
        load_path=str(path) if resumes else None,
    )
    trainer.fit()
    trainer.save_checkpoint(str(path))
    trainer.close()


def _fit_in_transformers(
    make: Callable[[], Any], folder: Path, on_start: Callable[[], None], *, resumes: bool
) -> None:
    """Train in Hugging Face's Trainer; the arguments are `_fit_in_lightning`'s."""
    hf: Any = importlib.import_module("transformers")
    callbacks: Any = importlib.import_module("transformers.trainer_callback")
    # not on_train_begin: a callback whose state is loaded moves to the end of the list, so there
    # it would be called after this one
    start = type(
        "Start", (callbacks.TrainerCallback,), {"on_epoch_begin": lambda *_, **__: on_start()}
    )
    # it keeps callbacks' states in the checkpoint, but restores them only if it is told to
    arguments = hf.TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=1 + resumes,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_steps=1,
        # versions before 5 report to every installed service unless they are told not to
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        restore_callback_states_from_checkpoint=True,
    )
    trainer = hf.Trainer(
        _TransformersModel(),
        arguments,
        train_dataset=_Points(is_named=True),
        eval_dataset=_Points(is_named=True),
        callbacks=[make(), start()],
    )
    # the Trainer adds it in place of the bar that `disable_tqdm` leaves out
    trainer.remove_callback(callbacks.PrinterCallback)
    trainer.train(
        resume_from_checkpoint=str(folder / f"checkpoint-{_BATCHES}") if resumes else None
    )


def _check_in(
    harness: CallbackHarness,
    framework: str,
    convert: Callable[[Any], Any],
    fit: Callable[..., None],
) -> Findings:
    """Yield a defect for each missing hook, error and lost state in another framework's trainer.

    Args:
        harness: makes the callback.
        framework: the framework's name, for messages.
        convert: the adapter that turns a callback of ours into one of theirs.
        fit: trains in their trainer, with the arguments of `_fit_in_lightning`.
    """
    callback = harness.make()
    with harness.new_folder(framework) as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the frameworks warn a lot, of their own doing
        try:
            # once before the fit, to tell what is lacking from an error of the training
            convert(callback)
        except CallbackError as error:
            yield Defect(
                f"{framework} has what the callback uses",
                str(error),
                "Use what both have, or leave this check out: skip=[...].",
            )
            return
        # the adapters would take a callback out that is to be disabled at its first error
        _let_raise(callback)
        saved: list[dict[str, Any]] = []
        # recorded where it is asked for: each framework keeps it at another place of its checkpoint
        _record_saved_states(callback, saved)
        try:
            fit(lambda: convert(callback), folder, lambda: None, resumes=False)
        except Exception as error:  # noqa: BLE001 - a callback may raise anything; it is reported
            yield defect_from_error(error, f"in a fit of {framework}'s Trainer")
            return
        if ours(callback).is_stateful:
            yield from _check_resume(harness, framework, convert, fit, (folder, saved))


def _check_resume(
    harness: CallbackHarness,
    framework: str,
    convert: Callable[[Any], Any],
    fit: Callable[..., None],
    before: tuple[Any, list[dict[str, Any]]],
) -> Findings:
    """Yield a defect if the state does not come back from a checkpoint of theirs."""
    folder, saved = before
    fresh, loaded = harness.make(), []
    _let_raise(fresh)
    try:
        fit(
            lambda: convert(fresh),
            folder,
            lambda: loaded.append(copy.deepcopy(fresh.state_dict())),
            resumes=True,
        )
    except Exception as error:  # noqa: BLE001 - likewise
        yield defect_from_error(
            error, f"in a fit of {framework}'s Trainer that goes on from a checkpoint"
        )
        return
    ignored = (*harness.may_differ, *ours(fresh).volatile_state)
    state_saved, state_loaded = (
        {k: v for k, v in state.items() if not any(fnmatchcase(str(k), name) for name in ignored)}
        for state in (saved[-1] if saved else {}, loaded[-1] if loaded else {})
    )
    differences = nested_differences(state_saved, state_loaded, "state")
    if differences:
        yield Defect(
            f"the state comes back from {framework}'s checkpoint",
            f"saved, and when the training goes on: {summarize_differences(differences)}",
            "Reset it where `trainer.progress.is_new_training` only.",
        )


def _let_raise(callback: Callback) -> None:
    """Let every error of a callback leave it, whatever its class says."""
    # past a __setattr__ of the class
    object.__setattr__(callback, "on_error", "raise")


def _record_saved_states(callback: Callback, saved: list[dict[str, Any]]) -> None:
    """Append a copy of each state that the callback's `state_dict` returns to a list."""
    if ours(callback).is_stateful:
        state_dict = callback.state_dict

        def recording_state_dict() -> dict[str, Any]:
            saved.append(copy.deepcopy(state := state_dict()))
            return state

        # past a __setattr__ of the class; the adapters find an instance's method like the class's
        object.__setattr__(callback, "state_dict", recording_state_dict)


def _foreign_check(
    framework: str,
    convert: Callable[[Any], Any],
    fit: Callable[..., None],
    packages: tuple[str, ...],
) -> Check:
    """Make the check of a framework, of which one of the packages must be installed."""

    def run(harness: CallbackHarness) -> Findings:
        return _check_in(harness, framework, convert, fit)

    def hindrance() -> str:
        installed = [
            package for package in packages if importlib.util.find_spec(package) is not None
        ]
        if not installed:
            return f"{framework} is not installed"
        try:
            importlib.import_module(installed[0])
        except ModuleNotFoundError as error:
            # it lacks something of its own, for which no callback can do anything
            return f"{framework} cannot be imported: {error}"
        return ""

    owner = f"{framework}'" if framework.endswith("s") else f"{framework}'s"
    return Check(
        fit.__name__.removeprefix("_fit_"),
        f"it runs in {owner} Trainer, and its state comes back there",
        run,
        ("construction", "hook_signatures", "first_fit", "state_round_trip"),
        hindrance,
    )


FOREIGN_CHECKS: tuple[Check, ...] = (
    _foreign_check(
        "Lightning",
        adapters.to_lightning,
        _fit_in_lightning,
        ("lightning", "pytorch_lightning"),
    ),
    _foreign_check(
        "pytorch-accelerated",
        adapters.to_accelerated,
        _fit_in_accelerated,
        ("pytorch_accelerated",),
    ),
    _foreign_check("Composer", adapters.to_composer, _fit_in_composer, ("composer",)),
    _foreign_check(
        "transformers", adapters.to_transformers, _fit_in_transformers, ("transformers",)
    ),
)
"""The checks that `check_callback(..., everywhere=True)` adds."""
