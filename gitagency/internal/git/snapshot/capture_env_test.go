package snapshot

import (
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

// Git variables inherited from a hook are not passed on. During "git commit -a" GIT_INDEX_FILE is a temporary index that
// becomes the user's commit.
func TestCaptureIgnoresHookEnvironment(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	other := gittest.New(t)
	other.Write("other", "o\n")
	other.Commit("other")
	repo := repotest.OpenRepoIn(l, l.Root,
		"GIT_INDEX_FILE="+l.Root+"/.git/next-index-1.lock", "GIT_PREFIX=dir/", "GIT_EDITOR=:", "GIT_REFLOG_ACTION=x",
		"GIT_LITERAL_PATHSPECS=1", "GIT_AUTHOR_NAME=Hook")
	before := gittest.DiskState(t, l.Root+"/.git/index")
	w := repotest.AddSandbox(l, repo)
	gittest.RequireSame(t, "the index of the main worktree", gittest.DiskState(t, l.Root+"/.git/index"), before)
	if gittest.Exists(l.Root + "/.git/next-index-1.lock") {
		t.Error("the hook's index was written")
	}
	if status := l.GitIn(w.Tree, "status", "--porcelain"); status != "" {
		t.Errorf("status: %q", status)
	}
	l.WriteIn(w.Tree, "new", "n\n")
	got := captureSpec(l, repo, repotest.SpecOf(l, w))
	gittest.RequireSame(t, "captured", l.Files(got.Commit), initialFilesWith(map[string]string{"new": "100644 n\n"}))
}
