"""An SSH server in Python, for machines without sshd: public keys only, runs one command a session.

`python -m specops.lab.pyssh PORT HOST_KEY AUTHORIZED_KEYS`; ends with its process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys

import asyncssh

CHUNK = 65536


async def serve_session(process: asyncssh.SSHServerProcess[bytes]) -> None:
    """Run the asked command by the user's shell, as sshd does, and pass bytes both ways until it ends."""
    command = process.command
    argv = ["/bin/sh", "-c", command] if command else ["/bin/sh"]
    child = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=os.path.expanduser("~"),
    )
    if child.stdin is None or child.stdout is None or child.stderr is None:
        raise RuntimeError("a pipe that was asked for is not there")
    feeding = asyncio.create_task(_feed(process, child.stdin))
    await asyncio.gather(_drain(child.stdout, process.stdout), _drain(child.stderr, process.stderr))
    code = await child.wait()
    feeding.cancel()
    if code < 0:
        process.exit_with_signal("KILL")
    else:
        process.exit(code)


async def _feed(process: asyncssh.SSHServerProcess[bytes], to: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, asyncssh.Error):
        while data := await process.stdin.read(CHUNK):
            to.write(data)
            await to.drain()
    to.close()


async def _drain(source: asyncio.StreamReader, to: asyncssh.SSHWriter[bytes]) -> None:
    # A client that went away does not stop its command: the pipe is read to its end all the same.
    while data := await source.read(CHUNK):
        with contextlib.suppress(ConnectionError, asyncssh.Error):
            to.write(data)
            await to.drain()


async def serve(port: int, host_key: str, authorized_keys: str) -> None:
    server = await asyncssh.listen(
        "127.0.0.1",
        port,
        server_host_keys=[host_key],
        authorized_client_keys=authorized_keys,
        process_factory=serve_session,
        encoding=None,
    )
    await server.wait_closed()


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    port, host_key, authorized_keys = sys.argv[1:4]
    asyncio.run(serve(int(port), host_key, authorized_keys))


if __name__ == "__main__":
    main()
