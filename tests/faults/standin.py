"""A small server for the fault runs: `python -S standin.py sglang.launch_server --port N --reads FILE`.

It starts in milliseconds (with `--once FILE`: as soon as that is there), has a child as a launcher has ranks,
says which bytes of FILE it was started on, and logs its own arguments, keys included, as SGLang does.
"""

import json
import os
import signal
import socket
import sys
import time


def option(name: str, default: str = "") -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def answer(line: str, info: dict[str, object]) -> bytes:
    body: dict[str, object] = {"text": "a", "meta_info": {"completion_tokens": 1}}
    data = json.dumps(info if "/server_info" in line else body).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    return head.encode() + data


def read_request(client: socket.socket) -> str:
    """Its first line; the body is read too, or closing would reset the connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = client.recv(65536)
        if not more:
            return ""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    wanted = next((int(x[15:]) for x in head.split(b"\r\n") if x.lower().startswith(b"content-length:")), 0)
    while len(body) < wanted:
        body += client.recv(65536)
    return head.split(b"\r\n")[0].decode()


def serve() -> None:
    if not os.path.isdir(option("--model-path", "/")):
        raise SystemExit(f"OSError: no model in {option('--model-path')}")
    with open(option("--reads")) as file:
        reads = file.read()
    sys.stdout.write(f"server_args={sys.argv[1:]}\n")
    sys.stdout.flush()
    if os.fork() == 0:
        while True:
            signal.pause()
    while option("--once") and not os.path.exists(option("--once")):
        time.sleep(0.02)
    listener = socket.create_server(("127.0.0.1", int(option("--port"))))
    info = {"served_model_name": option("--name"), "max_running_requests": 16, "reads": reads}
    sys.stdout.write("The server is fired up and ready to roll!\n")
    sys.stdout.flush()
    while True:
        client, _ = listener.accept()
        with client:
            line = read_request(client)
            if line:
                client.sendall(answer(line, info))


if __name__ == "__main__":
    serve()
