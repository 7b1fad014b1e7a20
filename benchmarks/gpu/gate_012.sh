#!/usr/bin/env bash
# gate_012.sh v1|v2 MODELS OUT: the gate of 0.5.12.post1 on one GPU, within ten minutes.
#   v1: topk 4, 5 steps, 16 draft tokens (EAGLEWorker)      v2: topk 1, 3 steps (EAGLEWorkerV2)
# MODELS holds target/ and draft/; weights are dummies unless LOAD_FORMAT says otherwise, and then the accept
# length is simulated (ACCEPT, 2.5), which hides stale draft state: such a run is about speed and survival only.
# SITE (/tmp/sgl) is an unpacked install whose sglang folder is pristine. Run from the repository's root.
# Writes OUT/rows.jsonl, one line a level, arm and repeat, and OUT/*.log.
set -euo pipefail
worker=$1 models=$2 out=$3
site=${SITE:-/tmp/sgl} port=${PORT:-31599} here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd) patched=${PATCHED:-/tmp/sgl-gated}
mkdir -p "$out"
case $worker in
  v1) steps=5 topk=4 drafts=16 ;;
  v2) steps=3 topk=1 drafts=4 ;;
  *) echo "v1 or v2, not $worker" >&2; exit 2 ;;
esac

rm -rf "$patched" && mkdir -p "$patched" && cp -r "$site/sglang" "$patched/sglang"
for diff in "$root"/patches/batch-gate/releases/0.5.12.post1/*.diff; do
  git apply --unsafe-paths --directory="$patched/sglang" "$diff"
done
cp "$root"/patches/batch-gate/files/*.py "$patched/sglang/srt/speculative/"

spec=(--speculative-algorithm EAGLE3 --speculative-draft-model-path "$models/draft" --speculative-num-steps "$steps"
  --speculative-eagle-topk "$topk" --speculative-num-draft-tokens "$drafts")
common=(--model-path "$models/target" --served-model-name gpu --host 127.0.0.1 --port "$port"
  --load-format "${LOAD_FORMAT:-dummy}" --attention-backend "${ATTENTION:-triton}" --sampling-backend pytorch
  --grammar-backend none --max-running-requests 128 --cuda-graph-max-bs 128 --disable-piecewise-cuda-graph
  --decode-log-interval 20 --enable-metrics --mem-fraction-static 0.8)
server=
stop() {
  [ -n "$server" ] || return 0
  kill -TERM -- "-$server" 2>/dev/null || true
  for _ in $(seq 40); do kill -0 -- "-$server" 2>/dev/null || break; sleep 0.25; done
  kill -KILL -- "-$server" 2>/dev/null || true
  server=
}
trap stop EXIT

start() { # start NAME PYTHONPATH-PREFIX ARGS...
  local name=$1 path=$2; shift 2
  [ "${LOAD_FORMAT:-dummy}" != dummy ] || export SGLANG_SIMULATE_ACC_LEN=${ACCEPT:-2.5}
  PYTHONPATH=$path${PYTHONPATH:+:$PYTHONPATH} setsid python3 -m sglang.launch_server "${common[@]}" "$@" \
    >"$out/$worker-$name.log" 2>&1 </dev/null &
  server=$!
  for _ in $(seq 200); do
    curl -sf -m 5 "http://127.0.0.1:$port/health_generate" >/dev/null && return 0
    kill -0 "$server" 2>/dev/null || break
    sleep 1
  done
  echo "$name did not come up:"; tail -15 "$out/$worker-$name.log" | cut -c1-300
  return 1
}
levels() { # levels ARM THRESHOLD
  python3 "$here/gate_levels.py" --url "http://127.0.0.1:$port" --arm "$1" --threshold "$2" \
    --levels "${LEVELS:-1,2,5,6,10,30,64}" --repeats "${REPEATS:-2}" --tokens "${TOKENS:-192}" --out "$out/rows.jsonl"
}

start no-spec "$site" && levels no-spec none || true
stop
start always-on "$site" "${spec[@]}" && levels always-on none || true
stop
if start gated "$patched" "${spec[@]}" --speculative-disable-batch-threshold 5; then
  levels gated 5 || true
  levels always-closed 0 || true
  levels always-open 1000000 || true
  curl -s "http://127.0.0.1:$port/get_server_info" | python3 -c '
import json, sys
gate = json.load(sys.stdin)["internal_states"][0]["speculative_gate"]
print({key: value for key, value in gate.items() if key != "ring"})'
fi
grep -h "Speculative gate captured\|Speculative gate caught" "$out/$worker-gated.log" | tail -5 || true
grep -h "gate: closed" "$out/$worker-gated.log" | tail -2 || true
grep -hc "Traceback\|leak detected\|Scheduler hit" "$out/$worker-gated.log" || true
stop
python3 "$here/gate_levels.py" --table "$out/rows.jsonl"
