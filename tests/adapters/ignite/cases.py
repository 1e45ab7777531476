"""Handlers of Ignite, on engines of their own and on those that our Trainer drives.

`python cases.py results.json`: both run the same model, data and seed, once whole and once cut
after two epochs of four; written down are the events in order with the engine's state, what
handlers keep, the files, and the weights.
"""

from __future__ import annotations

import itertools
import json
import logging
import sys
import traceback
import warnings
from pathlib import Path

warnings.simplefilter("ignore")

import torch  # noqa: E402
from foreign_programs import Rows, prepare_process, quiet_folder, write_results  # noqa: E402
from ignite import handlers as ih  # noqa: E402
from ignite.engine import (  # noqa: E402
    Engine,
    Events,
    create_supervised_evaluator,
    create_supervised_trainer,
)  # fmt: skip
from ignite.metrics import Loss  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

import trainer_hooks  # noqa: E402
from trainer_hooks.adapters import ignite as hosting  # noqa: E402

NUMBERS = itertools.count()

TRAIN = [
    "STARTED", "EPOCH_STARTED", "GET_BATCH_STARTED", "DATALOADER_STOP_ITERATION",
    "GET_BATCH_COMPLETED", "ITERATION_STARTED", "ITERATION_COMPLETED", "TERMINATE_SINGLE_EPOCH",
    "EPOCH_COMPLETED", "TERMINATE", "COMPLETED", "INTERRUPT",
]  # fmt: skip
VALIDATION = [
    "STARTED", "EPOCH_STARTED", "ITERATION_STARTED", "ITERATION_COMPLETED", "EPOCH_COMPLETED",
    "COMPLETED",
]  # fmt: skip


def loader():
    return DataLoader(Rows(), batch_size=2)


class Ours(trainer_hooks.Module):
    """The model for our Trainer."""

    def __init__(self, layer, optimizer):
        super().__init__()
        self.layer, self.optimizer = layer, optimizer

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        out = self.layer(batch[0])
        self.log("val_loss", torch.nn.functional.mse_loss(out, batch[1]))
        return out, batch[1]

    def configure_optimizers(self):
        return self.optimizer


class Stage:
    """What a case is made of: model, optimizer, and what handlers note."""

    def __init__(self):
        torch.manual_seed(1)
        self.layer = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.layer.parameters(), 0.1, momentum=0.9)
        self.calls = []
        self.trainer = Engine(lambda engine, batch: None)  # a stand-in, for what wants one


def shown(value):
    if isinstance(value, list | tuple):
        return [shown(item) for item in value]
    if isinstance(value, torch.Tensor):
        return [round(item, 5) for item in value.flatten().tolist()]
    return round(value, 5) if isinstance(value, float) else value


def record(stage):
    """Return what writes down all events of both engines."""

    def attach(train, validation):
        def note(engine, name, on):
            state = engine.state
            stage.calls.append(
                [
                    on,
                    name,
                    state.epoch,
                    state.iteration,
                    state.max_epochs,
                    state.epoch_length,
                    shown(state.output) if name == "ITERATION_COMPLETED" else None,
                    shown(state.batch) if name.startswith("ITERATION") else None,
                    shown(state.metrics.get("val_loss")) if on == "validation" else None,
                ]
            )
            if on == "validation":
                del stage.calls[-1][4:6]

        for on, engine, names in (("train", train, TRAIN), ("validation", validation, VALIDATION)):
            for name in names:

                def handler(engine, iter_counter=None, *, name=name, on=on):
                    note(engine, name, on)

                engine.add_event_handler(Events[name], handler)

    return attach


# each: makes the handler, and says where it goes: (on, event, arguments), or attaches itself

EPOCH, STEP = Events.EPOCH_COMPLETED, Events.ITERATION_STARTED


def negative(engine):
    return -engine.state.metrics["val_loss"]


def ends_epochs(stage):
    def attach(train, validation):
        @train.on(Events.ITERATION_COMPLETED)
        def end(engine):
            if engine.state.iteration in (2, 7):
                engine.terminate_epoch()

        record(stage)(train, validation)

    return attach


def ends_run(event, skip=False):
    def make(stage):
        def attach(train, validation):
            @train.on(event)
            def end(engine):
                if engine.state.iteration == 6:
                    engine.terminate(skip_completed=skip)

            @train.on(Events.TERMINATE | Events.COMPLETED)
            def ended(engine):
                stage.calls.append([str(engine.last_event_name), engine.state.iteration])

        return attach

    return make


def tensorboard(stage):
    # tensorboardX names files by the second: a second one must not write over the first
    logger = ih.TensorboardLogger(log_dir="tb", filename_suffix=f".{next(NUMBERS)}")

    def attach(train, validation):
        logger.attach_output_handler(
            train,
            Events.ITERATION_COMPLETED(every=2),
            "train",
            output_transform=lambda loss: {"loss": loss},
        )
        logger.attach_output_handler(
            validation, Events.COMPLETED, "val", metric_names="all",
            global_step_transform=ih.global_step_from_engine(train),
        )  # fmt: skip
        logger.attach_opt_params_handler(train, Events.ITERATION_STARTED, stage.optimizer)
        train.add_event_handler(Events.COMPLETED, lambda: logger.close())

    return attach


def filtered(stage):
    def attach(train, validation):
        for event in (
            Events.ITERATION_COMPLETED(every=3), Events.EPOCH_STARTED(once=2),
            Events.ITERATION_STARTED(after=5, before=9),
        ):  # fmt: skip
            train.add_event_handler(
                event,
                lambda engine: stage.calls.append([engine.state.epoch, engine.state.iteration]),
            )

    return attach


ATTACHED = {
    "Recording": record,
    "Filtered events": filtered,
    "terminate_epoch": ends_epochs,
    "terminate after a batch": ends_run(Events.ITERATION_COMPLETED),
    "terminate before a batch": ends_run(Events.ITERATION_STARTED),
    "terminate at an epoch's end, skip_completed": ends_run(Events.ITERATION_COMPLETED, True),
    "TensorboardLogger": tensorboard,
}
"""Those that add handlers to both engines."""

MADE = {
    "Checkpoint": (
        lambda s: ih.Checkpoint({"model": s.layer}, disk(), n_saved=2), "train",
        EPOCH, (),
    ),
    "Checkpoint by score": (
        lambda s: ih.Checkpoint(
            {"model": s.layer}, disk(), n_saved=1, score_function=negative,
            score_name="loss",
        ), "validation", Events.COMPLETED, (),
    ),
    "ModelCheckpoint": (
        lambda s: ih.ModelCheckpoint("there", "net", n_saved=1, require_empty=False), "train",
        EPOCH, "model",
    ),
    "EarlyStopping": (
        lambda s: ih.EarlyStopping(2, negative, s.trainer, min_delta=10.0), "validation",
        Events.COMPLETED, (),
    ),
    "TerminateOnNan": (lambda s: ih.TerminateOnNan(), "train", Events.ITERATION_COMPLETED, ()),
    "TimeLimit": (lambda s: ih.TimeLimit(3600), "train", Events.ITERATION_COMPLETED, ()),
    "Timer": (lambda s: ih.Timer(), "train", None, ()),
    "EMAHandler": (lambda s: ih.EMAHandler(s.layer, momentum=0.3), "train", None, ()),
    "EpochOutputStore": (lambda s: ih.EpochOutputStore(), "train", None, ()),
    "ProgressBar": (lambda s: ih.ProgressBar(), "train", None, ()),
    "FBResearchLogger": (
        lambda s: ih.FBResearchLogger(logging.getLogger("fb")), "train", None, ("Train",),
    ),
    "BasicTimeProfiler": (lambda s: ih.BasicTimeProfiler(), "train", None, ()),
    "HandlersTimeProfiler": (lambda s: ih.HandlersTimeProfiler(), "train", None, ()),
    "StepStateScheduler": (
        lambda s: ih.StepStateScheduler(1.0, 0.5, 2, "share", create_new=True), "train", None, (),
    ),
    "CosineAnnealingScheduler": (
        lambda s: ih.CosineAnnealingScheduler(s.optimizer, "lr", 0.1, 0.01, 6), "train", STEP, (),
    ),
    "LinearCyclicalScheduler": (
        lambda s: ih.LinearCyclicalScheduler(s.optimizer, "lr", 0.1, 0.01, 6), "train", STEP, (),
    ),
    "PiecewiseLinear": (
        lambda s: ih.PiecewiseLinear(s.optimizer, "lr", [(2, 0.1), (9, 0.01)]), "train", STEP, (),
    ),
    "ConcatScheduler": (
        lambda s: ih.ConcatScheduler(
            [
                ih.LinearCyclicalScheduler(s.optimizer, "lr", 0.1, 0.01, 6),
                ih.CosineAnnealingScheduler(s.optimizer, "lr", 0.1, 0.01, 6),
            ],
            [5],
        ), "train", STEP, (),
    ),
    "ParamGroupScheduler": (
        lambda s: ih.ParamGroupScheduler(
            [ih.LinearCyclicalScheduler(s.optimizer, "lr", 0.1, 0.01, 6)], names=["lr"]
        ), "train", STEP, (),
    ),
    "LRScheduler": (
        lambda s: ih.LRScheduler(torch.optim.lr_scheduler.StepLR(s.optimizer, 3, 0.5)), "train",
        STEP, (),
    ),
    "ReduceLROnPlateauScheduler": (
        lambda s: ih.ReduceLROnPlateauScheduler(
            s.optimizer, "val_loss", threshold=10.0, patience=1
        ), "validation", Events.COMPLETED, (),
    ),
}  # fmt: skip
"""Those that are passed as they are, and where they go at home."""


def disk():
    return ih.DiskSaver("there", require_empty=False)


def kept_of(handler):
    found = {}
    if hasattr(handler, "state_dict"):
        found["state"] = json.loads(json.dumps(shown_state(handler.state_dict())))
    for name in ("data", "step_count", "counter", "best_score"):
        if hasattr(handler, name):
            found[name] = shown_state(getattr(handler, name))
    if isinstance(handler, ih.EMAHandler):
        found["ema"] = shown(handler.ema_model.weight)
    return found


def shown_state(value):
    if isinstance(value, dict):
        return {str(k): shown_state(v) for k, v in value.items() if not callable(v)}
    if isinstance(value, list | tuple):
        return [shown_state(item) for item in value]
    return shown(value) if isinstance(value, float | torch.Tensor) else value


def there(make, place, stage, epochs, resume):
    """Run on engines of Ignite; return the handler and a state to go on from."""
    loss = torch.nn.functional.mse_loss
    trainer = create_supervised_trainer(stage.layer, stage.optimizer, loss)
    evaluator = create_supervised_evaluator(stage.layer, {"val_loss": Loss(loss)})
    val = loader()
    trainer.add_event_handler(EPOCH, lambda: evaluator.run(val))
    stage.trainer = trainer
    handler = None
    if place is None:
        make(stage)(trainer, evaluator)
    else:
        handler, (on, event, arguments) = make(stage), place
        engine = trainer if on == "train" else evaluator
        if arguments == "model":
            arguments = ({"model": stage.layer},)
        if event is None:
            handler.attach(engine, *arguments)
        else:
            engine.add_event_handler(event, handler, *arguments)
    if resume:
        stage.layer.load_state_dict(resume["model"])
        stage.optimizer.load_state_dict(resume["optimizer"])
        trainer.load_state_dict(resume["trainer"])
        if "handler" in resume:
            handler.load_state_dict(resume["handler"])
        if "ema" in resume:
            handler.ema_model.load_state_dict(resume["ema"])
    trainer.run(loader(), max_epochs=epochs)
    state = {
        "model": stage.layer.state_dict(), "optimizer": stage.optimizer.state_dict(),
        "trainer": {"iteration": trainer.state.iteration, "max_epochs": epochs, "epoch_length": 4},
    }  # fmt: skip
    if hasattr(handler, "state_dict"):
        state["handler"] = handler.state_dict()
    if isinstance(handler, ih.EMAHandler):
        state["ema"] = handler.ema_model.state_dict()
    return handler, state


def here(make, place, stage, epochs, resume):
    """Run in our Trainer; of a handler that is passed as it is, the default place is looked at."""
    if place is None:
        handler, guest = None, hosting.attach(make(stage))
    else:
        handler, (on, event, arguments) = make(stage), place
        guest = handler
        if event is None and arguments:
            guest = hosting.adapt(handler, *arguments)
        elif isinstance(handler, ih.Checkpoint) and on == "validation":
            guest = hosting.adapt(handler, event=event, on=on)
        if arguments == "model":
            event = EPOCH
            guest = hosting.adapt(handler, {"model": stage.layer}, event=event)
    trainer = trainer_hooks.Trainer(
        callbacks=[guest], max_epochs=epochs, accelerator="cpu", default_root_dir=".",
        enable_model_summary=False, logger=False, plugins=False, enable_progress_bar=None,
        enable_checkpointing=None, enable_run_manifest=False,
    )  # fmt: skip
    trainer.fit(Ours(stage.layer, stage.optimizer), loader(), loader(), ckpt_path=resume)
    trainer.save_checkpoint("cut.ckpt")
    return handler, "cut.ckpt"


def run(fit, make, place, cuts):
    calls, resume, files = [], None, []
    for epochs in cuts:
        stage = Stage()
        handler, resume = fit(make, place, stage, epochs, resume)
        calls += [stage.calls]
    for path in sorted(Path("there").rglob("*")):
        files.append([path.name, shown_state(torch.load(path))])
    if Path("tb").exists():
        files = scalars("tb")
    return {
        "calls": calls, "kept": {} if handler is None else kept_of(handler), "files": files,
        "weights": shown(stage.layer.weight), "lr": shown(stage.optimizer.param_groups[0]["lr"]),
    }  # fmt: skip


def scalars(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    rows = {}
    for path in Path(folder).rglob("events.*"):  # their names do not tell which one is older
        found = EventAccumulator(str(path))
        found.Reload()
        for tag in found.Tags()["scalars"]:
            rows.setdefault(tag, []).extend([e.step, round(e.value, 5)] for e in found.Scalars(tag))
    return {tag: sorted(rows[tag]) for tag in sorted(rows)}


def main(target: str) -> None:
    prepare_process()
    results: dict = {}
    cases = {name: (make, None) for name, make in ATTACHED.items()}
    cases |= {name: (make, place) for name, (make, *place) in MADE.items()}
    for name, (make, place) in cases.items():
        # where an epoch ended early, Ignite counts epochs anew from iterations when it goes on
        is_whole = not name.startswith("terminate")
        ways = [("plain", [4], there), ("plain", [4], here)]
        if is_whole:
            ways += [("resumed", [2, 4], there), ("resumed", [2, 4], here)]
        for how, cuts, fit in ways:
            with quiet_folder():
                try:
                    found = run(fit, make, place, cuts)
                except Exception:
                    found = {"raised": traceback.format_exc()}
            results.setdefault(f"{name}, {how}", {})[fit.__name__] = found
    write_results(target, results)


if __name__ == "__main__":
    main(*sys.argv[1:])
