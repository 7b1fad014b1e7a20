"""Other releases than the lab's own, from their own wheels: up, a gated deploy, down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from specops.lab import lab as labs
from specops.lab.lab import LabState
from tests.e2e.command import specops
from tests.e2e.server import can_bind


@pytest.fixture(params=["0.5.20", "0.5.23"])
def release_lab(request: pytest.FixtureRequest, session_lab: LabState) -> Iterator[LabState]:
    """A second lab beside the session's, sharing its environments."""
    state = labs.up(release=request.param, name="releases")
    yield state
    labs.down("releases")
    assert can_bind(state.port)
    assert can_bind(state.ssh_port)


def test_gated_deploy_on_another_release(release_lab: LabState) -> None:
    info = requests.get(f"http://127.0.0.1:{release_lab.port}/get_server_info", timeout=30).json()
    assert info["version"] == release_lab.release
    assert Path(release_lab.package).is_relative_to(Path(release_lab.python).parents[1])

    ran = specops(
        "deploy", "--inventory", str(release_lab.inventory), "--host", "releases", "--yes", "--json"
    )
    assert ran.code == 0, ran.err + ran.out[-3000:]
    verdicts = {entry["id"]: entry["verdict"] for entry in ran.entries("check")}
    assert verdicts["S1"] == verdicts["S3"] == "pass"
