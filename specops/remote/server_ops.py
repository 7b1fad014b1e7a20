"""The operations on a server that a plan can name."""

from __future__ import annotations

from .capture import capture
from .context import Op
from .launch import launch
from .ready import await_server
from .rehearse import rehearse
from .restore import restore
from .stop import kill, stop
from .warm import warm

OPS: dict[str, Op] = {
    "server.capture": capture,
    "server.rehearse": rehearse,
    "server.warm": warm,
    "server.stop": stop,
    "server.restore": restore,
    "server.launch": launch,
    "server.kill": kill,
    "server.await": await_server,
}
