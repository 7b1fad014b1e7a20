"""`make demo`: the whole road, as a user walks it, on this machine and without a GPU.

Lab up; a good deploy; smoke; a broken patch that answers C=1 and dies above the threshold, caught and
rolled back; rollback to what was there first; lab down. Ends in 0 only if every command ended as it should.
"""

from __future__ import annotations

import hashlib
import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BROKEN = "demo-dies-above-threshold"


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def run(command: str, *, expect: int) -> None:
    say(f"\n$ specops {command}")
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "specops", *shlex.split(command)],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        cwd=ROOT,
        check=False,
    )
    say(f"  (exit {done.returncode}, {time.monotonic() - began:.0f} s)")
    if done.returncode != expect:
        raise SystemExit(f"demo: `specops {command}` ended in {done.returncode}, not in {expect}")


def digest_package() -> str:
    """One sha256 over every file of the lab's sglang package, byte code aside."""
    from specops.lab.lab import status

    state = status("lab")
    if state is None:
        raise SystemExit("demo: the lab is not up")
    root = Path(state.package)
    whole = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            whole.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()


def main() -> None:
    began = time.monotonic()
    run("lab up", expect=0)
    try:
        pristine = digest_package()
        run("deploy --host lab --threshold 5 --yes", expect=0)
        run("smoke --host lab --threshold 5", expect=0)
        run(f"deploy --host lab --threshold 5 --patch {BROKEN} --yes", expect=20)
        if digest_package() != pristine:
            raise SystemExit("demo: the rollback left other bytes in the package")
        say("\nEvery file of the package is byte-identical to before.")
        run("status --host lab", expect=0)
        run("rollback --host lab --yes", expect=0)
        run("history --host lab", expect=0)
    finally:
        run("lab down", expect=0)
    say(f"\ndemo passed in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
