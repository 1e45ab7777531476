"""Every logged value of a run: taken in on the hot path, reduced and handed on where it is due."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._log import warn
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.metrics.calls import restored_call
from trainer_hooks.metrics.logged import LoggedValues
from trainer_hooks.metrics.scope import Scope
from trainer_hooks.metrics.slot import FOR_LOGGERS
from trainer_hooks.metrics.values import floats, in_one_piece

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

__all__ = ["MetricStore", "Scope", "floats"]


class MetricStore(LoggedValues):
    """Take logged values in, and hand them on at the ends of steps, epochs and evaluations.

    Attributes:
        evaluated: batches that each evaluation loader gave so far: the x axis of their values.
    """

    def __init__(self) -> None:
        super().__init__()
        self.evaluated: dict[str, int] = {}

    def step_metrics(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the single values that are new since this was last asked.

        Returns:
            Those for the loggers, and those that were logged with `logger=False`.
        """
        shared: dict[str, Tensor] = {}
        others: dict[str, Tensor] = {}
        if self.others is not None and self.shares_steps:
            self.shares_steps = False
            self.others.share_steps(self)
        for slot in self._slots.values():
            if slot.on_step and slot.news & FOR_LOGGERS:
                slot.news &= ~FOR_LOGGERS
                value = slot.value
                if value is not None:
                    (shared if slot.logger else others)[slot.step_key] = value
        return shared, others

    def share(self, *scopes: Scope) -> None:
        """Bring together what several processes logged in the epoch under way."""
        if self.others is not None:
            self.others.share(self, scopes)

    def close_epoch(self, *scopes: Scope) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Reduce what was logged in the epoch, and begin a new one.

        A metric object may stand under several names, so all are reduced before any begins anew.

        Returns:
            The reductions for the loggers, and those that were logged with `logger=False`.
        """
        shared: dict[str, Tensor] = {}
        others: dict[str, Tensor] = {}
        self._publish_news()
        slots = self._slots_of(*scopes)
        for slot in slots:
            if slot.is_lost:
                warn(_lost(slot.name), TrainerHooksWarning)
            elif slot.on_epoch and slot.has_values:
                value = slot.reduce()
                self._publish_epoch(slot, value)
                (shared if slot.logger else others)[slot.epoch_key] = value
        for slot in slots:
            slot.reset()
        return shared, others

    def refresh(self, *scopes: Scope) -> None:
        """Put the present reductions of the epoch under way where callbacks find them."""
        self._publish_news()
        if self.others is not None:
            scopes = scopes[0].family
            self.others.share(self, scopes)
        for slot in self._slots_of(*scopes):
            if slot.on_epoch and slot.has_values and not slot.is_lost:
                self._publish_epoch(slot, slot.reduce())

    def refresh_loader(self, dataloader_idx: int) -> None:
        """Put the reductions of one evaluation loader, which is done, where callbacks find them."""
        if self.others is not None:
            return  # they do so once, after all loaders
        self._publish_news()
        for slot in self._tables.get((Scope.EVALUATION, dataloader_idx), {}).values():
            if slot.on_epoch and slot.has_values:
                self._publish_epoch(slot, slot.reduce())

    def epoch_values(self, scope: Scope, dataloader_idx: int = 0) -> dict[str, Tensor]:
        """Return the present reductions of one evaluation loader that loggers are given."""
        slots = self._tables.get((scope, dataloader_idx), {}).values()
        return {s.epoch_key: s.reduce() for s in slots if s.on_epoch and s.logger and s.has_values}

    def show(self, name: str, value: Tensor | float) -> None:
        """Put a value that a callback added to the history where callbacks find what was logged."""
        self.callback_metrics[name] = torch.as_tensor(value).reshape(())

    def note_logged(self, metrics: Mapping[str, Any]) -> None:
        """Keep what the loggers were given otherwise than by `log`."""
        self.logged_metrics.update({k: torch.as_tensor(v) for k, v in metrics.items()})

    def count_evaluated(self, loader: str) -> int:
        """Return how many batches an evaluation loader gave before the present one, and count it.

        Args:
            loader: what tells it from others.
        """
        count = self.evaluated.get(loader, 0)
        self.evaluated[loader] = count + 1
        return count

    # --- runs ---

    def begin_run(self) -> None:
        """Let nothing of an earlier run be found by callbacks, in the bar or in an evaluation."""
        self._publish_news()
        self._callback, self._logged, self._bar = {}, {}, {}
        self.drop(Scope.EVALUATION, Scope.EVALUATION_EPOCH)

    def drop(self, *scopes: Scope) -> None:
        """Forget what was logged from `scopes`, as after a sanity check."""
        for key in [key for key in self._tables if key[0] in scopes]:
            for slot in self._tables.pop(key).values():
                slot.reset()

    @contextmanager
    def isolated(self) -> Iterator[None]:
        """Put everything back afterwards that an evaluation inside changes."""
        before, evaluated = self.latest(), dict(self.evaluated)
        try:
            yield
        finally:
            self._publish_news()
            self.drop(Scope.EVALUATION, Scope.EVALUATION_EPOCH)
            self.set_latest(before)
            self.evaluated = evaluated

    @contextmanager
    def prefixed(self, prefix: str) -> Iterator[None]:
        """Put `prefix` before the names of what an evaluation inside logs.

        What the evaluations before logged, and with which arguments, is there again afterwards.
        """
        scope, evaluations = self.scope, (Scope.EVALUATION, Scope.EVALUATION_EPOCH)
        self._publish_news()
        others = {key: self._tables.pop(key) for key in [*self._tables] if key[0] in evaluations}
        self.prefix = prefix
        try:
            yield
        finally:
            self.enter(Scope.CLOSED)
            self.drop(*evaluations)
            self._tables.update(others)
            self.prefix = ""
            self.enter(scope)

    def latest(self) -> list[dict[str, Tensor]]:
        """Return copies of what callbacks, loggers and bars were shown last."""
        return [dict(table) for table in self._latest_tables().values()]

    def set_latest(self, latest: list[dict[str, Tensor]]) -> None:
        """Show them again what `latest` returned."""
        for table, saved in zip(self._latest_tables().values(), latest, strict=True):
            table.clear()
            table.update(saved)

    def state_dict(self, parts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that a resumed run must find: latest ones and unfinished sums.

        Args:
            parts: the module's parts by name, among which metric objects are found again.
        """
        names = {id(part): name for name, part in parts.items()}
        # users may have written plain numbers there
        latest = {
            kind: in_one_piece({k: torch.as_tensor(v).detach() for k, v in table.items()})
            for kind, table in self._latest_tables().items()
        }
        return {
            **latest,
            "on_device": {
                kind: [k for k, v in table.items() if v.device.type != "cpu"]
                for kind, table in latest.items()
            },
            "epoch": [
                {
                    "scope": scope.name,
                    "name": name,
                    "call": slot.saved_call,
                    "metric": names.get(id(slot.metric)),
                    "has_metric": slot.metric is not None,
                    **slot.state_dict(),
                }
                for (scope, _), slots in self._tables.items()
                if scope in (Scope.TRAIN_BATCH, Scope.TRAIN_EPOCH)
                for name, slot in slots.items()
            ],
        }

    def load_state_dict(
        self, state_dict: dict[str, Any], parts: Mapping[str, Any], device: torch.device
    ) -> None:
        """Take back what `state_dict` returned.

        Args:
            state_dict: it.
            parts: the module's parts by name.
            device: where values go that were not on the host.
        """
        for kind, table in self._latest_tables().items():
            on_device = set(state_dict["on_device"][kind])
            table.clear()
            table.update(
                {k: v.to(device) if k in on_device else v for k, v in state_dict[kind].items()}
            )
        self.enter(Scope.TRAIN_EPOCH)  # in the order in which a fit enters them
        for item in state_dict["epoch"]:
            self.enter(Scope[item["scope"]])
            slot = self._slot_for(item["name"], restored_call(item["call"]))
            slot.load_state_dict(item, device)
            if item["metric"] is not None:
                slot.metric = parts.get(item["metric"])
        self.enter(Scope.CLOSED)

    def _latest_tables(self) -> dict[str, dict[str, Tensor]]:
        """Return what holds latest values, up to date, by the names they have in checkpoints."""
        self._publish_news()
        return {
            "callback_metrics": self._callback,
            "logged_metrics": self._logged,
            "bar": self._bar,
        }


def _lost(name: str) -> str:
    return (
        f"log({name!r}, reduce_fx=a function) was not called in this epoch after the resume, and "
        "the function cannot be saved: the values from before are left out. Log it in every batch, "
        "or reduce with 'mean', 'sum', 'min' or 'max'."
    )
