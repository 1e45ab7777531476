"""Callbacks that report on a run: manifest, journal, samples, notifications, MLPerf."""
