"""Signatures against lines as SGLang, torch and CUDA write them: their literals, or real logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.literals import SIGNATURES
from specops.remote.diagnose import Diagnosis, describe, load_signatures
from specops.remote.logscan import LogReader, Progress, rank_of

LINES = {
    "UNKNOWN_FLAG": "launch_server.py: error: unrecognized arguments: --speculative-foo 3",
    "CAPTURE_OOM": "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "CAPTURE_FAIL": "Exception: Capture prefill CUDA graph failed: invalid argument",
    "NO_KV_MEM": "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
    " Current value: mem_fraction_static=0.3",
    "NO_KV_MEM ": "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem",
    "CUDA_OOM": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1024.00 MiB. GPU 0 "
    "has a total capacity of 79.15 GiB of which 512.00 MiB is free.",
    "HOST_OOM": "RuntimeError: [enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't "
    "allocate memory: you tried to allocate 17179869184 bytes.",
    "MEM_UNBALANCED": "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other "
    "processes. pre_model_load_memory=70.1, local_gpu_memory=12.0",
    "ADAPT_LOGITS": "RuntimeError: shared logits buffer holds 160 rows but caller needs 320",
    "ADAPT_STEPS": "ValueError: --speculative-num-steps=2 is not in the adaptive config candidate_steps [0, "
    "3]. Pass one of those values.",
    "ADAPT_CFG": "ValueError: BS 6: candidate_steps must be a list of positive ints, got [0]",
    "SPEC_V2_TOPK": "ValueError: Spec v2 currently only supports topk = 1 for better performance.",
    "BAD_DRAFT_SHAPE": "RuntimeError: The size of tensor a (160) must match the size of tensor b (2) at "
    "non-singleton dimension 0",
    "BAD_DRAFT_ATTR": "AttributeError: 'LlamaForCausalLM' object has no attribute "
    "'set_eagle3_layers_to_capture'",
    "MODEL_MISSING": "OSError: /models/none is not a local folder and is not a valid model identifier "
    "listed on 'https://huggingface.co/models'",
    "SHARD_BROKEN": "RuntimeError: model.safetensors.index.json references 1 shard file(s) missing from /m "
    "(incomplete download?): ['model-00002-of-00002.safetensors']",
    "SHARD_BROKEN ": "safetensors_rust.SafetensorError: Error while deserializing header: incomplete",
    "PORT_USED": "torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
    "network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE",
    "PORT_USED ": "ValueError: rpc_port at 30236 is used by a process already. process.name()='python' "
    "process.cmdline()=['python', '-m', 'http.server'] process.status()='sleeping' pid=4711",
    "HTTP_PORT_USED": "[Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): "
    "address already in use",
    "LOAD_UNEVEN": "ValueError: TP rank 3 could finish the model loading, but there are other ranks that "
    "didn't finish loading.",
    "IMA": "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
    "IDX_OOB": "/pytorch/aten/src/ATen/native/cuda/IndexKernelUtils.cu:16: vectorized_gather_kernel: block: "
    '[4,0,0], thread: [0,0,0] Assertion `ind >=0 && ind < ind_dim_size && "vectorized gather kernel index '
    'out of bounds"` failed.',
    "DEV_ASSERT": "torch.AcceleratorError: CUDA error: device-side assert triggered",
    "ZERODIV": "ZeroDivisionError: division by zero",
    "UNPACK": "ValueError: too many values to unpack (expected 2)",
    "IMPORT": "ModuleNotFoundError: No module named 'sglang.srt.speculative.batch_gate'",
    "PACKAGE_OLD": "Exception: sglang-kernel is installed with version 0.4.2.post2, which is less than the "
    "minimum required version 0.4.4. Please reinstall the latest version",
    "SYNTAX": "SyntaxError: invalid syntax",
    "KV_LEAK": "ValueError: token_to_kv_pool_allocator memory leak detected! available_size=10, "
    "protected_size=0, max_total_num_tokens=20",
    "POOL_OOM": "[2026-11-30 05:00:00] Decode out of memory. Try to lower your batch size.",
    "WATCHDOG": "[2026-11-30 05:00:00 TP0] Scheduler watchdog timeout "
    "(self.watchdog_timeout=300, self.soft=False)",
}

OF_OTHERS = ("PORT_USED", "SHARD_BROKEN ")
"""Lines of torch and safetensors, beside SGLang's own for the same cause."""


def test_every_root_has_a_line_and_the_table_is_sound() -> None:
    roots = {entry.id for entry in load_signatures() if entry.role == "root"}
    assert roots == {name.strip() for name in LINES}
    assert all(entry.cause and entry.action for entry in load_signatures() if entry.role == "root")
    assert len({entry.id for entry in load_signatures()}) == len(load_signatures())


@pytest.mark.parametrize("name", sorted(LINES))
def test_a_line_matches_exactly_one_root(name: str) -> None:
    matching = [s.id for s in load_signatures() if s.role == "root" and s.pattern.search(LINES[name])]
    assert matching == [name.strip()]
    own = SIGNATURES.get(name.strip(), ())
    assert not own or name in OF_OTHERS or any(words.strip() in LINES[name] for words in own), (
        "not a line that SGLang writes"
    )


def feed(text: str, *, gate: bool = False) -> Diagnosis:
    diagnosis = Diagnosis(gate_expected=gate)
    for at, line in enumerate(text.splitlines()):
        diagnosis.feed(line, float(at))
    return diagnosis


def test_the_first_rank_that_failed_is_the_cause_and_not_what_followed() -> None:
    root = feed(
        "[t TP2] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "a.py", line 1, in f\n'
        "    x\n"
        "RuntimeError: something nobody has a name for\n"
        "\n"
        "[t TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "b.py", line 1, in f\n'
        "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, unhandled cuda error\n"
        "\n"
        "[t] SIGQUIT received. signum=None, frame=None. It usually means one child failed.\n"
    ).root()
    assert root is not None
    cause = describe(root)
    assert (cause["id"], cause["rank"]) == ("SCHED_EXC", "TP2")
    assert "something nobody has a name for" in cause["message"]


def test_a_secondary_alone_is_still_better_than_nothing() -> None:
    root = feed("[t] Received sigquit from a child process. It usually means the child failed.").root()
    assert root is not None
    assert root.secondary


def test_an_assertion_above_the_traceback_is_the_root() -> None:
    diagnosis = feed(
        LINES["IDX_OOB"]
        + "\n[t TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        + '  File "a.py", line 1, in f\n'
        + LINES["DEV_ASSERT"]
        + "\nCUDA kernel errors might be asynchronously reported at some other API call\n\n"
    )
    root = diagnosis.root()
    assert root is not None
    assert root.signature is not None
    assert root.signature.id == "IDX_OOB"
    assert diagnosis.settled


def test_a_harmless_traceback_of_a_request_is_not_fatal_and_loses_to_the_real_one() -> None:
    text = (
        "[t] Exception in ASGI application\nTraceback (most recent call last):\n"
        '  File "a.py", line 1, in f\nKeyError: nothing\n[t] goes on\n'
    )
    assert feed(text).fatal is None
    real = "[t TP0] Scheduler hit an exception: Traceback (most recent call last):\n  x\n" + LINES["ZERODIV"]
    root = feed(text + real).root()
    assert root is not None
    assert describe(root)["id"] == "ZERODIV"


def test_what_others_say_of_a_dead_rank_is_no_cause_of_its_own() -> None:
    lines = (
        "Traceback (most recent call last):\n"
        '  File "engine.py", line 1, in _wait_for_scheduler_ready\n'
        "    data = scheduler_pipe_readers[i].recv()\n"
        "EOFError\n",
        "\nDuring handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n"
        '  File "engine.py", line 2, in _wait_for_scheduler_ready\n'
        "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9\n",
    )
    whole = "".join(lines).splitlines()
    for end in range(1, len(whole)):
        root = feed("\n".join(whole[:end])).root()
        assert root is None or root.secondary
    root = feed("".join(lines)).root()
    assert root is not None
    assert (root.signature and root.signature.id) == "RANK_DIED_INIT"


def test_a_warning_long_before_the_crash_is_not_its_cause() -> None:
    diagnosis = Diagnosis()
    warned = "[t] OpenAI Responses API (/v1/responses) disabled: init failed (ModuleNotFoundError: No module)"
    crash = "[t TP0] Scheduler hit an exception: Traceback (most recent call last):\n  x\n" + LINES["UNPACK"]
    diagnosis.feed(warned, 0.0)
    diagnosis.feed(LINES["PORT_USED"], 1.0)
    for line in crash.splitlines():
        diagnosis.feed(line, 100.0)
    root = diagnosis.root()
    assert root is not None
    assert describe(root)["id"] == "UNPACK"
    assert feed(warned).root() is None


def test_a_chained_traceback_ends_with_its_last_exception() -> None:
    diagnosis = feed(
        "[t TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "a.py", line 1, in f\n'
        "KeyError: 3\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n"
        '  File "b.py", line 2, in g\n'
        "ValueError: too many values to unpack (expected 2)\n"
    )
    root = diagnosis.root()
    assert root is not None
    assert "too many values" in describe(root)["message"]


def test_an_exception_that_ends_the_launcher_is_fatal_before_that_is_gone() -> None:
    """Python with torch loaded takes two seconds to end."""
    refused = "ValueError: --speculative-num-steps=3 is not in the adaptive config candidate_steps [0, 2]."
    raised = [
        "Traceback (most recent call last):",
        '  File "/x/hook.py", line 804, in init',
        "    raise",
        refused,
    ]
    handled = ["", "During handling of the above exception, another exception occurred:", ""]
    diagnosis = Diagnosis()
    for number, line in enumerate(raised):
        diagnosis.feed(line, float(number))
    assert diagnosis.fatal is not None
    assert diagnosis.settled
    for line in [*handled, raised[0], raised[1], "ValueError: something else"]:
        diagnosis.feed(line, 9.0)
    assert diagnosis.fatal is None, "what was raised last is what ended it"


def test_a_log_can_hold_anything(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    reader = LogReader(path)
    assert reader.read_lines() == []
    path.write_bytes(b"one\r 10%|x\r\ntw")
    assert reader.read_lines() == ["one", " 10%|x"]
    with open(path, "ab") as file:
        file.write(b"o\n\xff\xfe\0binary\x1b[31m red\n" + b"z" * 300_000)
        file.flush()
        lines = reader.read_lines()
        assert lines[:2] == ["two", "\ufffd\ufffdbinary red"]
        assert len(lines[2]) == 64 * 1024
        file.write(b"z" * 1000 + b"\nafter\n")
    assert reader.read_lines() == ["after"]
    path.write_bytes(b"new\n")  # copied and truncated
    assert reader.read_lines() == ["new"]
    path.unlink()
    path.write_bytes(b"replaced by a longer one\nhalf")
    assert reader.read_lines(final=True) == ["replaced by a longer one", "half"]


def test_progress_goes_forward_by_milestone_and_rank() -> None:
    progress = Progress()
    for line in (
        "[2026-11-30 05:00:00 TP0] Init torch distributed begin.",
        "[2026-11-30 05:00:00 TP1] Init parallel begin.",  # 0.5.21 and later
        "[2026-11-30 05:00:01 TP0] Load weight begin. avail mem=78.00 GB",
        "Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:10<00:10,  5.0s/it]",
    ):
        assert progress.take(line)
    assert progress.milestone == "weights"
    assert progress.fraction == pytest.approx(0.4)
    assert not progress.take("[2026-11-30 05:00:02 TP0] Init torch distributed begin.")
    assert progress.seen["processes"] == {"TP0", "TP1"}
    assert rank_of("[2026-11-30 05:00:00 DP1 TP3] x") == "DP1 TP3"
