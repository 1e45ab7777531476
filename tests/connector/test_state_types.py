"""Saved states are checked against declared types before anything of them is loaded."""

from __future__ import annotations

import pytest
import torch

from trainer_hooks.callbacks import EarlyStopping, StochasticWeightAveraging, Timer
from trainer_hooks.connector.state_types import check_state, checks_state
from trainer_hooks.errors import CheckpointError
from trainer_hooks.testing import TinyModule


def a_multiple_of_three(value: object) -> bool:
    return isinstance(value, int) and value % 3 == 0


GOOD = {
    "number": 1,
    "share": 0,
    "names": ["a"],
    "pair": [1, "x"],
    "counts": {"a": 1},
    "place": {"x": 1.5, "more": None},
    "places": [{"x": 1}],
    "either": None,
    "step": 6,
    "anything": object,
}
TYPES = {
    "number": int,
    "share": float,
    "names": list[str],
    "pair": tuple[int, str],
    "counts": dict[str, int],
    "place": {"x": float},
    "places": [{"x": float}],
    "either": (None, {"x": float}),
    "step": a_multiple_of_three,
}


class Part:
    """Loads a state of declared types."""

    state = None

    @checks_state(TYPES, {"flag": bool | None})
    def load_state_dict(self, state_dict: dict) -> None:
        self.state = state_dict


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("number", True, "is True of type bool: it must be int"),
        ("number", 1.0, "is 1.0 of type float: it must be int"),
        ("share", "0.5\x1b[31m", r"must be float"),
        ("names", "abc", r"must be list\[str\]"),
        ("names", [1], r"must be list\[str\]"),
        ("pair", [1], r"must be tuple\[int, str\]"),
        ("pair", 3, r"must be tuple\[int, str\]"),
        ("pair", ["x", 1], r"must be tuple\[int, str\]"),
        ("counts", {1: 1}, r"must be dict\[str, int\]"),
        ("counts", {"a": "x"}, r"must be dict\[str, int\]"),
        ("place", {}, "must be a dict with 'x': float"),
        ("places", [{}], "must be a list, each item a dict with 'x': float"),
        ("either", {"x": None}, "must be None or a dict with 'x': float"),
        ("step", 7, "must be a multiple of three"),
        ("flag", 1, "must be bool | None"),
    ],
)
def test_an_item_of_another_type_is_refused(name, value, rule) -> None:
    """The item, its owner, the value and the type are named, and the state is not loaded."""
    part = Part()
    with pytest.raises(TypeError, match=rule) as caught:
        part.load_state_dict({**GOOD, name: value})
    assert str(caught.value).startswith(f"'{name}' of the state of Part is ")
    assert str(caught.value).isprintable()
    assert part.state is None


@pytest.mark.parametrize("name", TYPES)
def test_a_missing_item_is_refused(name) -> None:
    """A state must hold each item that is not declared as optional."""
    part = Part()
    with pytest.raises(TypeError, match=f"the state of Part lacks '{name}'"):
        part.load_state_dict({key: value for key, value in GOOD.items() if key != name})
    assert part.state is None


def test_a_state_that_fits_is_loaded() -> None:
    """Items that are not declared are a subclass's own."""
    part = Part()
    part.load_state_dict({**GOOD, "flag": None})
    assert part.state["anything"] is object
    part.load_state_dict({**GOOD, "pair": (1, "x"), "either": {"x": 2}})
    assert part.state["either"] == {"x": 2}


def test_a_callback_with_a_state_of_its_own_is_left_alone() -> None:
    """A subclass that loads another state is not held to the types of its base."""

    class Own(Timer):
        def state_dict(self):
            return {"time_elapsed": "none"}

        def load_state_dict(self, state_dict):
            pass

    check_state(Own(), {"time_elapsed": "none"})
    with pytest.raises(TypeError, match="'time_elapsed' of the state of Timer"):
        check_state(Timer(), {"time_elapsed": "none"})


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [
        (lambda: EarlyStopping("val_loss"), "wait_count", "x"),
        (lambda: EarlyStopping("val_loss"), "wait_count", None),
        (lambda: EarlyStopping("val_loss"), "wait_count", ...),
        # its hook reads the state before it is loaded
        (lambda: StochasticWeightAveraging(0.1), "scheduler_state", "x"),
        (lambda: StochasticWeightAveraging(0.1), "scheduler_state", ...),
    ],
)
def test_a_resume_names_the_file_the_callback_and_the_item(
    make, name, value, tmp_path, quiet_trainer
) -> None:
    """The checkpoint is refused as a whole before a weight or a hook has had its turn."""
    trainer = quiet_trainer(callbacks=[make()], max_epochs=1)
    trainer.fit(TinyModule())
    path = tmp_path / "changed.ckpt"
    trainer.save_checkpoint(path)
    checkpoint = torch.load(path, weights_only=True)
    (key,) = (key for key in checkpoint["callbacks"] if name in checkpoint["callbacks"][key])
    if value is ...:
        del checkpoint["callbacks"][key][name]
    else:
        checkpoint["callbacks"][key][name] = value
    torch.save(checkpoint, path)
    module, callback = TinyModule(), make()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    another = quiet_trainer(callbacks=[callback], max_epochs=2)
    with pytest.raises(CheckpointError) as caught:
        another.fit(module, ckpt_path=path)
    for word in (str(path), type(callback).__name__, repr(name), "'callbacks'"):
        assert word in str(caught.value)
    assert all(map(torch.equal, module.state_dict().values(), before.values()))
