"""Callbacks that leave something in the run's folder to be read later."""
