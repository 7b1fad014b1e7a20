#!/usr/bin/env bash
# tp_deploy.sh SITE WORK OUT [ARGS]: one gated deploy over all GPUs of a bare, offline host, by specops itself
# (address `local`), within ten minutes: the proof, its arms, a rank killed in S3, rollback, nothing left.
#   SITE  an unpacked, pristine install of SGLang 0.5.12.post1: sglang/ and what it imports beside it
#   WORK  a folder for everything that is made here
#   OUT   gets tp_gpu.json after every row, the deploys' events, and the servers' logs
#   ARGS  of benchmarks/gpu/tp_deploy.py: --budget-s, --levels, --tokens, --port
# The dependencies of specops are taken from WHEELS (.gpu/wheels) where this python3 lacks them.
set -euo pipefail
site=$(realpath "$1") work=$2 out=$3
shift 3
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$work" "$out"
work=$(realpath "$work") out=$(realpath "$out")
wheels=${WHEELS:-$root/.gpu/wheels} path=$root

# The instance's interpreter: SITE first, then the packages of this python3 (its torch), as in one environment.
install=$work/install
rm -rf "$install"
python3 -m venv --without-pip "$install"
place=$("$install/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
{
  echo "$site"
  for part in "$site"/c/nvidia_cutlass_dsl/*_packages; do [ ! -d "$part" ] || echo "$part"; done
  python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])'
  if [ -f "$site/sitecustomize.py" ]; then
    cp "$site/sitecustomize.py" "$place/site_standins.py"
    echo "import site_standins"
  fi
} >"$place/specops-site.pth"

for name in typer rich yaml requests aiohttp; do
  PYTHONPATH=$path python3 -c "import $name" 2>/dev/null && continue
  python3 -m pip install -q --no-index --no-deps --no-compile --upgrade --target "$work/deps" "$wheels"/*.whl
  path=$root:$work/deps
  break
done

# A program that uses NVLink multicast can put the cards of a shared host out of service.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
export PYTHONPATH=$path PYTHONUNBUFFERED=1
cd "$root"
exec python3 -m benchmarks.gpu.tp_deploy --python "$install/bin/python" --work "$work/run" --out "$out" "$@"
