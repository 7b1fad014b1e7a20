"""The induced failures of `benchmarks.diagnose`: what is broken, how, and what the verdict has to say."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks import broken_models
from benchmarks.broken_models import Break
from benchmarks.strikes import LOADING, Strike, await_words, kill_launcher, signal_worker, take_port

WORKER = "srt/speculative/eagle_worker_v2.py"
SERVING = "Decode batch"
HELD_PORT = "{held_port}"
"""As a flag's value: a port that somebody else holds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    id: str
    failure_class: str
    cause: str
    """What was broken, in words."""
    expect: tuple[str, ...] = ()
    """Ids of the verdict that are right; empty where there must be none."""
    says: str = ""
    """A regular expression that the verdict's message must match."""
    seen: str = "death"
    """From when the verdict's time counts: `death` of the launcher, `strike`, `clock` (the last that was
    heard, and the progress clock), else a literal of the log line that names the cause."""
    flags: Mapping[str, str | None] = field(default_factory=dict)
    """Against the lab server's own; None takes one away."""
    before: tuple[str, ...] = ()
    """Words in front of the command."""
    env: Mapping[str, str] = field(default_factory=dict)
    target: Break | None = None
    draft: Break | None = None
    code: Mapping[str, str] = field(default_factory=dict)
    """File of the package -> Python text that is appended to it."""
    patch: str = ""
    """A patch of this repository, applied to the package."""
    gate: Mapping[str, object] | None = None
    """The native gate's file."""
    strike: Strike | None = None
    serves: bool = False
    """It gets ready, and fails under the smoke test."""
    progress_s: float = 400.0
    """The progress clock from the moment of the strike on."""


GATE = {"1": {"candidate_steps": [3]}, "6": {"candidate_steps": [0]}}
BROKEN_DRAFT = """
def _broken_draft(self, batch):
    raise RuntimeError("induced: the first draft forward fails")


EagleDraftWorker.draft = _broken_draft
"""
NEVER_RETURNS = """
def _endless_draft(self, batch):
    import time

    while True:
        time.sleep(1)


EagleDraftWorker.draft = _endless_draft
"""
ARITY = """
_whole_verify = EAGLEWorkerV2.verify


def _short_verify(self, batch, *args, **kwargs):
    first, second = _whole_verify(self, batch, *args, **kwargs), None, None
    return first


EAGLEWorkerV2.verify = _short_verify
"""
SLOW_DISK = """
import os as _os
import time as _time
from pathlib import Path as _Path

_fast_load = DefaultModelLoader._get_all_weights


def _slow_load(self, *args, **kwargs):
    # as a disk of some 4 MB/s would do it: reads without a word in the log, past the page cache
    data = _Path(_os.environ["INDUCED_SLOW_FILE"])
    until = _time.monotonic() + float(_os.environ["INDUCED_SLOW_S"])
    handle = _os.open(data, _os.O_RDONLY)
    while _time.monotonic() < until:
        _os.posix_fadvise(handle, 0, 0, _os.POSIX_FADV_DONTNEED)
        _os.pread(handle, 4 << 20, 0)
        _time.sleep(1)
    _os.close(handle)
    return _fast_load(self, *args, **kwargs)


DefaultModelLoader._get_all_weights = _slow_load
"""
LOADER = "srt/model_loader/loader.py"


FAILURES = (
    Failure(
        id="unknown-flag",
        failure_class="unknown flag",
        cause="a flag that this release does not have",
        flags={"--speculative-no-such-thing": "3"},
        expect=("UNKNOWN_FLAG",),
        says="--speculative-no-such-thing",
        seen="error: unrecognized arguments",
    ),
    Failure(
        id="flag-value",
        failure_class="unknown flag",
        cause="a word where a flag takes a number",
        flags={"--speculative-num-steps": "three"},
        expect=("UNKNOWN_FLAG",),
        says="speculative-num-steps",
        seen="error: argument",
    ),
    Failure(
        id="missing-shard",
        failure_class="missing shard",
        cause="the second of two shards that the index names is not there",
        target=broken_models.missing_shard,
        expect=("SHARD_BROKEN",),
        says="references 1 shard file",
        seen="RuntimeError: .*references 1 shard file",
    ),
    Failure(
        id="truncated-shard",
        failure_class="missing shard",
        cause="the second shard lost its last 4 KiB",
        target=broken_models.truncated_shard,
        expect=("SHARD_BROKEN",),
        seen="SafetensorError",
    ),
    Failure(
        id="draft-without-config",
        failure_class="draft/target mismatch",
        cause="the draft's folder has no config.json",
        draft=broken_models.without_config,
        expect=("MODEL_MISSING",),
        says="draft",
    ),
    Failure(
        id="http-port-taken",
        failure_class="port conflict",
        cause="a stranger binds the server's port while it loads",
        strike=take_port,
        expect=("HTTP_PORT_USED",),
        says="address already in use",
        seen="address already in use",
    ),
    Failure(
        id="nccl-port-taken",
        failure_class="port conflict",
        cause="the port of the process group is held by another process",
        flags={"--nccl-port": HELD_PORT},
        expect=("PORT_USED",),
        says="(?i)in use|is used by",
        seen="(?i)already in use|is used by",
    ),
    Failure(
        id="memory-limit",
        failure_class="out of memory",
        cause="a KV cache that does not fit below RLIMIT_AS (5 GiB)",
        before=("prlimit", f"--as={5 << 30}"),
        flags={"--max-total-tokens": "40000000"},
        expect=("HOST_OOM",),
        says="can't allocate memory",
        seen="DefaultCPUAllocator: can't allocate memory",
    ),
    Failure(
        id="no-kv-memory",
        failure_class="out of memory",
        cause="a memory fraction below the weights' share",
        flags={"--mem-fraction-static": "0.0001", "--max-total-tokens": None},
        expect=("NO_KV_MEM",),
        seen="Error: (?:Loaded weights leave no GPU memory|Not enough memory)",
    ),
    Failure(
        id="rank-killed-loading",
        failure_class="rank killed",
        cause="SIGKILL to the scheduler while it loads, as the kernel's out-of-memory killer does",
        strike=signal_worker("scheduler", signal.SIGKILL, LOADING),
        expect=("RANK_DIED_INIT", "PROCESS_DIED"),
        says="scheduler",
        seen="strike",
    ),
    Failure(
        id="rank-killed-serving",
        failure_class="rank killed",
        cause="SIGKILL to the scheduler under load",
        strike=signal_worker("scheduler", signal.SIGKILL, SERVING),
        serves=True,
        expect=("RANK_DIED_INIT", "PROCESS_DIED"),
        says="scheduler",
        seen="strike",
    ),
    Failure(
        id="rank-segfault",
        failure_class="rank killed",
        cause="SIGSEGV in the scheduler under load",
        strike=signal_worker("scheduler", signal.SIGSEGV, SERVING),
        serves=True,
        expect=("PROCESS_DIED", "SEGFAULT"),
        says="scheduler",
        seen="strike",
    ),
    Failure(
        id="detokenizer-killed",
        failure_class="rank killed",
        cause="SIGKILL to the detokenizer under load",
        strike=signal_worker("detokenizer", signal.SIGKILL, SERVING),
        serves=True,
        expect=("PROCESS_DIED",),
        says="detokenizer",
        seen="strike",
    ),
    Failure(
        id="launcher-killed",
        failure_class="launcher killed",
        cause="SIGKILL to the launcher while its ranks load",
        strike=kill_launcher,
        expect=("PROCESS_DIED",),
        says="launcher.*signal 9",
        seen="strike",
    ),
    Failure(
        id="rank-stopped",
        failure_class="hang",
        cause="SIGSTOP to the scheduler while it loads",
        strike=signal_worker("scheduler", signal.SIGSTOP, LOADING),
        progress_s=12.0,
        expect=("NO_PROGRESS",),
        says=r"is stopped \(SIGSTOP\)",
        seen="clock",
    ),
    Failure(
        id="rank-stopped-serving",
        failure_class="hang",
        cause="SIGSTOP to the scheduler under load",
        strike=signal_worker("scheduler", signal.SIGSTOP, SERVING),
        serves=True,
        progress_s=20.0,
        expect=("smoke-failed",),
        says=r"stopped \(SIGSTOP\)",
        seen="clock",
    ),
    Failure(
        id="endless-draft",
        failure_class="hang",
        cause="the first draft forward never returns",
        code={WORKER: NEVER_RETURNS},
        strike=await_words("Uvicorn running"),
        progress_s=20.0,
        expect=("NO_PROGRESS",),
        says="neither compute nor read|compute little",
        seen="clock",
    ),
    Failure(
        id="draft-of-another-target",
        failure_class="draft/target mismatch",
        cause="a draft made for a target of twice the hidden size",
        draft=broken_models.wider_fusion,
        expect=("BAD_DRAFT_SHAPE",),
        says="mat1 and mat2",
        seen="mat1 and mat2 shapes",
    ),
    Failure(
        id="crash-at-warm-up",
        failure_class="crash at warm-up",
        cause="the first draft forward raises",
        code={WORKER: BROKEN_DRAFT},
        expect=("SCHED_EXC",),
        says="induced: the first draft forward fails",
        seen="RuntimeError: induced",
    ),
    Failure(
        id="crash-unpack",
        failure_class="crash at warm-up",
        cause="a step returns another number of values than its caller takes",
        code={WORKER: ARITY},
        expect=("UNPACK",),
        says="unpack",
        seen="ValueError: ",
    ),
    Failure(
        id="crash-above-threshold",
        failure_class="crash above T",
        cause="the patch demo-dies-above-threshold: it answers up to T and dies above",
        patch="demo-dies-above-threshold",
        gate=GATE,
        serves=True,
        expect=("BAD_DRAFT_SHAPE",),
        says="S3.*must match the size",
        seen="RuntimeError: The size of tensor a",
    ),
    Failure(
        id="import-error",
        failure_class="crash in a patched file",
        cause="a patched worker imports a module that is not there",
        code={WORKER: "\nimport sglang.srt.speculative.no_such_module\n"},
        expect=("IMPORT",),
        says="no_such_module",
        seen="ModuleNotFoundError: ",
    ),
    Failure(
        id="syntax-error",
        failure_class="crash in a patched file",
        cause="a patched worker does not compile",
        code={WORKER: "\ndef broken(:\n"},
        expect=("SYNTAX",),
        seen="SyntaxError: ",
    ),
    Failure(
        id="gate-steps",
        failure_class="gate",
        cause="the number of draft steps is not among the gate's candidates",
        gate={"1": {"candidate_steps": [2]}, "6": {"candidate_steps": [0]}},
        expect=("ADAPT_STEPS",),
        seen="is not in the adaptive config",
    ),
    Failure(
        id="gate-off",
        failure_class="gate",
        cause="the native gate with topk 2, which it does not take: SGLang goes on without it",
        flags={"--speculative-eagle-topk": "2", "--speculative-num-draft-tokens": "6"},
        gate=GATE,
        expect=("ADAPT_OFF",),
        says="topk",
        seen="speculative_adaptive disabled: ",
    ),
    Failure(
        id="slow-disk",
        failure_class="slow disk that is not a failure",
        cause="30 s of reads at 4 MB/s without a word in the log, against a progress clock of 10 s",
        code={LOADER: SLOW_DISK},
        env={"INDUCED_SLOW_S": "30"},
        strike=await_words(LOADING),
        progress_s=10.0,
    ),
)
