package git

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// One git that tells everything must never tell anything else than those that are asked one by one, and where
// people work it must be enough.
func TestOneGitTellsWhatThreeWouldOrNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	root := tempDir(t)
	linked := filepath.Join(root, "linked")
	l.git("worktree", "add", "-q", "--detach", linked)
	l.must(os.Mkdir(filepath.Join(linked, "below"), 0o755))
	bare := filepath.Join(root, "bare.git")
	l.git("clone", "-q", "--bare", ".", bare)
	ofBare := filepath.Join(root, "of-bare")
	l.in(bare, "worktree", "add", "-q", "--detach", ofBare)
	separate := filepath.Join(root, "separate")
	l.git("clone", "-q", "--separate-git-dir", separate+".elsewhere", ".", separate)
	link := filepath.Join(root, "link")
	l.must(os.Symlink(l.dir, link))
	around := filepath.Join(root, "around")
	l.git("clone", "-q", ".", around)
	l.in(around, "-c", "protocol.file.allow=always", "submodule", "add", "-q", l.dir, "sub")
	nested := filepath.Join(around, "nested")
	l.git("clone", "-q", ".", nested)
	own := filepath.Join(root, "own-config")
	l.git("clone", "-q", ".", own)
	l.in(own, "config", "extensions.worktreeConfig", "true")
	l.in(own, "worktree", "add", "-q", "--detach", own+"-linked")
	l.in(own+"-linked", "config", "--worktree", "agency.agent", "x")

	// Names in which a line ends lead elsewhere, if one reads them line by line.
	trap := filepath.Join(root, "trap")
	l.git("clone", "-q", ".", trap)
	l.git("clone", "-q", ".", trap+"\nworktree "+trap)
	l.git("clone", "-q", ".", trap+"\nmore")
	moved := filepath.Join(root, "moved")
	l.git("clone", "-q", ".", moved)
	l.in(moved, "config", "core.worktree", linked)
	gone := filepath.Join(root, "gone")
	l.git("worktree", "add", "-q", "--detach", gone)
	l.must(os.RemoveAll(filepath.Join(l.dir, ".git", "worktrees", "gone")))

	for _, c := range []struct {
		name, dir string
		env       []string
		enough    bool
	}{
		{"the top", l.dir, nil, true},
		{"a sub directory", filepath.Join(l.dir, "dir"), nil, true},
		{"through a symlink", filepath.Join(link, "dir"), nil, true},
		{"a linked worktree", linked, nil, true},
		{"below a linked worktree", filepath.Join(linked, "below"), nil, true},
		{"a worktree of a bare one", ofBare, nil, true},
		{"a git directory elsewhere", separate, nil, true},
		{"a submodule", filepath.Join(around, "sub"), nil, false}, // it has core.worktree
		{"a repository in another", nested, nil, true},
		{"a worktree with settings of its own", own + "-linked", nil, true},
		{"a hook's index", l.dir, []string{"GIT_INDEX_FILE=.git/index.lock", "GIT_PREFIX=dir/"}, true},
		{"other traces", l.dir, []string{"GIT_TRACE2=1", "GIT_TRACE2_EVENT=1", "GIT_TRACE2_BRIEF=0"}, true},

		{"a bare repository", bare, nil, false},
		{"in the git directory", filepath.Join(l.dir, ".git"), nil, false},
		{"a name that is two", trap + "\nworktree " + trap, nil, false},
		{"a name that goes on", trap + "\nmore", nil, false},
		{"core.worktree", moved, nil, false},
		{"GIT_DIR", linked, []string{"GIT_DIR=" + filepath.Join(l.dir, ".git")}, false},
		{"GIT_DIR and GIT_WORK_TREE", root, []string{"GIT_DIR=" + bare, "GIT_WORK_TREE=" + linked}, false},
		{"GIT_COMMON_DIR", linked, []string{"GIT_COMMON_DIR=" + bare}, false},
		{"an entry that is gone", gone, nil, false},
		{"no repository", root, nil, false},
		{"a ceiling", filepath.Join(l.dir, "dir"), []string{"GIT_CEILING_DIRECTORIES=" + l.dir}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			run := runner{dir: c.dir, env: append(parseableEnv(append(l.env[:len(l.env):len(l.env)], c.env...)), "LC_ALL=C")}
			at := discoverByTrace(t.Context(), run)
			if (at != nil) != c.enough {
				t.Errorf("one git told %+v", at)
			}
			if by, err := discoverByQueries(t.Context(), run); at != nil && (err != nil || !reflect.DeepEqual(at, by)) {
				t.Errorf("one git told\n%+v\nthree\n%+v, %v", at, by, err)
			}
		})
	}
}
