"""Answer: one streamed answer, read from its bytes as they come; tokens by the server's own count."""

from __future__ import annotations

import json
import time
from array import array
from typing import Any

Json = Any
COUNT = b'"completion_tokens":'
"""Inside a JSON string the quotes would be escaped, so this is always the server's own field."""
END = b"\n\n"


class Answer:
    """When how many tokens had come. Times are monotonic seconds, taken when the bytes were read."""

    __slots__ = (
        "_counted", "_loose", "_rest", "_tail", "asked", "at", "ended", "error", "exact", "lost", "meta",
        "ramp", "sent", "tokens",
    )  # fmt: skip

    def __init__(self, asked: int, *, exact: bool, ramp: bool = False) -> None:
        self.asked = asked
        self.exact = exact
        """Just `asked` tokens must come (end-of-text is ignored)."""
        self.ramp = ramp
        """Sent to fill the server: in no latency."""
        self.sent = time.monotonic()
        self.ended: float | None = None
        self.at = array("d")
        """Per chunk: when it came."""
        self.tokens = array("l")
        """Per chunk: all tokens until then."""
        self.meta: dict[str, Json] = {}
        self.error = ""
        self.lost = False
        """The connection broke or was refused, so the server may be gone."""
        self._counted = False
        self._loose: list[float] = []
        self._rest = b""
        self._tail = b""

    def feed(self, data: bytes, now: float) -> None:
        """Bytes of the stream. Of counted events that came at once only the newest has to be read."""
        cut = data.rfind(END)
        if cut < 0:
            self._rest += data
            return
        whole, self._rest = self._rest + data[: cut + 2], data[cut + 2 :]
        if self._counted:
            start = whole.rfind(COUNT)
            if start >= 0:
                before = whole.rfind(END, 0, start)
                self._tail = whole[before + 2 if before >= 0 else 0 : whole.find(END, start)]
                self._count(whole, start, now)
            if b'"error":' in whole:
                self._heed_errors(whole)
            return
        for event in whole.split(END):
            if event.startswith(b"data:") and not event.startswith(b"data: [DONE]"):
                self._take(event, now)

    def _take(self, event: bytes, now: float) -> None:
        start = event.rfind(COUNT)
        if b'"error":' in event and self._heed_errors(event):
            return
        if start >= 0:
            self._counted = self._counted or not self._loose
            self._tail = event
            self._count(event, start, now)
        elif _has_text(event):
            self._loose.append(now)

    def _count(self, data: bytes, start: int, now: float) -> None:
        start += len(COUNT)
        stop = start
        while data[stop : stop + 1].isdigit() or data[stop : stop + 1] == b" ":
            stop += 1
        count = int(data[start:stop] or b"0")
        if count > self.count:
            self.at.append(now)
            self.tokens.append(count)

    def _heed_errors(self, whole: bytes) -> bool:
        for event in whole.split(END):
            error = _parse(event).get("error") if b'"error":' in event else None
            if error:
                words = error.get("message") if isinstance(error, dict) else error
                self.error = f"the server answered: {str(words)[:300]}"
                return True
        return False

    def finish(self, now: float) -> None:
        """The stream is over. A server that counts only at its end has its tokens spread over its chunks."""
        self.ended = now
        last = _parse(self._tail)
        self.meta = last.get("meta_info") or last.get("usage") or {}
        total = self.meta.get("completion_tokens")
        if self._loose:
            total = int(total) if total else len(self._loose)
            chunks = len(self._loose)
            self.at = array("d", self._loose)
            self.tokens = array("l", ((total * (i + 1)) // chunks for i in range(chunks)))
        self._rest = self._tail = b""

    @property
    def count(self) -> int:
        return self.tokens[-1] if self.tokens else 0

    @property
    def first(self) -> float | None:
        return self.at[0] if self.at else (self._loose[0] if self._loose else None)

    @property
    def moved(self) -> float:
        """When its newest token came; its start while it has none."""
        return self.at[-1] if self.at else (self._loose[-1] if self._loose else self.sent)

    @property
    def problem(self) -> str:
        """Why it is not a good answer; empty if it is one."""
        if self.error:
            return self.error
        if self.ended is None:
            return "it has not ended"
        if self.count == 0 or (self.exact and self.count != self.asked):
            return f"{self.count} tokens came of {self.asked} asked"
        reason = self.meta.get("finish_reason")
        kind = reason.get("type") if isinstance(reason, dict) else None
        return f"finish reason {kind}" if kind == "abort" else ""

    def gaps(self, start: float, end: float) -> list[tuple[float, int]]:
        """(seconds a token, tokens) of each chunk after the first that came in the window."""
        found = []
        for i in range(1, len(self.at)):
            if start < self.at[i] <= end:
                n = self.tokens[i] - self.tokens[i - 1]
                found.append(((self.at[i] - self.at[i - 1]) / n, n))
        return found

    def chunks_in(self, start: float, end: float) -> int:
        """Chunks that came in (start, end]."""
        return sum(start < at <= end for at in self.at)

    def tokens_in(self, start: float, end: float) -> int:
        """Tokens that came in (start, end]."""
        return self._until(end) - self._until(start)

    def _until(self, moment: float) -> int:
        low, high = 0, len(self.at)
        while low < high:
            middle = (low + high) // 2
            if self.at[middle] <= moment:
                low = middle + 1
            else:
                high = middle
        return self.tokens[low - 1] if low else 0


def _parse(event: bytes) -> dict[str, Json]:
    """Of one event of the stream, with its `data:`; empty where it is no object."""
    try:
        value = json.loads(event[5:]) if event.startswith(b"data:") else None
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _has_text(event: bytes) -> bool:
    """Of an event of the OpenAI interfaces without a count: whether it brought any text."""
    choices = _parse(event).get("choices") or ()
    return any(c.get("text") or _spoken(c.get("delta") or {}) for c in choices)


def _spoken(delta: dict[str, Json]) -> bool:
    return bool(delta.get("content") or delta.get("reasoning_content") or delta.get("tool_calls"))
