package status

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
)

// ignoreCapture collects a worktree whose untracked directory has more ignore rules than the limits allow.
type ignoreCapture struct {
	*gittest.Fixture
	repo   *git.Repo
	w      worktree.Registration
	limits readlimit.Limits
}

func newIgnoreCapture(t *testing.T) *ignoreCapture {
	t.Helper()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	c := &ignoreCapture{Fixture: l, repo: repo, w: repotest.AddSandbox(l, repo), limits: readlimit.Default()}
	c.limits.Time = 16 * ignoreStep
	c.write("new\xff/.gitignore", strings.Repeat("rule\n", 100))
	c.write("new\xff/dir/file", "f\n")
	return c
}

func (c *ignoreCapture) write(name, content string) { c.T.Helper(); c.WriteIn(c.w.Tree, name, content) }

func (c *ignoreCapture) remove(name string) {
	c.T.Helper()
	c.Must(os.RemoveAll(filepath.Join(c.w.Tree, name)))
}

// collect collects the worktree when everything in it is older than the file system's clock. It reports whether ignore
// rules were evaluated, and whether they exceeded the limit.
func (c *ignoreCapture) collect() (evaluated, exceeded bool) {
	c.T.Helper()
	waitForFileClock(c.w.Tree)
	m := repotest.NewMirror(c.Fixture)
	m.Repo.ReadLimits = c.limits
	s := repotest.SpecOf(c.Fixture, c.w)
	s.InUse = true
	head, _, err := m.Repo.HeadAndBranch(c.T.Context(), s)
	c.Must(err)
	g, err := CollectWorktree(c.T.Context(), m.Repo, s, head)
	var limit *readlimit.ExceededError
	if exceeded = errors.As(err, &limit); exceeded && (limit.Limit != readlimit.Time || !strings.Contains(limit.What, "ignore rules")) {
		c.T.Errorf("got %v", err)
	} else if !exceeded {
		c.Must(err)
	}
	evaluated = g.scan.ignoreRules != nil
	c.Must(g.Close())
	return evaluated, exceeded
}

// Ignore rules that exceed their limit must end later captures of the same state at once, and those of no other state.
func TestCaptureRemembersExceededIgnoreRules(t *testing.T) {
	t.Parallel()
	type result struct{ evaluated, exceeded bool }
	recalled := result{evaluated: false, exceeded: true}
	for name, test := range map[string]struct {
		change func(c *ignoreCapture)
		want   result
	}{
		"nothing":                      {func(*ignoreCapture) {}, recalled},
		"tracked file":                 {func(c *ignoreCapture) { c.write("a.txt", "changed\n") }, recalled},
		"limit":                        {func(c *ignoreCapture) { c.limits.Time = time.Minute }, result{true, false}},
		"other limit":                  {func(c *ignoreCapture) { c.limits.Output++ }, result{true, true}},
		"fewer rules":                  {func(c *ignoreCapture) { c.write("new\xff/.gitignore", "rule\n") }, result{true, false}},
		"other rules of the same size": {func(c *ignoreCapture) { c.write("new\xff/.gitignore", strings.Repeat("Rule\n", 100)) }, result{true, true}},
		"rules of the top directory":   {func(c *ignoreCapture) { c.write(".gitignore", "/new*\n") }, result{true, false}},
		"rules of the repository":      {func(c *ignoreCapture) { c.WriteIn(c.repo.CommonDir, "info/exclude", "/new*\n") }, result{true, false}},
		"untracked path":               {func(c *ignoreCapture) { c.write("another", "a\n") }, result{true, true}},
		"path in an untracked directory": {
			func(c *ignoreCapture) { c.write("new\xff/another", "a\n") }, result{true, true},
		},
		"no untracked directory": {func(c *ignoreCapture) { c.remove("new\xff") }, result{false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newIgnoreCapture(t)
			if evaluated, exceeded := c.collect(); !evaluated || !exceeded {
				t.Fatalf("the first capture evaluated rules: %t, exceeded the limit: %t", evaluated, exceeded)
			}
			test.change(c)
			evaluated, exceeded := c.collect()
			if got := (result{evaluated, exceeded}); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

// A directory that changed in the current tick of the clock may change again with the same times, so its verdict must not
// be remembered.
func TestCaptureForgetsVerdictOnFreshFiles(t *testing.T) {
	t.Parallel()
	c := newIgnoreCapture(t)
	v := &worktreeScan{repo: c.repo, spec: repotest.SpecOf(c.Fixture, c.w), startedAt: 1, result: &scanResult{}, ignoreRules: &IgnoreRules{}}
	v.untrackedDirStats = map[string]git.FileStat{"new": {Ctime: 1}}
	if err := v.rememberIgnoreVerdict(c.limits.Exceeded("ignore rules", readlimit.Time)); !errors.As(err, new(*readlimit.ExceededError)) {
		t.Errorf("got %v", err)
	}
	if gittest.Exists(filepath.Join(c.repo.AdminDir(c.w.Name), ignoreVerdictFile)) {
		t.Error("the verdict was remembered")
	}
}
