"""The launch command that a playbook makes for a release has flags of that release only."""

from __future__ import annotations

import re

import pytest

from specops.config.overrides import parse_override
from specops.config.playbook import load_playbook
from specops.lab.wheels import open_wheel
from specops.steps.gate import NATIVE_SINCE, Gate, parse_release
from specops.steps.launch import build_launch
from tests.sglang.test_signals import RELEASES


def fields_of(release: str) -> set[str]:
    """Names of all server arguments, as the fields that they are in every release."""
    with open_wheel(release) as files:
        names = [
            name for name in files.namelist() if re.search(r"/srt/.*(server_args|arg_groups).*\.py$", name)
        ]
        sources = "\n".join(files.read(name).decode() for name in names)
    return set(re.findall(r"^    (\w+): ", sources, re.M))


@pytest.mark.parametrize("release", RELEASES)
def test_every_flag_is_one_of_the_release(release: str) -> None:
    fields = fields_of(release)
    playbook = load_playbook("eagle3-gated", [parse_override("server.cuda_graph_bs=[1, 2]")], {})
    native = parse_release(release) >= NATIVE_SINCE
    made = build_launch(
        playbook,
        python="python",
        port=30000,
        release=release,
        gate=Gate(kind="native" if native else "none", why=""),
        gate_path="/gates/g.json" if native else None,
        levels=(),
    )
    flags = [word.removeprefix("--").replace("-", "_") for word in made.argv if word.startswith("--")]
    assert len(flags) > 15
    assert set(flags) - fields == set()
    assert made.expect.keys() <= fields
    at = made.argv.index("--cuda-graph-bs-decode" if native else "--cuda-graph-bs")
    assert made.argv[at + 1 : at + 3] == ("1", "2")
    assert (made.argv[at + 3] == "5") == native, "T is a captured size where the gate needs that"
    assert made.argv[made.argv.index("--tp-size") + 1] == "8"
