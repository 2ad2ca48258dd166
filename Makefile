# Every target does the set-up it needs; a second run does none. `make help` lists the targets.

VENV := .venv
PYTHON_IN_VENV := $(VENV)/bin/python
LOCK := requirements-lock.txt
PACKAGES := $(wildcard gnmt_tf serving tpu)
# Two processes at a time. For instance make test PYTEST_FLAGS="-n 8 --dist loadfile" or PYTEST_FLAGS=tests/text.
PYTEST_FLAGS ?= -n 2 --dist loadfile
CHECKED := $(PACKAGES) $(wildcard setup.py tests examples benchmarks tools)

ENGINE_OBJECTS := $(patsubst serving/engine/%.cc,%.o,$(filter-out %_test.cc,$(wildcard serving/engine/*.cc)))
# One folder for each way of building, such as make engine_test SANITIZE=address,undefined
ENGINE_BUILD := build/engine$(if $(SANITIZE),-$(SANITIZE))
# Products and sums stay apart: fused ones would round otherwise than the reference.
ENGINE_FLAGS := -std=c++17 -fPIC -pthread -ffp-contract=off -Wall -Wextra -Wno-psabi \
  $(if $(SANITIZE),-O1 -g -fno-omit-frame-pointer -fsanitize=$(SANITIZE) -fno-sanitize-recover=all,-O3)

# The ops call TensorFlow's C++ interface, and are built with the flags of the installed one.
OPS := gnmt_tf/ops/libgnmt_ops.so
OPS_FLAGS = -std=c++17 -fPIC -pthread -O2 -Wall -Wno-psabi -I. $(patsubst -I%,-isystem %,$(shell \
  $(PYTHON_IN_VENV) -c "import tensorflow as tf; print(*tf.sysconfig.get_compile_flags())" 2>/dev/null))
OPS_LINK_FLAGS = $(shell \
  $(PYTHON_IN_VENV) -c "import tensorflow as tf; print(*tf.sysconfig.get_link_flags())" 2>/dev/null)

.PHONY: help demo test check format lock install clean engine engine_test ops bazel
.DEFAULT_GOAL := help

help:
	@echo "make demo    train a small translator, measure it, export it, serve it and ask it (writes ./demo)"
	@echo "make test    run every test"
	@echo "make check   formatting, lint, types and the direction of imports"
	@echo "make ops     build the TensorFlow ops of the quantised engine"
	@echo "make engine  build the quantised engine as a library (build/engine)"
	@echo "make bazel   build engine and ops with Bazel and run the engine's tests (bazel-bin)"
	@echo "make format  format the Python files"
	@echo "make lock    renew $(LOCK) from the ranges in pyproject.toml"
	@echo "make clean   remove what building, testing and the demo left; $(VENV) stays"

install: $(VENV)/.project

$(VENV)/.dependencies: $(LOCK) tools/install.sh
	@tools/install.sh $(VENV) $(LOCK)
	@touch $@

# pyproject.toml and setup.py decide which commands and packages the installed project has.
$(VENV)/.project: $(VENV)/.dependencies pyproject.toml setup.py
	@echo "set-up: installing gnmt_tf itself (editable)"
	@# What an earlier build left here would hide the commands of this one.
	@rm -rf gnmt_tf.egg-info
	@$(PYTHON_IN_VENV) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: install
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" examples/demo.sh

test: install ops engine
	$(PYTHON_IN_VENV) -m pytest --durations=10 $(PYTEST_FLAGS)

check: install
	$(PYTHON_IN_VENV) -m ruff format --check $(CHECKED)
	$(PYTHON_IN_VENV) -m ruff check $(CHECKED)
	$(PYTHON_IN_VENV) -m mypy $(PACKAGES)
	$(PYTHON_IN_VENV) -m pytest tests/import_arrows_test.py

engine: $(ENGINE_BUILD)/libgnmt_engine.so

ops: $(OPS)

$(OPS): $(wildcard serving/ops/*.cc serving/engine/*.h) $(addprefix build/engine/,$(ENGINE_OBJECTS)) | $(VENV)/.dependencies
	@mkdir -p build/ops
	set -e; for source in $(wildcard serving/ops/*.cc); do \
	  $(CXX) $(OPS_FLAGS) -c $$source -o build/ops/$$(basename $$source .cc).o; done
	$(CXX) -shared -pthread build/ops/*.o $(filter %.o,$^) $(OPS_LINK_FLAGS) -o $@

engine_test: $(ENGINE_BUILD)/engine_test
	$(ENGINE_BUILD)/engine_test

# The ops are built with the headers of the installed TensorFlow.
bazel: | $(VENV)/.dependencies
	@tools/bazel.sh test --noshow_progress //:engine_test //:libgnmt_engine.so //:libgnmt_ops.so

build/.compiler:
	@tools/compiler.sh $(CXX)
	@mkdir -p $(@D) && touch $@

$(ENGINE_BUILD)/%.o: serving/engine/%.cc $(wildcard serving/engine/*.h) | build/.compiler
	@mkdir -p $(@D)
	$(CXX) $(ENGINE_FLAGS) -c $< -o $@

$(ENGINE_BUILD)/libgnmt_engine.so: $(addprefix $(ENGINE_BUILD)/,$(ENGINE_OBJECTS))
	$(CXX) $(ENGINE_FLAGS) -shared $^ -o $@

$(ENGINE_BUILD)/engine_test: $(addprefix $(ENGINE_BUILD)/,$(ENGINE_OBJECTS) engine_test.o)
	$(CXX) $(ENGINE_FLAGS) $^ -o $@

format: install
	$(PYTHON_IN_VENV) -m ruff format $(CHECKED)
	$(PYTHON_IN_VENV) -m ruff check --fix $(CHECKED)

lock:
	@tools/lock.sh $(LOCK)

clean:
	rm -rf $(OPS) bazel-* build dist demo *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(CHECKED) -type d -name __pycache__ -exec rm -rf {} +
