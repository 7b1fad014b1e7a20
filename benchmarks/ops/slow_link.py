"""A TCP proxy on loopback that holds every byte back for half a round trip, and counts connections."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from types import TracebackType

CHUNK = 65536
Waiting = asyncio.Queue[tuple[float, bytes]]


class SlowLink:
    """Listens on 127.0.0.1:`port` in a thread of its own; `rtt_s` may change between connections."""

    def __init__(self, target: int, port: int = 0) -> None:
        self.rtt_s = 0.0
        self.connections = 0
        self._target = target
        self._loop = asyncio.new_event_loop()
        # A task that is cancelled at the end is no news.
        self._loop.set_exception_handler(lambda *_: None)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", port, limit=CHUNK), self._loop
        ).result(10)
        self._server = server
        self.port = int(server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        half = self.rtt_s / 2
        # The handshake of TCP itself costs a round trip before the first byte can leave.
        await asyncio.sleep(self.rtt_s)
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target)
        ways = [self._pass_on(reader, up_writer, half), self._pass_on(up_reader, writer, half)]
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(*ways)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, half: float) -> None:
        """What comes in leaves `half` later; as much as comes may be on its way."""
        waiting: Waiting = asyncio.Queue()
        sending = asyncio.ensure_future(self._send(waiting, writer))
        try:
            while data := await reader.read(CHUNK):
                waiting.put_nowait((self._loop.time() + half, data))
        except ConnectionError:
            pass
        finally:
            waiting.put_nowait((self._loop.time() + half, b""))
            await sending

    async def _send(self, waiting: Waiting, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                due, data = await waiting.get()
                await asyncio.sleep(due - self._loop.time())
                if not data:
                    break
                writer.write(data)
                await writer.drain()
        writer.close()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        mine = asyncio.current_task()
        left = [task for task in asyncio.all_tasks() if task is not mine]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def __enter__(self) -> SlowLink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
