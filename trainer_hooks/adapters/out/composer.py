"""to_composer: one of our callbacks in Composer's Trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.adapters.out.composer_view import ComposerTrainerView
from trainer_hooks.adapters.out.shared import LogsTo, imported_there, listeners_of
from trainer_hooks.errors import StopTraining

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.callback import Callback

__all__ = ["COMPOSER_EVENTS", "to_composer"]

COMPOSER_EVENTS: dict[str, str] = {
    "on_init_end": "init",
    "on_before_load": "before_load",
    "setup": "fit_start",
    "on_fit_start": "fit_start",
    "on_train_start": "fit_start",
    "on_iteration_start": "iteration_start",
    "on_train_epoch_start": "epoch_start",
    "on_before_dataloader": "before_dataloader",
    "on_after_dataloader": "after_dataloader",
    "on_train_batch_start": "batch_start",
    "on_before_train_batch": "before_train_batch",
    "on_before_forward": "before_forward",
    "on_after_forward": "after_forward",
    "on_before_loss": "before_loss",
    "on_after_loss": "after_loss",
    "on_before_backward": "before_backward",
    "on_after_backward": "after_backward",
    "on_after_train_batch": "after_train_batch",
    "on_train_batch_end": "batch_end",
    "on_batch_checkpoint": "batch_checkpoint",
    "on_train_batches_end": "epoch_end",
    "on_validation_run_start": "eval_before_all",
    "on_validation_start": "eval_start",
    "on_validation_epoch_start": "eval_start",
    "on_validation_batch_start": "eval_batch_start",
    "on_validation_before_forward": "eval_before_forward",
    "on_validation_after_forward": "eval_after_forward",
    "on_validation_batch_end": "eval_batch_end",
    "on_validation_epoch_end": "eval_end",
    "on_validation_end": "eval_end",
    "on_validation_run_end": "eval_after_all",
    "on_train_epoch_end": "epoch_checkpoint",
    "on_epoch_checkpoint": "epoch_checkpoint",
    "on_iteration_end": "iteration_end",
    "on_iteration_checkpoint": "iteration_checkpoint",
    "on_train_end": "fit_end",
    "on_fit_end": "fit_end",
    "on_evaluation_run_start": "eval_standalone_start",
    "on_evaluation_run_end": "eval_standalone_end",
    "on_predict_start": "predict_start",
    "on_predict_epoch_start": "predict_start",
    "on_predict_batch_start": "predict_batch_start",
    "on_predict_before_forward": "predict_before_forward",
    "on_predict_after_forward": "predict_after_forward",
    "on_predict_batch_end": "predict_batch_end",
    "on_predict_epoch_end": "predict_end",
    "on_predict_end": "predict_end",
    "teardown": "fit_end",
    "on_close": "close",
    "on_post_close": "post_close",
}
"""Their event at which each hook of ours is called; several at one event in this order. `setup` and
`teardown` are called around an evaluation alone and a prediction, too."""

_STAGES = {"fit_start": "fit", "eval_standalone_start": "validate", "predict_start": "predict"}
_ENDS = {"fit_end": "fit", "eval_standalone_end": "validate", "predict_end": "predict"}


def to_composer(callback: Callback) -> Any:
    """Return a callback of Composer that stands for one of ours.

    Its hooks are those that both have. A batch is Composer's, which makes one step. `self.log` goes
    to Composer's logger; `trainer.stop(reason)` and `StopTraining` end the training as
    `state.stop_training()` does. State is kept in Composer's checkpoints, under `trainer_hooks:`
    and the callback's `state_key`.

    Args:
        callback: one of ours.

    Raises:
        CallbackError: it overrides a hook that Composer has not, or Composer is not installed.
    """
    calls = listeners_of(callback, "Composer", COMPOSER_EVENTS, "to_composer")
    base = imported_there("composer.core", "Composer", "to_composer", "mosaicml").Callback
    stay = _Stay(callback, calls)
    heard = {COMPOSER_EVENTS[hook] for hook in calls} | {"init", *_STAGES, *_ENDS}
    methods: dict[str, Any] = {event: _event(stay, event) for event in heard - {"post_close"}}
    methods["post_close"] = lambda _: stay.post_close()
    if callback.is_stateful:
        methods["state_dict"] = lambda _: callback.state_dict()
        methods["load_state_dict"] = lambda _, state: callback.load_state_dict(state)
    kind = type(callback)
    methods["__module__"] = kind.__module__
    # Composer keeps the states of callbacks by this name
    methods["__qualname__"] = f"trainer_hooks:{callback.state_key}"
    return type(kind.__name__, (base,), methods)()


def _event(stay: _Stay, event: str) -> Callable[..., None]:
    def call(self: Any, state: Any, logger: Any) -> None:  # noqa: ARG001
        stay.hear(event, state, logger)

    return call


class _Stay:
    """One callback's stay in a trainer there.

    Args:
        callback: it.
        calls: what is called of it, by hook.
    """

    def __init__(self, callback: Callback, calls: dict[str, Callable[..., object]]) -> None:
        self._callback = callback
        self._calls = calls
        self._hooks: dict[str, list[str]] = {}
        for hook, event in COMPOSER_EVENTS.items():
            if hook in calls and hook not in ("setup", "teardown"):
                self._hooks.setdefault(event, []).append(hook)
        self._view: Any = None
        self._logger: Any = None
        self._logs = LogsTo(self._note)  # held here: the callback refers to it weakly

    def hear(self, event: str, state: Any, logger: Any) -> None:
        """Call the hooks that stand for an event."""
        if self._view is None or self._view.view_target is not state:
            self._view = ComposerTrainerView(state, self._callback)
        self._logger = logger
        view = self._view
        if event in _STAGES:
            view.stage = _STAGES[event]
            self._callback.attach_module(self._logs)
            self._call("setup", (view, state.model, _STAGES[event]))
        elif event in ("eval_start", "eval_end"):
            view.is_evaluating = event == "eval_start"
        for hook in self._hooks.get(event, ()):
            arguments = _ARGUMENTS.get(hook, _none)(view)
            taken = (view,) if hook == "on_init_end" else (view, state.model, *arguments)
            self._call(hook, taken)
        if event in _ENDS:
            self._call("teardown", (view, state.model, _ENDS[event]))
            self._callback.attach_module(None)

    def post_close(self) -> None:
        """Call the hook of that name."""
        if self._view is not None:
            self._call("on_post_close", (self._view, self._view.view_target.model))

    def _call(self, hook: str, arguments: tuple[Any, ...]) -> None:
        call = self._calls.get(hook)
        if call is None:
            return
        try:
            call(*arguments)
        except StopTraining as request:
            self._view.stop(str(request))

    def _note(self, name: str, value: float) -> None:
        self._view.note(name, value)
        self._logger.log_metrics({name: value})


def _none(_view: Any) -> tuple[Any, ...]:
    return ()


def _batch(view: Any) -> tuple[Any, ...]:
    return view.view_target.batch, int(view.view_target.timestamp.batch_in_epoch)


def _batch_done(view: Any) -> tuple[Any, ...]:
    state = view.view_target
    return {"loss": view.total_loss}, state.batch, int(state.timestamp.batch_in_epoch) - 1


def _eval_batch(view: Any) -> tuple[Any, ...]:
    return view.view_target.batch, int(view.view_target.eval_timestamp.batch)


def _eval_batch_done(view: Any) -> tuple[Any, ...]:
    state = view.view_target
    return state.outputs, state.batch, int(state.eval_timestamp.batch) - 1


def _predict_batch(view: Any) -> tuple[Any, ...]:
    return view.view_target.batch, int(view.view_target.predict_timestamp.batch)


def _predict_batch_done(view: Any) -> tuple[Any, ...]:
    state = view.view_target
    return state.outputs, state.batch, int(state.predict_timestamp.batch) - 1


def _outputs(view: Any) -> tuple[Any, ...]:
    return (view.view_target.outputs,)


def _loss(view: Any) -> tuple[Any, ...]:
    return (view.view_target.loss,)


_ARGUMENTS: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "on_before_load": lambda view: (view.view_target.load_path,),
    "on_after_dataloader": lambda view: (view.view_target.batch,),
    "on_train_batch_start": _batch,
    "on_train_batch_end": _batch_done,
    "on_after_forward": _outputs,
    "on_after_loss": _loss,
    "on_before_backward": _loss,
    "on_validation_batch_start": _eval_batch,
    "on_validation_after_forward": _outputs,
    "on_validation_batch_end": _eval_batch_done,
    "on_evaluation_run_start": lambda _: ("validate",),
    "on_evaluation_run_end": lambda _: ("validate",),
    "on_predict_batch_start": _predict_batch,
    "on_predict_after_forward": _outputs,
    "on_predict_batch_end": _predict_batch_done,
}
"""What a hook is given after the trainer and the module."""
