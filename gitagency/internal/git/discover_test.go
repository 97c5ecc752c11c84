package git

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

// discoverByTrace must find the same repository as discoverByQueries or none, and it must find the common kinds of
// repository.
func TestDiscoverByTraceAgreesWithQueries(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	root := gittest.TempDir(t)
	linked := filepath.Join(root, "linked")
	l.Git("worktree", "add", "-q", "--detach", linked)
	l.Must(os.Mkdir(filepath.Join(linked, "below"), 0o755))
	bare := filepath.Join(root, "bare.git")
	l.Git("clone", "-q", "--bare", ".", bare)
	ofBare := filepath.Join(root, "of-bare")
	l.GitIn(bare, "worktree", "add", "-q", "--detach", ofBare)
	separate := filepath.Join(root, "separate")
	l.Git("clone", "-q", "--separate-git-dir", separate+".elsewhere", ".", separate)
	link := filepath.Join(root, "link")
	l.Must(os.Symlink(l.Root, link))
	around := filepath.Join(root, "around")
	l.Git("clone", "-q", ".", around)
	l.GitIn(around, "-c", "protocol.file.allow=always", "submodule", "add", "-q", l.Root, "sub")
	nested := filepath.Join(around, "nested")
	l.Git("clone", "-q", ".", nested)
	own := filepath.Join(root, "own-config")
	l.Git("clone", "-q", ".", own)
	l.GitIn(own, "config", "extensions.worktreeConfig", "true")
	l.GitIn(own, "worktree", "add", "-q", "--detach", own+"-linked")
	l.GitIn(own+"-linked", "config", "--worktree", "agency.agent", "x")

	// Read line by line, paths with a newline name another repository.
	trap := filepath.Join(root, "trap")
	l.Git("clone", "-q", ".", trap)
	l.Git("clone", "-q", ".", trap+"\nworktree "+trap)
	l.Git("clone", "-q", ".", trap+"\nmore")
	moved := filepath.Join(root, "moved")
	l.Git("clone", "-q", ".", moved)
	l.GitIn(moved, "config", "core.worktree", linked)
	gone := filepath.Join(root, "gone")
	l.Git("worktree", "add", "-q", "--detach", gone)
	l.Must(os.RemoveAll(filepath.Join(l.Root, ".git", "worktrees", "gone")))

	for _, c := range []struct {
		name, dir string
		env       []string
		found     bool
	}{
		{"the top", l.Root, nil, true},
		{"a sub directory", filepath.Join(l.Root, "dir"), nil, true},
		{"through a symlink", filepath.Join(link, "dir"), nil, true},
		{"a linked worktree", linked, nil, true},
		{"below a linked worktree", filepath.Join(linked, "below"), nil, true},
		{"a worktree of a bare repository", ofBare, nil, true},
		{"a git directory elsewhere", separate, nil, true},
		{"a submodule", filepath.Join(around, "sub"), nil, false}, // its core.worktree is set
		{"a repository in another", nested, nil, true},
		{"a worktree with settings of its own", own + "-linked", nil, true},
		{"environment of a hook", l.Root, []string{"GIT_INDEX_FILE=.git/index.lock", "GIT_PREFIX=dir/"}, true},
		{"other GIT_TRACE2 variables", l.Root, []string{"GIT_TRACE2=1", "GIT_TRACE2_EVENT=1", "GIT_TRACE2_BRIEF=0"}, true},

		{"a bare repository", bare, nil, false},
		{"in the git directory", filepath.Join(l.Root, ".git"), nil, false},
		{"a path that contains a second worktree line", trap + "\nworktree " + trap, nil, false},
		{"a path with a newline", trap + "\nmore", nil, false},
		{"core.worktree", moved, nil, false},
		{"GIT_DIR", linked, []string{"GIT_DIR=" + filepath.Join(l.Root, ".git")}, false},
		{"GIT_DIR and GIT_WORK_TREE", root, []string{"GIT_DIR=" + bare, "GIT_WORK_TREE=" + linked}, false},
		{"GIT_COMMON_DIR", linked, []string{"GIT_COMMON_DIR=" + bare}, false},
		{"a worktree without its entry", gone, nil, false},
		{"no repository", root, nil, false},
		{"GIT_CEILING_DIRECTORIES", filepath.Join(l.Root, "dir"), []string{"GIT_CEILING_DIRECTORIES=" + l.Root}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			run := Runner{Dir: c.dir, Env: append(parseableEnv(append(l.Env[:len(l.Env):len(l.Env)], c.env...)), "LC_ALL=C")}
			at := discoverByTrace(t.Context(), run)
			if (at != nil) != c.found {
				t.Errorf("by trace: %+v", at)
			}
			if by, err := discoverByQueries(t.Context(), run); at != nil && (err != nil || !reflect.DeepEqual(at, by)) {
				t.Errorf("by trace\n%+v\nby queries\n%+v, %v", at, by, err)
			}
		})
	}
}
