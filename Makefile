# Two commands do everything: `make demo` and `make test`. Both create .venv when it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What `make bench` reads; give real text and a real vocabulary for figures that mean something. With MODEL, a Hugging
# Face folder of an uncased BERT, and MRPC, a folder of GLUE, it also measures fine-tuning, exports and vectors.
TEXT ?= data/demo/train.txt
VOCAB ?= vocab/demo_uncased.txt

.PHONY: install demo demo-classifier test test-slow test-endurance faults lint docs notebooks bench clean

install: $(VENV)/.installed

# setuptools warns of every editable installation, in ten lines.
$(VENV)/.installed: pyproject.toml
	@echo "installing the project, TensorFlow and what the tests need into $(VENV): a few minutes"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	PYTHONWARNINGS=ignore::UserWarning $(BIN)/python -m pip install --quiet --editable ".[test]"
	touch $@

demo: install
	rm -rf demo_output
	$(BIN)/official-bert demo

demo-classifier: install
	rm -rf demo_classifier_output
	$(BIN)/official-bert demo --task=classification

test: install
	$(BIN)/python -m pytest

test-slow: install
	$(BIN)/python -m pytest -m "slow and not endurance"

# What the other tests check, again with other settings, programs or random numbers, and minutes of load.
test-endurance: install
	$(BIN)/python -m pytest -m endurance

# Kills, signals, damaged files and minutes of load: the long tests of docs/reliability.md.
faults: install
	$(BIN)/python -m pytest -m "slow or not slow" tests/faults tests/fuzzing tests/training/test_interruptions.py \
	  tests/training/test_save_and_stop.py tests/serving/test_server.py

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Reads the pages and the docstrings and writes site/; a link that leads nowhere is an error. Needs no network.
docs: install
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "open site/index.html"

# Runs the notebooks, each as after a fresh clone, and stores what they print and draw: about two minutes each.
notebooks: install
	$(BIN)/python -m pip install --quiet --editable ".[notebooks,serve]"
	$(BIN)/python tools/run_notebooks.py

bench: install
	$(BIN)/python -m pip install --quiet --editable ".[bench]"
	$(BIN)/python benchmarks/summary.py --text $(TEXT) --vocab_file $(VOCAB) $(if $(MODEL),--model $(MODEL) --mrpc $(MRPC))

clean:
	rm -rf $(VENV) demo_output demo_classifier_output notebooks/output site
