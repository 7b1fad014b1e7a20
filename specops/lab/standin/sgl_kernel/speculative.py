"""The tree functions under the module name that newer releases import them from."""

from sgl_kernel.tree import (  # noqa: F401
    build_tree_kernel_efficient_cpu,
    reconstruct_indices_from_tree_mask,
    verify_tree_greedy_cpu,
)
