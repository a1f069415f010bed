# The suite, its own tests, and the environments they run in. `make help` lists what there is.

PYTHON  ?= python3
IMPL    ?= adapters.fast
PROFILE ?= ci
REPORT  ?=
RESULT  ?= bench.json
PROCESS ?= node docs/examples/node/main.mjs
ARGS    ?=

# What is imported is compiled once, also where the shell says otherwise: the suite starts hundreds of times.
unexport PYTHONDONTWRITEBYTECODE

run = $(PYTHON) -m tools.environment
IMPLEMENTATIONS = adapters.fast adapters.fast:float32 adapters.fast:bfloat16 adapters.fast:float16 adapters.fast:vectorised \
    adapters.reference adapters.transformers adapters.flashspec adapters.vllm adapters.vllm:forward \
    adapters.vllm:triton adapters.vllm:v2 adapters.vllm:v2_block adapters.vllm:eagle adapters.vllm:eagle3 \
    adapters.vllm:metrics adapters.vllm:drafter adapters.sglang adapters.sglang:block adapters.sglang:drafter \
    adapters.tiny adapters.tiny:bfloat16 adapters.specforge adapters.angelslim adapters.angelslim:serving \
    adapters.eagle:release adapters.speculators adapters.modelopt adapters.process

# The pair matrix of docs/drafters.md; those that run a clone of yours are there where it is.
TRAINERS = adapters.specforge adapters.speculators adapters.angelslim adapters.modelopt \
    $(if $(EAGLE_CLONE),adapters.eagle adapters.eagle:eagle3) $(if $(HASS_CLONE),adapters.hass)
SERVERS = adapters.angelslim:serving adapters.vllm:drafter adapters.sglang:drafter \
    $(if $(EAGLE_CLONE),adapters.eagle:serving) $(if $(HASS_CLONE),adapters.hass:serving)

.PHONY: help conformance test full tables pairs calibration bench clean-environments
.DEFAULT_GOAL := help

help:
	@echo 'make conformance              judge the fast paths in torch (oracle/fast)'
	@echo 'make conformance IMPL=NAME    judge another one in its own environment, such as adapters.vllm:triton'
	@echo '                              PROFILE=quick|ci|deep  REPORT=FILE  ARGS=... go to pytest'
	@echo '                              IMPL=adapters.process judges PROCESS, any program (docs/adapters.md)'
	@echo 'make test                     lint, type check, and the tests of this project'
	@echo 'make full                     everything at length'
	@echo 'make bench                    time the fast paths beside their peers, into RESULT=bench.json (BENCH_FULL=1 for more)'
	@echo 'make tables                   write the tables of README and docs from docs/reports, docs/pairs, docs/bench'
	@echo 'make pairs                    ask every drafter for the pair matrix of docs/drafters.md, into docs/pairs'
	@echo 'make clean-environments       delete the virtual environments'

conformance:
	@$(run) '$(IMPL)' -m pytest conformance --impl='$(IMPL)' --conformance-profile='$(PROFILE)' \
	    $(if $(REPORT),--conformance-report='$(REPORT)') $(if $(filter adapters.process,$(IMPL)),--process='$(PROCESS)') $(ARGS)

test:
	@$(run) dev -m ruff check .
	@$(run) dev -m mypy
	@$(run) dev -m pytest tests -n auto --dist worksteal $(ARGS)

full:
	@FAULTS_AT_LENGTH=1 $(MAKE) --no-print-directory test
	@set -e; for impl in $(IMPLEMENTATIONS); do $(MAKE) --no-print-directory conformance IMPL=$$impl PROFILE=ci; done
	@set -e; for impl in adapters.speculators:fused adapters.speculators:flex adapters.speculators:sdpa \
	    adapters.specforge:flex adapters.modelopt:one_length adapters.vllm:eagle_expanded adapters.vllm:eagle3_expanded \
	    adapters.reference:paged_1 adapters.reference:paged_4 adapters.reference:paged_16; do \
	    $(MAKE) --no-print-directory conformance IMPL=$$impl PROFILE=quick; done
	@if [ -n "$$EAGLE_CLONE" ]; then set -e; for impl in adapters.eagle adapters.eagle:eagle3 \
	    adapters.eagle:serving adapters.eagle:half adapters.eagle:engine; do \
	    $(MAKE) --no-print-directory conformance IMPL=$$impl PROFILE=ci; done; fi
	@if [ -n "$$HASS_CLONE" ]; then set -e; for impl in adapters.hass adapters.hass:serving; do \
	    $(MAKE) --no-print-directory conformance IMPL=$$impl PROFILE=ci; done; fi
	@$(MAKE) --no-print-directory conformance IMPL=adapters.reference PROFILE=deep
	@$(MAKE) --no-print-directory calibration
	@BENCH_FULL=1 $(MAKE) --no-print-directory bench

tables:
	@for page in README.md docs/findings.md; do $(run) dev -m conformance.report.table $$page docs/reports/*.json; done
	@$(run) dev -m conformance.report.pairs docs/pairs/*.json --page docs/drafters.md
	@for page in docs/fast.md docs/bench.md; do $(run) dev -m bench.table docs/bench/cpu*.json --page $$page --plots docs/bench; done

pairs:
	@set -e; for one in both=adapters.reference $(TRAINERS:%=trainer=%) $(SERVERS:%=server=%); do spec=$${one#*=}; \
	    $(run) $$spec -m conformance.drafter.pairs $$spec $${one%%=*} \
	    docs/pairs/$$(echo $${spec#adapters.} | tr ':_' '--').json; done

bench:
	@OMP_NUM_THREADS=1 $(run) dev -m pytest bench/bench_*.py -n0 --benchmark-quiet --benchmark-json='$(RESULT)' $(ARGS)

calibration:
	@$(run) dev -m bench.calibration
	@$(run) dev -m bench.calibration --quick-runs 20

clean-environments:
	@$(run) --clean
