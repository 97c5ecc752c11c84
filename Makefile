# git-agency: everything one does to it. `make help` lists the targets.

GO      ?= go
PREFIX  ?= $(HOME)/.local
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# Without what urfave/cli would need to write documents: it takes a millisecond of every start.
TAGS    := urfave_cli_no_docs
LDFLAGS := -s -w -X main.version=$(VERSION)

PROGRAM   := bin/git-agency
INSTALLED := $(DESTDIR)$(PREFIX)/bin/git-agency
MANUAL    := cmd/git-agency/manual/git-agency.1

export CGO_ENABLED ?= 0

.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/git-agency
	$(GO) build -trimpath -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o $(PROGRAM) ./cmd/git-agency

# make lint vets. Without -count=1, go test logs every file that a test opens and looks up each of a million paths at
# the end, to decide whether a result can be reused. It could not: it depends on the installed git and on the kernel.
TESTFLAGS := -tags '$(TAGS)' -vet=off -count=1

# scripts/tmpdir.sh saves a quarter of the processor time of the tests on ext4, and scripts/nosync the time of waiting for the
# disk: more than half on one that is mounted with discard. The tests that trace syncs run by themselves.
TRACESYNCS := ^(TestRecordIsWrittenAfterFsync|TestFilesAndObjectsAreSyncedBeforeCommit)$$
TESTRUN := $(GO) run ./scripts/nosync scripts/tmpdir.sh $(GO) test $(TESTFLAGS) -skip '$(TRACESYNCS)'
TESTSYNCS := scripts/tmpdir.sh $(GO) test $(TESTFLAGS) -run '$(TRACESYNCS)'

# -short thins kill sweeps, random cases and tables of damage and attacks, and leaves out testdata/script/long. The timeouts
# are for a busy machine.
test: ## run the tests, kill sweeps and tables of cases thinned
	$(TESTRUN) -short -timeout 45m ./...
	$(TESTSYNCS) -short ./cmd/git-agency ./gitagency/internal/git/update

test-long: ## run the tests in full; as root those of an ordinary user too
	$(TESTRUN) -timeout 90m ./...
	$(TESTSYNCS) ./cmd/git-agency ./gitagency/internal/git/update

# Every run uses a model server on the loopback interface, so no account is needed. AGENTS is where they are installed.
test-agents: ## install the real agents from npm into AGENTS, and test runs with them
	dir=$$(scripts/agents.sh $(AGENTS)) && GIT_AGENCY_TEST_AGENTS=$$dir $(GO) test -tags '$(TAGS) realagents' -count=1 -timeout 20m -run RealAgent ./cmd/git-agency

# As root it installs the Debian packages of Slurm and podman. The clusters are below /tmp, which their daemons can enter.
test-platforms: ## test runs on a real Slurm and a real podman, which scripts/slurm.sh and scripts/podman.sh install
	$(GO) test -tags '$(TAGS) platforms' -vet=off -count=1 -parallel 12 -timeout 20m -run '^TestReal' ./gitagency/internal/platform/engine ./cmd/git-agency

sweep: ## the kill sweeps alone, at every single change of the disk
	$(TESTRUN) -timeout 90m ./cmd/git-agency -run KilledAtAnyChange -every 1

bench: build ## measure against raw git in one run, and fail on the promised ratios
	$(GO) run ./scripts/bench -tool $(CURDIR)/$(PROGRAM)

lint: ## go vet, staticcheck, gofumpt and tidiness
	$(GO) vet ./...
	$(GO) vet -tags platforms ./gitagency/internal/platform/... ./cmd/git-agency
	$(GO) tool staticcheck ./...
	$(GO) tool staticcheck -tags platforms ./gitagency/internal/platform/... ./cmd/git-agency
	@out=$$($(GO) tool gofumpt -l .); if [ -n "$$out" ]; then echo "not formatted (make fmt):"; echo "$$out"; exit 1; fi
	$(GO) mod tidy -diff

fmt: ## format the code
	$(GO) tool gofumpt -w .

cover: ## test coverage, of the commands the scripts run too
	scripts/tmpdir.sh $(GO) test -timeout 90m -coverpkg=./... -coverprofile=coverage.out ./...
	$(GO) tool cover -func=coverage.out | tail -n 1

fuzz: ## fuzz every parser for FUZZTIME each
	scripts/fuzz.sh

demo: build ## the main job, end to end, on a throw-away repository
	scripts/demo.sh $(CURDIR)/bin

man: ## render the manual page from its source
	$(GO) run ./scripts/man <$(MANUAL).md >$(MANUAL).new
	mv $(MANUAL).new $(MANUAL)

# With DESTDIR everything stays below it, for those who make packages. Without it, what a shell looks for
# in directories of the user's goes there.
install: build ## install program, manual and completions into PREFIX (default ~/.local)
	install -d '$(DESTDIR)$(PREFIX)/bin'
	install -m 755 $(PROGRAM) '$(INSTALLED)'
	'$(INSTALLED)' setup $(if $(DESTDIR),--prefix '$(DESTDIR)$(PREFIX)' --json >/dev/null)

uninstall: ## take away what install installed
	test ! -e '$(INSTALLED)' || '$(INSTALLED)' setup --undo $(if $(DESTDIR),--prefix '$(DESTDIR)$(PREFIX)')
	rm -f '$(INSTALLED)'

.PHONY: help build test test-long test-agents test-platforms sweep bench lint fmt cover fuzz demo man install uninstall
