"""Preflight of what no flag can mend: whether driver, torch and kernel wheel go together on this box.

The rehearsal asks again, with the server's own environment and by loading them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from specops.engine.check import Check
from specops.steps.gate import parse_release

if TYPE_CHECKING:
    from specops.config.playbook import Playbook
    from specops.facts.host import HostFacts
    from specops.facts.runtime import Driver, Kernel, Runtime, Torch

SKIP = "SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK"


def check_runtime(facts: HostFacts, playbook: Playbook) -> Iterator[Check]:
    found = facts.runtime
    torch, driver = found.torch, found.driver
    if torch is None or torch.hip:
        return  # not where its files were looked for, or not NVIDIA's: the rehearsal imports it
    if driver is None or str(playbook.server.args.get("device") or "") == "cpu":
        seen = "no NVIDIA driver" if driver is None else f"driver {driver.version} is not used"
        yield Check(name="torch", verdict="ok", saw=f"{_build(torch)}; {seen}")
        return
    environ = {**(facts.server.env if facts.server else {}), **playbook.env.set}
    yield _driver(torch, driver, forward="compat" in environ.get("LD_LIBRARY_PATH", ""))
    yield _kernel(found, driver, unasked=environ.get(SKIP, "").lower() in ("1", "true"))


def _build(torch: Torch) -> str:
    return f"torch {torch.version}, " + (f"built for CUDA {torch.cuda}" if torch.cuda else "CPU build")


def _driver(torch: Torch, driver: Driver, *, forward: bool) -> Check:
    """A driver runs every CUDA of its own major version and below. `forward`: NVIDIA's package that lets
    an older driver run a newer CUDA may be in use, which only loading it can tell."""
    saw = f"{_build(torch)}; driver {driver.version} runs CUDA {driver.cuda or '(unknown)'} at most"
    if torch.cuda is None:
        return Check(
            name="driver and torch",
            verdict="refuse",
            saw=f"{saw}: it cannot use this host's GPUs",
            next_command="install the CUDA build of torch, or --set server.args.device=cpu",
        )
    newer = driver.cuda is not None and _major(torch.cuda) > _major(driver.cuda)
    if newer and not forward:
        return Check(
            name="driver and torch",
            verdict="refuse",
            saw=f"{saw}: torch cannot start on it",
            next_command=f"install a driver for CUDA {_major(torch.cuda)}, "
            f"or the torch (and sglang-kernel) built for CUDA {driver.cuda and _major(driver.cuda)}",
        )
    return Check(name="driver and torch", verdict="warn" if newer else "ok", saw=saw)


def _kernel(found: Runtime, driver: Driver, *, unasked: bool) -> Check:
    """`unasked`: the launch tells SGLang not to look at the version."""
    kernel, demanded = found.kernel, found.demanded
    if kernel is None:
        saw = "not found among the interpreter's packages; the rehearsal asks the server's environment"
        return Check(name="kernel wheel", verdict="warn", saw=saw)
    saw = f"{kernel.version} ({', '.join(kernel.libraries) or 'libraries not listed'})"
    saw += f", {demanded} or newer is needed" if demanded else ""
    if demanded and not unasked and parse_release(kernel.version) < parse_release(demanded):
        return _refuse_kernel(saw, demanded)
    wanted = _generation(driver, kernel)
    if wanted:
        return _refuse_kernel(f"{saw}: no library {wanted} for this GPU ({driver.capability})", demanded)
    return Check(name="kernel wheel", verdict="ok", saw=saw)


def _refuse_kernel(saw: str, demanded: str | None) -> Check:
    wheel = f"sglang-kernel=={demanded}" if demanded else "sglang-kernel"
    old = demanded is not None and parse_release(demanded) < (0, 4, 0, 0)
    return Check(
        name="kernel wheel",
        verdict="refuse",
        saw=saw,
        next_command=f"pip install --force-reinstall {wheel.replace('sglang-', 'sgl-') if old else wheel}",
    )


def _generation(driver: Driver, kernel: Kernel) -> str | None:
    """The library that this GPU's generation takes, where the wheel has others but not that one."""
    if not driver.capability or not kernel.libraries or "all" in kernel.libraries:
        return None
    wanted = "sm90" if driver.capability == "9.0" else "sm100"
    return None if wanted in kernel.libraries else wanted


def _major(cuda: str) -> int:
    return int(cuda.partition(".")[0])
