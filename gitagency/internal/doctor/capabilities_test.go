package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/runner"
)

// openRepoWithPrograms opens a repository with a PATH that holds only stubs of the given programs, and true and mount,
// which Capabilities runs.
func openRepoWithPrograms(t *testing.T, programs ...string) (repo *core.Repository, bin string) {
	t.Helper()
	root := t.TempDir()
	dir, bin := filepath.Join(root, "repo"), filepath.Join(root, "bin")
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.Mkdir(bin, 0o755))
	for _, name := range []string{"true", "mount"} {
		if path, err := exec.LookPath(name); err == nil {
			check(os.Symlink(path, filepath.Join(bin, name)))
		}
	}
	for _, name := range programs {
		check(os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\nexit 1\n"), 0o755))
	}
	env := []string{"PATH=" + bin, "HOME=" + root, "TMPDIR=" + root, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"}
	cmd := exec.CommandContext(t.Context(), "git", "init", "-q", dir)
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	repo, err := core.Open(t.Context(), core.Options{Dir: dir, Env: env})
	check(err)
	return repo, bin
}

func TestCapabilitiesListGitWallsAgents(t *testing.T) {
	t.Parallel()
	repo, bin := openRepoWithPrograms(t, "codex", "claude", "mine")
	var warned []string
	repo.Settings.Warn = func(format string, args ...any) { warned = append(warned, fmt.Sprintf(format, args...)) }
	repo.Git.Config["agency.mine.command"] = []config.Setting{{Value: "mine --x", Scope: "global"}, {Value: "evil", Scope: "local", Origin: "file:.git/config"}}
	repo.Git.Config["agency.absent.command"] = []config.Setting{{Value: "no-such-agent", Scope: "command"}}
	repo.Git.Config["agency.theirs.command"] = []config.Setting{{Value: "claude", Scope: "worktree", Origin: "file:there"}}
	got, err := Capabilities(t.Context(), repo)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(warned)
	if len(warned) != 2 || !strings.HasPrefix(warned[0], `ignoring agency.mine.command = "evil" (file:.git/config)`) || !strings.HasPrefix(warned[1], `ignoring agency.theirs.command = "claude" (file:there)`) {
		t.Errorf("warned %q", warned)
	}
	var names []string
	for _, c := range got {
		names = append(names, c.Name)
		if c.Detail == "" || !slices.Contains([]string{CapabilityOK, CapabilityMissing, CapabilityUnknown}, c.State) {
			t.Errorf("got %+v", c)
		}
	}
	want := "git, user-namespaces, pid-namespaces, network-namespaces, mount-api, overlay, landlock, seccomp, joining, walls, cgroups, reader-walls, agent claude, agent codex, agent absent, agent mine"
	if strings.Join(names, ", ") != want {
		t.Fatalf("got %q", names)
	}
	agents := got[2+len(confine.FeatureNames()):]
	for i, c := range []Capability{
		{"agent claude", "ok", filepath.Join(bin, "claude")},
		{"agent codex", "ok", filepath.Join(bin, "codex")},
		{"agent absent", "missing", "no-such-agent is not on PATH (agency.absent.command)"},
		{"agent mine", "ok", filepath.Join(bin, "mine")},
	} {
		if agents[i] != c {
			t.Errorf("got %+v, want %+v", agents[i], c)
		}
	}
	if !strings.HasPrefix(got[0].Detail, repo.Git.Version.String()) {
		t.Errorf("got %+v", got[0])
	}
}

// The walls around the git that reads data of sandboxes are reported with the reason for each that is missing, and with the
// filters that run without them.
func TestReaderCapabilityNamesMissingWalls(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		missing, filters []string
		state, detail    string
	}{
		{nil, nil, "ok", "git reads data of sandboxes behind Landlock and seccomp"},
		{nil, []string{"lfs", "crypt"}, "ok", "git reads data of sandboxes behind Landlock and seccomp; files with your filters (lfs, crypt) are read without walls"},
		{[]string{"one", "two"}, nil, "missing", "git reads data of sandboxes with fewer walls: one; two"},
	} {
		if got := readerCapability(c.missing, c.filters); got != (Capability{"reader-walls", c.state, c.detail}) {
			t.Errorf("got %+v", got)
		}
	}
}

func TestCapabilitiesNameUserFilters(t *testing.T) {
	t.Parallel()
	repo, _ := openRepoWithPrograms(t)
	repo.Git.Config["filter.lfs.clean"] = []config.Setting{{Value: "git-lfs clean", Scope: "global"}}
	repo.Git.Config["filter.lfs.required"] = []config.Setting{{Value: "true", Scope: "global"}}
	repo.Git.Config["filter.theirs.clean"] = []config.Setting{{Value: "evil", Scope: "local"}}
	if got := userFilters(repo); !slices.Equal(got, []string{"lfs"}) {
		t.Errorf("got %q", got)
	}
}

func TestCapabilitiesWithoutAgents(t *testing.T) {
	t.Parallel()
	repo, _ := openRepoWithPrograms(t)
	got, err := Capabilities(t.Context(), repo)
	if err != nil {
		t.Fatal(err)
	}
	last := got[len(got)-1]
	if last.Name != "agents" || last.State != CapabilityMissing || !strings.Contains(last.Detail, "claude, codex") || !strings.Contains(last.Detail, "agency.<name>.command") {
		t.Errorf("got %+v", last)
	}
}

func TestCapabilitiesReturnCancellationCause(t *testing.T) {
	t.Parallel()
	repo, _ := openRepoWithPrograms(t)
	cause := errors.New("the user pressed Ctrl-C")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if got, err := Capabilities(ctx, repo); !errors.Is(err, cause) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestGitCapabilityListsVersionFeatures(t *testing.T) {
	t.Parallel()
	for v, want := range map[git.Version]string{
		{Major: 2, Minor: 39, Patch: 5}: "2.39.5, without merge-tree --merge-base (since 2.40) and replay (since 2.44)",
		{Major: 2, Minor: 43}:           "2.43.0, with merge-tree --merge-base, without replay (since 2.44)",
		{Major: 2, Minor: 50, Patch: 1}: "2.50.1, with merge-tree --merge-base and replay",
	} {
		if got := gitCapability(v); got != (Capability{"git", "ok", want}) {
			t.Errorf("got %+v", got)
		}
	}
}

func TestWallCapabilityNamesUnavailableOption(t *testing.T) {
	t.Parallel()
	for _, name := range confine.FeatureNames() {
		missing := wallCapability(confine.Feature{Name: name, State: confine.Missing, Detail: "no"})
		if missing.State != CapabilityMissing || !strings.HasPrefix(missing.Detail, "no; without it --") {
			t.Errorf("got %+v", missing)
		}
		for _, state := range []confine.State{confine.OK, confine.Unknown} {
			want := Capability{name, string(state), "so"}
			if got := wallCapability(confine.Feature{Name: name, State: state, Detail: "so"}); got != want {
				t.Errorf("got %+v", got)
			}
		}
	}
}

func TestCapabilityJSON(t *testing.T) {
	t.Parallel()
	got, err := json.Marshal(agentCapabilities([]runner.Agent{{Name: "claude", Program: "claude", Path: "/bin/claude"}}))
	if want := `[{"name":"agent claude","state":"ok","detail":"/bin/claude"}]`; err != nil || string(got) != want {
		t.Errorf("got %s, %v", got, err)
	}
}
