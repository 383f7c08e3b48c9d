# Short targets; the work is done in scripts/.
.DEFAULT_GOAL := help
.PHONY: help check run build test test-rust test-python lint deny format bench fuzz soak compat conformance h2spec languages deb wheels packages docs clean

help: ## show this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

check: ## before a commit, in a few minutes: format, clippy, unit tests, the quick half of the tests of the program
	@scripts/check

run: ## build optimized and serve examples/fibonacci on http://127.0.0.1:8080
	@scripts/run

build: ## build the plain program `bolide` and the wheel, optimized, into target/ and dist/
	@scripts/build

test: ## install what tests need, then run all of them
	@scripts/test all

test-rust: ## unit and property tests, models of threads, bounded fuzz tests
	@scripts/test rust

test-python: ## tests of the real program
	@scripts/test python

lint: ## rustfmt, clippy, ruff and shellcheck, warnings denied
	@$(LOW_PRIORITY) scripts/lint

deny: ## licenses, sources and advisories of what this is built of (cargo-deny)
	@scripts/deny

format: ## rustfmt and ruff format
	@scripts/lint --fix

bench: ## measure side by side with other servers (ONLY=hello,bolide,fastpysgi picks)
	@scripts/require rust python
	@bench/run $(BENCH_OPTIONS)

fuzz: ## run every fuzz target for SECONDS (60)
	@scripts/require rust
	@cd fuzz && cargo run --quiet --release --bin bounded -- --seconds $(or $(SECONDS),60)

soak: ## a million requests with reloads, kills and clients that misbehave, then 50 reloads under everything in each cell (REQUESTS=100000, RELOADS=5 is less)
	@scripts/soak --requests $(or $(REQUESTS),1000000) --reloads $(or $(RELOADS),50)

compat: ## how many of the real configurations run as they are
	@scripts/require rust
	@scripts/compat

conformance: ## the Autobahn suite's WebSocket cases; writes docs/autobahn.md (CASES='7.*' picks)
	@scripts/conformance

h2spec: ## the suite of HTTP/2 over TLS and h2c; writes docs/h2spec.md
	@scripts/h2spec

languages: ## Perl and Ruby applications of Debian, installed and used through the server
	@scripts/languages

deb: ## Debian packages for this system's Python, Perl, Ruby and Lua, into dist/
	@scripts/deb --plugin psgi --plugin rack --plugin lua

wheels: ## a wheel for each Python and platform that can be built here, checked, into dist/ (PYTHONS='3.11 3.14', PLATFORMS=manylinux)
	@scripts/wheels

packages: ## the source archive, and a wheel built from it alone
	@scripts/sdist --build

docs: ## the documentation as a site, in build/site
	@scripts/docs

clean: ## remove what was built
	rm -rf target build dist .venv .venv-test .venv-docs fuzz/target models/target
