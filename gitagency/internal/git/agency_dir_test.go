package git

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

func TestLeftoversListsDirectoriesOfKilledProcesses(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	if got, err := repo.Leftovers(); err != nil || len(got) > 0 {
		t.Errorf("got %q, %v", got, err)
	}
	own := filepath.Join(repo.CommonDir, "agency")
	l.WriteIn(own, "capture-"+gittest.SandboxName+"/index", "x")
	l.WriteIn(own, "incoming-sandbox-"+gittest.SandboxName+"/pack/pack-x.pack", "x")
	l.WriteIn(own, "removed-"+gittest.SandboxName+"/HEAD", "x")
	l.WriteIn(own, "lock.flock", "x")
	got, err := repo.Leftovers()
	l.Must(err)
	if want := []string{filepath.Join(own, "capture-"+gittest.SandboxName), filepath.Join(own, "incoming-sandbox-"+gittest.SandboxName), filepath.Join(own, "removed-"+gittest.SandboxName)}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
