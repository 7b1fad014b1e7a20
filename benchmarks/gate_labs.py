"""The CPU labs that a gate is proved in: one face for the older labs (to 0.5.15.post1) and the later ones.

Both run the wheel's own tree beside an environment, so that neither a deploy in a lab nor a patch of ours is
in what is called untouched.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from specops.lab import older
from specops.lab.environment import make_environment
from specops.lab.lab import RELEASE
from specops.lab.older import OlderLab, OlderRelease
from specops.lab.releases import is_older
from specops.lab.server import server_argv, server_env
from specops.lab.state import folder_of
from specops.lab.wheels import unpack_release

WATCH = Path(__file__).with_name("watch")
"""What counts the forwards of a later lab; the older labs' kernels do it themselves."""
LATER = ("0.5.16", "0.5.17", "0.5.18", "0.5.19", "0.5.20", "0.5.21", "0.5.22", "0.5.23")
RELEASES = (*older.OLDER, *LATER)
SPECULATION = "--speculative-algorithm"


def prepare(release: str, home: Path) -> OlderLab:
    """Make what is missing. Raises LabError."""
    if is_older(release):
        return older.prepare(release, home)
    # One environment serves them all: the lab's own for any of them differ by SGLang's files alone.
    environment = make_environment(folder_of("lab"), RELEASE, None, lambda part: None)
    return OlderLab(
        release=OlderRelease(version=release, transformers="", v2_env={}),
        python=environment.python,
        package=unpack_release(release, home) / "sglang",
    )


def arguments(lab: OlderLab, models: Path, port: int) -> list[str]:
    """Of a server without speculation, in float32, with overlap scheduling where its worker has it."""
    if is_older(lab.release.version):
        return older.server_arguments(models, port)
    words = server_argv(lab.python, models / "target", models / "draft", port)[3:]
    words.remove("--disable-overlap-schedule")
    return [*words[: words.index(SPECULATION)], "--skip-server-warmup"]


def environment(lab: OlderLab, *trees: Path, **extra: str) -> dict[str, str]:
    """Variables of a server; `trees` come before the wheel's own on the module path."""
    extra["SGLANG_DISABLED_MODEL_ARCHS"] = ",".join(other_models(lab))
    if is_older(lab.release.version):
        return older.server_environment(lab, *trees, **extra)
    path = os.pathsep.join(map(str, (*trees, lab.package.parent, WATCH)))
    return {**server_env(lab.package.parent, lab.python), "PYTHONPATH": path, **extra}


def other_models(lab: OlderLab) -> list[str]:
    """The architectures that the pair does not need: importing them all is most of a start."""
    files = (lab.package / "srt" / "models").glob("*.py")
    return sorted(file.stem for file in files if file.stem not in ("__init__", "llama", "llama_eagle3"))


def versions(lab: OlderLab) -> dict[str, str]:
    ask = "import torch, importlib.metadata as m; print(torch.__version__, m.version('transformers'))"
    torch, transformers = subprocess.run(
        [str(lab.python), "-c", ask], check=True, capture_output=True, text=True
    ).stdout.split()
    return {"torch": torch, "transformers": transformers}
