"""The hook kernel: the catalogue of hooks, the relay that fires them, and plugin discovery.

It imports neither torch nor a framework.
"""
