"""Average gradients over ranks with torch's DistributedDataParallel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainer_hooks._annotations import own_annotations
from trainer_hooks.errors import OptimizationError, UsageError
from trainer_hooks.runtime.rank_zero import rank_zero_warn

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.runtime.process_group import ProcessGroup
    from trainer_hooks.runtime.strategy_options import DDPStrategy

_MEANS = ("allreduce_hook", "fp16_compress_hook", "bf16_compress_hook")


class GradientSync:
    """Average the gradients of an accumulation window over all ranks, in its last backward.

    The module is not changed: the step is wrapped. `begin` and `end` enclose each batch. Every rank
    takes part in the communication of every window, whatever its own batches return; so a batch
    that one rank skips counts as a batch with zero gradients.

    Args:
        module: the model.
        step: runs a training batch.
        processes: the ranks.
        is_manual: whether the step itself calls backward.

    Attributes:
        is_batch_open: whether `begin` was called and `end` was not.
        has_request: returns whether this rank has a request for the others; sent with the
            gradients.
    """

    def __init__(
        self,
        module: nn.Module,
        step: Callable[[Any, int], Any],
        processes: ProcessGroup,
        *,
        is_manual: bool = False,
    ) -> None:
        self._module = module
        self._run_step = step
        self._processes = processes
        self._watchdog = processes.watchdog
        self._is_manual = is_manual
        self._is_first = True
        self.is_batch_open = False
        self.has_request: Callable[[], bool] = bool
        self._request_flag: GradientFlag | None = None
        self._any_rank_requests = True
        self._reduces_next_backward = False
        self._is_reduced = False
        self._windows = 0
        self._batches_at_last_step: Any = None
        self._parameters: list[nn.Parameter] = []
        self._ddp: DistributedDataParallel | None = None
        self.refresh(is_window_open=False)

    def step(self, batch: Any, batch_idx: int) -> Any:
        """Run the step through DistributedDataParallel."""
        # no parameter is trained, which DistributedDataParallel refuses to wrap
        if self._ddp is None:
            return self._run_step(batch, batch_idx)
        return self._ddp(batch, batch_idx)

    @property
    def is_request_delayed(self) -> bool:
        """Whether a request reaches the ranks one window after that in which it was sent."""
        return self._request_flag is not None and self._request_flag.parameter.is_cuda

    def any_rank_requests(self) -> bool:
        """Return whether any rank had a request in the window; True if that is not known."""
        any_rank_requests = self._any_rank_requests
        self._any_rank_requests = self._request_flag is None
        return any_rank_requests

    def refresh(self, *, is_window_open: bool) -> None:
        """Start or continue an epoch; wrap the module anew if its parameters are other objects.

        Args:
            is_window_open: whether the epoch continues inside an accumulation window.
        """
        parameters = list(self._module.parameters())
        # by identity: the hooks of DDP are on the old objects, and would not fire for new ones
        if len(parameters) != len(self._parameters) or any(
            new is not old for new, old in zip(parameters, self._parameters, strict=True)
        ):
            self._wrap()
        self._is_first = not is_window_open

    def begin(self, closes_window: bool) -> None:
        """Start a batch.

        Args:
            closes_window: whether the gradients are reduced in the backward of this batch.

        Raises:
            OptimizationError: a batch of a static graph is to be accumulated.
        """
        if not closes_window and self._processes.options.static_graph:
            # torch's reducer fails where the first backward of a static graph is not reduced.
            raise OptimizationError(
                "DDPStrategy(static_graph=True) cannot be used with accumulated gradients: torch "
                "records the graph in its first backward, which must average them. Leave "
                "static_graph out, or use larger batches."
            )
        if self._is_first:
            flags = [parameter.requires_grad for parameter in self._parameters]
            # DDP fixes the set of trained parameters at construction: it would wait for gradients
            # of a parameter that was frozen since.
            if flags != self._flags:
                self._wrap()
        self.is_batch_open, self._is_reduced = True, False
        self._reduces_next_backward = closes_window
        if self._ddp is not None:
            is_reduced = closes_window and not self._is_manual
            # assignments go through nn.Module.__setattr__, which costs more than the comparison
            if self._ddp.require_backward_grad_sync is not is_reduced:
                self._ddp.require_backward_grad_sync = is_reduced
            # buffers are broadcast at the first forward of a window, the only one that all ranks
            # have: ranks may skip any other batch on their own
            if self._ddp.require_forward_param_sync is not self._is_first:
                self._ddp.require_forward_param_sync = self._is_first
        self._is_first = False
        if closes_window or self._is_manual:
            self._watchdog.begin_computing_wait("the gradients")

    def backward(self, loss: Tensor) -> None:
        """Run the backward of a loss, and send this rank's flag with the gradients."""
        # both roots in one call: DDP completes its reduction within a single backward
        torch.autograd.backward(*self._batch_roots(loss))

    def before_backward(self, loss: Tensor) -> None:
        """Send this rank's flag before a backward that the module runs itself."""
        # the flag comes first: DDP completes its reduction with the last gradient that arrives,
        # which must be in the backward of the module
        (_, *parameters), (_, *gradients) = self._batch_roots(loss)
        if parameters:
            torch.autograd.backward(parameters, gradients)

    def finish_backward(self) -> None:
        """Record that a backward is done.

        Raises:
            OptimizationError: a parameter got no gradient, for which the other ranks wait.
        """
        if not self._reduces_next_backward or self._ddp is None:
            return
        self._reduces_next_backward, self._is_reduced = False, True
        self._watchdog.end_computing_wait()
        if self._request_flag is not None:
            self._any_rank_requests |= self._request_flag.receive()
        if self._processes.options.find_unused_parameters:
            return
        # DDP would report this at the next forward only, and by the parameters' indices.
        if any(p.grad is None and p.requires_grad for p in self._parameters):
            require_no_unused_parameters(
                self._module, type(self._module).__qualname__, "DDPStrategy"
            )

    def skip_batch(self, closes_window: bool, batches: int) -> None:
        """Take part in the forward of a batch that only this rank skips, if it has not begun.

        Args:
            closes_window: whether the batch is the last of its window.
            batches: number of batches completed before it.

        Raises:
            UsageError: the window is reduced already, so that the others step with this batch.
        """
        if self._batches_at_last_step == batches:
            raise UsageError(
                f"StopTraining was raised in rank {self._processes.global_rank} between the "
                "gradients of a window and its end: the other processes make a step that this one "
                "would not. Call trainer.stop() there, or raise it in another hook."
            )
        if not self.is_batch_open:
            self.begin(closes_window)
            # a forward, too: in the first one of a window all ranks broadcast the buffers
            if self._ddp is not None:
                self._ddp(None, -1, is_skipped=True)

    def end(self, closes_window: bool, has_gradients: bool, batches: int) -> bool:
        """End a batch and return whether the window has gradients, on any rank.

        Args:
            closes_window: whether the batch is the last of its window.
            has_gradients: whether this rank has gradients.
            batches: number of batches completed before it.
        """
        self.is_batch_open = False
        self._watchdog.end_computing_wait()
        if not closes_window or self._is_manual:
            return has_gradients
        # the number of the window makes the counter's name new, and is equal on all ranks
        self._windows += 1
        self._is_first, self._batches_at_last_step = True, batches
        has_gradients = has_gradients or self._is_reduced
        if self._ddp is None:
            return has_gradients
        counter = f"left_out/{self._windows}"
        if not has_gradients:
            # before the reduction, which no rank leaves before all have entered it: so the count
            # below is complete
            self._watchdog.add_to_counter(counter, 1)
        if not self._is_reduced:
            self._reduce_zeros()
        if has_gradients or self._watchdog.add_to_counter(counter, 0) < self._processes.world_size:
            return True
        # no rank has gradients: without this the reduced zeros would still be stepped with
        for parameter in self._parameters:
            parameter.grad = None
        return False

    def prepare_manual_backward(self, loss: Tensor) -> None:
        """Reduce gradients in the backward of `loss`, which the step itself runs.

        Raises:
            OptimizationError: the backward before gave some parameters no gradient.
        """
        if self._ddp is None:
            return
        # off in the forward, as a step may run no backward or several, and each must be prepared
        self._ddp.require_backward_grad_sync = True
        try:
            self._prepare_reducer([loss])
        except RuntimeError as error:
            # torch has no class of its own for this error
            if "Expected to have finished reduction" not in str(error):
                raise
            raise OptimizationError(
                "the manual_backward before this one gave some parameters of "
                f"{type(self._module).__qualname__} no gradient, such as those of another "
                "optimizer: the processes still wait for these. Pass "
                "Trainer(strategy='ddp_find_unused_parameters_true')."
            ) from error

    def finish_manual_backward(self) -> None:
        """Record that a backward which the step ran is done."""
        if self._ddp is not None:
            self._ddp.require_backward_grad_sync = False
        self._is_first = True

    def _wrap(self) -> None:
        """Wrap the step in DistributedDataParallel, for the current parameters."""
        self._parameters = list(self._module.parameters())
        self._flags = [parameter.requires_grad for parameter in self._parameters]
        # the old wrapper first: two of them would both hook into the parameters' gradients
        self._ddp, self._request_flag, self._any_rank_requests = None, None, True
        trained = [parameter for parameter in self._parameters if parameter.requires_grad]
        if trained:
            options, group = self._processes.options, self._processes.training_group
            # with manual optimization a step may run several backwards: nobody could tell in which
            # of them the flag is to be sent
            if not self._is_manual and _averages_plainly(options):
                self._request_flag = GradientFlag(trained[-1])
            # its constructor compares the parameters of all ranks, which is a collective
            with self._watchdog.waiting("DistributedDataParallel"):
                self._ddp = FixedBucketsDDP(
                    _StepModule(self._module, self._run_step, self._request_flag),
                    process_group=group,
                    **options.arguments(),
                )
            register_comm_hook(self._ddp, options, group)
        self._is_first = True

    def _reduce_zeros(self) -> None:
        """Take part in the reduction of a window with zero gradients."""
        assert self._ddp is not None
        options = self._processes.options
        if options.static_graph:
            raise OptimizationError(
                f"rank {self._processes.global_rank} left a batch out, but "
                "DDPStrategy(static_graph=True) says that all steps are alike: leave it out."
            )
        # the other ranks wait in their backward until each gradient has come from every rank
        zero = _zero_loss(self._module)
        self._ddp.require_backward_grad_sync = True
        self._prepare_reducer([zero])
        with self._watchdog.waiting("the gradients"):
            torch.autograd.backward(*self._backward_roots(zero))
        if self._request_flag is not None:
            self._any_rank_requests |= self._request_flag.receive()

    def _batch_roots(self, loss: Tensor) -> tuple[list[Tensor], list[Tensor | None]]:
        """Return the tensors at which a batch's backward starts, and their gradients."""
        if not self._reduces_next_backward:
            return [loss], [None]
        if self._request_flag is not None and self._processes.options.find_unused_parameters:
            # DDP's forward searched for unused parameters before the flag was part of the graph.
            self._prepare_reducer([loss])
        return self._backward_roots(loss)

    def _backward_roots(self, loss: Tensor) -> tuple[list[Tensor], list[Tensor | None]]:
        """Return the loss, and the flag if it is in use, with their gradients."""
        if self._request_flag is None:
            return [loss], [None]
        parameter, gradient = self._request_flag.backward_root(self.has_request())
        return [loss, parameter], [None, gradient]

    def _prepare_reducer(self, outputs: list[Tensor]) -> None:
        """Prepare torch's reducer for a backward that its own forward did not announce."""
        assert self._ddp is not None
        self._ddp.require_forward_param_sync = True
        # DDP.forward calls these two only if it knows that gradients are synchronised in its
        # backward.
        reducer = self._ddp.reducer
        reducer._rebuild_buckets()  # noqa: SLF001 - as forward does, and Lightning
        if self._ddp.find_unused_parameters and not self._ddp.static_graph:
            flag_outputs = [] if self._request_flag is None else [self._request_flag.as_output()]
            reducer.prepare_for_backward([*outputs, *flag_outputs])
        else:
            reducer.prepare_for_backward([])


class FixedBucketsDDP(DistributedDataParallel):
    """DistributedDataParallel whose communication buckets are laid out once, before the first step.

    torch's own class starts with a single bucket and lays out new ones after its first backward, in
    the order in which gradients arrived. A resumed run would then reduce its first step in other
    buckets than the uncut run did. The buckets decide in which order the gradients of three ranks
    or more are summed, and with the order the last bits change.

    Here the layout depends on nothing but the trained parameters, and the resumed run sums as the
    uncut one did. Parameters come in reversed order of their definition: of most modules that is
    the order in which gradients arrive, so that reductions overlap with the backward.

    Args:
        module: a module with trained parameters.
        find_unused_parameters: as of torch's class. With it torch never lays out new buckets.
        static_graph: as of torch's class.
        arguments: further arguments of torch's class.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        find_unused_parameters: bool = False,
        static_graph: bool = False,
        **arguments: Any,
    ) -> None:
        rebuilds = static_graph or not find_unused_parameters
        # before the constructor, which calls the method below
        self._must_reverse, self._is_reversed = rebuilds, False
        super().__init__(
            module,
            find_unused_parameters=find_unused_parameters,
            static_graph=static_graph,
            **arguments,
        )
        if not rebuilds:
            return
        self._has_rebuilt_buckets = self._is_reversed and lay_out_buckets(self.reducer)
        # two numbers have one sum, in any order
        if not self._has_rebuilt_buckets and self.process_group.size() > 2:
            rank_zero_warn(
                f"torch {torch.__version__} lays out the buckets of gradients after the first "
                "step, and trainer_hooks cannot make it do so earlier, as torch's private names "
                "have changed. A resumed run of three processes or more may differ from an uncut "
                "one in the last bits. Use an older torch where that matters."
            )

    def _build_params_for_reducer(self) -> tuple[list[nn.Parameter], list[bool]]:
        parameters, expects_sparse = super()._build_params_for_reducer()  # type: ignore[no-untyped-call]
        # where torch lays out no new buckets it reverses the order itself
        if self._must_reverse:
            self._is_reversed = True
            parameters, expects_sparse = parameters[::-1], expects_sparse[::-1]
        return parameters, expects_sparse


def lay_out_buckets(reducer: Any) -> bool:
    """Make torch's reducer fill its buckets in the order of its parameters.

    It is a collective, in which rank 0 sends its layout to the others.

    Returns:
        whether it did so; False for a version of torch that cannot.
    """
    if not hasattr(reducer, "_push_all_rebuilt_params"):
        return False
    reducer._push_all_rebuilt_params()  # noqa: SLF001 - as torch's join context does
    return bool(reducer._rebuild_buckets())  # noqa: SLF001 - as torch's forward does


class _StepModule(nn.Module):
    """A module whose forward is the training step, for DistributedDataParallel to wrap."""

    def __init__(
        self, module: nn.Module, step: Callable[[Any, int], Any], request_flag: GradientFlag | None
    ) -> None:
        super().__init__()
        self.module = module
        # registered last: DDP fills buckets from the last parameter on, and the flag then shares a
        # bucket with the model's last parameters
        self.request_flag = request_flag
        self._run = step

    def forward(self, batch: Any, batch_idx: int, is_skipped: bool = False) -> Any:
        """Return the step's output; for a skipped batch, a zero that depends on every parameter."""
        if is_skipped:
            return _zero_loss(self.module)
        return self._run(batch, batch_idx)


def _zero_loss(module: nn.Module) -> Tensor:
    """Return a zero whose gradient for every trained parameter is zero."""
    # `* 0` keeps each parameter in the graph, so that DDP sees a gradient for all of them; float()
    # because `stack` needs one dtype.
    parts = [(p.sum() * 0).float() for p in module.parameters() if p.requires_grad]
    return torch.stack(parts).sum()


class GradientFlag(nn.Module):
    """A flag that the ranks exchange inside the all-reduce of gradients, at no extra collective.

    It is a parameter with one element that DistributedDataParallel takes for one of the model's.
    Its gradient is made here: 1 where the flag is set, else 0. So its mean over the ranks is
    positive if any rank has set the flag.

    On a GPU the result is copied to the host asynchronously and read after the next reduction, so
    that the host never waits for the device.

    Args:
        reference: a parameter of the model; with its dtype and device, both share a DDP bucket.

    Attributes:
        parameter: the parameter whose gradient is averaged.
    """

    def __init__(self, reference: nn.Parameter) -> None:
        super().__init__()
        options: dict[str, Any] = {"dtype": reference.dtype, "device": reference.device}
        self.parameter = nn.Parameter(torch.zeros(1, **options))
        # a tuple hides the parameter from nn.Module.__getattr__, which would cost each step
        self._parameter_tuple = (self.parameter,)
        self._gradients = torch.zeros(1, **options), torch.ones(1, **options)
        self._copy: Tensor | None = None
        self._is_copied: torch.cuda.Event | None = None

    def as_output(self) -> Tensor:
        """Return the parameter as an operation's output, for torch's unused parameter search."""
        return self.parameter.view(1)

    def backward_root(self, is_set: bool) -> tuple[Tensor, Tensor]:
        """Return the tensor at which a backward starts to send this rank's flag, and its gradient.

        Call it once for each reduction, for that backward or for an earlier one.
        """
        (parameter,) = self._parameter_tuple
        parameter.grad = None
        return parameter, self._gradients[is_set]

    def receive(self) -> bool:
        """Return whether any rank set the flag; call it once for each reduction.

        On a GPU the result is that of the reduction before.
        """
        gradient = self._parameter_tuple[0].grad
        assert gradient is not None
        if not gradient.is_cuda:
            return bool(gradient.item())
        if self._copy is None or self._is_copied is None:
            # pinned: a copy to pageable memory would make the host wait
            self._copy = torch.zeros(1, dtype=gradient.dtype, pin_memory=True)
            self._is_copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            is_set = False
        else:
            self._is_copied.synchronize()
            is_set = bool(self._copy.item())
        # read at the next call: reading now would make the host wait for the device
        self._copy.copy_(gradient, non_blocking=True)
        self._is_copied.record()
        return is_set


def _averages_plainly(options: DDPStrategy) -> bool:
    """Return whether every rank gets the plain mean of each gradient, also of a tiny one.

    A hook that compresses more than the dtype, or that averages on some steps or ranks only, may
    not give it; then no flag can be sent with the gradients.
    """
    # without a hook DDP divides the sum of all ranks by their number
    if options.ddp_comm_hook is None:
        return True
    return options.ddp_comm_wrapper is None and _is_torch_default_hook(options.ddp_comm_hook)


def register_comm_hook(ddp: DistributedDataParallel, options: DDPStrategy, group: Any) -> None:
    """Register the communication hook that a strategy names, if it names one."""
    hook, state = options.ddp_comm_hook, options.ddp_comm_state
    if hook is None:
        return
    if state is None and _is_torch_default_hook(hook):
        # torch's default hooks take None for the default group, which may be another one.
        state = group
    if options.ddp_comm_wrapper is not None:
        hook = options.ddp_comm_wrapper(hook)
    wrapped = hook
    # torch compares the annotations with classes, so it would reject those that are strings, as
    # `from __future__ import annotations` makes them.
    if any(isinstance(value, str) for value in own_annotations(hook).values()):
        wrapped = lambda state, bucket: hook(state, bucket)  # noqa: E731
    ddp.register_comm_hook(state, wrapped)


def _is_torch_default_hook(hook: object) -> bool:
    """Return whether a hook is one of torch's default hooks that only change the dtype."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    return any(hook is getattr(default_hooks, name) for name in _MEANS)


def require_no_unused_parameters(module: nn.Module, purpose: str, strategy: str) -> None:
    """Check that each trained parameter of a module has a gradient.

    Args:
        module: the module.
        purpose: how the message names the module.
        strategy: name of the strategy's class, whose option allows unused parameters.

    Raises:
        OptimizationError: parameters have none; the message names them.
    """
    missing = [
        name
        for name, parameter in module.named_parameters()
        if parameter.grad is None and parameter.requires_grad
    ]
    if missing:
        raise OptimizationError(
            f"the parameters {', '.join(missing)} of {purpose} got no gradient in a step of "
            "several processes, which must all have the same: use them in the loss, set "
            "requires_grad = False, or pass "
            f"Trainer(strategy={strategy}(find_unused_parameters=True))."
        )
