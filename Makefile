# `make demo`, `make app`, `make test` and `make lint` make their own virtual environment on first use.
PYTHON ?= python3
PYTEST_ARGS ?= -n 2
VENV := .venv
PY := $(VENV)/bin/python
INSTALL := $(PY) -m pip install --quiet -c constraints.txt

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo app test lint lavis clean

# Renders and indexes what is not there yet; the two runs start over each time, finished ones would only be read back.
demo: $(VENV)/installed
	rm -rf runs/recovr_demo runs/ivr_demo runs/demo-report
	$(PY) tools/index.py recipes/recovr_demo.yaml
	$(PY) tools/eval.py recipes/recovr_demo.yaml --run_dir runs/recovr_demo
	$(PY) tools/eval.py recipes/ivr_demo.yaml --run_dir runs/ivr_demo
	$(PY) tools/report.py runs/recovr_demo runs/ivr_demo --out runs/demo-report

# Search the demo world in a browser, until Ctrl-C.
app: $(VENV)/installed
	$(PY) tools/index.py recipes/recovr_demo.yaml
	$(PY) tools/app.py recipes/recovr_demo.yaml --open

# One thread a worker: pytest-xdist already uses the cores.
test: export OMP_NUM_THREADS ?= 1
test: $(VENV)/installed
	$(PY) -m pytest -q $(PYTEST_ARGS)

lint: $(VENV)/installed-dev
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy
	$(VENV)/bin/codespell

# An optional second BLIP, run by LAVIS's own code; its package pins an old transformers, so it comes without its needs.
lavis: $(VENV)/installed
	$(INSTALL) -e '.[lavis]'
	$(INSTALL) --no-deps salesforce-lavis==1.0.2

# Keeps the runs of the user: only those of `make demo` go.
clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis runs/recovr_demo runs/ivr_demo runs/demo-report
	find covr_lab tests tools -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/installed: setup.cfg constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; (3, 11) <= v < (3, 14) or sys.exit("covr_lab needs Python 3.11 to 3.13, not %d.%d: say which, e.g. make PYTHON=python3.11" % v)'
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade 'pip>=25,<27'
	$(INSTALL) -e '.[app,captions,dashboards,decord,quality,reasoning,tagger,test]'
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(INSTALL) -e '.[dev]'
	touch $@
