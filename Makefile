# Every target does its own set-up: all that a machine needs is Python 3.11 or newer, and make.
#
# The environment is .venv, made by uv from uv.lock. Where uv is missing it is put into a cache outside the tree.
# Benches have an environment of their own, .venv-bench: on the newest Python here that was built with optimisation.
# .venv-compiled is the same with wheels that have the modules of tools/compiled compiled: COMPILED=1 has a bench use it.

.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON ?= python3
BIN := .venv/bin
BENCH := $(if $(COMPILED),.venv-compiled,.venv-bench)
BENCH_PYTHON = $(if $(COMPILED),PYTHONSAFEPATH=1 )$(BENCH)/bin/python
COMPILED_TESTS := tests/unit/core tests/unit/bookie tests/unit/client tests/unit/wire tests/unit/broker tests/model/scripts tests/process/integration/test_idle_lac.py tests/process/integration/test_writer_killed.py
# mypyc's coroutines throw by a signature that Python deprecates since 3.12, and a warning is an error in tests
COMPILED_WARNINGS := -W 'ignore:the (type, exc, tb) signature of throw() is deprecated:DeprecationWarning'
OF_THE_HOUSE := tests/test_tidy.py tests/unit/tools/test_rule_index.py tests/unit/tools/test_diagrams.py
OF_THE_CORE := tests/unit/core tests/model/scripts
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/daybook/uv
UV := $(shell uv --version >/dev/null 2>&1 && echo uv || echo '$(CACHE)/bin/uv')
UV_PACKAGE := uv==0.13.9
SYNC = '$(UV)' sync --frozen --inexact --quiet --extra local

# $(call needs,COMMAND,TEXT): stop unless COMMAND is there.
needs = @command -v $(1) >/dev/null 2>&1 || { echo "make $@ needs $(2), and found no '$(1)' on the PATH." >&2; exit 2; }

.PHONY: help demo test check static bench bench-peer bench-broker bench-spark growth sim chaos chaos-topics power-cuts witness slo coverage mutants fuzz bit-flips explore reliability rules diagrams format proto crds images check-images e2e sync uv bench-environment compiled test-compiled bench-steps

help: ## show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' Makefile

demo: uv ## write real data, kill a bookie, the writer and a broker, compare, compact and count with Spark: INPUT=path takes your own files
	@$(SYNC) --no-default-groups --extra demo --extra spark
	@$(BIN)/daybook demo $(if $(INPUT),--input '$(INPUT)')

test: static $(if $(PYTEST),,coverage) ## everything that a change must pass: PYTEST='…' runs these tests alone
	@$(BIN)/python -m pytest -n 2 --dist worksteal $(or $(PYTEST),$(OF_THE_CORE:%=--properties-of=%))

check: static ## lint, format, types and layers, the house's own rules, and that generated pages are current
	@$(BIN)/python -m pytest -q -n 2 $(OF_THE_HOUSE)

static: sync
	@failed=0; for step in 'ruff check' 'ruff format --check' mypy 'lint-imports --no-logo'; do \
	  echo "== $$step"; $(BIN)/$$step || failed=1; done; exit $$failed

format: sync ## rewrite the sources in the house's format
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format .

proto: sync ## generate the code of the .proto files in daybook/wire anew
	@$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. daybook/wire/bookie.proto daybook/wire/pulsar/pulsar.proto

sim: sync ## simulate the core under faults: SEEDS=a..b, or SEED=n TRACE=1 for one seed as a readable trace
	@$(BIN)/python -m tests.model.sim $(if $(SEED),--seed $(SEED),$(if $(SEEDS),--seeds $(SEEDS))) $(if $(TRACE),--trace)

chaos: sync ## real processes under drawn faults, judged at the end: SEED=n SEEDS=count MINUTES=m (of faults for each seed)
	@$(BIN)/python -m tests.process.chaos --seed $(or $(SEED),1) --seeds $(or $(SEEDS),5) --minutes $(or $(MINUTES),1)

chaos-topics: sync ## the same for brokers, bookies and ZooKeeper under Pulsar's own client: SEED=n SEEDS=count MINUTES=m
	@$(BIN)/python -m tests.process.chaos.topics --seed $(or $(SEED),1) --seeds $(or $(SEEDS),5) --minutes $(or $(MINUTES),1)

power-cuts: sync ## cut the power of all bookies at once, again and again, and look for what was lost: CUTS=n SEED=n SEEDS=count
	@$(BIN)/python -m tests.process.chaos.powercut --cuts $(or $(CUTS),200) --seed $(or $(SEED),1) --seeds $(or $(SEEDS),1)

witness: sync ## Java's and Go's clients of Pulsar against two brokers, and what they saw (Maven; 50 MB of jars): ARGS='--only go CASE …'
	@$(BIN)/python -m tests.process.witness $(ARGS)

slo: sync ## measure what losses cost and what each E, Qw, Qa survives, and write docs/slo.md: RUNS=n, 5 by default
	@$(BIN)/python -m tools.slo $(if $(RUNS),--runs $(RUNS)) $(ARGS)

coverage: sync ## every line and branch of daybook/core must be reached by its own tests
	@rm -f .coverage.core .coverage.core.*
	@$(BIN)/coverage run --branch --source=daybook/core --data-file=.coverage.core -m pytest -q -n 2 --dist worksteal --hypothesis-seed=0 $(OF_THE_CORE)
	@$(BIN)/coverage combine --quiet --data-file=.coverage.core
	@$(BIN)/coverage report --data-file=.coverage.core --skip-covered --show-missing --fail-under=100

mutants: sync ## take each rule of docs/protocol.md out: its test and a seed must fail (RULE=n; SEEDS=n; UPDATE=1 keeps the seeds)
	@$(BIN)/python -m tests.model.mutants $(if $(RULE),--rule $(RULE)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(UPDATE),--net seeds --update)

fuzz: uv ## fuzz everything that reads bytes, guided by coverage, then attack a bookie and a broker for a minute each: MINUTES=n
	@$(SYNC) --group fuzz
	@$(BIN)/python -m tests.process.fuzz $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)
	@$(BIN)/python -m tests.process.fuzz.wire
	@$(BIN)/python -m tests.process.fuzz.pulsar_wire

bit-flips: sync ## flip every bit of some pages of a store and of a small journal, on all cores (minutes)
	@$(BIN)/python -m tools.bit_flips $(ARGS)

explore: sync ## every order of events of the core within small bounds: BOUNDS=small, medium or large
	@$(BIN)/python -m tests.model.explore --bounds $(or $(BOUNDS),small)

reliability: sync ## write docs/reliability.md from the records of runs: RECORDS=file adds the runs of that file first
	@$(BIN)/python -m tools.reliability $(if $(RECORDS),--records '$(RECORDS)')

diagrams: sync ## write docs/states.md from the tables of transitions in the code
	@$(BIN)/python -m tools.diagrams

bench: bench-environment ## measure throughput, latency, reads and recovery on this machine (about 5 minutes a round): ROUNDS=n, 1 by default; ARGS='--help' lists the options
	@$(BENCH_PYTHON) -m bench --rounds $(or $(ROUNDS),1) $(ARGS)

bench-peer: bench-environment ## the same beside Apache BookKeeper, the sides in turn (about 12 minutes a round; needs a JDK and Maven): ROUNDS=n, 3 by default, 5 for figures that are published
	$(call needs,java,a Java runtime to start Apache BookKeeper: install a JDK 17 or newer)
	$(call needs,mvn,Maven to fetch Apache BookKeeper: install Maven 3.8 or newer)
	@$(BENCH_PYTHON) -m bench --peer --rounds $(or $(ROUNDS),3) $(ARGS)

bench-broker: bench-environment ## load our brokers, Apache Pulsar's and one that does nothing with pulsar-client: ARGS='--no-peer --rounds 1 …'
	@$(BENCH_PYTHON) -m bench.broker $(ARGS)

bench-spark: bench-environment ## read ledgers and a topic with Spark, beside Parquet, a null source and plain Python; compact topics, run a retention: ARGS='--rounds 1 --scale 0.1 …'
	@$(BENCH_PYTHON) -m bench.spark $(ARGS)

rules: sync ## write the index of docs/protocol.md: where the code, the tests and the mutants of each rule are
	@$(BIN)/python -m tools.rule_index

growth: bench-environment ## measure how costs grow with ledgers, open ledgers, a large store and Topics, and write docs/growth.md: PART=name SIZES='n …'
	@$(BENCH_PYTHON) -m tools.growth $(if $(PART),--part '$(PART)') $(if $(SIZES),--sizes $(SIZES)) $(ARGS)

crds: ## copy crds/ into the chart, which carries them
	@cp crds/*.yaml charts/daybook/files/crds/

images: sync ## build the images on this machine alone, from a base of Debian's packages (root; needs buildah and debootstrap): TAG=dev
	$(call needs,buildah,buildah: apt-get install buildah)
	$(call needs,debootstrap,debootstrap: apt-get install debootstrap)
	@$(BIN)/python -m tests.kubernetes.images $(if $(TAG),--tag '$(TAG)')

check-images: sync ## build the images, and run them as user 65532 on a read-only root (root; needs buildah and debootstrap)
	$(call needs,buildah,buildah: apt-get install buildah)
	$(call needs,debootstrap,debootstrap: apt-get install debootstrap)
	@$(BIN)/python -m pytest tests/kubernetes/images/check_built_images.py

e2e: sync ## install the chart on a real cluster of three nodes, harm it, and lose nothing (root; minutes): STEPS=a,b,…
	$(call needs,buildah,buildah: apt-get install buildah)
	$(call needs,debootstrap,debootstrap: apt-get install debootstrap)
	$(call needs,containerd,containerd: apt-get install containerd runc containernetworking-plugins iptables conntrack)
	@$(BIN)/python -m tests.kubernetes.e2e $(if $(STEPS),--steps '$(STEPS)') $(ARGS)

sync: uv
	@$(SYNC)

compiled: sync ## make .venv-compiled, where the modules of tools/compiled are compiled (minutes; needs a C compiler)
	$(call needs,cc,a C compiler: install gcc and the headers of Python, on Debian gcc and python3-dev)
	@$(BIN)/python -m tools.compiled.environment '$(UV)' .venv-compiled

# behind the installed packages: the tree's own daybook would be found first
test-compiled: compiled ## the tests of what is compiled, some seeds, and processes, over the compiled modules
	@export PYTHONSAFEPATH=1; .venv-compiled/bin/python -m tools.compiled.check \
	  && .venv-compiled/bin/python -m pytest -n 2 --dist worksteal --import-mode=importlib $(COMPILED_WARNINGS) -m 'not pure' $(or $(PYTEST),$(COMPILED_TESTS)) \
	  && .venv-compiled/bin/python -m tests.model.sim --seeds $(or $(SEEDS),0..199)

bench-steps: bench-environment compiled ## what an entry of its own frame costs a client and a bookie without sockets, pure and compiled in turn
	@PYTHONSAFEPATH=1 .venv-compiled/bin/python -m bench.steps $(ARGS) .venv-bench/bin/python .venv-compiled/bin/python

bench-environment: $(if $(COMPILED),compiled,sync)
	@$(if $(COMPILED),,$(BIN)/python -m bench.environment '$(UV)' $(BENCH))

uv:
	@'$(UV)' --version >/dev/null 2>&1 || { \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "Daybook needs Python 3.11 or newer, and '$(PYTHON)' is not: install it, or run make PYTHON=/path/to/python3.11." >&2; exit 2; }; \
	  echo "Putting uv, which makes the environment, into $(CACHE)"; mkdir -p '$(CACHE)'; \
	  { $(PYTHON) -m venv '$(CACHE)' >/dev/null 2>&1 && '$(CACHE)/bin/python' -m pip install --quiet --disable-pip-version-check $(UV_PACKAGE); } \
	  || $(PYTHON) -m pip install --quiet --disable-pip-version-check --target '$(CACHE)' $(UV_PACKAGE) \
	  || { echo "uv could not be installed: check that '$(PYTHON) -m pip' works and reaches a package index," \
	    "or install uv yourself (https://docs.astral.sh/uv/)." >&2; exit 2; }; }
