package sandbox_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

func TestSandboxIsNoProfileOrAgentName(t *testing.T) {
	t.Parallel()
	repo := sandboxtest.New(t, core.Options{}, "agency.sandbox.read", "/usr", "agency.fast.changeset", "worktree").Repo
	repo.Git.Config["agency.sandbox.command"] = []config.Setting{{Value: "x", Scope: "global"}}
	if got := repo.Settings.Profiles(); !slices.Equal(got, []string{"fast"}) {
		t.Errorf("profiles %q", got)
	}
	if _, err := repo.Settings.ChoosePrimitives(store.Primitives{}, "sandbox"); !fault.Is[*fault.InvalidError](err) || !strings.Contains(err.Error(), "another name") {
		t.Error(err)
	}
	if got := repo.Settings.RunnerCommands(); len(got) != 0 {
		t.Errorf("agents %q", got)
	}
	if _, err := repo.Settings.WallsPolicy(store.Grants{}); !fault.Is[*fault.InvalidError](err) { // an unknown key under agency.sandbox may be a misspelt one
		t.Error(err)
	}
	delete(repo.Git.Config, "agency.sandbox.command")
	if p, err := repo.Settings.WallsPolicy(store.Grants{}); err != nil || !slices.Equal(p.Read, []string{"/usr"}) {
		t.Errorf("%q %v", p.Read, err)
	}
	cfg, err := settings.List(t.Context(), repo.Opts.Dir, repo.Opts.Env)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range cfg {
		if s.Key == settings.ReadKey && s.Value != "/usr" {
			t.Errorf("%+v", s)
		}
	}
}

func TestIntegrationTreesListWorktrees(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{})
	root := filepath.Dir(l.Repo.Opts.Dir)
	l.Git("worktree", "add", "-q", "--detach", filepath.Join(root, "linked"))
	theirs := l.Repo.Store.WorktreeDir("0123456789abcdef", "20260101000000-0000")
	if err := os.MkdirAll(theirs, 0o755); err != nil {
		t.Fatal(err)
	}
	record := `{"schema_version":"1.0","worktree_id":"20260101000000-0000","name":"theirs","repo_id":"0123456789abcdef","tree_path":"/theirs","created_at":"2026-01-01T00:00:00Z","state":"present"}`
	if err := os.WriteFile(filepath.Join(theirs, "meta.json"), []byte(record), 0o600); err != nil {
		t.Fatal(err)
	}
	own, err := l.Repo.Worktree("wt")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{own.TreePath, filepath.Join(root, "linked"), l.Repo.Opts.Dir}
	slices.Sort(want)
	if got, err := l.Repo.IntegrationTrees(settings.Policy{}); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, want %q: %v", got, want, err)
	}
	want = append(want, "/theirs")
	slices.Sort(want)
	if got, err := l.Repo.IntegrationTrees(settings.Policy{Policy: walls.Policy{Write: []string{"/x"}}}); err != nil || !slices.Equal(got, want) {
		t.Errorf("with a writable path: got %q, want %q: %v", got, want, err)
	}
}
