from __future__ import annotations

import json
import os
import py_compile
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specops.remote import files, replace
from specops.remote.context import Context, OpFailed
from specops.remote.store import Store, sha256

OLD, NEW = b"X = 'old'\n", b"X = 'new'\n"


@pytest.fixture
def target(tmp_path: Path, ctx: Context) -> Path:
    """An installed module, whose old and new bytes are in the store."""
    path = tmp_path / "install" / "module.py"
    path.parent.mkdir()
    path.write_bytes(OLD)
    for data in (OLD, NEW):
        Store(ctx.store_dir).put(data, sha256(data))
    return path


def change(path: Path | str, before: bytes | None = OLD, after: bytes | None = NEW) -> dict[str, Any]:
    def name(data: bytes | None) -> str | None:
        return None if data is None else sha256(data)

    return {"files": [{"path": str(path), "before": name(before), "after": name(after)}]}


def test_swap_and_restore_keep_mode_and_links_and_hold_when_run_twice(target: Path, ctx: Context) -> None:
    target.chmod(0o751)
    link = target.with_name("link.py")
    link.symlink_to(target.name)
    for _ in range(2):
        files.swap(ctx, change(link))
        assert target.read_bytes() == NEW
    for _ in range(2):
        files.restore(ctx, change(link))
        assert target.read_bytes() == OLD
    assert link.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o751
    assert sorted(os.listdir(target.parent)) == ["link.py", "module.py"]


def test_a_hard_link_elsewhere_keeps_its_bytes(target: Path, ctx: Context) -> None:
    cache = target.with_name("cache")
    os.link(target, cache)
    files.swap(ctx, change(target))
    assert (cache.read_bytes(), target.read_bytes()) == (OLD, NEW)


def test_bytecode_of_the_other_version_is_not_run(target: Path, ctx: Context) -> None:
    py_compile.compile(str(target), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    files.swap(ctx, change(target))
    run = [sys.executable, "-B", "-c", "import module; print(module.X)"]
    assert subprocess.check_output(run, cwd=target.parent) == b"new\n"


def test_a_drifted_file_is_refused_with_its_diff_before_any_is_written(target: Path, ctx: Context) -> None:
    other = target.with_name("other.py")
    other.write_bytes(b"X = 'mine'\n")
    both = {"files": change(target)["files"] + change(other)["files"]}
    with pytest.raises(OpFailed) as error:
        files.swap(ctx, both)
    assert error.value.code == "drifted"
    assert error.value.detail[0]["diff"].splitlines()[-2:] == ["-X = 'old'", "+X = 'mine'"]
    assert target.read_bytes() == OLD
    with pytest.raises(OpFailed, match=r"absent, expected"):
        files.check(ctx, {"files": [{"path": str(target.with_name("gone")), "sha256": sha256(OLD)}]})


def test_a_new_file_in_a_new_folder_comes_and_goes(tmp_path: Path, ctx: Context) -> None:
    data = b"{}\n"
    Store(ctx.store_dir).put(data, sha256(data))
    gate = change("{state}/gates/30000/gate.json", None, data)
    kept = ctx.store_dir.parent / "gates" / "mine"
    files.swap(ctx, gate)
    assert (kept.parent / "30000" / "gate.json").read_bytes() == data
    kept.write_bytes(b"")
    files.restore(ctx, gate)
    assert sorted(os.listdir(kept.parent)) == ["mine"], "a folder that somebody else uses stays"


def test_what_cannot_be_put_back_is_not_taken_away(target: Path, ctx: Context) -> None:
    Store(ctx.store_dir).path(sha256(OLD)).unlink()
    with pytest.raises(OpFailed) as error:
        files.swap(ctx, change(target))
    assert error.value.code == "backup_missing"
    assert target.read_bytes() == OLD


def test_restore_tries_every_file_and_leaves_somebody_elses_bytes(target: Path, ctx: Context) -> None:
    other = target.with_name("other.py")
    other.write_bytes(OLD)
    both = {"files": change(target)["files"] + change(other)["files"]}
    files.swap(ctx, both)
    other.write_bytes(b"X = 'mine'\n")
    replace.temp_of(target, "d1").write_bytes(b"half")
    with pytest.raises(OpFailed, match="somebody else"):
        files.restore(ctx, both)
    assert (target.read_bytes(), other.read_bytes()) == (OLD, b"X = 'mine'\n")
    assert not replace.temp_of(target, "d1").exists()


def test_stage_refuses_what_does_not_compile_and_blobs_that_lie(target: Path, ctx: Context) -> None:
    blobs = ctx.deploy_dir / "blobs"
    blobs.mkdir()
    bad = b"x = 1\ndef f(:\n"
    (blobs / sha256(bad)).write_bytes(bad)
    item = {"path": "scheduler.py", "sha256": sha256(bad), "python": True}
    with pytest.raises(OpFailed, match=r"scheduler\.py:2: "):
        files.stage(ctx, {"files": [item]})
    assert not Store(ctx.store_dir).has(sha256(bad))
    files.stage(ctx, {"files": [{**item, "python": False}]})
    assert Store(ctx.store_dir).get(sha256(bad)) == bad
    (blobs / ("0" * 64)).write_bytes(b"other")
    with pytest.raises(OpFailed, match="should be"):
        files.stage(ctx, {"files": [{"path": "x", "sha256": "0" * 64, "python": False}]})


def as_nobody(do: Callable[[], object]) -> dict[str, Any]:
    """The OpFailed of `do`, run by a user who owns nothing (root is refused nothing)."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            do()
        except OpFailed as error:
            os.write(into, json.dumps(error.as_json()).encode())
        finally:
            os._exit(0)
    os.close(into)
    with open(out, "rb") as pipe:
        said: dict[str, Any] = json.loads(pipe.read() or b"{}")
    os.waitpid(pid, 0)
    return said


def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "module.py"
    target.write_bytes(OLD)
    target.parent.chmod(0o555)
    monkeypatch.setattr(Store, "get", lambda self, digest: NEW if digest == sha256(NEW) else OLD)
    for folder in (tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    ctx = Context(
        deploy_id="d1",
        deploy_dir=tmp_path,
        store_dir=tmp_path / "store",
        agent_zip=tmp_path,
        instance={},
        emit=lambda event: None,
        record=lambda entry: None,
        aborted=lambda: "",
    )
    error = as_nobody(lambda: files.swap(ctx, change(target)))
    target.parent.chmod(0o755)
    assert error["code"] == "not_permitted"
    assert str(target) in error["message"]
    assert "become" in error["next_command"]
    assert target.read_bytes() == OLD


def test_a_full_disk_leaves_the_old_bytes_and_no_temp(target: Path, ctx: Context) -> None:
    import resource

    big = b"#" * 100_000
    Store(ctx.store_dir).put(big, sha256(big))

    def swap() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        files.swap(ctx, change(target, OLD, big))

    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            swap()
        except OpFailed as error:
            os.write(into, error.code.encode())
        finally:
            os._exit(0)
    os.close(into)
    os.waitpid(pid, 0)
    with open(out, "rb") as pipe:
        assert pipe.read() == b"no_space"
    assert target.read_bytes() == OLD
    assert os.listdir(target.parent) == ["module.py"]
