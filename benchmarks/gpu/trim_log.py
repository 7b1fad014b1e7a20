"""`python -m benchmarks.gpu.trim_log LOG > tests/recorded/NAME.log`: a real server's log as test data.

Keeps the load and what came just before a crash, every line in its order; drops most steps of progress bars,
what a server says while it serves, and the source lines that a traceback or a warning quotes. Long lines are
cut, folders of the machine get plain names.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

LONGEST = 400
LAST = 90
"""Lines before the end of a log that ends in a crash."""
READY = "The server is fired up and ready to roll"
CRASH = re.compile(r"Traceback|Received sigquit|Scheduler hit")
DULL = re.compile(
    r"GET /|POST /|Decode batch|Prefill batch|deprecated and will be removed|SyntaxWarning|UserWarning"
)
QUOTED = re.compile(r'    \S|\s+[~^]+$|  """|  warnings\.warn|  Example: ')
FOLDERS = (
    (re.compile(r"/tmp/[\w./-]*?(?=/sglang/)"), "/venv/site-packages"),  # noqa: S108
    (re.compile(r"/(?:opt|usr)/[\w./-]*?/site-packages"), "/venv/site-packages"),
    (re.compile(r"/(?:opt|usr)/[\w./-]*?/lib/(?=python3)"), "/usr/lib/"),
    (re.compile(r"/(?:tmp|work)/[\w./-]*?(?=/(?:target|draft)\b)"), "/models"),
    (re.compile(r"/(?:tmp|work|root|opt)/[\w./-]+"), "/some/file"),
)


def trim(lines: Iterable[str]) -> Iterator[str]:
    whole = [line for line in lines if not DULL.search(line) and not QUOTED.match(line)]
    ready = next((number for number, line in enumerate(whole) if READY in line), None)
    crash = next((n for n, line in enumerate(whole) if CRASH.search(line) and n > (ready or 0)), None)
    head = whole if ready is None else whole[: ready + 1]
    tail = whole[max(len(head), crash - 2) : crash + LAST] if crash is not None and ready is not None else []
    for line in without_repeats([*head, *tail]):
        yield plain(line)


def without_repeats(lines: Iterable[str]) -> Iterator[str]:
    """Of a progress bar's steps every fifth."""
    steps = 0
    for line in lines:
        steps = steps + 1 if "Capturing batches" in line else 0
        if steps % 5 <= 1:
            yield line


def plain(line: str) -> str:
    for pattern, name in FOLDERS:
        line = pattern.sub(name, line)
    return line[:LONGEST].rstrip()


if __name__ == "__main__":
    data = Path(sys.argv[1]).read_text(encoding="utf-8", errors="replace")
    print("\n".join(trim(re.split(r"[\r\n]+", data))))
