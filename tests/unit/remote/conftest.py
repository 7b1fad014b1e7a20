from __future__ import annotations

from pathlib import Path

import pytest

from specops.remote.context import Context


@pytest.fixture
def ctx(tmp_path: Path) -> Context:
    deploy_dir = tmp_path / "deploys" / "d1"
    deploy_dir.mkdir(parents=True)
    return Context(
        deploy_id="d1",
        deploy_dir=deploy_dir,
        store_dir=tmp_path / "machine" / "store",
        agent_zip=tmp_path / "agent.zip",
        instance={},
        emit=lambda event: None,
        record=lambda entry: None,
        aborted=lambda: "",
    )
