package snapshot

import (
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"golang.org/x/sys/unix"
)

// CaptureState records an empty index as the empty tree, and not as an index that cannot be read.
func TestCaptureStateRecordsEmptyIndex(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.GitIn(w.Tree, "rm", "-r", "-q", "--cached", ".")
	commit := captureStateOf(l, repo, w, "")
	if got, want := trailerValue(l, commit, indexTrailer), stagedTreeOf(l, w); got != want {
		t.Errorf("the index tree is %s, want the empty tree %s", got, want)
	}
	gittest.RequireSame(t, "files on disk", l.Files(commit), l.Files("main"))
}

// CaptureState reads the file of a smudged index entry, also when the file is empty. Git sets the size of a racily clean
// entry to 0, which says nothing about the size of the file.
func TestCaptureStateReadsFileOfSmudgedIndexEntry(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.WriteIn(w.Tree, "a.txt", "")
	var st unix.Stat_t
	l.Must(unix.Lstat(filepath.Join(w.Tree, "a.txt"), &st))
	oid, err := hex.DecodeString(l.Git("rev-parse", "main:a.txt"))
	l.Must(err)
	stat := index.StatWithMode(object.ModeFile)
	for i, word := range []uint32{uint32(st.Ctim.Sec), uint32(st.Ctim.Nsec), uint32(st.Mtim.Sec), uint32(st.Mtim.Nsec), uint32(st.Dev), uint32(st.Ino), object.ModeFile, st.Uid, st.Gid, 0} {
		stat[i*4], stat[i*4+1], stat[i*4+2], stat[i*4+3] = byte(word>>24), byte(word>>16), byte(word>>8), byte(word)
	}
	x := index.File{Format: object.SHA1, Count: 1, Body: index.AppendEntry(nil, stat, oid, uint16(len("a.txt")), 0, []byte("a.txt"))}
	index := filepath.Join(repo.AdminDir(w.Name), "index")
	l.Must(os.WriteFile(index, x.Encode(), 0o644))
	if got := l.GitIn(w.Tree, "show", captureStateOf(l, repo, w, "")+":a.txt"); got != "" {
		t.Errorf("a.txt is %q in the state, but empty on disk", got)
	}
}

// CaptureState does not follow a symlink that replaced the directory of a conflicted path and points outside.
func TestCaptureStateDoesNotFollowSymlinkToConflict(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	outside := gittest.TempDir(t)
	l.WriteIn(outside, "b.txt", "secret\n")
	oid, err := hex.DecodeString(l.Git("rev-parse", "main:dir/b.txt"))
	l.Must(err)
	x := index.File{Format: object.SHA1, Count: 2}
	for stage := uint16(2); stage <= 3; stage++ {
		x.Body = index.AppendEntry(x.Body, index.StatWithMode(object.ModeFile), oid, uint16(len("dir/b.txt"))|stage<<12, 0, []byte("dir/b.txt"))
	}
	l.Must(os.WriteFile(filepath.Join(repo.AdminDir(w.Name), "index"), x.Encode(), 0o644))
	l.Must(os.RemoveAll(filepath.Join(w.Tree, "dir")))
	l.Must(os.Symlink(outside, filepath.Join(w.Tree, "dir")))
	s := repotest.SpecOf(l, w)
	s.Base = l.Git("rev-parse", "main")
	f, err := CaptureState(t.Context(), repo, s, "")
	l.Must(err)
	if got := l.Git("ls-tree", "-r", "--name-only", f.Commit, "dir"); got != "dir" {
		t.Errorf("the state holds %q, want only the symlink", got)
	}
}

// CaptureState refuses an index with a file entry whose object is a tree. Processes in the sandbox can write such an
// index; a state made from it could not be read.
func TestCaptureStateRefusesIndexWithTreeAsBlob(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	oid, err := hex.DecodeString(l.Git("rev-parse", "main:dir"))
	l.Must(err)
	x := index.File{Format: object.SHA1, Count: 1, Body: index.AppendEntry(nil, index.StatWithMode(object.ModeFile), oid, uint16(len("dir")), 0, []byte("dir"))}
	l.Must(os.WriteFile(filepath.Join(repo.AdminDir(w.Name), "index"), x.Encode(), 0o644))
	s := repotest.SpecOf(l, w)
	s.Base = l.Git("rev-parse", "main")
	f, err := CaptureState(t.Context(), repo, s, "")
	if !errors.As(err, new(*object.IncompleteError)) {
		t.Errorf("captured %s: %v", f.Commit, err)
	}
}

// With core.fileMode=false the executable bit comes from the index, also for changed files.
func TestCaptureStateUsesIndexModesWithoutFileMode(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	l.Git("config", "core.fileMode", "false")
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.WriteIn(w.Tree, "run.sh", "#!/bin/sh\ntrue\n")
	for name, mode := range map[string]os.FileMode{"a.txt": 0o755, "run.sh": 0o644, "dir/b.txt": 0o755} {
		l.Must(os.Chmod(filepath.Join(w.Tree, name), mode))
	}
	l.WriteIn(w.Tree, "dir/b.txt", "changed\n")
	f, err := CaptureState(t.Context(), repo, repotest.SpecOf(l, w), "")
	l.Must(err)
	gittest.RequireSame(t, "captured", l.Files(f.Commit), initialFilesWith(map[string]string{"run.sh": "100755 #!/bin/sh\ntrue\n", "dir/b.txt": "100644 changed\n"}))
}
