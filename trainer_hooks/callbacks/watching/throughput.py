"""Throughput: rates over the last so many batches, and a clock that can be stopped."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from trainer_hooks.callbacks.monitoring import check_count, check_number
from trainer_hooks.errors import MetricError, OptionError

__all__ = ["Stopwatch", "Throughput"]

_WHERE = "Throughput"


@dataclass(frozen=True, slots=True)
class _Mark:
    """What was done until a moment: all counts are from the start on, `flops` since the last."""

    time: float
    batches: int
    samples: int
    lengths: int | None
    flops: float | None


class Throughput:
    """Rates over a window of the last updates.

    ::

        throughput = Throughput(window_size=50)
        throughput.update(time=1.5, batches=1, samples=32)
        throughput.update(time=2.0, batches=2, samples=64)
        throughput.compute()  # {..., "device/batches_per_sec": 2.0, "device/samples_per_sec": 64.0}

    Args:
        available_flops: the device's peak in floating point operations a second, for `device/mfu`.
        world_size: the number of devices, all of which do the same.
        window_size: how many updates the rates are of.
        separator: what stands between the parts of a name.

    Raises:
        OptionError: an argument is outside its rule.
    """

    def __init__(
        self,
        available_flops: float | None = None,
        world_size: int = 1,
        window_size: int = 100,
        separator: str = "/",
    ) -> None:
        if (
            available_flops is not None
            and check_number("available_flops", available_flops, _WHERE) <= 0
        ):
            raise OptionError(
                f"available_flops {available_flops!r} of {_WHERE}: it must be over 0. Pass the "
                "device's operations a second, or None where they are not known."
            )
        self.available_flops = available_flops
        self.world_size = check_count("world_size", world_size, _WHERE, least=1)
        self.window_size = check_count("window_size", window_size, _WHERE, least=2)
        if not isinstance(separator, str) or not separator:
            raise OptionError(
                f"separator {separator!r} of {_WHERE}: it must be a text. Pass one such as '/'."
            )
        self.separator = separator
        self._marks: deque[_Mark] = deque(maxlen=window_size)

    def update(
        self,
        *,
        time: float,
        batches: int,
        samples: int,
        lengths: int | None = None,
        flops: float | None = None,
    ) -> None:
        """Take in how far it is.

        Args:
            time: seconds since the start.
            batches: batches since the start.
            samples: samples since the start, on this device.
            lengths: items since the start, such as tokens, on this device.
            flops: floating point operations of this device since the last update.

        Raises:
            MetricError: a count went backwards.
        """
        mark = _Mark(time, batches, samples, lengths, flops)
        if self._marks:
            last = self._marks[-1]
            for name in ("time", "batches", "samples", "lengths"):
                before, now = getattr(last, name), getattr(mark, name)
                if before is not None and now is not None and now < before:
                    raise MetricError(
                        f"{name} {now!r} given to {_WHERE}.update: it was {before!r} before, and "
                        "must not fall. Pass what it is since the start."
                    )
        self._marks.append(mark)

    def compute(self) -> dict[str, float]:
        """Return the counts, and the rates once there are two updates to compare."""
        if not self._marks:
            return {}
        first, last = self._marks[0], self._marks[-1]
        found: dict[str, float] = {
            "time": last.time, "batches": last.batches, "samples": last.samples
        }  # fmt: skip
        if last.lengths is not None:
            found["lengths"] = last.lengths
        seconds = last.time - first.time
        if seconds <= 0:
            return found
        rates = {
            "batches_per_sec": (last.batches - first.batches) / seconds,
            "samples_per_sec": (last.samples - first.samples) / seconds,
        }
        if first.lengths is not None and last.lengths is not None:
            rates["items_per_sec"] = (last.lengths - first.lengths) / seconds
        counted = [mark.flops for mark in self._marks if mark.flops is not None]
        if len(counted) == len(self._marks):
            rates["flops_per_sec"] = sum(counted[1:]) / seconds
        for name, rate in rates.items():
            if self.world_size > 1:
                found[name] = rate * self.world_size
            found[f"device{self.separator}{name}"] = rate
        if self.available_flops is not None and "flops_per_sec" in rates:
            found[f"device{self.separator}mfu"] = rates["flops_per_sec"] / self.available_flops
        return found

    def reset(self) -> None:
        """Forget what was taken in."""
        self._marks.clear()


class Stopwatch:
    """A clock that can be stopped and started again.

    Args:
        elapsed: the seconds that it begins with.
    """

    def __init__(self, elapsed: float = 0.0) -> None:
        self._before = elapsed
        self._since: float | None = None

    @property
    def elapsed(self) -> float:
        """The seconds for which it ran."""
        running = 0.0 if self._since is None else time.perf_counter() - self._since
        return self._before + running

    def start(self) -> None:
        """Let it run; one that runs goes on."""
        if self._since is None:
            self._since = time.perf_counter()

    def stop(self) -> None:
        """Stop it; one that stands still stays so."""
        self._before, self._since = self.elapsed, None
