"""The private names of torch that the package uses: a list, in which each name is checked.

A torch that renames one of them fails here, by its name, and not somewhere in a run. The package
uses no other: its source is searched for private names that objects of torch have.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACKAGE = Path(__file__).parents[1] / "trainer_hooks"

CHECKS: dict[str, Callable[[], None]] = {}
"""The check of each private name; its key ends with the name."""


def relied_on(*names: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Enter a function as the check of private names."""

    def enter(check: Callable[[], None]) -> Callable[[], None]:
        CHECKS.update(dict.fromkeys(names, check))
        return check

    return enter


# Modules and their parameters


@relied_on("torch.nn.Module._parameters", "torch.nn.Module._buffers", "torch.nn.Module._modules")
def the_tables_of_a_module() -> None:
    """They are dicts by name in the module's `__dict__`, and a write to one is a registration."""
    module = nn.BatchNorm1d(2)
    child = module.child = nn.Linear(1, 1)
    assert {"_parameters", "_buffers", "_modules"} <= set(vars(module)) == set(vars(module))
    assert module._parameters["weight"] is module.weight
    assert module._modules["child"] is child
    module._buffers["running_mean"] = None
    assert module.running_mean is None
    assert "running_mean" not in module.state_dict()


@relied_on("torch.nn.Module._non_persistent_buffers_set")
def the_buffers_that_are_not_saved() -> None:
    """The set holds the names of the module's own ones."""
    module = nn.Module()
    module.register_buffer("cache", torch.zeros(1), persistent=False)
    module.register_buffer("mean", torch.zeros(1))
    assert module._non_persistent_buffers_set == {"cache"}


@relied_on("torch.nn.Module.state_dict._metadata", "torch.nn.Module.get_extra_state._extra_state")
def the_form_of_a_state_dict() -> None:
    """A state_dict has the layers' versions in an attribute, and extra states under this name."""

    class Extra(nn.Linear):
        def get_extra_state(self) -> int:
            return 3

    state = Extra(1, 1).state_dict()
    assert state["_extra_state"] == 3
    assert state._metadata == {"": {"version": 1}}
    copied = state.copy()
    vars(copied)["_metadata"] = state._metadata
    nn.Linear(1, 1).load_state_dict({k: v for k, v in copied.items() if k != "_extra_state"})


@relied_on("torch.nn.MultiheadAttention._reset_parameters")
def the_initialisation_of_attention() -> None:
    """It fills the weights of a layer that has no `reset_parameters`."""
    attention = nn.MultiheadAttention(2, 1, batch_first=True)
    with torch.no_grad():
        attention.in_proj_weight.fill_(99.0)
    attention._reset_parameters()
    assert attention.in_proj_weight.abs().max() < 99.0
    assert callable(nn.Transformer(2, 2, 1, 1, 2, batch_first=True)._reset_parameters)


@relied_on("torch.nn.modules.batchnorm._BatchNorm")
def the_base_of_batch_normalisations() -> None:
    """Each of torch's own is one, the synchronised and the lazy ones, too."""
    from torch.nn.modules.batchnorm import _BatchNorm

    for layer in (nn.BatchNorm1d, nn.BatchNorm3d, nn.SyncBatchNorm, nn.LazyBatchNorm2d):
        assert issubclass(layer, _BatchNorm)


@relied_on("torch.nn.utils.prune._orig", "torch.nn.utils.prune._mask")
def the_names_of_pruned_parameters() -> None:
    """A pruned parameter is a buffer with the mask, and a parameter with the weights."""
    from torch.nn.utils import prune

    layer = nn.Linear(4, 1)
    prune.l1_unstructured(layer, "weight", amount=2)
    assert int(layer.weight_mask.sum()) == 2
    assert torch.equal(layer.weight, layer.weight_orig * layer.weight_mask)


# Tensors


@relied_on("torch.Tensor._version")
def the_version_of_a_tensor() -> None:
    """It grows with each write in place; an inference tensor has none."""
    tensor = torch.zeros(2)
    before = tensor._version
    tensor.add_(1)
    assert tensor._version > before
    with torch.inference_mode():
        made = torch.zeros(2)
    assert made.is_inference()
    with pytest.raises(RuntimeError, match="version counter"):
        _ = made._version


@relied_on("torch._foreach_copy_")
def the_copy_of_many_tensors() -> None:
    """It writes the second list into the first."""
    targets = [torch.zeros(2), torch.zeros(3)]
    torch._foreach_copy_(targets, [torch.ones(2), torch.full((3,), 2.0)])
    assert [target.sum().item() for target in targets] == [2.0, 6.0]


@relied_on("torch._mkldnn")
def the_layout_of_one_machine() -> None:
    """It is the layout of such tensors, where torch is built with it."""
    assert isinstance(torch._mkldnn, torch.layout)
    if torch.backends.mkldnn.is_available():
        assert torch.ones(2).to_mkldnn().layout is torch._mkldnn


@relied_on("torch.utils._pytree.tree_leaves", "torch.utils._pytree.tree_map")
def the_trees_of_inputs() -> None:
    """They go through tuples, lists and dicts."""
    from torch.utils import _pytree

    tree = {"a": (1, [2]), "b": 3}
    assert _pytree.tree_leaves(tree) == [1, 2, 3]
    assert _pytree.tree_map(lambda leaf: -leaf, tree) == {"a": (-1, [-2]), "b": -3}


# Optimizers and schedulers


def _stepped_scheduler() -> tuple[Any, Any]:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)


@relied_on("torch.optim.Optimizer._opt_called")
def the_mark_of_an_optimizer_that_has_stepped() -> None:
    """With it a scheduler may step first, and does not warn."""
    optimizer, scheduler = _stepped_scheduler()
    with pytest.warns(UserWarning, match=r"lr_scheduler.step\(\)` before"):
        scheduler.step()
    optimizer, scheduler = _stepped_scheduler()
    vars(optimizer)["_opt_called"] = True
    scheduler.step()


@relied_on("torch.optim.lr_scheduler.LRScheduler._last_lr")
def the_last_rates_of_a_scheduler() -> None:
    """They are in its state, and `get_last_lr` returns them."""
    _, scheduler = _stepped_scheduler()
    assert scheduler.state_dict()["_last_lr"] == [1.0]
    scheduler.load_state_dict({**scheduler.state_dict(), "_last_lr": [0.25]})
    assert scheduler.get_last_lr() == [0.25]


@relied_on("torch.optim.lr_scheduler.SequentialLR._schedulers")
def the_schedulers_of_a_sequence() -> None:
    """A sequence and a chain have their parts there, and the states of the parts in their own."""
    from torch.optim.lr_scheduler import ChainedScheduler, ConstantLR, SequentialLR

    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    parts = [ConstantLR(optimizer), ConstantLR(optimizer)]
    for whole in (SequentialLR(optimizer, parts, [1]), ChainedScheduler(parts)):
        assert list(whole._schedulers) == parts
        assert [state["factor"] for state in whole.state_dict()["_schedulers"]] == [1 / 3] * 2


# Compilers and wrappers


@relied_on("torch._dynamo.eval_frame.OptimizedModule", "OptimizedModule._orig_mod")
def the_wrapper_of_compile() -> None:
    """`torch.compile(module)` is one, and has the module among its children by this name."""
    eval_frame = importlib.import_module("torch._dynamo.eval_frame")
    module = nn.Linear(1, 1)
    compiled = _compiled(module)
    assert isinstance(compiled, eval_frame.OptimizedModule)
    assert compiled._orig_mod is module
    assert [name for name, _ in compiled.named_children()] == ["_orig_mod"]


@relied_on("torch._dynamo")
def the_compiler_that_an_optimizer_imports() -> None:
    """It is a module that can be imported, and that torch has after its first optimizer."""
    torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    assert "torch._dynamo" in sys.modules


@relied_on(
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.CheckpointWrapper",
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.apply_activation_checkpointing",
    "CheckpointWrapper._checkpoint_wrapped_module",
)
def the_wrapper_of_activation_checkpointing() -> None:
    """It is put around the layers that a function selects, which it has by this name."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        CheckpointWrapper,
        apply_activation_checkpointing,
    )

    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    layer = model[0]
    apply_activation_checkpointing(model, check_fn=lambda part: part is layer)
    assert isinstance(model[0], CheckpointWrapper)
    assert model[0]._checkpoint_wrapped_module is layer
    assert not isinstance(model[1], CheckpointWrapper)


@relied_on("torch.distributed.fsdp.FullyShardedDataParallel._fsdp_wrapped_module")
def the_wrapper_of_the_first_fsdp() -> None:
    """Its layers have the name of this constant."""
    from torch.distributed.fsdp._common_utils import FSDP_WRAPPED_MODULE

    assert FSDP_WRAPPED_MODULE == "_fsdp_wrapped_module"


# Several processes


@pytest.fixture
def _group() -> Iterator[None]:
    """A process group of this process alone."""
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@relied_on("torch.distributed.distributed_c10d._get_default_store")
def the_store_of_the_default_group() -> None:
    """It holds values by name, behind a prefix too."""
    from torch.distributed import distributed_c10d

    store = distributed_c10d.PrefixStore("mine", distributed_c10d._get_default_store())
    store.set("key", "value")
    assert store.get("key") == b"value"


@relied_on(
    "torch.distributed.Reducer._rebuild_buckets",
    "torch.distributed.Reducer._push_all_rebuilt_params",
    "torch.nn.parallel.DistributedDataParallel._build_params_for_reducer",
)
def the_buckets_of_ddp() -> None:
    """The reducer lays out its buckets when it is told, for the parameters of a method."""

    class Reversed(nn.parallel.DistributedDataParallel):
        def _build_params_for_reducer(self) -> Any:
            parameters, expects_sparse = super()._build_params_for_reducer()
            calls.append([tuple(parameter.shape) for parameter in parameters])
            return parameters[::-1], expects_sparse[::-1]

    calls: list[Any] = []
    reducer = Reversed(nn.Linear(2, 3)).reducer
    assert calls == [[(3, 2), (3,)]]
    reducer._push_all_rebuilt_params()
    assert reducer._rebuild_buckets()
    reducer.prepare_for_backward([])


@relied_on(
    "torch.distributed.fsdp.FSDPModule._get_fsdp_state",
    "FSDPState._lazy_init",
    "FSDPState._fsdp_param_group",
    "FSDPState._fsdp_param_groups",
    "FSDPState._register_root_post_backward_final_callback",
    "FSDPParam._unsharded_param",
)
def the_state_of_fsdp() -> None:
    """It leads to the parameters of a sharded layer, and to the gradients that they accumulate."""
    from torch.distributed.fsdp import fully_shard

    from trainer_hooks.runtime import fsdp_internals as internals

    model = nn.Sequential(nn.Linear(2, 3, bias=False))
    mesh = dist.device_mesh.init_device_mesh("cpu", (1,))
    for layer in (model[0], model):
        fully_shard(layer, mesh=mesh)
    assert internals.sharded_layers(model) == [model, model[0]]
    internals.begin_run(model)
    [group] = internals.parameter_groups(model[0])
    assert hasattr(group, "post_forward_mesh_info")
    weight = model[0].weight
    assert group.fsdp_params[0].sharded_param is weight
    assert internals.accumulated_gradients(model) == {}

    restored = {"0.weight": torch.full((3, 2), 5.0)}
    model.set_requires_gradient_sync(False)
    internals.set_accumulated_gradients(model, restored)
    model(torch.ones(1, 2)).sum().backward()
    [gradient] = internals.accumulated_gradients(model).values()
    assert gradient.tolist() == [[6.0, 6.0]] * 3
    model.set_requires_gradient_sync(True)
    internals.reduce_accumulated_gradients(model)
    assert model[0].weight is weight
    assert weight.grad.to_local().tolist() == [[6.0, 6.0]] * 3
    assert internals.accumulated_gradients(model) == {}

    internals.set_accumulated_gradients(model, restored)
    internals.set_accumulated_gradients(model, {})
    assert internals.accumulated_gradients(model) == {}


@relied_on("torch.distributed.tensor._utils.compute_local_shape_and_global_offset")
def the_place_of_a_shard() -> None:
    """It is the shape of this rank's part, and where the part begins."""
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    mesh = dist.device_mesh.init_device_mesh("cpu", (1,))
    shape, offset = compute_local_shape_and_global_offset((4, 2), mesh, [Shard(0)])
    assert (tuple(shape), tuple(offset)) == ((4, 2), (0, 0))


@relied_on(
    "torch.distributed.checkpoint.filesystem._StorageInfo",
    "torch.distributed.checkpoint.filesystem._StoragePrefix",
    "torch.serialization._get_layout",
)
def the_classes_in_the_metadata_of_a_sharded_folder() -> None:
    """torch writes folders with these, and with no others of its private ones."""
    from torch.distributed.checkpoint.filesystem import _StorageInfo, _StoragePrefix
    from torch.serialization import _get_layout

    assert _StorageInfo("file", 0, 8).relative_path == "file"
    assert _StoragePrefix("__0_").prefix == "__0_"
    assert _get_layout(str(torch.strided)) is torch.strided


# The autograd engine, profilers and the memory of GPUs


@relied_on("torch.autograd.Variable._execution_engine")
def the_queue_of_the_autograd_engine() -> None:
    """A function that a hook queues is called when the whole backward is over."""
    engine = torch.autograd.Variable._execution_engine
    calls: list[str] = []
    weight = torch.ones(1, requires_grad=True)
    weight.register_post_accumulate_grad_hook(lambda _: calls.append("gradient"))
    loss = weight * 2
    loss.register_hook(lambda _: engine.queue_callback(lambda: calls.append("end")))
    loss.backward()
    assert calls == ["gradient", "end"]


@relied_on("torch.autograd._profiler_enabled")
def the_question_for_a_running_profiler() -> None:
    """It is true while torch's profiler runs."""
    assert not torch.autograd._profiler_enabled()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, acc_events=True):
        assert torch.autograd._profiler_enabled()
    assert not torch.autograd._profiler_enabled()


@relied_on("torch.cuda.memory._snapshot", "torch.cuda.memory._record_memory_history")
def the_history_of_the_memory() -> None:
    """The functions take the arguments that are passed here; on a GPU they record."""
    options = {"enabled": None, "stacks": "python", "max_entries": 9, "clear_history": True}
    inspect.signature(torch.cuda.memory._record_memory_history).bind(**options)
    if torch.cuda.is_available():
        torch.cuda.memory._record_memory_history(max_entries=9, clear_history=True)
        tensor = torch.ones(1, device="cuda")
        snapshot = torch.cuda.memory._snapshot()
        torch.cuda.memory._record_memory_history(enabled=None)
        assert snapshot["segments"]
        assert any(snapshot["device_traces"])
        del tensor
    else:
        inspect.signature(torch.cuda.memory._snapshot).bind()


@relied_on("torch._C._cuda_attach_out_of_memory_observer")
def the_observer_of_failed_allocations() -> None:
    """A torch that is built for CUDA has it."""
    assert callable(getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)) == (
        torch.version.cuda is not None
    )


@relied_on("torch.cuda._memory_viz")
def the_pages_of_memory() -> None:
    """It draws a snapshot of torch's as pages and as flame graphs, with a function of ours."""
    from torch.cuda import _memory_viz

    empty: dict[str, Any] = {"segments": [], "device_traces": [[]]}
    assert "<html" in _memory_viz.trace_plot(empty).lower() or _memory_viz.trace_plot(empty)
    assert _memory_viz.segment_plot(empty)
    for draw in (_memory_viz.segments, _memory_viz.memory):
        assert draw(empty, format_flamegraph=lambda stacks: f"drawn {stacks!r}") == "drawn ''"


# Loaders


@relied_on("torch.utils.data._DatasetKind")
def the_fetchers_of_a_worker() -> None:
    """Its static method makes what fetches batches, and is looked up at each start of an epoch."""
    from torch.utils.data import _DatasetKind, _utils

    fetcher = _DatasetKind.create_fetcher(_DatasetKind.Map, [1, 2, 3], True, list, False)
    assert fetcher.fetch([0, 2]) == [1, 3]
    source = inspect.getsource(_utils.worker._worker_loop)
    assert len(re.findall(r"_DatasetKind\.create_fetcher\(", source)) == 2


@relied_on("torch.utils.data.DataLoader._iterator")
def the_iterator_of_persistent_workers() -> None:
    """A loader has it in its `__dict__`, None before its first epoch."""
    assert vars(DataLoader([1]))["_iterator"] is None


@relied_on(
    "torchdata.StatefulDataLoader.next_iter_state._iterator_finished",
    "torchdata.StatefulDataLoader.next_iter_state._snapshot",
    "torchdata.StatefulDataLoader.next_iter_state._worker_snapshots",
)
def the_position_of_a_stateful_loader() -> None:
    """torchdata's position says whether the epoch was over, and where each worker was."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    loader = stateful.StatefulDataLoader([1, 2], num_workers=1, multiprocessing_context="fork")
    iterator = iter(loader)
    next(iterator)
    position = loader.state_dict()
    assert position["_iterator_finished"] is False
    [worker] = position["_snapshot"]["_worker_snapshots"].values()
    assert {"worker_id", "fetcher_state"} <= set(worker)
    assert [*iterator] == [torch.tensor([2])]


NEEDS_A_GROUP = (
    the_store_of_the_default_group,
    the_buckets_of_ddp,
    the_state_of_fsdp,
    the_place_of_a_shard,
)


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # in torchdata
@pytest.mark.parametrize("name", CHECKS)
def test_a_private_name_does_what_is_relied_on(name, request) -> None:
    """It is in the installed torch, and behaves as the package takes it to."""
    if CHECKS[name] in NEEDS_A_GROUP:
        request.getfixturevalue("_group")
    CHECKS[name]()


# No other name

OF_OTHERS = {
    "argparse": {"_actions", "_action_groups"},
    "collections.namedtuple": {"_asdict", "_fields"},
    "multiprocessing": {"_inheriting"},
    "numpy": {"_rand"},
    "os": {"_exit"},
    "random": {"_inst"},
    "subprocess": {"_args_from_interpreter_flags"},
    "sys": {"_current_frames", "_getframe"},
    "ast": {"_fields"},
    "jsonargparse": {"_typehint"},
    "optuna": {"_trial_id"},
    "torchmetrics": {"_computed", "_forward_cache", "_reductions", "_to_sync", "_update_count"},
    "ignite": {"_fire_event"},
    "composer": {"_microbatch_size", "_train_data_spec"},
    "transformers": {
        "_prepare_inputs",
        "_save_optimizer_and_scheduler",
        "_save_rng_state",
        "_save_scaler",
    },
    "pytorch_accelerated": {"_accelerator"},
    "lightning": {
        "_batches_that_stepped",
        "_hparams_name",
        "_log_hyperparams",
        "_save_checkpoint",
    },
    "datasets": {"_fingerprint"},
}
"""The private names that the package reads of other packages, by package."""

BY_CHANCE = {
    ("_options.py", "_P"),
    ("cli/demo/digits.py", "_acc"),
    ("metrics/history.py", "_values"),
    ("profilers/pytorch.py", "_nvtx"),
    ("runtime/rank_zero.py", "_P"),
    ("runtime/rank_zero.py", "_R"),
    ("trainer/options/config.py", "_P"),
    ("trainer/options/limits.py", "_T"),
    ("compat/accelerated/callbacks/stopping.py", "_check"),
    ("module/hyperparameters.py", "_snapshot"),
}
"""Names of the package's own that an object of torch has, too, by file."""


def private_parts(dotted: str) -> list[str]:
    """Return the private parts of a dotted name."""
    return [part for part in dotted.split(".") if re.fullmatch(r"(?!__\w*__$)_\w+", part)]


LISTED = {part for name in CHECKS for part in private_parts(name)}


@functools.cache
def names_of_torch() -> frozenset[str]:
    """Return the private names of the objects of torch that the package has to do with."""
    from torch.distributed import checkpoint, distributed_c10d, fsdp, tensor
    from torch.distributed.checkpoint import filesystem
    from torch.optim import lr_scheduler, swa_utils
    from torch.utils import data

    layer = nn.Linear(2, 2)
    optimizers = [
        torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9),
        torch.optim.AdamW(layer.parameters(), lr=0.1),
        torch.optim.LBFGS(layer.parameters()),
    ]
    first = optimizers[0]
    parts = [lr_scheduler.StepLR(first, 1), lr_scheduler.LambdaLR(first, lambda _: 1.0)]
    first.step()  # a scheduler wraps it, and it leaves its mark
    objects: list[Any] = [
        *(torch, torch._C, torch.cuda, torch.cuda.memory, torch.nn, torch.optim, torch.utils),
        *(torch.autograd, torch.autograd.Variable, torch.autograd.Function, torch.serialization),
        *(torch.jit, torch.onnx, torch.overrides, torch.random, torch.storage, torch.futures),
        *(dist, distributed_c10d, dist.Reducer, nn.parallel.DistributedDataParallel),
        *(fsdp, fsdp.FSDPModule, tensor, tensor.DTensor, checkpoint, filesystem),
        *(data, DataLoader([1]), iter(DataLoader([1])), RandomSampler([1])),
        *(DistributedSampler([1], 2, 0), data.dataloader._MultiProcessingDataLoaderIter),
        *(layer, nn.BatchNorm1d(2), nn.MultiheadAttention(2, 1), nn.LSTM(2, 2), nn.LazyLinear(2)),
        *(nn.ParameterDict(), nn.ModuleList(), swa_utils.AveragedModel(layer), _compiled(layer)),
        *(torch.jit.ScriptModule(), torch.fx.symbolic_trace(layer)),
        *(layer.weight, torch.ones(1), torch.UntypedStorage(1), torch.Generator()),
        *(*optimizers, *parts, lr_scheduler.SequentialLR(first, parts, [1])),
        *(lr_scheduler.ChainedScheduler(parts), lr_scheduler.OneCycleLR(first, 1, 10)),
        *(lr_scheduler.ReduceLROnPlateau(first), lr_scheduler.CyclicLR(first, 0.1, 1)),
        *(torch.amp.GradScaler("cpu"), torch.profiler.profile()),
    ]
    found: set[str] = set()
    for item in objects:
        found.update(dir(item), getattr(item, "__dict__", ()))
    return frozenset(name for name in found if private_parts(name) == [name])


def _compiled(module: nn.Module) -> nn.Module:
    """Return a compiled module; the backend is not imported, which takes seconds."""
    return torch.compile(module, backend="eager")


class Source:
    """The private names that a tree of source files uses.

    Args:
        files: the parsed files by name.

    Attributes:
        defined: the private names that the source itself defines: attributes it sets on `self`,
            functions, classes, variables and fields.
        uses: for each private name the places of its uses that may be torch's.
    """

    def __init__(self, files: dict[str, ast.Module]) -> None:
        self.defined: set[str] = set()
        self.uses: defaultdict[str, list[str]] = defaultdict(list)
        self._torch_classes = torch_classes(files)
        for tree in files.values():
            for node in ast.walk(tree):
                self.defined.update(_definitions(node))
        for name, tree in files.items():
            self._search(name, tree, self._torch_names(tree), in_torch_class=False)

    @staticmethod
    def _torch_names(tree: ast.Module) -> set[str]:
        """Return the names that a file imports from torch."""
        return {
            alias.asname or alias.name.partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
            if (getattr(node, "module", None) or alias.name).partition(".")[0] == "torch"
        }

    def _search(
        self, file: str, node: ast.AST, torch_names: set[str], *, in_torch_class: bool
    ) -> None:
        for child in ast.iter_child_nodes(node):
            is_inside = in_torch_class
            if type(child) is ast.ClassDef:
                is_inside = child.name in self._torch_classes
            elif type(child) in self._READERS:
                for name in self._READERS[type(child)](self, child, torch_names, is_inside):
                    self.uses[name].append(f"{file}:{child.lineno}")
            self._search(file, child, torch_names, in_torch_class=is_inside)

    def _of_import(self, node: Any, *_: Any) -> list[str]:
        module = getattr(node, "module", "")
        dotted = [f"{module}.{alias.name}".lstrip(".") for alias in node.names]
        return [p for d in dotted if d.partition(".")[0] == "torch" for p in private_parts(d)]

    def _of_attribute(self, node: Any, torch_names: set[str], in_torch_class: bool) -> list[str]:
        name = node.attr
        if name[0] != "_" or not private_parts(name):
            return []
        root = node.value
        while isinstance(root, ast.Attribute | ast.Call):
            root = root.value if isinstance(root, ast.Attribute) else root.func
        if isinstance(root, ast.Name) and root.id in torch_names:
            return [name]
        is_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        if is_self and name in self.defined:
            return [name] if in_torch_class and name in names_of_torch() else []
        return [name] if self._may_be_of_torch(name) else []

    def _of_function(self, node: Any, _: Any, in_torch_class: bool) -> list[str]:
        return [node.name] if in_torch_class and node.name in names_of_torch() else []

    def _of_constant(self, node: Any, *_: Any) -> list[str]:
        text = node.value
        if not isinstance(text, str):
            return []
        if re.fullmatch(r"torch(\.\w+)+", text):
            return private_parts(text)
        return [text] if text[:1] == "_" and text in names_of_torch() else []

    def _of_call(self, node: Any, *_: Any) -> list[str]:
        """Return a name that `getattr` and the like take, and that no torch has, or a later one."""
        if getattr(node.func, "id", "") not in ("getattr", "hasattr", "setattr", "delattr"):
            return []
        name = getattr(node.args[1], "value", "") if len(node.args) > 1 else ""
        is_private = isinstance(name, str) and private_parts(name) == [name]
        return [name] if is_private and name not in names_of_torch() | self.defined else []

    _READERS: ClassVar[dict[type[ast.AST], Callable[..., list[str]]]] = {
        ast.Import: _of_import,
        ast.ImportFrom: _of_import,
        ast.Attribute: _of_attribute,
        ast.FunctionDef: _of_function,
        ast.Constant: _of_constant,
        ast.Call: _of_call,
    }

    def _may_be_of_torch(self, name: str) -> bool:
        return name in names_of_torch() or name not in self.defined


def torch_classes(files: dict[str, ast.Module]) -> set[str]:
    """Return the names of the classes that have a base of torch's, directly or not."""
    bases: dict[str, set[str]] = {}
    found: set[str] = set()
    for tree in files.values():
        torch_names = Source._torch_names(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                texts = {ast.unparse(base) for base in node.bases}
                bases.setdefault(node.name, set()).update(text.split("[")[0] for text in texts)
                if any(re.match(r"\w+", text)[0] in torch_names for text in texts):
                    found.add(node.name)
    while more := {name for name, of in bases.items() if of & found} - found:
        found |= more
    return found


def _definitions(node: Any) -> set[str]:
    kind = type(node)
    if kind is ast.FunctionDef or kind is ast.ClassDef:
        return {node.name}
    if kind is ast.Name and type(node.ctx) is ast.Store:
        return {node.id}
    if kind is ast.Attribute and type(node.ctx) is ast.Store:
        return {node.attr} if getattr(node.value, "id", "") in ("self", "cls") else set()
    if kind is ast.Import or kind is ast.ImportFrom:
        return {alias.asname or alias.name for alias in node.names}
    return set()


@functools.cache
def package_source() -> Source:
    """Return the search through the package."""
    return Source(
        {
            str(file.relative_to(PACKAGE)): ast.parse(file.read_text(encoding="utf-8"))
            for file in sorted(PACKAGE.rglob("*.py"))
        }
    )


@pytest.mark.exhaustive
def test_the_package_uses_no_other_private_name_of_torch() -> None:
    """Each one that it takes from torch, or from an object that may be torch's, is listed."""
    others = set().union(*OF_OTHERS.values())
    unlisted = {
        f"{place} {name}"
        for name, places in package_source().uses.items()
        for place in places
        if name not in LISTED | others and (place.partition(":")[0], name) not in BY_CHANCE
    }
    assert not unlisted, "\n".join(sorted(unlisted))


@pytest.mark.slow
def test_the_list_holds_no_name_that_is_no_longer_used() -> None:
    """A name that the package gave up leaves the list, too."""
    used = set(package_source().uses)
    text = "".join(file.read_text(encoding="utf-8") for file in PACKAGE.rglob("*.py"))
    # those that are not used as names are parts of longer ones, such as `weight_orig`
    assert {name for name in LISTED - used if name not in text} == set()
    assert {name for name in set().union(*OF_OTHERS.values()) if name not in text} == set()
    files = {file: (PACKAGE / file).read_text(encoding="utf-8") for file, _ in BY_CHANCE}
    assert {place for place in BY_CHANCE if place[1] not in files[place[0]]} == set()


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import torch\ntorch._C._jit_clear()", "_jit_clear"),
        ("import torch as t\nt.cuda._sleep(1)", "_sleep"),
        ("from torch import nn\nnn.Module._call_impl", "_call_impl"),
        ("from torch._inductor import config", "_inductor"),
        ("import torch._inductor.config", "_inductor"),
        ("from torch.nn.modules.conv import _ConvNd", "_ConvNd"),
        ("import importlib\nimportlib.import_module('torch._inductor.config')", "_inductor"),
        ("def f(optimizer): return optimizer._step_count", "_step_count"),
        ("def f(x): return getattr(x, '_backward_hooks')", "_backward_hooks"),
        ("def f(x): return vars(x)['_backward_hooks']", "_backward_hooks"),
        ("def f(x): return x.part()._of_a_later_torch", "_of_a_later_torch"),
        ("def f(x): return getattr(x, '_of_a_later_torch', None)", "_of_a_later_torch"),
        ("from torch import nn\nclass M(nn.Module):\n    def _apply(self): pass", "_apply"),
        (
            """
from torch import nn
class A(nn.Module): pass
class B(A):
    def f(self): self._forward_hooks = 1
""",
            "_forward_hooks",
        ),
        ("class A:\n    def f(self): return self._of_its_base", "_of_its_base"),
    ],
)
def test_a_use_that_is_not_listed_is_found(source, name) -> None:
    """In each form in which a private name may be taken."""
    assert name not in LISTED
    assert name in Source({"file.py": ast.parse(source)}).uses


def test_names_of_the_source_itself_are_not_torchs() -> None:
    """A class's own private attribute is nobody else's, unless torch has one of its name."""
    source = "class A:\n    def __init__(self): self._own_state = 1\ndef f(a): return a._own_state"
    assert not Source({"file.py": ast.parse(source)}).uses
