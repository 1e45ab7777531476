"""The place in the user's own loop where a checkpoint was saved, beyond the counters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trainer_hooks.data.attributes import PlainAttributes
from trainer_hooks.data.generators import generator_states, generators_in, restore_generators

_ATTRIBUTES = "plain attributes"
"""Key of the attributes among the states of generators, whose keys are paths."""


@dataclass(slots=True)
class LoopPosition:
    """The part of the user's loop in which a checkpoint was saved, as far as no counter holds it.

    Attributes:
        epoch_random_state: the random state with which the epoch's lines began; empty before.
        stops: the validations and saves that began since the last batch ended, or since the end
            of the epoch's batches.
        generators: states of the generators in validation loaders that were not handed over yet.
        loaders: the validation loaders by their places.
        attributes: the plain attributes of their samplers and data sets.
        is_validating: whether the last of these is a validation that is open.
        kept: the values of `run.keep` of this epoch.
        counts: the numbers of batches of the last validation of each name.
    """

    epoch_random_state: dict[str, Any] = field(default_factory=dict)
    stops: int = 0
    is_validating: bool = False
    generators: dict[str, Any] = field(default_factory=dict)
    loaders: dict[str, Any] = field(default_factory=dict)
    attributes: dict[str, PlainAttributes] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, list[int | float]] = field(default_factory=dict)

    def state_dict(self) -> dict[str, Any]:
        """Return the position as plain data."""
        return {
            "epoch_rng": self.epoch_random_state,
            "stops": self.stops,
            "is_validating": self.is_validating,
            "kept": self.kept,
            "counts": self.counts,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the position."""
        self.epoch_random_state, self.stops = dict(state["epoch_rng"]), int(state["stops"])
        self.counts = dict(state["counts"])
        self.is_validating, self.kept = bool(state["is_validating"]), dict(state["kept"])

    def loader_states(self) -> dict[str, Any]:
        """Return the generators' states and attributes in validation loaders, by their places."""
        present = {
            place: generator_states(generators_in({"loader": loader}))
            for place, loader in self.loaders.items()
        }
        for place, attributes in self.attributes.items():
            if attributes:
                present[place][_ATTRIBUTES] = attributes.changed()
        return {**self.generators, **{place: state for place, state in present.items() if state}}

    def load_loader_states(self, states: dict[str, Any]) -> None:
        """Restore the states of loaders that are known; keep those of others until they come."""
        self.generators = dict(states)
        for place, loader in self.loaders.items():
            self.take_loader(place, loader)

    def take_loader(self, place: str, loader: Any) -> None:
        """Note a validation loader, and restore its state if a checkpoint holds it."""
        if self.loaders.get(place) is not loader:
            self.attributes[place] = PlainAttributes(loader)
        self.loaders[place] = loader
        state = self.generators.pop(place, None)
        if state is not None:
            restore_generators(generators_in({"loader": loader}), state)
            if _ATTRIBUTES in state:
                self.attributes[place].restore(state[_ATTRIBUTES])

    def drop_loaders(self) -> None:
        """Drop the loaders, whose workers live as long as there is a reference."""
        self.generators = self.loader_states()
        self.loaders, self.attributes = {}, {}
