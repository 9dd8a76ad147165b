# Two commands do everything: `make demo` and `make test`. Both create .venv when it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What `make bench` reads; give real text and a real vocabulary for figures that mean something. With MODEL, a Hugging
# Face folder of an uncased BERT, and MRPC, a folder of GLUE, it also measures fine-tuning, exports and vectors.
TEXT ?= data/demo/train.txt
VOCAB ?= vocab/demo_uncased.txt

# With it, each of the many processes of the tests would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo demo-classifier test test-slow test-endurance faults lint docs notebooks bench clean

# setuptools warns of every editable installation, in ten lines.
PIP_INSTALL := PYTHONWARNINGS=ignore::UserWarning $(BIN)/python -m pip install --quiet --editable

install: $(VENV)/.tests

$(VENV)/.base: pyproject.toml
	@echo "installing the project and TensorFlow into $(VENV): 2.3 GB, about a minute"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(PIP_INSTALL) .
	touch $@

$(VENV)/.tests: $(VENV)/.base
	@echo "installing what the tests need into $(VENV), too: another 2 GB, two or three minutes"
	$(PIP_INSTALL) ".[test]"
	touch $@

$(VENV)/.docs: $(VENV)/.base
	$(PIP_INSTALL) ".[docs]"
	touch $@

demo: $(VENV)/.base
	rm -rf demo_output
	$(BIN)/official-bert demo

demo-classifier: $(VENV)/.base
	rm -rf demo_classifier_output
	$(BIN)/official-bert demo --task=classification

test: install
	$(BIN)/python -m pytest

test-slow: install
	$(BIN)/python -m pytest -m "slow and not endurance"

# What the other tests reach, again with other settings, formats, programs or random numbers, and minutes of load.
test-endurance: install
	$(BIN)/python -m pytest -m endurance $(TESTS)

# Kills, signals, damaged files and minutes of load: the long tests of docs/reliability.md.
faults: install
	$(BIN)/python -m pytest -m "slow or not slow" tests/faults tests/fuzzing tests/training/test_interruptions.py \
	  tests/training/test_save_and_stop.py tests/serving/test_server.py

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Reads the pages and the docstrings and writes site/, which opens from file://; a link that leads nowhere is an error.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "open site/index.html"

# Runs the notebooks, each as after a fresh clone, and stores what they print and draw: about two minutes each.
notebooks: $(VENV)/.base
	$(PIP_INSTALL) ".[notebooks,serve]"
	$(BIN)/python tools/run_notebooks.py

bench: install
	$(PIP_INSTALL) ".[bench]"
	$(BIN)/python benchmarks/summary.py --text $(TEXT) --vocab_file $(VOCAB) $(if $(MODEL),--model $(MODEL) --mrpc $(MRPC))

clean:
	rm -rf $(VENV) demo_output demo_classifier_output notebooks/output site
