"""A plugin of pytest: `trainer_hooks.compat.composer` is Composer itself, for what imports it."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys

import composer
import composer.callbacks
import composer.loggers
import composer.models
import composer.optim

import trainer_hooks.compat

OURS = "trainer_hooks.compat.composer"


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if not name.startswith(f"{OURS}."):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return importlib.import_module(f"composer{spec.name.removeprefix(OURS)}")

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, _Finder())
sys.modules[OURS] = composer
vars(trainer_hooks.compat)["composer"] = composer
