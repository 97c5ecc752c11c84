package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/directory"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
)

func TestOnboardRefusesParentOfIntegrationTree(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{})
	opts := l.Repo.Opts
	around := filepath.Dir(opts.Dir)
	opts.Env = append(slices.Clone(opts.Env), "AGENCY_DATA_DIR="+l.Repo.DataDir)
	adopted, err := l.Repo.AdoptWorktree(t.Context(), core.AdoptWorktreeRequest{Path: opts.Dir, Name: "main"})
	if err != nil {
		t.Fatal(err)
	}
	// This directory contains the integration tree and the data directory; either may be reported.
	if _, err := directory.Onboard(t.Context(), directory.OnboardRequest{Dir: around}, opts); !fault.Is[*fault.OverlapError](err) {
		t.Errorf("%v around %v", err, adopted)
	}
	for _, dir := range []string{opts.Dir, l.Sandbox.WorkDir()} {
		if _, err := directory.Onboard(t.Context(), directory.OnboardRequest{Dir: dir}, opts); !fault.Is[*fault.OverlapError](err) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.Mkdir(plain, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := directory.Onboard(t.Context(), directory.OnboardRequest{Dir: plain}, opts); err != nil {
		t.Fatal(err)
	}
	findings, err := Diagnose(t.Context(), l.Repo)
	if err != nil || len(findings.Findings) != 0 {
		t.Errorf("%v, %v", findings, err)
	}
	if err := os.Chmod(l.Repo.DataDir, 0o755); err != nil {
		t.Fatal(err)
	}
	findings, err = Diagnose(t.Context(), l.Repo)
	if err != nil || len(findings.Findings) != 1 || findings.Findings[0].Path != l.Repo.DataDir {
		t.Errorf("doctor must report only the mode of the data directory: %v, %v", findings, err)
	}
	if _, err := Prune(t.Context(), l.Repo, PruneRequest{Expire: "now"}); err != nil {
		t.Error(err)
	}
	if _, err := directory.Open(t.Context(), plain, opts); err != nil {
		t.Error(err)
	}
}
