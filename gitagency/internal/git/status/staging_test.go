package status

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/fsck"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
)

// Git needs exponential time to compare slowName with slowRule.
var (
	slowRule = strings.Repeat("*a", 20) + "*b text"
	slowName = strings.Repeat("a", 200) + "c"
)

// A capture must refuse a .gitattributes that adds a slow pattern before any git reads it: no copy of it may be in the work
// tree on which git runs.
func TestCaptureRefusesSlowAttributes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		arrange func(l *gittest.Fixture, tree string)
		path    string // of the refused file
	}{
		"untracked": {func(l *gittest.Fixture, tree string) { l.WriteIn(tree, ".gitattributes", slowRule+"\n") }, ".gitattributes"},
		"changed": {func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, ".gitattributes", "*.txt text\n")
			l.GitIn(tree, "add", ".gitattributes")
			l.GitIn(tree, "commit", "-q", "-m", "rules")
			l.WriteIn(tree, ".gitattributes", "*.txt text\n"+slowRule+"\n")
		}, ".gitattributes"},
		"changed, with a slow pattern of HEAD": {func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, ".gitattributes", "*z"+slowRule+"\n")
			l.GitIn(tree, "add", ".gitattributes")
			l.GitIn(tree, "commit", "-q", "-m", "rules")
			l.WriteIn(tree, ".gitattributes", "*z"+slowRule+"\n"+slowRule+"\n")
		}, ".gitattributes"},
		"in a parent of a changed file": {func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, "dir/.gitattributes", slowRule+"\n")
			l.WriteIn(tree, "dir/sub/"+slowName, "x\n")
		}, "dir/.gitattributes"},
		"ignored": {func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, ".gitignore", ".gitattributes\n")
			l.WriteIn(tree, ".gitattributes", slowRule+"\n")
		}, ".gitattributes"},
		"a symlink": {func(l *gittest.Fixture, tree string) {
			l.Must(os.Symlink(slowRule, filepath.Join(tree, ".gitattributes")))
		}, ".gitattributes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := repotest.OpenRepo(l)
			w := repotest.AddSandbox(l, repo)
			c.arrange(l, w.Tree)
			l.WriteIn(w.Tree, slowName, "x\n")
			gittest.Within(t, "the capture", func() {
				g, err := collect(l, repo, w)
				var refused *fsck.Error
				if !errors.As(err, &refused) || refused.Path != c.path || !strings.Contains(refused.Why, "21 asterisks") {
					t.Errorf("got %v", err)
				}
				copied := filepath.Join(repo.AgencyDir(), git.CapturePrefix+w.Name, copiesDir, c.path)
				if content, err := os.ReadFile(copied); err == nil && len(content) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("git could read %q %v", content, err)
				}
				l.Must(g.Close())
			})
		})
	}
}

// A capture tolerates slow patterns of HEAD, and patterns that are not too slow.
func TestCaptureTakesAttributesOfHead(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.WriteIn(w.Tree, "dir/.gitattributes", slowRule+"\n")
	l.GitIn(w.Tree, "add", ".")
	l.GitIn(w.Tree, "commit", "-q", "-m", "rules")
	l.WriteIn(w.Tree, "dir/.gitattributes", "*.txt text\n"+slowRule+"\n*a*b*c*d*e*f.o -text\n")
	l.WriteIn(w.Tree, "dir/new.txt", "a\r\n")
	g, err := collect(l, repo, w)
	l.Must(errors.Join(err, g.Close()))
}

// collect collects a sandbox worktree when everything in it is older than the file system's clock. The result is not closed.
func collect(l *gittest.Fixture, repo *git.Repo, w worktree.Registration) (WorktreeContents, error) {
	l.T.Helper()
	waitForFileClock(w.Tree)
	s := repotest.SpecOf(l, w)
	s.InUse = true
	head, _, err := repo.HeadAndBranch(l.T.Context(), s)
	l.Must(err)
	return CollectWorktree(l.T.Context(), repo, s, head)
}

// waitForFileClock waits until the clock of the timestamps of files has advanced.
func waitForFileClock(dir string) {
	for began := fileClockNow(dir); began != 0 && fileClockNow(dir) == began; {
		time.Sleep(time.Millisecond)
	}
}
