# make run      install the dependencies and start the proxy in front of the example site,
#               or of your site: make run ORIGIN=http://127.0.0.1:3000
# make test     install the dependencies and run the tests, or some: make test ARGS="-k cache"
# make test-fast  only the tests that start no program, such as Chromium or nginx, without the heavy ones
# make test-ci  the longer tests that CI runs after these
# make test-long  the long tests: soaks, and property tests with many random examples
# make lint     ruff, mypy, import-linter, names (scripts/names), eslint and tsc
# make image    build the container image with Docker, Podman or Buildah
# make image-test  build and run the image without a daemon (needs root; see tests/project/test_image.py)
# make bench    compare with other renderers and proxies (needs Node) and write docs/benchmarks.md
#               and docs/completeness.md;
#               make bench QUICK=1 only checks that the benchmarks run
# make dist     build wheel and sdist into dist/
# make lock     update requirements.lock (for the image) and requirements-dev.lock (for CI), with hashes
# make test-lowest  run all tests with the lowest supported versions of the dependencies
# make pin-base  pin the base image of the Dockerfile to its current digest
# make release-check TAG=v1.2.3  compare a tag with the version of the package
# make docs     build the documentation site into build/docs/
# make install  create .venv with the package and all development dependencies
# make frameworks  rebuild tests/sites/frameworks/built (needs Node and the npm registry)
# make clean    remove all build results
#
# PYTHON=/path/to/python is used for .venv instead of the first python3.11 or newer in PATH.

# Debian keeps the servers that the tests start in sbin, out of an ordinary user's PATH.
export PATH := $(PATH):/usr/sbin
# Tests start Python hundreds of times: keep its compiled files, as by default.
unexport PYTHONDONTWRITEBYTECODE
PYTHON ?= $(shell for name in python3.11 python3 python3.12 python3.13 python3.14; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; \
	done)

ORIGIN ?= $(or $(PRERENDER_ORIGIN_URL),$(PRERENDER_ORIGIN))
PIP := .venv/bin/python -m pip -qq --disable-pip-version-check
# One process more than CPUs, because tests also wait; one that has nothing left takes over other tests.
PYTEST := .venv/bin/python -m pytest --numprocesses $$(expr $$(nproc) + 1) --dist worksteal \
	--durations 10
TEST_PROGRAMS := headless-shell ip nginx redis-server systemd-analyze node npm wrk
COMPILE := pip compile pyproject.toml --extra otel --extra s3 --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command 'make lock' --no-annotate
JS := scripts/js/node_modules
DROP_IN := tests/sites/drop_in/node_modules/.package-lock.json

.PHONY: lock pin-base release-check run test test-fast test-ci test-long test-lowest test-programs lint image image-test bench dist docs install \
	frameworks clean

run: .venv/run.stamp
	@scripts/system-packages headless-shell
	@exec scripts/run '$(ORIGIN)'

test: test-programs
	$(PYTEST) $(ARGS)

test-fast: .venv/dev.stamp
	$(PYTEST) --fast -r fE $(ARGS)

test-ci: test-programs
	$(PYTEST) -m 'ci_only and not long' $(ARGS)

test-long: test-programs tests/sites/field/packages/complete
	$(PYTEST) -m 'long or hypothesis' $(ARGS)

test-programs: .venv/dev.stamp
	@scripts/system-packages $(TEST_PROGRAMS)
	@$(MAKE) --no-print-directory $(DROP_IN)

lint: .venv/dev.stamp $(JS)/.package-lock.json
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports --no-cache
	scripts/names
	$(JS)/.bin/eslint --config scripts/js/eslint.config.js 'prerender/**/*.js'
	$(JS)/.bin/tsc --project scripts/js

bench: .venv/dev.stamp benchmarks/rivals/node_modules
	@scripts/system-packages $(TEST_PROGRAMS)
	$(PIP) install --group bench
	.venv/bin/python benchmarks/everything.py --node-modules benchmarks/rivals/node_modules \
		$(if $(QUICK),--quick,--write)
	.venv/bin/python benchmarks/against_prerender.py --node-modules benchmarks/rivals/node_modules \
		$(if $(QUICK),--only fetch-that,--write docs/completeness.md)

# Without their browsers: all sides use the same one.
benchmarks/rivals/node_modules: benchmarks/rivals/package.json
	cd benchmarks/rivals && npm install --ignore-scripts --no-audit --no-fund --no-package-lock
	@touch $@

dist: .venv/dev.stamp
	.venv/bin/python -m hatchling build

lock: .venv/dev.stamp
	.venv/bin/uv $(COMPILE) --upgrade --output-file requirements.lock
	.venv/bin/uv $(COMPILE) --group dev --constraint requirements.lock --output-file requirements-dev.lock

# The lowest versions that pyproject.toml allows, in a separate environment.
test-lowest: test-programs
	.venv/bin/python -m venv --clear build/lowest
	.venv/bin/uv pip compile pyproject.toml --extra mcp --extra otel --extra s3 --python .venv/bin/python --quiet \
		--resolution lowest-direct --output-file build/lowest.txt
	.venv/bin/uv pip install --python build/lowest/bin/python --quiet --group dev --constraint build/lowest.txt \
		--editable '.[mcp,otel,s3]'
	build/lowest/bin/python -m pytest -m 'not image and not long' --numprocesses logical --dist worksteal $(ARGS)

pin-base:
	scripts/pin-base

release-check:
	@version=v$$(sed -n 's/^__version__ = "\(.*\)"$$/\1/p' prerender/__init__.py); \
	[ '$(TAG)' = "$$version" ] || { echo "The tag is '$(TAG)', and the version of the package $$version" >&2; exit 1; }

docs: .venv/dev.stamp
	.venv/bin/python scripts/settings-page > docs/configuration.md
	.venv/bin/prerender config --example > config.example.toml
	.venv/bin/python -m sphinx --fail-on-warning --keep-going -b html docs build/docs

image:
	scripts/image

image-test: .venv/dev.stamp
	@scripts/system-packages buildah mmdebstrap
	.venv/bin/python -m pytest -m image tests/project/test_image.py $(ARGS)

install: .venv/dev.stamp

# The applications of tests/rendering/test_field.py.
tests/sites/field/packages/complete: tests/sites/field/packages.txt
	scripts/field-packages

# eslint and TypeScript, which check the package's JavaScript.
$(JS)/.package-lock.json: scripts/js/package-lock.json
	@scripts/system-packages node npm
	cd scripts/js && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

# The site behind prerender-node of tests/proxy/test_drop_in.py.
$(DROP_IN): tests/sites/drop_in/package-lock.json
	cd tests/sites/drop_in && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

.venv/run.stamp: pyproject.toml | .venv/bin/pip
	@echo 'Installing the proxy into .venv; the first time this takes about a minute ...'
	$(PIP) install --editable .
	@touch $@

# Only needed after changing the applications: their builds are committed.
frameworks:
	cd tests/sites/frameworks && npm ci --no-audit --no-fund && npm run build

# The development dependencies include those of the proxy.
.venv/dev.stamp: pyproject.toml | .venv/bin/pip
	@echo 'Installing the development dependencies into .venv; the first time this takes minutes ...'
	$(PIP) install --upgrade 'pip>=25.1'
ifdef CI
	$(PIP) install --require-hashes --requirement requirements-dev.lock
	$(PIP) install --no-deps --no-build-isolation --editable .
else
	$(PIP) install --editable . --group dev
endif
	@# A wheel has no links: this library of 85 MB is in it three times. And one of 13 versions of schemas is used.
	@cd .venv/lib/python3*/site-packages && \
		for copy in libhelm_c.so libhelm_c.so.0; do ln -f helm_python/lib/libhelm_c.so.*.*.* helm_python/lib/$$copy; done && \
		ls -d kubernetes_validate/kubernetes-json-schema/v* | sort -V | head -n -2 | xargs -r rm -r
	@touch .venv/run.stamp $@

# pip is installed last, so an unfinished virtual environment is created again.
.venv/bin/pip:
	@PYTHON='$(PYTHON)' scripts/system-packages python
	@echo 'Creating .venv ...'
	@'$(PYTHON)' -m venv --clear .venv

clean:
	rm -rf .venv build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -rf $(JS) benchmarks/rivals/node_modules tests/sites/frameworks/node_modules tests/sites/drop_in/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
