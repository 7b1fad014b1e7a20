"""Whether a server outlives its operator's session, by recorded files of systemd."""

from __future__ import annotations

from pathlib import Path

import pytest

from specops.remote import launch, logout, procs, stop
from specops.remote.context import Context

from .servers import await_true, deploying, free_port, launch_spec


@pytest.mark.parametrize(
    ("shipped", "set_here", "user", "kills"),
    [
        ("#KillUserProcesses=no\n", "", "ops", False),
        ("#KillUserProcesses=yes\n", "", "ops", True),
        ("#KillUserProcesses=yes\n", "[Login]\nKillUserProcesses=no\n", "ops", False),
        ("#KillUserProcesses=no\n#KillExcludeUsers=root\n", "[Login]\nKillUserProcesses=yes\n", "ops", True),
        ("#KillUserProcesses=yes\n", "", "root", False),
        ("#KillUserProcesses=yes\n", "[Login]\nKillOnlyUsers=eve\n", "ops", False),
    ],
)
def test_logind_is_read_as_it_reads_itself(
    tmp_path: Path, shipped: str, set_here: str, user: str, kills: bool
) -> None:
    for folder in ("run/systemd/system", "etc/systemd/logind.conf.d", "var/lib/systemd/linger"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/systemd/logind.conf").write_text(f"[Login]\n{shipped}")
    (tmp_path / "etc/systemd/logind.conf.d/10-site.conf").write_text(set_here)
    assert logout.read_logout(user, tmp_path) == {"systemd": True, "kills": kills, "linger": False}
    (tmp_path / "var/lib/systemd/linger" / user).touch()
    assert logout.read_logout(user, tmp_path)["linger"]
    (tmp_path / "run/systemd/system").rmdir()
    assert not logout.read_logout(user, tmp_path)["kills"]


def test_a_scope_goes_before_the_command_and_changes_nothing_else(ctx: Context, tmp_path: Path) -> None:
    tool = tmp_path / "systemd-run"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    spec = {**launch_spec(31000), "scope": "user"}
    spec["env"] = {"base": "login", "path": [str(tmp_path)]}
    start = launch.resolve(ctx, spec)
    plain = launch.resolve(ctx, launch_spec(31000))
    words = ["systemd-run", "--user", "--scope", "--quiet", "--collect", "--unit=specops-d1", "--"]
    assert start.argv == [*words, *plain.argv]
    assert start.env["XDG_RUNTIME_DIR"].startswith("/run/user/")
    assert logout.scope_argv("system", "d1")[1] == "--scope"


def test_a_server_in_a_scope_is_the_same_process_and_is_stopped_like_any(
    ctx: Context, tmp_path: Path
) -> None:
    """By a tool that takes systemd-run's words as it does for a scope: it becomes the command."""
    tool = tmp_path / "systemd-run"
    tool.write_text('#!/bin/sh\necho "$@" >&2\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n')
    tool.chmod(0o755)
    port = free_port()
    with deploying(ctx) as (on, _):
        spec = {**launch_spec(port), "scope": "user"}
        spec["env"] = {"base": "login", "path": [str(tmp_path)]}
        note = launch.launch(on, {"launch": spec})
        await_true(lambda: procs.read_listeners(port))
        assert procs.port_holders(procs.scan_processes(), port) == {note["pid"]}
        assert (procs.read_environ(note["pid"]) or {})[procs.COOKIE] == "d1"
        log = (on.deploy_dir / "server.log").read_text()
        assert log.startswith("--user --scope --quiet --collect --unit=specops-d1 -- ")
        assert "fired up" in log
        assert note["pid"] in stop.kill(on, {"cookie": "d1", "port": port})["stopped"]
