# `make demo` and `make test` each do everything on a machine with Python 3.11 and make.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup demo test test-full lint format bench bench-accuracy bench-speed bench-host bench-bfc bench-plan bench-gradients bench-guard bench-data bench-monitor bench-explain clean

help:
	@echo "make demo            an example estimated for three GPUs; one that runs out of memory, explained, and carried through"
	@echo "make test            the tests (a fair sample of the long series); make test-full: all of them"
	@echo "make lint            ruff and mypy; make format: let ruff rewrite"
	@echo "make bench-accuracy  predictions against a real H200 and this CPU's allocator, written to docs/accuracy.md (long)"
	@echo "make bench-plan      plans under half of a model's peak, and what cutting a step costs, written to docs/accuracy-plan.md"
	@echo "make bench-gradients planned steps against whole ones on generated models, written to docs/accuracy-plan.md (long)"
	@echo "make bench-host      predicted and measured RAM of data pipelines, written to docs/accuracy-host.md"
	@echo "make bench-guard     real out-of-memory errors under the guard, written to docs/guard.md (long)"
	@echo "make bench-data      data on demand: memory, copies, throughput, order and kills, written to docs/data.md (long)"
	@echo "make bench-run       scripts killed at random times under legroom run, written to docs/run.md"
	@echo "make bench-monitor   what watching costs, and leaks, written to docs/monitor.md"
	@echo "make bench-explain   a log of 1 GB, and mutated logs"
	@echo "make bench-speed     time and memory of an estimate, written to docs/speed.md"
	@echo "make setup           only the environment: .venv, and the XLA compilers in theirs"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Legroom needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	$(BIN)/legroom oracle install
	touch $(READY)

setup: $(READY)

demo: $(READY)
	@for gpu in t4 rtx4090 a100-40gb; do \
	    echo; echo "\$$ legroom estimate examples/train_cnn.py --gpu $$gpu"; \
	    $(BIN)/legroom estimate examples/train_cnn.py --gpu $$gpu || [ $$? -eq 1 ]; \
	done
	@echo; echo "$$ python examples/train_too_large.py      in 1 GiB, TensorFlow's own limit"
	@TF_CPU_ALLOCATOR_USE_BFC=1 TF_CPU_BFC_MEM_LIMIT_IN_MB=1024 TF_ENABLE_ONEDNN_OPTS=0 $(BIN)/python examples/train_too_large.py > .demo.log 2>&1 \
	    && echo "it fits here" || tail -n 4 .demo.log | cut -c 1-160
	@echo; echo "$$ legroom explain train.log"; $(BIN)/legroom explain .demo.log || [ $$? -eq 1 ]; rm -f .demo.log
	@echo; echo "$$ legroom run --budget 1GiB examples/train_too_large.py"; TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/legroom run --budget 1GiB examples/train_too_large.py

test: $(READY)
	$(BIN)/python -m pytest -q -m "not slow" -n 2 --dist loadfile

test-full: $(READY)
	$(BIN)/python -m pytest -q

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: bench-accuracy bench-speed

bench-accuracy: $(READY)
	$(BIN)/python bench/accuracy.py
	$(BIN)/python bench/op_accuracy.py all

bench-plan: $(READY)
	$(BIN)/python bench/plan.py --write
	$(BIN)/python bench/accumulation.py --write
	$(BIN)/python bench/largest_on_cpu.py --write

bench-guard: $(READY)
	$(BIN)/python bench/guard.py --write

bench-data: $(READY)
	$(BIN)/python bench/data.py

bench-run: $(READY)
	$(BIN)/python bench/run.py --write

bench-monitor: $(READY)
	$(BIN)/python bench/monitor.py

bench-explain: $(READY)
	$(BIN)/python bench/explain.py --logs --fuzz 100000

bench-gradients: $(READY)
	$(BIN)/python bench/gradients.py --write

bench-host: $(READY)
	$(BIN)/python bench/host.py --write

bench-bfc: $(READY)
	$(BIN)/python bench/bfc.py

bench-speed: $(READY)
	$(BIN)/python bench/speed.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
