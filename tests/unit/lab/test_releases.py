"""What the lab does for releases whose speculation has no CPU branch; their copy is the lab's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from specops.config.playbook import load_playbook
from specops.lab import older, releases
from specops.lab.older import OlderLab
from specops.lab.state import LabState
from specops.lab.wheels import READY
from specops.steps.patch_launch import read_flags

STATE = LabState(
    name="lab", folder="/lab", release="0.5.12.post1", python="/lab/bin/python", package="/lab/sglang",
    model="/models/target", draft="/models/draft", port=20000, ssh_port=20001, ssh_user="u",
    ssh_kind="openssh", identity_file="/k", known_hosts="/h", state_dir="/s", server_log="/l",
)  # fmt: skip


@pytest.mark.parametrize(
    ("release", "playbook"), [("0.5.9", "lab-older"), ("0.5.12.post1", "lab-older"), ("0.5.16", "lab")]
)
def test_the_playbook_asks_for_what_the_lab_serves_by_hand(release: str, playbook: str) -> None:
    assert releases.playbook_of(release) == playbook
    by_hand = read_flags(releases.server_argv(replace(STATE, release=release)))
    book = load_playbook(playbook, (), {"model": STATE.model, "draft": STATE.draft})
    assert book.draft is not None
    assert by_hand["speculative-eagle-topk"] == str(book.draft.topk)
    assert by_hand["speculative-num-draft-tokens"] == str(book.draft.num_draft_tokens)
    for flag in ("attention-backend", "dtype", "max-total-tokens"):
        assert by_hand[flag] == str(book.server.args[flag])


def test_older_releases_interpret_their_kernels_and_get_no_module_path() -> None:
    env = releases.quiet_env("0.5.12.post1")
    assert env["TRITON_INTERPRET"] == "1"
    assert not {"PYTHONPATH", "HOME", "PATH"} & set(env)
    assert "TRITON_INTERPRET" not in releases.quiet_env("0.5.18")


def test_the_labs_copy_shares_bytes_and_no_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "source" / "env" / "lib" / "python3.11" / "site-packages"
    package = tmp_path / "source" / "sglang-0.5.12.post1" / "sglang"
    for path in (site / "torch.py", package / "__init__.py", site.parents[2] / "bin" / "python"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("A = 1\n")
    for folder in (site.parents[2], package.parent):
        (folder / READY).write_text("{}")
    source = OlderLab(
        release=older.OLDER["0.5.12.post1"], python=site.parents[2] / "bin" / "python", package=package
    )
    monkeypatch.setattr(older, "prepare", lambda release, home: source)
    made = releases.make_release(tmp_path / "home", "0.5.12.post1", None, lambda part: None)
    assert made.package.parent.name == "site-packages"
    assert (made.package.parent / "sitecustomize.py").read_bytes() == (
        older.STANDIN / "sitecustomize.py"
    ).read_bytes()
    assert (made.package.parent / "torch.py").stat().st_ino == (site / "torch.py").stat().st_ino
    assert list((made.package / "__pycache__").glob("__init__.*.pyc"))
    assert not (package / "__pycache__").exists()
    assert releases.is_older("0.5.15.post1")
