package snapshot

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

// newHistoryLab makes a repository whose history has each kind of object: files that are deltas of each other, a deleted
// file, a symlink, an executable, a submodule and a merge.
func newHistoryLab(t *testing.T) *gittest.Fixture {
	t.Helper()
	l := gittest.New(t)
	lines := strings.Repeat("a line that comes again and again\n", 50)
	for i := range 3 {
		l.Write("deep/er/file", fmt.Sprint(lines, i, "\n", lines))
		l.Write("gone", fmt.Sprint("only in history ", i))
		l.Git("add", "-A")
		l.Git("commit", "-q", "-m", fmt.Sprint("commit ", i))
	}
	l.Git("checkout", "-q", "-b", "side", "HEAD~1")
	l.Write("beside", "beside\n")
	l.Git("add", "-A")
	l.Git("commit", "-q", "-m", "side")
	l.Git("checkout", "-q", "main")
	l.Git("merge", "-q", "--no-edit", "side")
	l.Git("rm", "-q", "gone")
	l.Git("update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("5", 40)+",sub")
	l.Git("commit", "-q", "-m", "a submodule")
	return l
}

// verifyHead verifies HEAD and everything reachable from it.
func verifyHead(l *gittest.Fixture) VerifyResult {
	l.T.Helper()
	v, err := Verify(l.T.Context(), repotest.OpenRepo(l), l.Git("rev-parse", "HEAD"), nil)
	l.Must(err)
	return v
}

// countReachable returns the number of objects that git counts.
func countReachable(l *gittest.Fixture) int {
	l.T.Helper()
	return strings.Count(l.Git("rev-list", "--objects", "HEAD"), "\n") + 1
}

// flipByte returns a function that inverts one byte.
func flipByte(at int) func([]byte) []byte {
	return func(data []byte) []byte { data[at] ^= 0xff; return data }
}

func TestVerifyHashesEveryReachableObjectOnce(t *testing.T) {
	t.Parallel()
	l := newHistoryLab(t)
	for _, how := range []string{"loose", "packed", "with a graph, bitmaps and an index of many packs"} {
		switch how {
		case "packed":
			l.Git("gc", "-q")
		case "with a graph, bitmaps and an index of many packs":
			l.Git("repack", "-q", "-adb", "--write-midx")
			l.Git("commit-graph", "write", "--reachable")
		}
		v := verifyHead(l)
		if v.Objects != countReachable(l) || len(v.Damages) > 0 || v.Bytes == 0 || len(v.ShallowCommits) > 0 || v.PromisedObjects > 0 {
			t.Errorf("%s: %+v, want %d objects", how, v, countReachable(l))
		}
	}
}

func TestVerifyFindsFlippedByteInLooseObject(t *testing.T) {
	t.Parallel()
	l := newHistoryLab(t)
	for name, rev := range map[string]string{
		"commit": "HEAD", "earlier commit": "HEAD~3", "tree": "HEAD^{tree}", "subdirectory": "HEAD:deep/er",
		"blob": "HEAD:deep/er/file", "earlier blob": "HEAD~2:gone", "symlink": "HEAD:link",
	} {
		oid, kind := l.Git("rev-parse", rev), l.Git("cat-file", "-t", rev)
		fi, err := os.Stat(l.LoosePath(oid))
		l.Must(err)
		for _, at := range []int{0, 1, 2, int(fi.Size()) / 2, int(fi.Size()) - 1} {
			restore := l.RewriteFile(l.LoosePath(oid), flipByte(at))
			v := verifyHead(l)
			if len(v.Damages) != 1 || v.Damages[0].OID != oid || v.Damages[0].Kind != kind || v.Damages[0].Problem == ProblemMissing {
				t.Errorf("%s, byte %d: %+v", name, at, v.Damages)
			}
			restore()
		}
	}
	if v := verifyHead(l); len(v.Damages) > 0 {
		t.Errorf("after all files were restored: %+v", v)
	}
}

func TestVerifyFindsFlippedByteInPack(t *testing.T) {
	t.Parallel()
	l := newHistoryLab(t)
	l.Git("gc", "-q")
	packs, err := filepath.Glob(filepath.Join(l.Root, ".git", "objects", "pack", "*.pack"))
	if l.Must(err); len(packs) != 1 {
		t.Fatal(packs)
	}
	fi, err := os.Stat(packs[0])
	l.Must(err)
	commit, repo := l.Git("rev-parse", "HEAD"), repotest.OpenRepo(l)
	size := int(fi.Size())
	positions := []int{0, 4, 7, 8, 11, 12, 13, 14, size - 1, size - 20, size - 21, size - 22} // header, first object, checksum, last object
	for at := 15; at < size; at += 23 {
		positions = append(positions, at)
	}
	for _, at := range positions {
		restore := l.RewriteFile(packs[0], flipByte(at))
		v, err := Verify(t.Context(), repo, commit, nil)
		if err != nil || len(v.Damages) == 0 {
			t.Errorf("byte %d of %d: %+v, %v", at, size, v, err)
		}
		restore()
	}
}

// Verify finds valid objects stored under the name of another object, which git does not notice when it reads them.
func TestVerifyFindsObjectUnderWrongName(t *testing.T) {
	t.Parallel()
	l := newHistoryLab(t)
	blob, tree := l.Git("rev-parse", "HEAD:a.txt"), l.Git("rev-parse", "HEAD:dir")
	for _, oid := range []string{blob, tree} {
		restore := l.RewriteFile(l.LoosePath(oid), func([]byte) []byte {
			var b bytes.Buffer
			w := zlib.NewWriter(&b)
			_, err := w.Write([]byte("blob 5\x00other"))
			l.Must(err)
			l.Must(w.Close())
			return b.Bytes()
		})
		v := verifyHead(l)
		if len(v.Damages) != 1 || v.Damages[0].OID != oid || v.Damages[0].Problem != ProblemAltered || !strings.Contains(v.Damages[0].Detail, "blob ") {
			t.Errorf("%+v", v.Damages)
		}
		restore()
	}
	// A replace ref is no damage.
	l.Git("replace", blob, l.Git("rev-parse", "HEAD:link"))
	if v := verifyHead(l); len(v.Damages) > 0 {
		t.Errorf("%+v", v)
	}
}

func TestVerifyNamesMissingObjectsWithPaths(t *testing.T) {
	t.Parallel()
	l := newHistoryLab(t)
	var want []string
	for _, path := range []string{"a.txt", "dir/b.txt", "deep/er"} {
		oid := l.Git("rev-parse", "HEAD:"+path)
		l.Must(os.Remove(l.LoosePath(oid)))
		want = append(want, oid+" "+path)
	}
	var got []string
	for _, d := range verifyHead(l).Damages {
		if d.Problem != ProblemMissing {
			t.Errorf("%+v", d)
		}
		got = append(got, d.OID+" "+d.Path)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestVerifyAcceptsShallowAndPartialClones(t *testing.T) {
	t.Parallel()
	l := newHistoryLab(t)
	shallow := *l
	shallow.Root = filepath.Join(gittest.TempDir(t), "shallow")
	l.Git("clone", "-q", "--depth", "2", "file://"+l.Root, shallow.Root)
	v := verifyHead(&shallow)
	if len(v.Damages) > 0 || len(v.ShallowCommits) == 0 || v.Objects != countReachable(&shallow) {
		t.Errorf("%+v", v)
	}
	partial := *l
	partial.Root = filepath.Join(gittest.TempDir(t), "partial")
	l.Git("config", "uploadpack.allowFilter", "true")
	l.Git("clone", "-q", "--no-checkout", "--filter=blob:none", "file://"+l.Root, partial.Root)
	v = verifyHead(&partial)
	if len(v.Damages) > 0 || v.PromisedObjects == 0 || v.Objects == 0 {
		t.Errorf("%+v", v)
	}
	if again := verifyHead(&partial); again.PromisedObjects != v.PromisedObjects {
		t.Error("promised objects were fetched")
	}
}

func TestVerifyReadsAlternatesAndSHA256(t *testing.T) {
	t.Parallel()
	l := newHistoryLab(t)
	borrower := *l
	borrower.Root = filepath.Join(gittest.TempDir(t), "borrower")
	l.Git("clone", "-q", "--shared", l.Root, borrower.Root)
	if v := verifyHead(&borrower); v.Objects != countReachable(l) || len(v.Damages) > 0 {
		t.Errorf("%+v", v)
	}
	oid := l.Git("rev-parse", "HEAD:a.txt")
	l.RewriteFile(l.LoosePath(oid), flipByte(5))
	if v := verifyHead(&borrower); len(v.Damages) != 1 || v.Damages[0].OID != oid {
		t.Errorf("%+v", v)
	}

	modern := gittest.NewEmpty(t)
	modern.Git("init", "-q", "--object-format=sha256", "-b", "main", ".")
	modern.Write("dir/file", "f\n")
	modern.Git("add", "-A")
	modern.Git("commit", "-q", "-m", "first")
	if v := verifyHead(modern); v.Objects != 4 || len(v.Damages) > 0 {
		t.Errorf("%+v", v)
	}
	oid = modern.Git("rev-parse", "HEAD:dir")
	modern.RewriteFile(modern.LoosePath(oid), flipByte(5))
	if v := verifyHead(modern); len(v.Damages) != 1 || v.Damages[0].OID != oid {
		t.Errorf("%+v", v)
	}
}

func TestVerifyReportsGitFailureAsError(t *testing.T) {
	t.Parallel()
	l := newHistoryLab(t)
	repo, commit := repotest.OpenRepo(l), l.Git("rev-parse", "HEAD")
	l.Must(os.WriteFile(filepath.Join(l.Root, ".git", "config"), []byte("[core\n"), 0o600))
	if v, err := Verify(t.Context(), repo, commit, nil); err == nil {
		t.Errorf("%+v", v)
	}
}
