"""Published handlers for Ignite, compared with what they do in a program of Ignite."""

from __future__ import annotations

import torch
from common import case
from compare import compared_ignite


@case("monai", "`LrScheduleHandler`, a handler of Ignite", compared=True)
def monai_schedule():
    from monai.handlers import LrScheduleHandler

    def attached(train, evaluation, optimizer):
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        handler = LrScheduleHandler(scheduler, print_lr=False)
        handler.attach(train)
        return handler, {"scheduler": scheduler}

    compared_ignite(attached)


@case("monai", "`ParamSchedulerHandler`, a handler of Ignite", compared=True)
def monai_parameter():
    from monai.handlers import ParamSchedulerHandler

    def attached(train, evaluation, optimizer):
        def set_rate(value):
            optimizer.param_groups[0]["lr"] = value

        handler = ParamSchedulerHandler(
            set_rate, "exponential", {"initial_value": 0.1, "gamma": 0.8}, epoch_level=False
        )
        handler.attach(train)
        return handler, {}

    compared_ignite(attached)


@case(
    "monai", "`MetricLogger`, a handler of Ignite", compared=True,
    fails="whole, at home and here: kept",
    why="it also writes down what the module logs, which is in `state.metrics` of the training's "
    "engine here; the losses are the same",
)  # fmt: skip
def monai_metrics():
    from monai.handlers import MetricLogger

    def attached(train, evaluation, optimizer):
        handler = MetricLogger(
            loss_transform=lambda output: round(float(output), 5), evaluator=evaluation
        )
        handler.attach(train)
        return handler, {"handler": handler}

    compared_ignite(attached)


@case("monai", "`MetricsSaver`, a handler of Ignite", compared=True)
def monai_saved_metrics():
    from monai.handlers import MetricsSaver

    def attached(train, evaluation, optimizer):
        handler = MetricsSaver("metrics", metrics="eval_loss", delimiter=",")
        handler.attach(evaluation)
        return handler, {}

    compared_ignite(attached)


@case("monai", "`EarlyStopHandler` on a loss, a handler of Ignite", compared=True)
def monai_early_stop():
    from monai.handlers import EarlyStopHandler

    def attached(train, evaluation, optimizer):
        handler = EarlyStopHandler(
            patience=2, trainer=train, min_delta=10.0,
            score_function=lambda engine: -engine.state.metrics["eval_loss"],
        )  # fmt: skip
        handler.attach(evaluation)
        return handler, {"stopping": handler._handler}

    compared_ignite(attached)
