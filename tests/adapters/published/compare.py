"""Train with a published callback in its own trainer and in ours, whole and killed, and compare.

`compared(...)` raises an AssertionError that says what is not the same: the weights, what was
logged, the callback's own numbers and texts, or the names of the files that it left.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

import trainer_hooks

if TYPE_CHECKING:
    from collections.abc import Callable

EPOCHS, BATCHES = 4, 4


class Killed(Exception):
    """Ends the first part of a run that is resumed."""


def loader() -> DataLoader[Any]:
    return DataLoader(torch.arange(32.0).reshape(8, 4) / 32, batch_size=2)


def net_of(pl: Any) -> Any:
    """Return a class of LightningModules that log `loss` and `val_loss`."""

    class Net(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))

        def forward(self, x):
            return self.model(x)

        def loss_of(self, batch):
            return self(batch).pow(2).mean()

        def training_step(self, batch, batch_idx):
            loss = self.loss_of(batch)
            self.log("loss", loss)
            return loss

        def validation_step(self, batch, batch_idx):
            self.log("val_loss", self.loss_of(batch))

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    return Net


def compared(
    make: Callable[[Any], Any],
    *,
    pl: str = "lightning.pytorch",
    module: Callable[[Any], Any] = net_of,
    ignore: tuple[str, ...] = (),
    differs_when_killed: bool = False,
    kills: bool = True,
    **options: Any,
) -> None:
    """Compare a callback of Lightning; see `equal`.

    Args:
        make: returns the callback, given Lightning's package.
        pl: Lightning's package, of the two that have the same modules.
        module: returns the module's class, given the package.
        ignore: beginnings of names of metrics, attributes and files that hold times and the like.
        differs_when_killed: whether it ends otherwise at home, too, if it is killed and resumed.
        kills: False if it cannot be resumed at home.
        options: options of both trainers.
    """
    package = importlib.import_module(pl)
    # callbacks that other installed packages register there would log as well
    connector = importlib.import_module(f"{pl}.trainer.connectors.callback_connector")
    connector._load_external_callbacks = lambda _group: []
    logger_base = importlib.import_module(f"{pl}.loggers.logger").Logger

    def run(side: str, kill: bool, heard: list) -> dict[str, Any]:
        class Heard(logger_base):
            name, version = "heard", 0

            def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
                pass

            def log_metrics(self, metrics: Any, step: Any = None) -> None:
                heard.extend((k, step, round(float(v), 5)) for k, v in metrics.items())

        class Kill(package.Callback):
            def on_train_batch_start(self, trainer, *rest):
                if trainer.global_step == 2 * BATCHES + 2:
                    raise Killed

        def fit(path: Any = None) -> tuple[Any, Any]:
            torch.set_default_dtype(torch.float32)  # some packages change it
            torch.manual_seed(1)
            net, callback = module(package)(), make(package)
            saver = package.callbacks.ModelCheckpoint(
                "saved", "{step}", save_top_k=-1, save_on_train_epoch_end=True
            )
            both = {
                "max_epochs": EPOCHS, "accelerator": "cpu", "log_every_n_steps": 1,
                "logger": Heard(), "enable_progress_bar": False, "enable_model_summary": False,
                "num_sanity_val_steps": 0,
                "callbacks": [*as_list(callback), saver, *([Kill()] if kill and not path else [])],
                **options,
            }  # fmt: skip
            extra = {"plugins": False} if side == "here" else {}
            kind = trainer_hooks.Trainer if side == "here" else package.Trainer
            trainer = kind(**both, **extra)
            resumed = {"weights_only": False} if side == "there" and path else {}
            trainer.fit(net, loader(), loader(), ckpt_path=path, **resumed)
            return net, callback

        if kill:
            with contextlib.suppress(Killed):
                fit()
            net, callback = fit(f"saved/step={2 * BATCHES}.ckpt")
        else:
            net, callback = fit()
        return found_of(net, callback, ignore)

    equal(run, ignore, differs_when_killed, kills)


class _Named(torch.utils.data.Dataset):
    """The samples as dicts, with targets."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        row = torch.arange(4.0) / 4 + index / 8
        return {"x": row, "labels": row.sum().reshape(1) / 4}


class _Theirs(torch.nn.Module):
    """A linear model for transformers' Trainer."""

    def __init__(self):
        super().__init__()
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))

    def forward(self, x, labels=None):
        out = self.model(x)
        return {"loss": torch.nn.functional.mse_loss(out, labels), "logits": out}


class _Ours(trainer_hooks.Module):
    """The same for our Trainer."""

    def __init__(self):
        super().__init__()
        self.model = _Theirs().model

    def loss_of(self, batch):
        return torch.nn.functional.mse_loss(self.model(batch["x"]), batch["labels"])

    def training_step(self, batch, batch_idx):
        loss = self.loss_of(batch)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("eval_loss", self.loss_of(batch))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def compared_transformers(
    make: Callable[[], Any],
    *,
    ignore: tuple[str, ...] = (),
    differs_when_killed: bool = False,
    **options: Any,
) -> None:
    """Compare a callback of transformers; see `equal`.

    Args:
        make: returns the callback.
        ignore: beginnings of names that hold times and the like.
        differs_when_killed: whether it ends otherwise at home, too, if it is killed and resumed.
        **options: further TrainingArguments, which the callback gets here, too.
    """
    import transformers

    from trainer_hooks.adapters.transformers import adapt

    class Kill(transformers.TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            if state.global_step == 2 * BATCHES + 2:
                raise Killed

    def args() -> Any:
        return transformers.TrainingArguments(
            output_dir="out", num_train_epochs=EPOCHS, per_device_train_batch_size=2,
            per_device_eval_batch_size=2, eval_strategy="epoch", save_strategy="epoch",
            logging_steps=1, report_to=[], use_cpu=True, disable_tqdm=True, max_grad_norm=0,
            train_sampling_strategy="sequential", restore_callback_states_from_checkpoint=True,
            **options,
        )  # fmt: skip

    def fit(side: str, heard: list, path: str | None, kill: bool) -> tuple[Any, Any]:
        class Hear(transformers.TrainerCallback):
            def on_log(self, args, state, control, logs=None, **kwargs):
                heard.extend((k, state.global_step, round(float(v), 4)) for k, v in logs.items())

        torch.manual_seed(1)
        callback = make()
        others = [Hear(), *([Kill()] if kill and not path else [])]
        if side == "here":
            net = _Ours()
            saver = trainer_hooks.callbacks.ModelCheckpoint(
                "saved", "{step}", save_top_k=-1, save_on_train_epoch_end=True,
                auto_insert_metric_name=True,
            )  # fmt: skip
            data = DataLoader(_Named(), batch_size=2)
            trainer_hooks.Trainer(
                callbacks=[adapt(callback, args()), *others, saver], max_epochs=EPOCHS,
                accelerator="cpu", logger=False, plugins=False, enable_progress_bar=False,
                enable_model_summary=False, log_every_n_steps=1, num_sanity_val_steps=0,
            ).fit(net, data, data, ckpt_path=path and f"saved/step={path}.ckpt")  # fmt: skip
            return net, callback
        net = _Theirs()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        constant = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1)
        trainer = transformers.Trainer(
            net, args(), train_dataset=_Named(), eval_dataset=_Named(),
            callbacks=[callback, *others], optimizers=(optimizer, constant),
        )  # fmt: skip
        trainer.remove_callback(transformers.trainer_callback.PrinterCallback)
        trainer.train(resume_from_checkpoint=path and f"out/checkpoint-{path}")
        return net, callback

    def run(side: str, kill: bool, heard: list) -> dict[str, Any]:
        if kill:
            with contextlib.suppress(Killed):
                fit(side, heard, None, kill)
        net, callback = fit(side, heard, str(2 * BATCHES) if kill else None, kill)
        found = found_of(net, callback, ignore)
        # each saves by itself
        found["files"] = [
            name for name in found["files"] if not name.startswith(("out/checkpoint-", "saved"))
        ]
        return found

    times = ("train_", "eval_runtime", "eval_samples", "eval_steps")
    equal(run, (*ignore, *times), differs_when_killed)


def _composer_net(composer: Any) -> Any:
    """Return a ComposerModel with a metric of evaluations."""
    import torchmetrics

    class Net(composer.ComposerModel):
        def __init__(self):
            super().__init__()
            self.model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
            self.metric = torchmetrics.MeanSquaredError()

        def forward(self, batch):
            return self.model(batch["x"])

        def loss(self, outputs, batch):
            return torch.nn.functional.mse_loss(outputs, batch["labels"])

        def eval_forward(self, batch, outputs=None):
            return self(batch) if outputs is None else outputs

        def get_metrics(self, is_train=False):
            return {} if is_train else {"MeanSquaredError": self.metric}

        def update_metric(self, batch, outputs, metric):
            metric.update(outputs, batch["labels"])

    return Net()


def compared_composer(
    make: Callable[[], Any],
    *,
    ignore: tuple[str, ...] = (),
    differs_when_killed: bool = False,
) -> None:
    """Compare a callback of Composer; see `equal`.

    Args:
        make: returns the callback.
        ignore: beginnings of names that hold times and the like.
        differs_when_killed: whether it ends otherwise at home, too, if it is killed and resumed.
    """
    import composer
    from composer.loggers import LoggerDestination

    from trainer_hooks.adapters.composer import adapt_module

    class Kill(composer.Callback):
        def before_train_batch(self, state, logger):
            if int(state.timestamp.batch) == 2 * BATCHES + 2:
                raise Killed

    def fit(side: str, heard: list, path: str | None, kill: bool) -> tuple[Any, Any]:
        class Heard(LoggerDestination):
            def log_metrics(self, metrics, step=None):
                heard.extend((k, step, round(float(v), 4)) for k, v in metrics.items())

        torch.manual_seed(1)
        net, callback = _composer_net(composer), make()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        data = [DataLoader(_Named(), batch_size=2) for _ in range(2)]
        others = [callback, *([Kill()] if kill and not path else [])]
        if side == "here":
            saver = trainer_hooks.callbacks.ModelCheckpoint(
                "saved", "{step}", save_top_k=-1, save_on_train_epoch_end=True,
            )  # fmt: skip
            trainer_hooks.Trainer(
                callbacks=[*others, Heard(), saver], max_epochs=EPOCHS, accelerator="cpu",
                logger=False, plugins=False, enable_progress_bar=False, log_every_n_steps=1,
                enable_model_summary=False, num_sanity_val_steps=0,
            ).fit(
                adapt_module(net, optimizer), *data, ckpt_path=path and f"saved/step={path}.ckpt"
            )  # fmt: skip
            return net, callback
        trainer = composer.Trainer(
            model=net, train_dataloader=data[0], eval_dataloader=data[1], optimizers=optimizer,
            max_duration=f"{EPOCHS}ep", device="cpu", progress_bar=False, loggers=[Heard()],
            callbacks=others, save_folder="saved", save_filename="ba{batch}.pt",
            save_latest_filename=None, save_overwrite=True, run_name="run",
            auto_log_hparams=False, load_path=path and f"saved/ba{path}.pt",
        )  # fmt: skip
        try:
            trainer.fit()
        finally:
            trainer.close()
        return net, callback

    def run(side: str, kill: bool, heard: list) -> dict[str, Any]:
        if kill:
            with contextlib.suppress(Killed):
                fit(side, heard, None, kill)
        net, callback = fit(side, heard, str(2 * BATCHES) if kill else None, kill)
        found = found_of(net, callback, ignore)
        found["files"] = [name for name in found["files"] if not name.startswith("saved")]
        return found

    # what the Trainers log by themselves, and not the callback
    of_trainers = ("trainer/", "loss/", "time/", "train_loss", "metrics/eval/Mean", "epoch")
    equal(run, (*ignore, *of_trainers), differs_when_killed)


def compared_ignite(
    attached: Callable[[Any, Any, Any], Any],
    *,
    ignore: tuple[str, ...] = (),
    differs_when_killed: bool = False,
) -> None:
    """Compare a handler of Ignite; see `equal`.

    Args:
        attached: makes a handler and attaches it, given the engines of training and evaluation and
            the optimizer. It returns the handler, and the objects that a program saves with it.
        ignore: beginnings of names that hold times and the like.
        differs_when_killed: whether it ends otherwise at home, too, if it is killed and resumed.
    """
    from ignite.engine import Engine, Events
    from ignite.handlers import Checkpoint, DiskSaver
    from ignite.metrics import Average

    from trainer_hooks.adapters.ignite import attach

    def fit_there(path: str | None, kill: bool) -> tuple[Any, Any]:
        net = _Ours()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        data = DataLoader(_Named(), batch_size=2)

        def step(engine, batch):
            net.train()
            optimizer.zero_grad()
            loss = net.loss_of(batch)
            loss.backward()
            optimizer.step()
            return loss.detach()

        def evaluate(engine, batch):
            net.eval()
            with torch.no_grad():
                return net.loss_of(batch)

        train, evaluation = Engine(step), Engine(evaluate)
        Average().attach(evaluation, "eval_loss")
        train.add_event_handler(Events.EPOCH_COMPLETED, lambda _: evaluation.run(data))
        handler, saved = attached(train, evaluation, optimizer)
        saved = {"train": train, "net": net, "optimizer": optimizer, **saved}
        saver = Checkpoint(saved, DiskSaver("saved", require_empty=False), n_saved=None)
        train.add_event_handler(Events.EPOCH_COMPLETED, saver)
        if kill and path is None:
            train.add_event_handler(
                Events.ITERATION_STARTED(once=2 * BATCHES + 3), lambda _: _raise_killed()
            )
        if path is not None:
            Checkpoint.load_objects(
                saved, torch.load(f"saved/checkpoint_{path}.pt", weights_only=False)
            )
        train.run(data, max_epochs=EPOCHS)
        return net, handler

    def fit_here(path: str | None, kill: bool) -> tuple[Any, Any]:
        net = _Ours()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        net.configure_optimizers = lambda: optimizer
        made: list[Any] = []

        class Kill(trainer_hooks.Callback):
            def on_train_batch_start(self, trainer, *rest):
                if trainer.global_step == 2 * BATCHES + 2:
                    raise Killed

        saver = trainer_hooks.callbacks.ModelCheckpoint(
            "saved", "{step}", save_top_k=-1, save_on_train_epoch_end=True
        )
        handlers = attach(lambda train, val: made.append(attached(train, val, optimizer)[0]))
        data = DataLoader(_Named(), batch_size=2)
        trainer_hooks.Trainer(
            callbacks=[handlers, saver, *([Kill()] if kill and path is None else [])],
            max_epochs=EPOCHS, accelerator="cpu", logger=False, plugins=False,
            enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        ).fit(net, data, data, ckpt_path=path and f"saved/step={path}.ckpt")  # fmt: skip
        return net, made[-1]

    def run(side: str, kill: bool, heard: list) -> dict[str, Any]:
        torch.manual_seed(1)
        fit = fit_there if side == "there" else fit_here
        if kill:
            with contextlib.suppress(Killed):
                fit(None, kill)
        torch.manual_seed(1)
        net, handler = fit(str(2 * BATCHES) if kill else None, kill)
        found = found_of(net, handler, ignore)
        found["files"] = [name for name in found["files"] if not name.startswith("saved")]
        # the last bits depend on the order in which a mean is taken
        found["texts"] = [
            re.sub(
                r"\d+\.\d+", lambda number: f"{float(number[0]):.6f}", Path(name).read_text("utf-8")
            )
            for name in found["files"]
        ]
        return found

    equal(run, ignore, differs_when_killed)


def _raise_killed() -> None:
    raise Killed


def source_of(file: str, name: str, **given: Any) -> Any:
    """Return a class from an installed file, of which functions, this class and imports are run.

    An import that fails is left out: the class does not need what others of its file do.

    Args:
        file: the path below the folder of packages.
        name: the class; empty for all names of its functions.
        **given: names of the file that imports which fail would bring.
    """
    place = next(path for path in sys.path if Path(path, file).exists())
    tree = ast.parse(Path(place, file).read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": file.removesuffix(".py").replace("/", "."), **given}
    for node in tree.body:
        is_import = isinstance(node, ast.Import | ast.ImportFrom)
        is_function = isinstance(node, ast.FunctionDef)
        if not is_import and not is_function and getattr(node, "name", "") != name:
            continue
        code = compile(ast.Module([node], []), file, "exec", dont_inherit=True, flags=_LAZY)
        with contextlib.suppress(ImportError) if is_import else contextlib.nullcontext():
            exec(code, names)
    return names[name] if name else names


_LAZY = importlib.import_module("__future__").annotations.compiler_flag
"""Annotations are not evaluated: they may name a class of an import that was left out."""


def as_list(made: Any) -> list[Any]:
    return list(made) if isinstance(made, list | tuple) else [made]


def found_of(net: Any, made: Any, ignore: tuple[str, ...]) -> dict[str, Any]:
    """Return weights, the callbacks' plain attributes and the files in the current folder."""
    return {
        "weights": [[round(v, 5) for v in p.detach().flatten().tolist()] for p in net.parameters()],
        "kept": [
            {
                name: _plain(value)
                for name, value in vars(callback).items()
                if not name.startswith(ignore or ("\0",)) and _is_plain(value)
            }
            for callback in as_list(made)
        ],
        "files": sorted(
            path.relative_to(".").as_posix()
            for path in Path().rglob("*")
            if path.is_file() and not path.name.startswith(ignore or ("\0",))
        ),
    }


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_plain(item) for item in (*value, *value.values()))
    if isinstance(value, list | tuple | set):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str | torch.Tensor)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_plain(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    if isinstance(value, torch.Tensor):
        return [round(v, 5) for v in value.detach().double().flatten().tolist()]
    if isinstance(value, str):
        return value.replace(str(Path.cwd()), ".")
    return round(value, 5) if isinstance(value, float) else value


def equal(
    run: Callable[[str, bool, list], dict[str, Any]],
    ignore: tuple[str, ...],
    differs_when_killed: bool = False,
    kills: bool = True,
) -> None:
    """Run there and here, whole and killed, each in a folder of its own, and compare.

    Args:
        run: runs on a side, `"there"` or `"here"`; whether it is killed and resumed; and a list for
            what is logged. It returns other values to compare.
        ignore: beginnings of names of logged values to leave out.
        differs_when_killed: whether a resume at home differs from the whole run.
        kills: False to run it whole alone.
    """
    results: dict[tuple[str, bool], dict[str, Any]] = {}
    for side in ("there", "here"):
        for kill in (False, True)[: 1 + kills]:
            heard: list = []
            gc.enable()  # a run that was killed may have left it off
            with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
                found = run(side, kill, heard)
            logged = [row for row in heard if not row[0].startswith(ignore or ("\0",))]
            # of what was logged twice, before the kill and after the resume, once
            found["logged"] = sorted({*map(tuple, logged)}) if kill else sorted(set(logged))
            results[side, kill] = found
    whole, here = results["there", False], results["here", False]
    _same("whole, at home and here", whole, here)
    if not kills:
        return
    _same("killed, at home and here", results["there", True], results["here", True])
    if not differs_when_killed:
        _same("here, whole and killed", here, results["here", True])


def _same(what: str, one: dict[str, Any], other: dict[str, Any]) -> None:
    for name in one:
        first, second = one[name], other[name]
        if first == second:
            continue
        if isinstance(first, list) and isinstance(second, list):
            first, second = (
                [item for item in first if item not in second],
                [item for item in second if item not in first],
            )
        raise AssertionError(f"{what}: {name}\n{first}\n{second}")
