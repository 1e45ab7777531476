"""Run: everything that a Trainer does around a loop, for a loop that the user writes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

from torch.optim import Optimizer

from trainer_hooks._annotations import signature_of
from trainer_hooks._names import ours
from trainer_hooks.connector.registry import adapt_if_foreign, validate_callback
from trainer_hooks.context.run_state import TrainerFn
from trainer_hooks.context.state_registry import RegisteredState
from trainer_hooks.errors import (
    CallbackError,
    CheckpointStateError,
    MetricError,
    OptimizationError,
    OptionError,
    UsageError,
    did_you_mean,
)
from trainer_hooks.loops.loop_position import LoopPosition
from trainer_hooks.metrics.metric_objects import is_metric_object
from trainer_hooks.module.loop_module import LoopModule, named_models
from trainer_hooks.module.module import Module
from trainer_hooks.runtime.nested_tensors import map_tensors
from trainer_hooks.trainer.core.run_inputs import RunInputs, checked_overrides
from trainer_hooks.trainer.run.signals import ending_at_once
from trainer_hooks.trainer.trainer import Trainer

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    import torch
    from torch import Tensor, nn

    from trainer_hooks.callback import Callback
    from trainer_hooks.clock.progress import Progress
    from trainer_hooks.loops.own_loop import OwnLoop
    from trainer_hooks.trainer.run.lifecycle import TrainerRun

_INSTEAD = {
    "val_check_interval": "validate where you like: `if run.progress.batches_completed % 100 == 0:`"
    " and `with run.validation():` after run.step()",
    "check_val_every_n_epoch": "write `if epoch % 2 == 0:` before `with run.validation():`",
    "num_sanity_val_steps": "write a short `with run.validation():` before the loop of run.epochs()"
    ", or leave it out",
    "limit_test_batches": "a Run has no test: use Trainer.test",
    "limit_predict_batches": "a Run has no prediction: use Trainer.predict",
    "overfit_batches": "hand over a loader of a few batches, as run.batches(list(islice(loader, 4"
    ")))",
    "reload_dataloaders_every_n_epochs": "make the loader in the loop of run.epochs()",
    "microbatch_size": "split the batch in the loop, with run.backward(loss, accumulate=True)",
    "inference_mode": "leave it out",
    "model_registry": "leave it out",
}
"""Options of a Trainer that a loop decides itself, and what to write in it."""


class LoopTrainer(Trainer):
    """The trainer that callbacks of a `Run` are handed: all that a Trainer has, but no loop."""

    @property
    def calls_steps(self) -> bool:
        """False: the steps are lines of the user's."""
        return False

    def running(self, inputs: RunInputs) -> TrainerRun:
        """Return a context with a run that is torn down however the `with` block ends.

        Raises:
            UsageError: the options ask for processes that only a Trainer's loop can be run in.
        """
        if self._core.processes.topology.starts_each_run:
            raise UsageError(
                f"Run(devices={self._core.config.devices!r}): the loop is yours, and runs in the "
                "processes in which the script does. Start it with torchrun --nproc-per-node 2 "
                "script.py, and leave devices out."
            )
        from trainer_hooks.trainer.run.lifecycle import TrainerRun

        return TrainerRun(self._core, self, inputs.normalized())

    def start_of_fit(self, ckpt_path: Any, module: Module, loaders: Any) -> dict[str, Any]:
        """Return the inputs of a fit that name its checkpoint and its training."""
        return self._start_of_fit(ckpt_path, module, loaders)

    def keep_states(self, states: list[RegisteredState]) -> None:
        """Keep states of the loop in checkpoints, and name `Run` in messages."""
        self._core.extra_states = states
        self._core.entry_point = "Run"

    def move(self, batch: Any) -> Any:
        """Return tensors on the device, those of floating point in the run's precision."""
        device = self._core.device
        moved = map_tensors(batch, lambda tensor: tensor.to(device))
        return self._core.precision.convert_batch(moved)

    def forward_context(self) -> AbstractContextManager[Any]:
        """Return a context with the run's precision."""
        return self._core.precision.forward_context()

    def refuse_steps(self) -> None:
        """Refuse callbacks that run the steps of a Module, also those of plugins."""
        refuse_steps_of(self._core.connector.callbacks)

    def add_callback(self, callback: Callback) -> None:
        """Add a callback, unless it runs the module's steps itself."""
        refuse_steps_of([callback])
        super().add_callback(callback)

    def fit(self, *_: Any, **__: Any) -> NoReturn:
        """Raise: the loop is the user's."""
        self._refuse("fit")

    def replay_training_data(self) -> NoReturn:
        """Raise: the steps are lines of the user's."""
        self._refuse("replay_training_data")

    def trial_run(self, *_: Any, **__: Any) -> NoReturn:
        """Raise: the steps are lines of the user's."""
        self._refuse("trial_run")

    def validate_again(self, *_: Any, **__: Any) -> NoReturn:
        """Raise: the steps are lines of the user's."""
        self._refuse("validate_again")

    def _refuse(self, method: str) -> NoReturn:
        raise UsageError(
            f"trainer.{method}() was called in a Run, whose steps are lines of your loop that "
            "nothing else can call: leave the callback out that calls it, or train with a Trainer."
        )


class Run:
    """A training whose loop the user writes, with the callbacks and checkpoints of a Trainer.

    ::

        run = Run(model=net, optimizer=optimizer, callbacks=[...], max_epochs=10)
        with run:
            for epoch in run.epochs():
                for batch in run.batches(train_loader):
                    loss = criterion(net(batch[0]), batch[1])
                    run.backward(loss)
                    run.step()
                    run.log("loss", loss)
                with run.validation():
                    for batch in run.batches(val_loader):
                        run.log("val_loss", criterion(net(batch[0]), batch[1]))

    Entering it sets the run up and restores its checkpoint; leaving it tears the run down, whatever
    happened. `docs/own-loop.md` says what each line brings.

    Args:
        model: a `torch.nn.Module`, compiled or not, a `Module` with hooks of its own, or a list or
            dict of models.
        optimizer: an optimizer, or a list or dict of them; or a function that gets the parameters
            and returns the optimizer, by name for several models. None for the `Module`'s own
            `configure_optimizers`, or for no optimizer.
        scheduler: a scheduler of torch, or a dict with `scheduler` and `interval`, `frequency`,
            `monitor` as from `configure_optimizers`, or a list of them; or a function that gets the
            optimizer.
        ckpt_path: a checkpoint to go on from, as for `Trainer.fit`: a path, `"last"` or `"auto"`.
        overrides: options of the optimizer whose values are this run's, as for `Trainer.fit`.
        train_dataloaders: the loader that `run.batches()` will get, so that its length is known
            from the first hook on.
        options: the options of a `Trainer`, but for those that the loop decides.

    Raises:
        OptionError: an option is unknown, breaks its rule, or is decided by the loop.
        ModuleError: the model is none.
        OptimizationError: the optimizer or scheduler is none.
        CallbackError: a callback cannot be registered, or needs the steps of a Module.
    """

    trainer_class: ClassVar[type[LoopTrainer]] = LoopTrainer

    def __init__(
        self,
        model: Any,
        optimizer: Any = None,
        scheduler: Any = None,
        *,
        ckpt_path: str | os.PathLike[str] | None = None,
        overrides: str | Iterable[str] | None = None,
        train_dataloaders: Any = None,
        **options: Any,
    ) -> None:
        for name, line in _INSTEAD.items():
            if name in options:
                raise OptionError(
                    f"Run({name}={options[name]!r}): the loop is yours and decides this. Instead, "
                    f"{line}."
                )
        models = named_models(model)
        # the look-up of adapters is loaded for what may be a module of another framework alone
        is_stepped = not isinstance(models, dict) and hasattr(models, "training_step")
        adapted = adapt_if_foreign(models, Module) if is_stepped else models
        self._module = adapted if isinstance(adapted, Module) else LoopModule.around(models)
        is_own = optimizer is not None or not isinstance(adapted, Module)
        self._make_optimizers = (
            partial(make_optimizers, self._module, optimizer, scheduler) if is_own else None
        )
        if scheduler is not None and optimizer is None:
            raise OptimizationError(
                "Run(scheduler=...) without optimizer=: pass the optimizer that it drives."
            )
        require_optimizer(optimizer)
        given = options.get("callbacks")
        if given is not None:
            options["callbacks"] = [given] if not isinstance(given, list | tuple) else list(given)
            refuse_steps_of(options["callbacks"])
        _refuse_misspelt(options)
        self.trainer = self.trainer_class(num_sanity_val_steps=0, **options)
        self.trainer.refuse_steps()
        self._ckpt_path = ckpt_path
        self._overrides = checked_overrides(overrides, ckpt_path)
        self._train_dataloaders = train_dataloaders
        self._position = LoopPosition()
        self._user_states = UserStates()
        self.trainer.keep_states(self._states())
        self._loop: OwnLoop | None = None
        self._session: TrainerRun | None = None

    # --- from set-up to teardown ---

    def __enter__(self) -> Self:
        """Set the run up, restore its checkpoint, and begin the training."""
        if self._session is not None:
            raise UsageError("this Run is open already: leave `with run:` or call run.close().")
        with ending_at_once():
            self._session, self._loop = self._set_up()
        # of the first time alone: a run that is entered again goes on where it was
        self._ckpt_path = None
        return self

    def _set_up(self) -> tuple[TrainerRun, OwnLoop]:
        """Prepare the run and begin its training; tear it down if that fails."""
        inputs = RunInputs(
            TrainerFn.FITTING,
            self._module,
            train=self._train_dataloaders,
            **self.trainer.start_of_fit(self._ckpt_path, self._module, self._train_dataloaders),
            overrides=self._overrides,
            own_loop=self._position,
            make_optimizers=self._make_optimizers,
            units=(
                tuple(self._module.parts.values()) if isinstance(self._module, LoopModule) else ()
            ),
        )
        run = self.trainer.running(inputs).__enter__()
        try:
            loop: Any = run.prepare()
            loop.__enter__()
        except BaseException as error:
            run.__exit__(type(error), error, error.__traceback__)
            raise
        return run, loop

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        """Close the open batch, epoch and validation, call the end hooks, and tear the run down."""
        run, loop = self._session, self._loop
        assert run is not None
        assert loop is not None
        self._session = self._loop = None
        try:
            loop.__exit__(kind, error, traceback)
            run.complete()
        except BaseException as failure:
            is_handled = run.__exit__(type(failure), failure, failure.__traceback__)
            # the error of the `with` block is raised again by Python
            if not is_handled and failure is not error:
                raise
            return is_handled
        run.__exit__(None, None, None)
        return True

    def open(self) -> Self:
        """Set the run up as `with run:` does, for a loop in several cells of a notebook.

        A loop that was interrupted, or left by `break`, goes on with its next batch when its cell
        is executed again; `close` ends the run.
        """
        self.__enter__()
        self._opened("run.open()").goes_on = True
        return self

    def close(self) -> None:
        """End a run that `open` has begun; without one do nothing."""
        if self._session is not None:
            self.__exit__(None, None, None)

    # --- the loop ---

    def epochs(self) -> Iterator[int]:
        """Yield the index of each epoch, from the one on in which a checkpoint was saved.

        It ends at `max_epochs`, `max_steps` or `max_duration`, and after a stop.
        """
        return self._opened("run.epochs()").epochs()

    def batches(self, loader: Any = None) -> Iterator[Any]:
        """Yield the batches of a loader on the device, from the one on after a checkpoint.

        In the loop of `epochs` they are those of the training, in a validation those of that.

        Args:
            loader: an iterable of batches; by default that of `Run(train_dataloaders=...)`.
        """
        return self._opened("run.batches(loader)").batches(loader)

    def steps(self, loader: Any = None) -> Iterator[Any]:
        """Yield training batches without epochs, until the limits of the run.

        Args:
            loader: an iterable of batches, which begins again when it ends; by default numbers,
                from 0 on, for updates that need no loader.
        """
        return self._opened("run.steps()").steps(loader)

    def backward(self, loss: Tensor, *, accumulate: bool = False, **options: Any) -> None:
        """Compute the gradients of a loss, scaled and divided for accumulation, with its hooks.

        Args:
            loss: the loss, of one element.
            accumulate: whether its gradients are added to those of the backward before it.
            options: options of `torch.Tensor.backward`, such as `retain_graph`.
        """
        loop = self._loop or self._opened("run.backward(loss)")
        loop.backward(loss, accumulate=accumulate, **options)

    def step(self, optimizer: Any = None, *, closure: Callable[[], Any] | None = None) -> None:
        """Clip the gradients and step, with the hooks; inside an accumulation window do nothing.

        Args:
            optimizer: the optimizer, which may be left out if there is one.
            closure: computes the loss, for optimizers that evaluate it themselves.
        """
        (self._loop or self._opened("run.step()")).step(optimizer, closure)

    def zero_grad(self, optimizer: Any = None) -> None:
        """Clear gradients in the middle of a batch; at its start the run does so by itself."""
        self._opened("run.zero_grad()").zero_grad(optimizer)

    def output(self, outputs: Any) -> None:
        """Give callbacks outputs of the batch, such as scores, in the hook of its end.

        Args:
            outputs: in a validation anything; in a training batch a dict, which gets the loss.
        """
        self._opened("run.output(...)").output(outputs)

    def log(self, name: str, value: Any, **options: Any) -> None:
        """Log a value; the arguments are those of `Module.log`."""
        (self._loop or self._opened(f"run.log({name!r}, ...)")).log(name, value, **options)

    def log_dict(self, values: Mapping[str, Any], **options: Any) -> None:
        """Log each item of a dict; the arguments are those of `Module.log`.

        Raises:
            MetricError: it is no dict.
        """
        if not isinstance(values, Mapping):
            raise MetricError(
                f"run.log_dict({type(values).__qualname__}): it must be a dict of names and values."
            )
        for name, value in values.items():
            self.log(name, value, **options)

    def validation(self, name: str = "", *, num_dataloaders: int = 1) -> Validation:
        """Return the context of a validation: eval mode, no gradients, its hooks and metrics.

        Args:
            name: a name that is added to those of its metrics, for a second validation set.
            num_dataloaders: number of loaders whose batches are gone through in it.

        Raises:
            UsageError: the name is no text.
        """
        if not isinstance(name, str):
            raise UsageError(
                f"run.validation({name!r}): the first argument is the name of the validation. Of "
                "several loaders, write run.validation(num_dataloaders=2)."
            )
        return Validation(self._opened("run.validation()"), name, num_dataloaders)

    def stop(self, reason: str = "") -> None:
        """Request to end the training after this batch; with several ranks all of them end."""
        if not self._opened("run.stop()").is_catching_up:
            self.trainer.stop(reason)

    def save_checkpoint(self, filepath: str | os.PathLike[str], weights_only: bool = False) -> None:
        """Write a checkpoint; in a training batch after its step."""
        if weights_only or self._loop is None or self._loop.before_save():
            self.trainer.save_checkpoint(filepath, weights_only)

    # --- the user's own state ---

    def register(self, name: str, part: Any) -> Any:
        """Keep an object with `state_dict` and `load_state_dict` in checkpoints; return it.

        If the run has restored a checkpoint that holds it, its state is loaded at once.

        Args:
            name: the name of its state.
            part: the object: a replay buffer, a counter, an environment.

        Raises:
            CheckpointStateError: it has no such methods, or the name is taken.
        """
        return self._user_states.register(name, part)

    def keep(self, name: str, make: Callable[[], Any]) -> Any:
        """Return a value that is made once in an epoch, such as rollouts, and kept in checkpoints.

        A run that is resumed inside the epoch gets the value of the checkpoint.

        Args:
            name: its name.
            make: makes it; it must consist of plain data and tensors.

        Raises:
            UsageError: there is no epoch, or `make` cannot be called.
        """
        return self._opened(f"run.keep({name!r}, ...)").keep(name, make)

    # --- what is known of the run ---

    @property
    def progress(self) -> Progress:
        """The counters of the training."""
        return self.trainer.progress

    @property
    def module(self) -> Module:
        """The module that callbacks are handed, around the models."""
        return self._module

    @property
    def device(self) -> torch.device:
        """The device of models and batches."""
        return self.trainer.device

    @property
    def wants_validation(self) -> bool:
        """Whether a callback has asked for a validation, by `trainer.request_validation()`."""
        return self.progress.is_validation_requested

    def to_device(self, batch: Any) -> Any:
        """Return a batch that came from elsewhere than `batches` on the device."""
        return self.trainer.move(batch)

    def autocast(self) -> AbstractContextManager[Any]:
        """Return a context with the run's precision, for forwards outside of `batches`."""
        return self.trainer.forward_context()

    def __repr__(self) -> str:
        """Return the options and the progress in one line."""
        return f"Run of {self.trainer!r}"

    def _opened(self, call: str) -> OwnLoop:
        if self._loop is None:
            raise UsageError(
                f"{call} was called on a Run that is not open: write it inside of `with run:`, or "
                "call run.open() before it."
            )
        return self._loop

    def _states(self) -> list[RegisteredState]:
        position, user = self._position, self._user_states
        return [
            RegisteredState(
                "loop_position", position.state_dict, position.load_state_dict,
                only_training_changes=True, is_per_rank=True,
            ),
            RegisteredState("user", user.state_dict, user.load_state_dict, is_per_rank=True),
            RegisteredState(
                "own_loaders", position.loader_states, position.load_loader_states,
                is_restored_by_loop=True, is_per_rank=True,
            ),
        ]  # fmt: skip


class Validation:
    """The context of a validation in the user's loop; it gives the dict of its metrics.

    Args:
        loop: the loop.
        name: the name of the validation.
        num_dataloaders: number of its loaders.
    """

    def __init__(self, loop: OwnLoop, name: str, num_dataloaders: int) -> None:
        self._loop, self._name, self._num_dataloaders = loop, name, num_dataloaders

    def __enter__(self) -> dict[str, float]:
        """Begin it; the returned dict holds its metrics when it is over."""
        return self._loop.enter_validation(self._name, self._num_dataloaders)

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        """End it."""
        self._loop.leave_validation(error)


class UserStates:
    """Objects of the user's loop whose states are in checkpoints.

    The state of an object that is not registered yet is kept until it is.
    """

    def __init__(self) -> None:
        self._parts: dict[str, Any] = {}
        self._awaited: dict[str, Any] = {}

    def register(self, name: str, part: Any) -> Any:
        """Add an object, with the state that a checkpoint holds of it; return it.

        Raises:
            CheckpointStateError: it has no such methods, or the name is taken.
        """
        methods = ("state_dict", "load_state_dict")
        if missing := [method for method in methods if not callable(getattr(part, method, None))]:
            raise CheckpointStateError(
                f"run.register({name!r}, {type(part).__qualname__}): it has no "
                f"{' and no '.join(missing)}, with which it is saved and restored. Define both."
            )
        if is_metric_object(part):  # its state_dict is empty
            raise CheckpointStateError(
                f"run.register({name!r}, {type(part).__qualname__}): checkpoints find a metric "
                f"object among the attributes of the model. Write net.{name} = ... for it instead."
            )
        registered = self._parts.get(name, part)
        if registered is not part:
            raise CheckpointStateError(
                f"run.register({name!r}, ...): another object has this name, and its state would "
                "be lost. Give each its own name."
            )
        self._parts[name] = part
        if name in self._awaited:
            part.load_state_dict(self._awaited.pop(name))
        return part

    def state_dict(self) -> dict[str, Any] | None:
        """Return the states by name; None if there are none."""
        states = {name: part.state_dict() for name, part in self._parts.items()}
        return {**self._awaited, **states} or None

    def load_state_dict(self, states: dict[str, Any]) -> None:
        """Restore the states of the registered objects, and keep the others."""
        self._awaited = {}
        for name, state in states.items():
            if name in self._parts:
                self._parts[name].load_state_dict(state)
            else:
                self._awaited[name] = state


def _refuse_misspelt(options: Mapping[str, Any]) -> None:
    """Refuse options that are none of a Trainer's, and were probably meant for the Run itself.

    Raises:
        OptionError: there is one.
    """
    of_trainer = signature_of(Trainer).parameters
    names = [name for name in signature_of(Run).parameters if name != "options"]
    for name in options:
        if name not in of_trainer and (hint := did_you_mean(name, names)):
            raise OptionError(
                f"Run({name}=...): there is no option {name!r}.{hint} help(trainer_hooks.Run) "
                "lists its options, beside those of a Trainer."
            )


def refuse_steps_of(callbacks: Iterable[Any]) -> None:
    """Refuse callbacks that run the steps of a Module by themselves.

    Raises:
        CallbackError: there is one; or an object is no callback.
    """
    for given in callbacks:
        callback = validate_callback(given, "callback of Run")
        if ours(callback).needs_steps:
            raise CallbackError(
                f"{type(callback).__qualname__} cannot take part in a Run: it calls the steps of a "
                "Module by itself, or asks for its loaders early, and here they are in lines of "
                "your loop. Use it with a Trainer "
                "first, and give the Run what it finds; or leave it out."
            )


def require_optimizer(given: Any) -> None:
    """Require one of the forms of `Run(optimizer=...)`.

    Raises:
        OptimizationError: it is none of them.
    """
    parts = given.values() if isinstance(given, Mapping) else given
    for part in parts if isinstance(parts, list | tuple | type({}.values())) else [parts]:
        # a class of optimizers would be called with the parameters alone, as lr=... is optional
        is_known = isinstance(part, Optimizer) or (callable(part) and not isinstance(part, type))
        if part is not None and not is_known:
            raise OptimizationError(
                f"Run(optimizer={str(part)[:60]}) of type {type(part).__qualname__}: it must be a "
                "torch.optim.Optimizer, a list or dict of them, or a function that gets the "
                "parameters, as lambda parameters: torch.optim.Adam(parameters, lr=1e-3)."
            )


def make_optimizers(module: Module, optimizer: Any, scheduler: Any) -> Any:
    """Return the optimizers and schedulers of a run, as `configure_optimizers` does.

    Args:
        module: the module of the run.
        optimizer: what `Run(optimizer=...)` was given.
        scheduler: what `Run(scheduler=...)` was given.

    Raises:
        OptimizationError: they do not fit the models, or each other.
    """
    if optimizer is None:
        return None
    parts: dict[str, nn.Module] = module.parts if isinstance(module, LoopModule) else {"": module}
    parameter_ids = {id(parameter) for parameter in module.parameters()}
    made: dict[str, Optimizer] = {}
    for name, given in _by_name(optimizer).items():
        if not isinstance(given, Optimizer):
            owner: nn.Module = parts.get(name, module)
            if name and isinstance(optimizer, Mapping) and name not in parts:
                raise OptimizationError(
                    f"Run(optimizer={{{name!r}: a function}}): no model has this name; there are "
                    f"{', '.join(parts)}.{did_you_mean(name, parts)}"
                )
            given = given(owner.parameters())
        elif not any(
            id(p) in parameter_ids for group in given.param_groups for p in group["params"]
        ):
            raise OptimizationError(
                f"Run(optimizer={type(given).__qualname__}): none of its parameters is one of the "
                "models'. With FSDP they are made anew, and layers may be replaced in setup: pass a"
                " function, as optimizer=lambda parameters: torch.optim.Adam(parameters)."
            )
        made[name] = given
    schedulers = []
    for name, given in _by_name(scheduler).items():
        is_config = isinstance(given, Mapping)
        each = given["scheduler"] if is_config else given
        if callable(each) and not hasattr(each, "load_state_dict"):
            driven = made.get(name) or next(iter(made.values()))
            each = each(driven)
        schedulers.append({**given, "scheduler": each} if is_config else each)
    return list(made.values()), schedulers


def _by_name(given: Any) -> dict[str, Any]:
    """Return optimizers or schedulers by name: one has an empty name, those of a list numbers."""
    if given is None:
        return {}
    if isinstance(given, Mapping) and "scheduler" not in given:
        return dict(given)
    if isinstance(given, list | tuple):
        return {str(index): item for index, item in enumerate(given)}
    return {"": given}
