package git

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

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
