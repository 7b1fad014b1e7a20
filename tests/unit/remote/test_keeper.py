"""A log stays bounded while its server writes to it, and keeps how it began."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from specops.connect.payload import agent_zip
from specops.remote import keeper, launch, procs, stop
from specops.remote.context import Context
from specops.remote.logscan import LogReader

from .servers import await_true, deploying, free_port, launch_spec


def test_a_capped_log_keeps_its_beginning_and_its_end_and_the_writer_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    writer = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    reader = LogReader(log)
    try:
        for number in range(3):
            os.write(writer, b"first words\n" if number == 0 else b"later words\n")
            os.write(writer, b"x" * 99 * 1000 + b"\n" + f"last words {number}\n".encode())
            assert not keeper.cap(log, limit=1 << 20)
            assert reader.read_lines()
            assert keeper.cap(log, limit=1000, keep=5000, head=100)
            os.write(writer, f"after {number}\n".encode())
            # no hole: an append goes to the new end
            assert log.read_bytes() == f"after {number}\n".encode()
            assert reader.read_lines() == [f"after {number}"]
        kept = (tmp_path / "server.log.1").read_bytes()
    finally:
        os.close(writer)
    assert kept.startswith(b"first words\n")
    assert kept.endswith(b"last words 2\n")
    assert b"was cut here" in kept
    assert len(kept) <= 5200
    assert sorted(path.name for path in tmp_path.iterdir()) == ["server.log", "server.log.1"]
    assert (tmp_path / "server.log.1").stat().st_mode & 0o777 == 0o600


def test_each_server_has_a_keeper_that_is_no_part_of_it_and_ends_with_it(ctx: Context) -> None:
    ctx.agent_zip.write_bytes(agent_zip())
    port = free_port()
    with deploying(ctx) as (on, _):
        facts = launch.launch(on, {"launch": launch_spec(port)})
        await_true(lambda: procs.read_listeners(port))
        (pid,) = set(procs.CHILDREN) - {facts["pid"]}
        assert procs.read_argv(pid)[:1] == [sys.executable]
        assert os.getsid(pid) == pid
        # SIGKILL to the launcher's group would not reach it, and it is not counted as a rank
        assert pid not in procs.carriers(procs.scan_processes(), "d1")
        assert pid not in stop.kill(on, {"cookie": "d1", "port": port})["stopped"]
        await_true(lambda: procs.CHILDREN[pid].poll() == 0)
