"""ModelFreezer: freezes and unfreezes the parts of a model by their place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from torch.nn.modules.batchnorm import _BatchNorm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

__all__ = ["Layer", "LayerGroup", "ModelFreezer"]


class Layer(NamedTuple):
    """A module without submodules, with the place of its group."""

    layer_group_idx: tuple[int, int]
    module: nn.Module
    is_frozen: bool


class LayerGroup(NamedTuple):
    """A direct submodule of a model, with its place from the front and from the back."""

    layer_group_idx: tuple[int, int]
    module: nn.Module
    is_frozen: bool


class ModelFreezer:
    """Freeze and unfreeze a model's direct submodules, its layer groups, by their place.

    Making one unfreezes all parameters of the model.

    Args:
        model: the model.
        freeze_batch_norms: whether batch norms are frozen with the others of their group.

    Attributes:
        model: the model.
        freeze_bn: whether batch norms are frozen, too.
        num_groups: the number of layer groups.

    Example::

        from torch import nn

        from trainer_hooks.compat.accelerated.finetuning import ModelFreezer

        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
        freezer = ModelFreezer(model)
        freezer.freeze()
        assert not model[0].weight.requires_grad
        assert model[2].weight.requires_grad
        assert freezer.unfreeze() == {0: {"params": list(model[0].parameters())}}
    """

    def __init__(self, model: nn.Module, freeze_batch_norms: bool = False) -> None:
        self.model = model
        self.freeze_bn = freeze_batch_norms
        self._groups = list(model.children())
        self.num_groups = len(self._groups)
        model.requires_grad_(True)

    def get_layer_groups(self) -> list[LayerGroup]:
        """Return the layer groups; one is frozen if a parameter of it is."""
        return [
            LayerGroup(self._places(index), group, _has_frozen(group))
            for index, group in enumerate(self._groups)
        ]

    def get_layers(self) -> list[Layer]:
        """Return the modules without submodules, in order.

        A layer is frozen if a parameter of it is; without parameters, if it is in evaluation mode.
        """
        return [
            Layer(self._places(index), layer, _is_frozen(layer))
            for index, group in enumerate(self._groups)
            for layer in _layers_of(group)
        ]

    def get_trainable_parameters(self) -> list[Tensor]:
        """Return the parameters that are not frozen."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def freeze(
        self, from_index: int = 0, to_index: int = -2, set_modules_as_eval: bool = False
    ) -> None:
        """Freeze layer groups; by default all but the last.

        Args:
            from_index: the place of the first group; from the back if it is negative.
            to_index: the place of the last group, which is frozen, too.
            set_modules_as_eval: whether the layers go into evaluation mode as well.
        """
        self._set(from_index, to_index, requires_grad=False, sets_mode=set_modules_as_eval)

    def unfreeze(
        self, from_index: int = -1, to_index: int = 0, set_modules_as_training: bool = True
    ) -> dict[int, dict[str, Any]]:
        """Unfreeze layer groups; by default all.

        Args:
            from_index: the place of a group at one end; from the back if it is negative.
            to_index: the place of the group at the other end.
            set_modules_as_training: whether the layers go into training mode as well.

        Returns:
            The parameters that were frozen, by the place of their group: each value is a parameter
            group, for `optimizer.add_param_group`.
        """
        return self._set(
            from_index, to_index, requires_grad=True, sets_mode=set_modules_as_training
        )

    def _set(
        self, from_index: int, to_index: int, *, requires_grad: bool, sets_mode: bool
    ) -> dict[int, dict[str, Any]]:
        ends = (index + self.num_groups if index < 0 else index for index in (from_index, to_index))
        first, last = sorted(ends)
        changed: dict[int, dict[str, Any]] = {}
        for layer in self.get_layers():
            index = layer.layer_group_idx[0]
            is_left_out = isinstance(layer.module, _BatchNorm) and not self.freeze_bn
            if not first <= index <= last or is_left_out or layer.is_frozen is not requires_grad:
                continue
            parameters = list(layer.module.parameters())
            layer.module.requires_grad_(requires_grad)
            if sets_mode:
                layer.module.train(requires_grad)
            if parameters:
                changed.setdefault(index, {"params": []})["params"].extend(parameters)
        return changed

    def _places(self, index: int) -> tuple[int, int]:
        return index, index - self.num_groups


def _layers_of(module: nn.Module) -> Iterator[nn.Module]:
    children = list(module.children())
    if not children:
        yield module
    for child in children:
        yield from _layers_of(child)


def _has_frozen(module: nn.Module) -> bool:
    return any(not parameter.requires_grad for parameter in module.parameters())


def _is_frozen(layer: nn.Module) -> bool:
    return _has_frozen(layer) if any(True for _ in layer.parameters()) else not layer.training
