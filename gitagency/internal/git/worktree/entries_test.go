package worktree

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

func TestEntriesListBadFiles(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	w := AddSandbox(l, repo)
	dir := repo.AdminDir(w.Name)
	whole := gittest.DiskState(t, dir)
	for content, bad := range map[string]map[string]bool{
		"":                                 {"gitdir": true, "commondir": true, "HEAD": true},
		"\n":                               {"gitdir": true, "commondir": true, "HEAD": true},
		"nonsense\n":                       {"commondir": true, "HEAD": true}, // the worktree that gitdir names need not exist
		"../..\n":                          {"HEAD": true},
		"../..":                            {"HEAD": true},
		repo.CommonDir + "\n":              {"HEAD": true},
		gittest.TempDir(t) + "\n":          {"commondir": true, "HEAD": true},
		"ref: refs/heads/main\n":           {"commondir": true},
		"ref:refs/heads/main":              {"commondir": true},
		"ref: main\n":                      {"commondir": true, "HEAD": true},
		strings.Repeat("a", 40):            {"commondir": true},
		strings.Repeat("g", 40):            {"commondir": true, "HEAD": true},
		strings.Repeat("a", 1<<17):         {"gitdir": true, "commondir": true, "HEAD": true},
		"\xff\x00\x1b[2J\n\nref: refs/x\n": {"commondir": true, "HEAD": true},
	} {
		for _, name := range []string{"gitdir", "commondir", "HEAD"} {
			was, err := os.ReadFile(filepath.Join(dir, name))
			l.Must(err)
			l.WriteIn(dir, name, content)
			entries, err := Entries(repo)
			l.Must(err)
			if got := slices.Contains(entries[0].BadFiles, name); got != bad[name] || len(entries[0].BadFiles) > 1 {
				t.Errorf("%s of %.40q: bad files are %q", name, content, entries[0].BadFiles)
			}
			l.WriteIn(dir, name, string(was))
		}
	}
	gittest.RequireSame(t, "afterwards", gittest.DiskState(t, dir), whole)
}

func TestEntriesReadsDamagedEntries(t *testing.T) {
	t.Parallel()
	for what, damage := range adminDirDamages {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := OpenRepo(l)
			l.Git("worktree", "add", "-q", "--detach", filepath.Join(gittest.TempDir(t), "bad"))
			l.Must(damage(repo.AdminDir("bad")))
			gittest.Within(t, "Entries", func() {
				if _, err := Entries(repo); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
