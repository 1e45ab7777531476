"""Callbacks that choose the numbers a training goes by: rates, batch sizes, windows."""
