"""Plain-torch replacement of the compiled `sgl_kernel` for SGLang releases before 0.5.16 on a CPU.

Those releases have no CPU branch for speculation, so they import the names of the CUDA branches. Only
what EAGLE speculation calls is here; every other name imports and raises when it is called.
"""

import importlib.abc
import importlib.machinery
import sys
import types

from sgl_kernel import attention  # noqa: F401
from sgl_kernel.sampling import (  # noqa: F401
    fast_topk,
    top_k_renorm_prob,
    top_p_renorm_prob,
    tree_speculative_sampling_target_only,
)
from sgl_kernel.tree import build_tree_kernel_efficient, verify_tree_greedy  # noqa: F401

__version__ = "0.0.0+lab"
_REAL = {"sampling", "tree", "attention"}
_MISSING = {"scalar_type"}  # SGLang has its own fallback, taken only if the import fails


def _absent(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def call(*_args, **_kwargs):
        raise NotImplementedError(f"the lab's sgl_kernel has no {name}: it needs a GPU")

    call.__name__ = name
    return call


class _Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Any sgl_kernel.<name> that is not here becomes an importable module of absent functions."""

    def find_spec(self, fullname, path=None, target=None):
        head, _, tail = fullname.partition(".")
        if head == "sgl_kernel" and tail and tail.split(".")[0] not in (_REAL | _MISSING):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = _absent
        return module

    def exec_module(self, module):
        pass


sys.meta_path.append(_Submodules())
__getattr__ = _absent
