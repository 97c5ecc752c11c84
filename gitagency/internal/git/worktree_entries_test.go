package git

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

func TestWorktreeEntriesListBadFiles(t *testing.T) {
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
			entries, err := repo.WorktreeEntries()
			l.Must(err)
			if got := slices.Contains(entries[0].BadFiles, name); got != bad[name] || len(entries[0].BadFiles) > 1 {
				t.Errorf("%s of %.40q: bad files are %q", name, content, entries[0].BadFiles)
			}
			l.WriteIn(dir, name, string(was))
		}
	}
	gittest.RequireSame(t, "afterwards", gittest.DiskState(t, dir), whole)
}

func TestWorktreeEntriesReadsDamagedEntries(t *testing.T) {
	t.Parallel()
	for what, damage := range adminDirDamages {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := OpenRepo(l)
			l.Git("worktree", "add", "-q", "--detach", filepath.Join(gittest.TempDir(t), "bad"))
			l.Must(damage(repo.AdminDir("bad")))
			gittest.Within(t, "WorktreeEntries", func() {
				if _, err := repo.WorktreeEntries(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestDotGitTargetAgreesWithGit(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	elsewhere := gittest.TempDir(t)
	for content, want := range map[string]string{
		"gitdir: " + l.Root + "/.git\n":         l.Root + "/.git",
		"gitdir: " + l.Root + "/.git":           l.Root + "/.git",
		"gitdir: " + l.Root + "/.git\r\n\r\n":   l.Root + "/.git",
		"gitdir: ../repo/.git\n":                l.Root + "/.git",
		"gitdir: " + elsewhere + "\n":           elsewhere,
		"gitdir: /with\nnewline\n":              "/with\nnewline",
		"gitdir:" + l.Root + "/.git\n":          "",
		"gitdir: \n":                            "",
		"":                                      "",
		"\x00\xff":                              "",
		" gitdir: " + l.Root + "/.git\n":        "",
		"# gitdir: x\ngitdir: " + l.Root + "\n": "",
	} {
		tree := filepath.Join(filepath.Dir(l.Root), "tree")
		l.WriteIn(tree, ".git", content)
		if got, err := DotGitTarget(tree); got != want || err != nil {
			t.Errorf("target of %q is %q, %v", content, got, err)
		}
		// Git resolves to the same path if the target is a repository.
		if out, err := l.TryGit(tree, "rev-parse", "--absolute-git-dir"); err == nil && strings.TrimSuffix(out, "\n") != want {
			t.Errorf("git resolves to %q from %q, want %q", out, content, want)
		}
	}
	if got, err := DotGitTarget(l.Root); got != l.Root+"/.git" || err != nil {
		t.Errorf("target of a main worktree is %q, %v", got, err)
	}
	if got, err := DotGitTarget(filepath.Join(l.Root, "nowhere")); got != "" || err != nil {
		t.Errorf("target of a missing directory is %q, %v", got, err)
	}
}

func FuzzParseDotGit(f *testing.F) {
	f.Add([]byte("gitdir: /repo/.git/worktrees/x\n"))
	f.Add([]byte("gitdir: ../x\r\n"))
	f.Add([]byte("gitdir: \n\ngitdir: /x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := parseDotGit("/tree", data)
		if path == "" {
			return
		}
		if !filepath.IsAbs(path) || strings.HasSuffix(path, "\n") || !strings.HasPrefix(string(data), "gitdir: ") {
			t.Errorf("target of %q is %q", data, path)
		}
		if again := parseDotGit("/elsewhere", []byte("gitdir: "+path+"\n")); again != path {
			t.Errorf("target of %q is %q, and parsed again %q", data, path, again)
		}
	})
}
