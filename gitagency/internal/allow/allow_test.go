package allow

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// newFixture makes a sandbox, and in the home directories ("name/"), files ("name") and symbolic links ("name -> target").
func newFixture(t *testing.T, entries []string, config ...string) (l *sandboxtest.Fixture, home string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("skipped: walls need Linux")
	}
	l = sandboxtest.New(t, core.Options{}, config...)
	home = proc.Getenv(l.Repo.Opts.Env, "HOME")
	for _, entry := range entries {
		name, target, isLink := strings.Cut(entry, " -> ")
		path := filepath.Join(home, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch {
		case err != nil:
		case isLink:
			err = os.Symlink(strings.ReplaceAll(target, "DATA", l.Repo.DataDir), path)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o755)
		default:
			err = os.WriteFile(path, nil, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return l, home
}

func TestAllowRefusesPaths(t *testing.T) {
	t.Parallel()
	l, home := newFixture(t, []string{"hooks/link -> ../run", "run/pre-push", ".config/git/", ".gitconfig", "included/more", "data -> DATA", "around/data -> ../data", "file", ".ssh/id"},
		"core.hooksPath", "~/hooks/link", "include.path", "~/included/more")
	data := l.Repo.DataDir
	for _, c := range []struct{ flag, path, want string }{
		{"--read", home, "it is or contains your home directory"},
		{"--read", "/", "it is or contains your home directory"},
		{"--write", filepath.Dir(home), "it is or contains your home directory"},
		{"--read", home + "/gone", "no such file or directory"},
		{"--read", home + "/file/part", "not a directory"},
		{"--write", home + "/hooks", "git outside of the sandbox obeys " + home + "/hooks/link"},
		{"--write", home + "/run", "git outside of the sandbox obeys " + home + "/run"},
		{"--write", home + "/run/pre-push", "git outside of the sandbox obeys " + home + "/run"},
		{"--write", home + "/.gitconfig", "git outside of the sandbox obeys "},
		{"--write", home + "/.config", "git outside of the sandbox obeys "},
		{"--write", home + "/included", "git outside of the sandbox obeys " + home + "/included/more"},
		{"--write", home + "/.ssh", "it is hidden, because it contains secrets"},
		{"--read", data, "it is in the data directory"},
		{"--read", data + "/repos", "it is in the data directory"},
		{"--read", data + "/repos/..", "it is in the data directory"},
		{"--read", home + "/data", "it is in the data directory"},
		{"--read", home + "/around/data/repos", "it is in the data directory"},
		{"--read", l.Sandbox.Tree, "it is in the data directory"},
		{"--write", "private:" + l.Sandbox.Tree, "it is in the data directory"},
		{"--read", l.Repo.CommonDir, "every command can read the git directory"},
		{"--read", l.Repo.CommonDir + "/hooks", "every command can read the git directory"},
		{"--write", l.Repo.CommonDir + "/hooks", "lies inside " + l.Repo.CommonDir},
		{"--read", l.Repo.Opts.Dir, "it stays hidden"},
		{"--write", l.Repo.Opts.Dir, "integration worktree"},
		{"--read", "/dev", "every sandbox has its own /dev"},
		{"--write", "/proc", "it is a device or a file system of the kernel"},
		{"--read", "/var/tmp", "every sandbox has its own"},
	} {
		req := Request{Invocation: l.Sandbox.ID, DryRun: true}
		if c.flag == "--read" {
			req.Read = []string{c.path}
		} else {
			req.Write = []string{c.path}
		}
		_, err := Allow(t.Context(), l.Repo, req)
		var refused *fault.GrantError
		if !errors.As(err, &refused) || refused.Flag != c.flag || refused.ID != l.Sandbox.ID || !strings.Contains(refused.Why+refused.Remedy, c.want) {
			t.Errorf("%s %s: got %v, want %q", c.flag, c.path, err, c.want)
		}
	}
}

func TestAllowRecordsResolvedPaths(t *testing.T) {
	t.Parallel()
	l, home := newFixture(t, []string{"real/sub/", "link -> real", "real/own/", ".ssh/id"})
	got, err := Allow(t.Context(), l.Repo, Request{Invocation: l.Sandbox.ID, Read: []string{home + "/link/sub"}, Write: []string{"private:" + home + "/link/../real/own"}})
	if err != nil {
		t.Fatal(err)
	}
	if !got.Changed || !slices.Equal(got.Read, []string{home + "/real/sub"}) || !slices.Equal(got.Write, []string{"private:" + home + "/real/own"}) {
		t.Errorf("got %+v", got)
	}
	recorded := func() store.Grants { return l.Repo.Store.Invocation(l.Repo.ID, l.Sandbox.ID, nil).Record.Grants() }
	if g := recorded(); !slices.Equal(g.Read, got.Read) || !slices.Equal(g.Write, got.Write) {
		t.Errorf("recorded %+v", g)
	}
	if again, err := Allow(t.Context(), l.Repo, Request{Invocation: l.Sandbox.ID, Read: []string{home + "/real/sub"}}); err != nil || again.Changed {
		t.Errorf("the same again: %+v, %v", again, err)
	}

	// The path leads elsewhere now: nothing else can be allowed until it is taken back.
	if err := errors.Join(os.Remove(home+"/real/sub"), os.Symlink(home+"/.ssh", home+"/real/sub")); err != nil {
		t.Fatal(err)
	}
	_, err = Allow(t.Context(), l.Repo, Request{Invocation: l.Sandbox.ID, Outputs: "open", Read: []string{home + "/real"}})
	var refused *fault.GrantError
	if !errors.As(err, &refused) || refused.Path != home+"/real/sub" || !strings.Contains(refused.Remedy, "--reset") {
		t.Errorf("got %v", err)
	}
	if g := recorded(); !slices.Equal(g.Read, got.Read) {
		t.Errorf("recorded %+v", g)
	}
	if reset, err := Allow(t.Context(), l.Repo, Request{Invocation: l.Sandbox.ID, Reset: true}); err != nil || !reset.Changed || len(reset.Read)+len(reset.Write) > 0 {
		t.Errorf("got %+v, %v", reset, err)
	}
	if r := l.Repo.Store.Invocation(l.Repo.ID, l.Sandbox.ID, nil).Record; r.Allowed != nil {
		t.Errorf("recorded %+v", r.Allowed)
	}
}

func TestWidenOutputsOnlyWidens(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ have, add, want string }{
		{"none", "", "none"},
		{"none", "open", "open"},
		{"none", "hosts:B.example,a.example", "hosts:a.example,b.example"},
		{"hosts:a.example", "hosts:b.example", "hosts:a.example,b.example"},
		{"hosts:a.example", "hosts:a.example", "hosts:a.example"},
		{"hosts:a.example", "open", "open"},
		{"open", "hosts:a.example", "open"},
		{"open", "none", ""},
		{"none", "none", ""},
		{"none", "hosts:http://a.example", ""},
		{"none", "a.example", ""},
	} {
		got, err := widenOutputs(c.have, c.add)
		if got != c.want || fault.Is[*fault.InvalidError](err) != (c.want == "") {
			t.Errorf("%s and %s: got %q, %v, want %q", c.have, c.add, got, err, c.want)
		}
	}
}

func TestWidenLimitsOnlyWidens(t *testing.T) {
	t.Parallel()
	have := store.Limits{FileSize: 100, TimeoutMS: 1000, Nice: 5, BestEffort: true}
	for name, c := range map[string]struct {
		add  confine.Limits
		want store.Limits
		err  string
	}{
		"nothing":          {want: have},
		"the same":         {add: confine.Limits{FileSize: 100, Nice: 5}, want: have},
		"larger":           {add: confine.Limits{FileSize: 200}, want: store.Limits{FileSize: 200, TimeoutMS: 1000, Nice: 5, BestEffort: true}},
		"smaller":          {add: confine.Limits{FileSize: 50}, err: "allow only widens"},
		"longer":           {add: confine.Limits{Timeout: time.Minute}, want: store.Limits{FileSize: 100, TimeoutMS: 60_000, Nice: 5, BestEffort: true}},
		"shorter":          {add: confine.Limits{Timeout: time.Millisecond}, err: "allow only widens"},
		"no timeout":       {add: confine.Limits{Timeout: -1}, want: store.Limits{FileSize: 100, Nice: 5, BestEffort: true}},
		"less nice":        {add: confine.Limits{Nice: 1}, want: store.Limits{FileSize: 100, TimeoutMS: 1000, Nice: 1, BestEffort: true}},
		"nicer":            {add: confine.Limits{Nice: 6}, err: "at most 5"},
		"one it lacks":     {add: confine.Limits{Memory: 1 << 30}, err: "the sandbox has no memory limit to raise"},
		"another it lacks": {add: confine.Limits{Processes: 7}, err: "the sandbox has no processes limit to raise"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := sandboxtest.New(t, core.Options{})
			got, err := widenLimits(t.Context(), l.Repo, store.InvocationMeta{InvocationID: "i", Limits: have}, c.add)
			switch {
			case c.err != "":
				if !fault.Is[*fault.InvalidError](err) || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v, want %q", err, c.err)
				}
			case err != nil || got != c.want:
				t.Errorf("got %+v, %v, want %+v", got, err, c.want)
			}
		})
	}
}

func TestFindPending(t *testing.T) {
	t.Parallel()
	home := walls.PrivateHome{Path: "/h"}
	bare := walls.Plan{Network: walls.NoNetwork, Home: home}
	read := walls.Plan{Network: walls.NoNetwork, Home: home, Kept: []string{"/h/a"}}
	written := walls.Plan{Network: walls.NoNetwork, Home: home, Writable: []string{"/h/a"}}
	cache := walls.Plan{Network: walls.NoNetwork, Home: home, Overlays: []walls.OverlayMount{{Path: "/h/c"}}}
	omitting := walls.Plan{Network: walls.NoNetwork, Home: home, Overlays: cache.Overlays, Omitted: []string{"/h/c/a"}}
	relayed := walls.Plan{Network: walls.NoNetwork, Home: home, Relayed: []string{"127.0.0.1:9"}}
	open := walls.Plan{Network: walls.HostNetwork, Home: home}
	grant := func(read, write string) (m store.InvocationMeta) {
		m.Allowed = &store.Allowed{}
		if read != "" {
			m.Allowed.Read = []string{read}
		}
		if write != "" {
			m.Allowed.Write = []string{write}
		}
		return m
	}
	for name, c := range map[string]struct {
		running, next walls.Plan
		before, after store.InvocationMeta
		want          string
	}{
		"nothing":           {running: bare, next: bare},
		"given to read":     {running: bare, next: read, after: grant("/h/a", ""), want: "/h/a"},
		"given to write":    {running: read, next: written, before: grant("/h/a", ""), after: grant("/h/a", "/h/a"), want: "/h/a"},
		"given before":      {running: read, next: read, before: grant("/h/a", ""), after: grant("/h/a", "")},
		"taken back":        {running: read, next: bare, before: grant("/h/a", ""), want: "/h/a"},
		"in an overlay":     {running: omitting, next: cache, after: grant("", settings.PrivatePrefix+"/h/c/a"), want: "/h/c/a"},
		"there already":     {running: cache, next: cache, after: grant("", settings.PrivatePrefix+"/h/c/a")},
		"another network":   {running: bare, next: open, want: "--outputs"},
		"a port of machine": {running: bare, next: relayed, want: "--outputs"},
	} {
		if got := strings.Join(findPending(c.running, c.next, c.before, c.after), " "); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
