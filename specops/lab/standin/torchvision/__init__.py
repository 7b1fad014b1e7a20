"""Import-only torchvision: the published wheels are linked against a CUDA torch and fail beside a CPU one.

SGLang and transformers import names of it at start-up; a text model calls none of them.
"""

import importlib.abc
import importlib.machinery
import sys
import types

__version__ = "0.0.0"


class Named(type):
    """Members of a placeholder class, such as those of an enumeration, are their own dotted names."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return f"{cls.__name__}.{name}"


def _placeholder(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def refuse(self, *_args, **_kwargs):
        raise RuntimeError(f"the lab has no torchvision: {name} was called")

    return Named(name, (), {"__init__": refuse})


class Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname, path=None, target=None):
        if fullname.startswith("torchvision."):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = _placeholder
        return module

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, Submodules())
