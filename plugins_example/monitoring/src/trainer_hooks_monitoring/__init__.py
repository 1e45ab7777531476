"""Monitoring for every trainer_hooks run: an event log, and metrics for Prometheus."""

from __future__ import annotations

from trainer_hooks_monitoring.event_log import EventLog
from trainer_hooks_monitoring.exporter import PrometheusExporter

__all__ = ["EventLog", "PrometheusExporter"]
