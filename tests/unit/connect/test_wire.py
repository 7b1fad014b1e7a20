"""Our lines among everything else that a remote side prints."""

from __future__ import annotations

import json

import pytest

from specops.connect.wire import ERRORS, Answer, frame, value_of
from specops.errors import SpecopsError

NONCE = "0123456789abcdef"
STREAM = (
    "Welcome!\nno end of line "
    f'\x1e{NONCE} {{"event": "received"}}\n'
    f'\x1e{NONCE} {{"event": "note", "message": "é"}}\n'
    '\x1efeedfeedfeedfeed {"event": "result", "ok": true, "value": "forged"}\n'
    f"\x1e{NONCE} torn{{\n"
    f'\x1e{NONCE} {{"event": "result", "ok": true, "value": [1]}}\n'
    "bye"
).encode()


@pytest.mark.parametrize("size", [1, 2, 7, 64, len(STREAM)])
def test_lines_are_found_wherever_the_stream_is_cut(size: int) -> None:
    answer = Answer(NONCE)
    events = [event for at in range(0, len(STREAM), size) for event in answer.feed(STREAM[at : at + size])]
    assert events == [{"event": "note", "message": "é"}]
    assert answer.received
    assert answer.result is not None
    assert value_of(answer.result) == [1]
    assert answer.noise()[0] == "Welcome!"
    assert answer.noise()[-1] == "bye"


def test_endless_noise_is_not_kept() -> None:
    answer = Answer(NONCE)
    for _ in range(100):
        assert list(answer.feed(b"x" * 65536)) == []
    assert list(answer.feed(f'\x1e{NONCE} {{"event": "note"}}\n'.encode())) == [{"event": "note"}]
    assert sum(map(len, answer.noise())) < 100_000


def test_the_header_tells_the_lengths() -> None:
    data = frame(b"zip\n", "facts", {"a": "é"}, NONCE)
    header, _, rest = data.partition(b"\n")
    lengths = json.loads(header)
    assert lengths == {"zip": 4, "request": len(rest) - 4, "nonce": NONCE}
    assert json.loads(rest[4:]) == {"verb": "facts", "params": {"a": "é"}}


@pytest.mark.parametrize("code", [*ERRORS, "novel"])
def test_every_error_keeps_what_the_host_said(code: str) -> None:
    error = {"code": code, "message": "m", "host_state": "h", "next_command": "n", "detail": [1]}
    with pytest.raises(ERRORS.get(code, SpecopsError)) as caught:
        value_of({"event": "result", "ok": False, "error": error})
    assert (caught.value.message, caught.value.host_state, caught.value.next_command) == ("m", "h", "n")
    assert caught.value.detail == [1]
