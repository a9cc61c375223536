# What there is to do in a checkout. Each target sets up what it needs in .venv and is quick the second time.
SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
DOCS_VENV := .cache/docs-site/venv
INVENTORY := inventories/quickstart/hosts.yml
COLLECTION := ansible_collections.modelplane.fleet
MODULE_UTILS := tests/unit/plugins/module_utils

# Without byte code every start of Ansible compiles it again, which is most of its time.
unexport PYTHONDONTWRITEBYTECODE
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
export ANSIBLE_LOCALHOST_WARNING := False

.PHONY: help setup quickstart check test lint types docs generated conformance unit unit-core unit-module-utils unit-others discovery sanity oldest \
  molecule matrix integration interrupted kube bench clean docs-site

help: ## what there is to do
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 14

$(BIN)/python:
	@python="$$(sh tests/find_python.sh)" && echo "Setting up $(VENV) with $$python" && "$$python" -m venv --clear $(VENV)

# Most of what is installed is never imported, and what is gets its byte code then.
$(VENV)/runtime.installed: requirements.txt | $(BIN)/python
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -r requirements.txt
	@touch $@

$(VENV)/tests.installed: tests/requirements.txt $(VENV)/runtime.installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -r tests/requirements.txt
	@touch $@

setup: $(VENV)/tests.installed ## fill .venv with what tests need

quickstart: $(VENV)/runtime.installed ## plan and build the sample fleet
	@$(BIN)/ansible-playbook modelplane.fleet.plan -i $(INVENTORY)
	@echo "Every object is a file under build/ now; build/plan.json has all placements and reasons, build/report.html shows them."
	@echo "Try next: . $(BIN)/activate, edit inventories/quickstart/manifests/models.yaml (replicas: 3, say), and see what would change:"
	@echo "  ansible-playbook modelplane.fleet.plan -i $(INVENTORY) --check --diff"
	@echo "and, for manifests of your own: ansible-playbook modelplane.fleet.validate -e fleet_resources=FOLDER"

check: $(VENV)/tests.installed ## what takes minutes: linters, types, documentation, and the tests that start nothing
	@$(MAKE) --no-print-directory -j2 -O lint unit-module-utils unit-core unit-others types docs generated conformance

test: ## everything that has to pass
	@$(MAKE) --no-print-directory check
	@$(MAKE) --no-print-directory -j2 -O sanity oldest molecule
	@$(MAKE) --no-print-directory integration

lint: $(VENV)/tests.installed ## ruff, ansible-lint, and the rules of docs/contributing/style.md
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@more="$$(PYTHONPATH=.collections $(BIN)/python tests/packages.py)" && PATH="$(CURDIR)/$(BIN):$$PATH" \
	  ANSIBLE_COLLECTIONS_PATH="$(CURDIR)/.collections:$$more" $(BIN)/ansible-lint --offline --profile production -qq
	@$(BIN)/antsibull-changelog lint
	@PYTHONPATH=.collections $(BIN)/python tests/check_words.py
	@PYTHONPATH=.collections $(BIN)/python tests/check_prose.py

types: $(VENV)/tests.installed ## mypy --strict over all plugins
	@$(BIN)/mypy --no-error-summary -p $(COLLECTION).plugins -p $(COLLECTION).extensions.eda

docs: $(VENV)/tests.installed ## ansible-doc of every plugin
	@$(BIN)/python tests/check_docs.py

generated: $(VENV)/tests.installed ## the CRDs, JSON Schemas and field pages are those of the models
	@$(BIN)/python tests/generated/generate.py --check

conformance: $(VENV)/tests.installed ## recorded answers of the reference implementation and of Kubernetes
	@$(BIN)/python tests/conformance/run.py tests/conformance/cases/*.json

unit: ## the tests that start nothing
	@$(MAKE) --no-print-directory -j2 -O unit-module-utils unit-core unit-others

# Each part imports its own tests only, while every worker of pytest-xdist imports all.
unit-core: discovery
	@$(BIN)/python -m pytest -q -rs -m 'not integration' $(MODULE_UTILS)/core

unit-module-utils: discovery
	@$(BIN)/python -m pytest -q -rs -m 'not integration' --ignore=$(MODULE_UTILS)/core $(MODULE_UTILS)

unit-others: discovery
	@$(BIN)/python -m pytest -q -rs -m 'not integration' --ignore=$(MODULE_UTILS)

discovery: $(VENV)/tests.installed
	@PYTHONPATH=.collections $(BIN)/python -m $(COLLECTION).tests.gcp.documents

sanity: $(VENV)/tests.installed ## ansible-test sanity, on a copy of what users get
	@PYTHONPATH=.collections $(BIN)/python tests/sanity/run.py

oldest: $(VENV)/tests.installed ## a few tests of each kind on the oldest ansible-core that the collection supports
	@PYTHONPATH=.collections $(BIN)/python tests/cores.py oldest

molecule: $(VENV)/tests.installed ## the scenario `default` of molecule: a fleet of files is created, changed and removed
	@mkdir -p tests/output && export PATH="$(CURDIR)/$(BIN):$$PATH" && { $(BIN)/molecule test --scenario-name default \
	  >tests/output/molecule.log 2>&1 || { cat tests/output/molecule.log; exit 1; }; }

matrix: $(VENV)/tests.installed ## unit and playbook tests on each ansible-core that the collection supports
	@PYTHONPATH=.collections $(BIN)/python tests/cores.py matrix

integration: $(VENV)/tests.installed kube ## the tests on real parts: Ansible, control planes, Helm, simulated clouds; whole fleets on them
	@$(BIN)/python -m pytest -q -rs -n 3 --dist loadfile --no-loadscope-reorder -m 'integration and not interrupted'

interrupted: $(VENV)/tests.installed kube ## what takes long: failures at each call in turn, kills, changes of cloud clusters, and whole sites on them
	@COLD=1 $(BIN)/python -m pytest -q -rs -n 2 --dist loadfile -m interrupted

kube: | $(BIN)/python ## find, or build once, the Kubernetes control plane that some tests run on (needs Go)
	@$(BIN)/python tests/kube/binaries.py

docs-site: $(DOCS_VENV)/installed ## the documentation as HTML, in .cache/docs-site/html
	@$(DOCS_VENV)/bin/python docs/docsite/build.py

$(DOCS_VENV)/installed: docs/docsite/requirements.txt
	@python="$$(sh tests/find_python.sh)" && echo "Setting up $(DOCS_VENV) with $$python" && "$$python" -m venv --clear $(DOCS_VENV)
	@$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -r docs/docsite/requirements.txt
	@touch $@

bench: $(VENV)/tests.installed ## what scheduling, building and applying cost at 1 to 5,000 clusters
	@$(BIN)/python tests/bench/run.py

clean: ## remove what the targets made
	rm -rf $(VENV) build .ansible .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache tests/output
