package git

import (
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// An index in which nothing is staged is not one that nobody can read.
func TestAStateKnowsThatNothingIsStaged(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	l.in(w.Tree, "rm", "-r", "-q", "--cached", ".")
	commit := l.freeze(repo, w, "")
	if got, want := l.trailer(commit, indexTrailer), l.index(w); got != want {
		t.Errorf("staged is %s, want the empty tree %s", got, want)
	}
	requireSame(t, "what is on disk", l.files(commit), l.files("main"))
}

// Git writes an entry that it cannot be sure of with a size of 0. It means nothing of an empty file.
func TestAnEntryThatGitDoubtsIsNotTakenForAnEmptyFile(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	l.put(w.Tree, "a.txt", "")
	var st unix.Stat_t
	l.must(unix.Lstat(filepath.Join(w.Tree, "a.txt"), &st))
	oid, err := hex.DecodeString(l.git("rev-parse", "main:a.txt"))
	l.must(err)
	stat := statWithMode(modeFile)
	for i, word := range []uint32{uint32(st.Ctim.Sec), uint32(st.Ctim.Nsec), uint32(st.Mtim.Sec), uint32(st.Mtim.Nsec), uint32(st.Dev), uint32(st.Ino), modeFile, st.Uid, st.Gid, 0} {
		stat[i*4], stat[i*4+1], stat[i*4+2], stat[i*4+3] = byte(word>>24), byte(word>>16), byte(word>>8), byte(word)
	}
	x := Index{format: SHA1, count: 1, body: appendEntry(nil, stat, oid, uint16(len("a.txt")), 0, []byte("a.txt"))}
	index := filepath.Join(repo.AdminDir(w.Name), "index")
	l.must(os.WriteFile(index, x.Encode(), 0o644))
	if got := l.in(w.Tree, "show", l.freeze(repo, w, "")+":a.txt"); got != "" {
		t.Errorf("a.txt is %q in the state, and empty on disk", got)
	}
}

// A conflict may be at a path that a link leads out of the tree by now.
func TestAConflictBehindALinkIsNotFollowed(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	outside := tempDir(t)
	l.put(outside, "b.txt", "secret\n")
	oid, err := hex.DecodeString(l.git("rev-parse", "main:dir/b.txt"))
	l.must(err)
	x := Index{format: SHA1, count: 2}
	for stage := uint16(2); stage <= 3; stage++ {
		x.body = appendEntry(x.body, statWithMode(modeFile), oid, uint16(len("dir/b.txt"))|stage<<12, 0, []byte("dir/b.txt"))
	}
	l.must(os.WriteFile(filepath.Join(repo.AdminDir(w.Name), "index"), x.Encode(), 0o644))
	l.must(os.RemoveAll(filepath.Join(w.Tree, "dir")))
	l.must(os.Symlink(outside, filepath.Join(w.Tree, "dir")))
	s := l.subject(w)
	s.Base = l.git("rev-parse", "main")
	f, err := repo.CaptureState(t.Context(), s, "")
	l.must(err)
	if got := l.git("ls-tree", "-r", "--name-only", f.Commit, "dir"); got != "dir" {
		t.Errorf("the state holds %q", got)
	}
}

// Whoever writes the index may call a directory of HEAD's a file. A state with that could not be read.
func TestAnIndexThatCallsADirectoryAFileMakesNoState(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	oid, err := hex.DecodeString(l.git("rev-parse", "main:dir"))
	l.must(err)
	x := Index{format: SHA1, count: 1, body: appendEntry(nil, statWithMode(modeFile), oid, uint16(len("dir")), 0, []byte("dir"))}
	l.must(os.WriteFile(filepath.Join(repo.AdminDir(w.Name), "index"), x.Encode(), 0o644))
	s := l.subject(w)
	s.Base = l.git("rev-parse", "main")
	f, err := repo.CaptureState(t.Context(), s, "")
	if !errors.As(err, new(*IncompleteError)) {
		t.Errorf("froze %s: %v", f.Commit, err)
	}
}

// Where git is told that the disk does not say what is a program, the index does; also of a file that has changed.
func TestModesThatDoNotCountAreThoseOfTheIndex(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.git("config", "core.fileMode", "false")
	repo := l.open()
	w := l.sandbox(repo)
	l.put(w.Tree, "run.sh", "#!/bin/sh\ntrue\n")
	for name, mode := range map[string]os.FileMode{"a.txt": 0o755, "run.sh": 0o644, "dir/b.txt": 0o755} {
		l.must(os.Chmod(filepath.Join(w.Tree, name), mode))
	}
	l.put(w.Tree, "dir/b.txt", "changed\n")
	f, err := repo.CaptureState(t.Context(), l.subject(w), "")
	l.must(err)
	requireSame(t, "frozen", l.files(f.Commit), with(map[string]string{"run.sh": "100755 #!/bin/sh\ntrue\n", "dir/b.txt": "100644 changed\n"}))
}
