from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from specops.remote import members, procs, supervisor

from .servers import await_true, free_port, serving


def test_a_pid_counts_only_with_its_start_ticks() -> None:
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    process = procs.read_process(child.pid)
    assert process is not None
    assert process.ppid == os.getpid()
    assert procs.lives(child.pid, process.start_ticks)
    stranger = procs.Process(**{**process.__dict__, "start_ticks": process.start_ticks + 1})
    assert not procs.send_signal(stranger, signal.SIGKILL)
    assert procs.lives(child.pid, process.start_ticks)
    assert procs.send_signal(process, signal.SIGKILL)
    await_true(lambda: (p := procs.read_process(child.pid)) and p.state == "Z")
    assert not procs.lives(child.pid, process.start_ticks)
    child.wait()


@pytest.mark.parametrize(("code", "end"), [("os.kill(0, 9)", -9), ("os._exit(3)", 3), ("os._exit(0)", None)])
def test_how_a_process_ended_is_known_before_it_is_reaped(code: str, end: int | None) -> None:
    words = [sys.executable, "-S", "-c", f"import os; os.setpgid(0, 0); {code}"]
    with subprocess.Popen(words) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert procs.read_end(child.pid) == end
    assert procs.read_end(child.pid) is None
    assert procs.read_end(os.getpid()) is None


def test_a_name_with_parentheses_is_parsed() -> None:
    line = "7 (a) b) (c) S 3 4 5 0 -1 4194560 1 0 0 0 11 12 0 0 20 0 1 0 4242 0 0"
    process = procs._parse_stat(7, line, 0)
    assert process is not None
    assert (process.ppid, process.pgid, process.sid, process.start_ticks) == (3, 4, 5, 4242)
    assert process.comm == "a) b) (c"


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_listener_leads_to_its_process(family: socket.AddressFamily, address: str) -> None:
    port = free_port()
    with socket.socket(family) as server:
        try:
            server.bind((address, port))
        except OSError:
            assert family == socket.AF_INET6  # a machine without IPv6 has nothing to show here
            return
        server.listen()
        assert [listener.address for listener in procs.read_listeners(port)] == [address]
        assert procs.port_holders(procs.scan_processes(), port) == {os.getpid()}
        assert not procs.port_is_free(port)
    assert procs.port_is_free(port)


def test_the_launcher_is_found_from_any_of_its_processes(tmp_path: Path) -> None:
    with serving(tmp_path) as stand:
        scan = procs.scan_processes()
        (child,) = procs.children_of(stand.pid)
        assert members.find_launcher(scan, child) == stand.pid
        found = members.find_members(scan, pid=stand.pid, start_ticks=stand.start_ticks)
        assert found == {stand.pid, child}
        assert members.find_members(scan, pid=stand.pid, start_ticks=1) == set()
        assert supervisor.find_supervisor(scan, stand.pid) is None


def test_a_restart_loop_is_seen(tmp_path: Path) -> None:
    script = tmp_path / "forever.sh"
    script.write_text('while true; do "$@"; sleep 1; done\n')
    words = ["bash", str(script), sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    loop = subprocess.Popen(words, start_new_session=True)
    try:
        (child,) = await_true(lambda: procs.children_of(loop.pid))
        found = supervisor.find_supervisor(procs.scan_processes(), child)
        assert found is not None
        assert found["kind"] == "a restart loop"
        assert "forever.sh" in found["how"]
    finally:
        os.killpg(loop.pid, signal.SIGKILL)
        loop.wait()


def test_a_systemd_unit_is_seen_by_its_cgroup(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = {7: ["/system.slice/sglang.service"], 8: ["/user.slice/user-0.slice/session-3.scope"]}
    groups[9] = ["/system.slice/ssh.service"]
    monkeypatch.setattr(supervisor, "_cgroups", lambda pid: groups.get(pid, []))
    found = supervisor._systemd(7)
    assert found is not None
    assert (found["kind"], found["name"]) == ("systemd", "sglang.service")
    assert supervisor._systemd(8) is None
    assert supervisor._systemd(9) is None
    groups[11] = ["/user.slice/user-1000.slice/user@1000.service/app.slice/specops-20261130-1.scope"]
    groups[12] = ["/system.slice/specops-20261130-1.scope"]
    assert (supervisor.find_scope(11), supervisor.find_scope(12)) == ("user", "system")
    assert supervisor.find_scope(7) is None
