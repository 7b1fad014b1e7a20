"""Import-only triton: SGLang decorates kernels at import, and none is launched on the CPU paths that the lab takes.

The real package unpacks to a gigabyte. Launching a kernel here raises.
"""

import importlib.abc
import importlib.machinery
import sys
import types

__version__ = "0.0.0"


class Kernel:
    """A decorated function; `kernel[grid](…)` and `kernel(…)` raise."""

    def __init__(self, fn):
        self.fn = fn
        for name in ("__name__", "__doc__", "__module__"):
            setattr(self, name, getattr(fn, name, None))

    def __getitem__(self, _grid):
        return self

    def __call__(self, *_args, **_kwargs):
        raise RuntimeError(f"the lab has no triton: kernel {self.__name__} was launched")

    run = warmup = __call__


def _wrap(fn):
    return fn if isinstance(fn, Kernel) else Kernel(fn)


def _decorator(*args, **kwargs):
    """Serves `@jit`, `@jit(…)`, `@autotune(…)` and `@heuristics(…)`."""
    if len(args) == 1 and not kwargs and callable(args[0]):
        return _wrap(args[0])
    return _wrap


jit = autotune = heuristics = _decorator


def cdiv(x, y):
    return (x + y - 1) // y


def next_power_of_2(n):
    return 1 << max(n - 1, 0).bit_length()


class Config:
    def __init__(self, kwargs=None, num_warps=4, num_stages=2, **_others):
        self.kwargs = dict(kwargs or {})
        self.num_warps, self.num_stages = num_warps, num_stages


class Named(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _placeholder(name)


def _nothing(self, *_args, **_kwargs):
    return None


def _placeholder(name):
    return Named(name, (), {"__init__": _nothing, "__call__": _nothing})


def _members(module_name):
    def find(name):
        if name.startswith("__"):
            raise AttributeError(name)
        loaded = sys.modules.get(f"{module_name}.{name}")
        if loaded is not None:
            return loaded
        return _decorator if name in ("jit", "autotune", "heuristics") else _placeholder(name)

    return find


class Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname, path=None, target=None):
        if fullname.startswith("triton."):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = _members(spec.name)
        return module

    def exec_module(self, module):
        pass


__getattr__ = _members("triton")
sys.meta_path.insert(0, Submodules())
import triton.language  # noqa: E402
import triton.runtime  # noqa: E402,F401
