"""Driver, torch and SGLang's kernel wheel of an install, as its files and nvidia-smi tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Torch:
    version: str
    cuda: str | None
    """That it was built for; None for a CPU build."""
    hip: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Kernel:
    version: str
    libraries: tuple[str, ...]
    """`sm90`, `sm100`, or `all`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Driver:
    version: str
    cuda: str | None
    """The highest that it runs."""
    capability: str | None
    """Of the oldest generation of GPU here, as `9.0`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Runtime:
    torch: Torch | None = None
    kernel: Kernel | None = None
    demanded: str | None = None
    """The kernel wheel's version below which this SGLang does not start on a GPU."""
    driver: Driver | None = None


def parse_runtime(raw: Mapping[str, Any] | None) -> Runtime:
    raw = raw or {}
    torch, kernel, driver = raw.get("torch"), raw.get("kernel"), raw.get("driver")
    return Runtime(
        torch=Torch(version=str(torch["version"]), cuda=torch.get("cuda"), hip=torch.get("hip"))
        if torch
        else None,
        kernel=Kernel(version=str(kernel["version"]), libraries=tuple(kernel.get("libraries") or ()))
        if kernel
        else None,
        demanded=raw.get("demanded"),
        driver=Driver(
            version=str(driver["version"]), cuda=driver.get("cuda"), capability=driver.get("capability")
        )
        if driver
        else None,
    )
