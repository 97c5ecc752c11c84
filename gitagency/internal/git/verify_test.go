package git

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// newArchive is a lab with a history in which there is one of every kind: files that are deltas of each other, one
// that is gone again, a link, an executable, a submodule, a merge.
func newArchive(t *testing.T) *lab {
	t.Helper()
	l := newLab(t)
	lines := strings.Repeat("a line that comes again and again\n", 50)
	for i := range 3 {
		l.write("deep/er/file", fmt.Sprint(lines, i, "\n", lines))
		l.write("gone", fmt.Sprint("only in history ", i))
		l.git("add", "-A")
		l.git("commit", "-q", "-m", fmt.Sprint("commit ", i))
	}
	l.git("checkout", "-q", "-b", "side", "HEAD~1")
	l.write("beside", "beside\n")
	l.git("add", "-A")
	l.git("commit", "-q", "-m", "side")
	l.git("checkout", "-q", "main")
	l.git("merge", "-q", "--no-edit", "side")
	l.git("rm", "-q", "gone")
	l.git("update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("5", 40)+",sub")
	l.git("commit", "-q", "-m", "a submodule")
	return l
}

func (l *lab) verify() VerifyResult {
	l.t.Helper()
	v, err := l.open().Verify(l.t.Context(), l.git("rev-parse", "HEAD"), nil)
	l.must(err)
	return v
}

// reachable is what git itself counts.
func (l *lab) reachable() int {
	l.t.Helper()
	return strings.Count(l.git("rev-list", "--objects", "HEAD"), "\n") + 1
}

func (l *lab) loose(oid string) string {
	return filepath.Join(l.dir, ".git", "objects", oid[:2], oid[2:])
}

// rewrite changes a file that git made read-only.
func (l *lab) rewrite(path string, change func([]byte) []byte) (restore func()) {
	l.t.Helper()
	before, err := os.ReadFile(path)
	l.must(err)
	l.must(os.Remove(path))
	l.must(os.WriteFile(path, change(bytes.Clone(before)), 0o600))
	return func() { l.t.Helper(); l.must(os.WriteFile(path, before, 0o600)) }
}

func flip(at int) func([]byte) []byte {
	return func(data []byte) []byte { data[at] ^= 0xff; return data }
}

func TestEveryObjectThatACommitLeadsToIsHashedOnce(t *testing.T) {
	t.Parallel()
	l := newArchive(t)
	for _, how := range []string{"loose", "packed", "with a graph, bitmaps and an index of many packs"} {
		switch how {
		case "packed":
			l.git("gc", "-q")
		case "with a graph, bitmaps and an index of many packs":
			l.git("repack", "-q", "-adb", "--write-midx")
			l.git("commit-graph", "write", "--reachable")
		}
		v := l.verify()
		if v.Objects != l.reachable() || len(v.Damages) > 0 || v.Bytes == 0 || len(v.ShallowCommits) > 0 || v.PromisedObjects > 0 {
			t.Errorf("%s: %+v, want %d objects", how, v, l.reachable())
		}
	}
}

func TestAFlippedByteOfALooseObjectIsFoundWhereverItIs(t *testing.T) {
	t.Parallel()
	l := newArchive(t)
	for name, rev := range map[string]string{
		"commit": "HEAD", "commit of the history": "HEAD~3", "tree": "HEAD^{tree}", "tree below": "HEAD:deep/er",
		"blob": "HEAD:deep/er/file", "blob of the history": "HEAD~2:gone", "link": "HEAD:link",
	} {
		oid, kind := l.git("rev-parse", rev), l.git("cat-file", "-t", rev)
		fi, err := os.Stat(l.loose(oid))
		l.must(err)
		for _, at := range []int{0, 1, 2, int(fi.Size()) / 2, int(fi.Size()) - 1} {
			restore := l.rewrite(l.loose(oid), flip(at))
			v := l.verify()
			if len(v.Damages) != 1 || v.Damages[0].OID != oid || v.Damages[0].Kind != kind || v.Damages[0].Problem == ProblemMissing {
				t.Errorf("%s, byte %d: %+v", name, at, v.Damages)
			}
			restore()
		}
	}
	if v := l.verify(); len(v.Damages) > 0 {
		t.Errorf("and afterwards: %+v", v)
	}
}

func TestAFlippedByteOfAPackIsFoundWhereverItIs(t *testing.T) {
	t.Parallel()
	l := newArchive(t)
	l.git("gc", "-q")
	packs, err := filepath.Glob(filepath.Join(l.dir, ".git", "objects", "pack", "*.pack"))
	if l.must(err); len(packs) != 1 {
		t.Fatal(packs)
	}
	fi, err := os.Stat(packs[0])
	l.must(err)
	commit, repo := l.git("rev-parse", "HEAD"), l.open()
	size := int(fi.Size())
	positions := []int{0, 4, 7, 8, 11, 12, 13, 14, size - 1, size - 20, size - 21, size - 22} // the head, the first object, the checksum, the last object
	for at := 15; at < size; at += 23 {
		positions = append(positions, at)
	}
	for _, at := range positions {
		restore := l.rewrite(packs[0], flip(at))
		v, err := repo.Verify(t.Context(), commit, nil)
		if err != nil || len(v.Damages) == 0 {
			t.Errorf("byte %d of %d: %+v, %v", at, size, v, err)
		}
		restore()
	}
}

// Objects that are whole, but not those that their names say, are what git itself does not notice when it reads them.
func TestAnObjectInThePlaceOfAnotherIsFound(t *testing.T) {
	t.Parallel()
	l := newArchive(t)
	blob, tree := l.git("rev-parse", "HEAD:a.txt"), l.git("rev-parse", "HEAD:dir")
	for _, oid := range []string{blob, tree} {
		restore := l.rewrite(l.loose(oid), func([]byte) []byte {
			var b bytes.Buffer
			w := zlib.NewWriter(&b)
			_, err := w.Write([]byte("blob 5\x00other"))
			l.must(err)
			l.must(w.Close())
			return b.Bytes()
		})
		v := l.verify()
		if len(v.Damages) != 1 || v.Damages[0].OID != oid || v.Damages[0].Problem != ProblemAltered || !strings.Contains(v.Damages[0].Detail, "blob ") {
			t.Errorf("%+v", v.Damages)
		}
		restore()
	}
	// A replacement is somebody's wish, and no damage.
	l.git("replace", blob, l.git("rev-parse", "HEAD:link"))
	if v := l.verify(); len(v.Damages) > 0 {
		t.Errorf("%+v", v)
	}
}

func TestAllThatIsMissingIsNamedWithItsPath(t *testing.T) {
	t.Parallel()
	l := newArchive(t)
	var want []string
	for _, path := range []string{"a.txt", "dir/b.txt", "deep/er"} {
		oid := l.git("rev-parse", "HEAD:"+path)
		l.must(os.Remove(l.loose(oid)))
		want = append(want, oid+" "+path)
	}
	var got []string
	for _, d := range l.verify().Damages {
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

func TestAHistoryThatWasCutOffIsToldFromOneThatIsDamaged(t *testing.T) {
	t.Parallel()
	l := newArchive(t)
	shallow := *l
	shallow.dir = filepath.Join(tempDir(t), "shallow")
	l.git("clone", "-q", "--depth", "2", "file://"+l.dir, shallow.dir)
	v := shallow.verify()
	if len(v.Damages) > 0 || len(v.ShallowCommits) == 0 || v.Objects != shallow.reachable() {
		t.Errorf("%+v", v)
	}
	partial := *l
	partial.dir = filepath.Join(tempDir(t), "partial")
	l.git("config", "uploadpack.allowFilter", "true")
	l.git("clone", "-q", "--no-checkout", "--filter=blob:none", "file://"+l.dir, partial.dir)
	v = partial.verify()
	if len(v.Damages) > 0 || v.PromisedObjects == 0 || v.Objects == 0 {
		t.Errorf("%+v", v)
	}
	if again := partial.verify(); again.PromisedObjects != v.PromisedObjects {
		t.Error("it was fetched")
	}
}

func TestObjectsAreVerifiedWhereverGitFindsThemAndWhateverTheirHash(t *testing.T) {
	t.Parallel()
	l := newArchive(t)
	borrower := *l
	borrower.dir = filepath.Join(tempDir(t), "borrower")
	l.git("clone", "-q", "--shared", l.dir, borrower.dir)
	if v := borrower.verify(); v.Objects != l.reachable() || len(v.Damages) > 0 {
		t.Errorf("%+v", v)
	}
	oid := l.git("rev-parse", "HEAD:a.txt")
	l.rewrite(l.loose(oid), flip(5))
	if v := borrower.verify(); len(v.Damages) != 1 || v.Damages[0].OID != oid {
		t.Errorf("%+v", v)
	}

	modern := emptyLab(t)
	modern.git("init", "-q", "--object-format=sha256", "-b", "main", ".")
	modern.write("dir/file", "f\n")
	modern.git("add", "-A")
	modern.git("commit", "-q", "-m", "first")
	if v := modern.verify(); v.Objects != 4 || len(v.Damages) > 0 {
		t.Errorf("%+v", v)
	}
	oid = modern.git("rev-parse", "HEAD:dir")
	modern.rewrite(modern.loose(oid), flip(5))
	if v := modern.verify(); len(v.Damages) != 1 || v.Damages[0].OID != oid {
		t.Errorf("%+v", v)
	}
}

func TestWhenGitDoesNotWorkThatIsNoDamage(t *testing.T) {
	t.Parallel()
	l := newArchive(t)
	repo, commit := l.open(), l.git("rev-parse", "HEAD")
	l.must(os.WriteFile(filepath.Join(l.dir, ".git", "config"), []byte("[core\n"), 0o600))
	if v, err := repo.Verify(t.Context(), commit, nil); err == nil {
		t.Errorf("%+v", v)
	}
}
