"""Published handlers for Ignite, each attached to the engines of a fit."""

from __future__ import annotations

import torch
from common import Net, case, fit, written

from trainer_hooks.adapters.ignite import attach


@case("monai", "`CheckpointSaver`, a handler of Ignite")
def monai_saver():
    from monai.handlers import CheckpointSaver

    net = Net()
    fit(
        attach(
            lambda train, _: CheckpointSaver(
                "saved", {"net": net}, save_interval=1, n_saved=1
            ).attach(train)
        ),
        module=net,
    )
    assert [path.name for path in written("*.pt")] == ["net_epoch=2.pt"]
    saved = torch.load("saved/net_epoch=2.pt", weights_only=True)
    assert torch.equal(saved["head.weight"], net.head.weight)


@case("monai", "`StatsHandler`, a handler of Ignite")
def monai_stats():
    from monai.handlers import StatsHandler

    printed: list[int] = []
    fit(
        attach(
            lambda train, _: StatsHandler(
                name="x",
                epoch_print_logger=lambda engine: printed.append(engine.state.epoch),
                iteration_print_logger=lambda engine: printed.append(-engine.state.iteration),
            ).attach(train)
        )
    )
    assert printed == [-1, -2, -3, -4, 1, -5, -6, -7, -8, 2]


@case("monai", "`EarlyStopHandler`, a handler of Ignite")
def monai_stopping():
    from monai.handlers import EarlyStopHandler

    def attached(train, val):
        EarlyStopHandler(
            patience=1,
            score_function=lambda engine: 0.0,
            trainer=train,
            epoch_level=True,
        ).attach(val)

    trainer = fit(attach(attached), max_epochs=9)
    assert trainer.current_epoch == 2


@case("optuna-integration", "`PyTorchIgnitePruningHandler`")
def optuna_ignite():
    import optuna
    from ignite.engine import Events
    from optuna_integration import PyTorchIgnitePruningHandler

    def objective(trial):
        def attached(train, val):
            handler = PyTorchIgnitePruningHandler(trial, "val_loss", train)
            val.add_event_handler(Events.COMPLETED, handler)

        fit(attach(attached))
        return 0.0

    study = optuna.create_study(pruner=optuna.pruners.ThresholdPruner(upper=1e-9))
    study.optimize(objective, n_trials=1)
    (trial,) = study.trials
    assert trial.state is optuna.trial.TrialState.PRUNED
