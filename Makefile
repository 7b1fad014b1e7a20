# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint unit e2e e2e-older e2e-tp e2e-sweep live-systemd faults zoo zoo-deploys smoke-healthy smoke-url gate-proof patch-matrix clean

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "specops needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[lab,dev]'
	touch $@

demo: $(READY)
	$(BIN)/python tests/demo.py

test: lint $(READY)
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check specops tests benchmarks
	$(BIN)/mypy

unit: $(READY)
	$(BIN)/python -m pytest tests/unit tests/golden tests/conformance tests/faults

e2e: $(READY)
	$(BIN)/python -m pytest tests/sglang tests/e2e

e2e-older: $(READY)
	SPECOPS_E2E_OLDER=1 $(BIN)/python -m pytest -o timeout=9000 tests/e2e/test_batch_gate.py

e2e-tp: $(READY)
	SPECOPS_E2E_TP=1 $(BIN)/python -m pytest -o timeout=3600 tests/e2e/test_two_ranks.py

e2e-sweep: $(READY)
	SPECOPS_E2E_SWEEP=1 $(BIN)/python -m pytest -o timeout=5400 tests/e2e/test_sweep.py

live-systemd: $(READY)
	unshare --mount sh tests/own_systemd.sh $(BIN)/python -m pytest tests/unit/remote/live_systemd.py

zoo: $(READY)
	$(BIN)/python -m benchmarks.zoo
	$(BIN)/python -m benchmarks.zoo --release 0.5.12.post1 --out benchmarks/results/zoo_v1.json

faults: $(READY)
	$(BIN)/python -m benchmarks.faults

zoo-deploys: $(READY)
	SPECOPS_ZOO_DEPLOYS=1 $(BIN)/python -m pytest tests/e2e/test_zoo.py

smoke-healthy: $(READY)
	$(BIN)/python -m benchmarks.smoke_healthy --release 0.5.18 --release 0.5.20 --release 0.5.23 --release 0.5.12.post1

smoke-url: $(READY)
	SPECOPS_SMOKE_URL=1 $(BIN)/python -m pytest tests/sglang/test_smoke_url.py

gate-proof: $(READY)
	$(BIN)/python -m benchmarks.gate_proof

patch-matrix: $(READY)
	$(BIN)/python -m benchmarks.patch_matrix

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache
