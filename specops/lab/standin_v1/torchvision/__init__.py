"""Importable, never called: SGLang imports torchvision at start-up, a text model does not use it."""

import importlib.abc
import importlib.machinery
import sys
import types

__version__ = "0.0.0"


class _Name(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return f"{cls.__name__}.{name}"


def _any(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def refuse(self, *_args, **_kwargs):
        raise NotImplementedError(f"the lab's torchvision has no {name}")

    return _Name(name, (), {"__init__": refuse})


class _Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname, path=None, target=None):
        if fullname.startswith("torchvision."):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = _any
        return module

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, _Submodules())
