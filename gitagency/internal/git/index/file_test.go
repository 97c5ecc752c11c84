package index

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// newTestRepo creates a repository with names and modes of many kinds, and with a branch "other" that conflicts with
// main.
func newTestRepo(t *testing.T, format string) *gittest.Fixture {
	t.Helper()
	l := gittest.NewEmpty(t)
	l.Git("init", "-q", "-b", "main", "--object-format="+format, ".")
	for _, name := range []string{"a", "a-b", "a.c", "ab/c", "dir/sub/deep/file", "dir/sub/deep/file2", "dir/sub.x", "z"} {
		l.Write(name, "content of "+name+"\n")
	}
	l.Write("git~2", "harmless\n")
	l.Write(".gitignore", "ignored\n")
	l.Write("ünï/çödé", "x\n")
	l.Write("new\nline", "x\n")
	l.Write("run.sh", "#!/bin/sh\n")
	l.Must(os.Chmod(filepath.Join(l.Root, "run.sh"), 0o755))
	l.Must(os.Symlink("a", filepath.Join(l.Root, "link")))
	l.Commit("first")
	l.Git("checkout", "-q", "-b", "other")
	l.Write("a", "theirs\n")
	l.Commit("theirs")
	l.Git("checkout", "-q", "main")
	l.Write("a", "ours\n")
	l.Commit("ours")
	return l
}

// stageUnusualEntries stages a conflict, a submodule, names around the length limit of the flags, and an
// assume-unchanged file.
func stageUnusualEntries(l *gittest.Fixture) {
	l.T.Helper()
	_, _ = l.TryGit(l.Root, "merge", "-q", "other") // conflict: three stages of one name
	l.Git("update-index", "--add", "--cacheinfo", "160000,"+l.Git("rev-parse", "HEAD")+",module")
	long := strings.Repeat(strings.Repeat("n", 200)+"/", 20) + "end" // 4023 bytes
	l.Git("update-index", "--add", "--cacheinfo", "100644,"+l.Git("rev-parse", "HEAD:z")+","+long)
	l.Git("update-index", "--add", "--cacheinfo", "100644,"+l.Git("rev-parse", "HEAD:z")+","+long+strings.Repeat("x", 72))
	l.Git("update-index", "--assume-unchanged", "z")
}

// setExtendedFlags stages entries that need the extended flags of version 3.
func setExtendedFlags(l *gittest.Fixture) {
	l.T.Helper()
	l.Git("update-index", "--skip-worktree", "dir/sub.x")
	l.Write("intended", "x\n")
	l.Git("add", "-N", "intended")
}

// indexPath returns the path of the index file.
func indexPath(l *gittest.Fixture) string { return filepath.Join(l.Root, ".git/index") }

// readIndexFile parses the index file, and also returns its bytes.
func readIndexFile(l *gittest.Fixture, format string) (File, []byte) {
	l.T.Helper()
	data, err := os.ReadFile(indexPath(l))
	l.Must(err)
	x, err := Read(data, object.Format(format))
	l.Must(err)
	return x, data
}

func TestGitReadsEncodedIndexAsOriginal(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"sha1", "sha256"} {
		for _, version := range []string{"2", "3", "4"} {
			for _, extended := range []bool{false, true} {
				for _, hashed := range []string{"false", "true"} {
					t.Run(fmt.Sprint(format, "-", version, "-", extended, "-", hashed), func(t *testing.T) {
						t.Parallel()
						l := newTestRepo(t, format)
						l.ConfigureGlobal("index.skipHash", hashed) // older versions of git ignore it
						l.ConfigureGlobal("core.untrackedCache", "true")
						stageUnusualEntries(l)
						if extended {
							setExtendedFlags(l)
						}
						l.Git("update-index", "--index-version", version)
						_, _ = l.TryGit(l.Root, "status")
						gitOutput := func() string {
							return l.Git("ls-files", "--debug", "--stage", "-v", "-z") + l.Git("status", "--porcelain", "-z") + l.Git("diff", "--cached", "--raw")
						}
						want := gitOutput()
						x, data := readIndexFile(l, format)
						if n := strings.Count(l.Git("ls-files", "-s", "-z"), "\x00"); entryCount(x) != n {
							t.Errorf("%d entries, want %d", entryCount(x), n)
						}
						var objects []string
						for line := range strings.SplitSeq(strings.TrimSuffix(l.Git("ls-files", "-s", "-z"), "\x00"), "\x00") {
							if words := strings.Fields(line); words[0] != "160000" {
								objects = append(objects, words[1])
							}
						}
						if got := slices.Collect(neededBlobs(x)); !slices.Equal(got, objects) {
							t.Errorf("objects are %q, want %q", got, objects)
						}
						encoded := x.Encode()
						wantVersion := uint32(2)
						if extended {
							wantVersion = 3
						}
						if got := binary.BigEndian.Uint32(encoded[4:]); got != wantVersion {
							t.Errorf("version is %d", got)
						}
						fi, err := os.Stat(indexPath(l))
						l.Must(err)
						l.Must(os.WriteFile(indexPath(l), encoded, 0o644))
						l.Must(os.Chtimes(indexPath(l), fi.ModTime(), fi.ModTime()))
						if got := gitOutput(); got != want {
							t.Errorf("git reads\n%q\nwant\n%q", got, want)
						}
						l.Git("fsck")
						again, err := Read(encoded, object.Format(format))
						l.Must(err)
						if !bytes.Equal(again.Encode(), encoded) || again.NewBlobs(x) != nil {
							t.Error("encoding it again gives another index")
						}
						if bytes.Equal(data, encoded) {
							t.Error("the index still has its extensions")
						}
					})
				}
			}
		}
	}
}

func TestMissingBlobsListsBlobsOfOneIndexOnly(t *testing.T) {
	t.Parallel()
	l := newTestRepo(t, "sha1")
	before, _ := readIndexFile(l, "sha1")
	if got := before.NewBlobs(before); got != nil {
		t.Errorf("compared with itself: %q", got)
	}
	l.Git("mv", "z", "y") // the same blob by another name
	l.Write("a-b", "changed\n")
	l.Write("a-c", "new\n")
	l.Write("zz", "new\n")
	l.Git("rm", "-q", "--cached", "ab/c")
	l.Git("add", "a-b", "a-c", "zz")
	l.Git("update-index", "--add", "--cacheinfo", "160000,"+l.Git("rev-parse", "HEAD")+",module")
	after, _ := readIndexFile(l, "sha1")
	want := []string{l.Git("rev-parse", ":a-b"), l.Git("rev-parse", ":zz")}
	if got := after.NewBlobs(before); !slices.Equal(got, want) {
		t.Errorf("missing are %q, want %q", got, want)
	}
	// A blob with the object name of a submodule's commit is missing: the other index does not need that object.
	l.Git("update-index", "--cacheinfo", "100644,"+l.Git("rev-parse", "HEAD")+",module")
	for range 2 {
		fake, _ := readIndexFile(l, "sha1")
		if got := fake.NewBlobs(after); !slices.Equal(got, []string{l.Git("rev-parse", "HEAD")}) {
			t.Errorf("missing are %q", got)
		}
		l.Git("update-index", "--force-remove", "module")
		l.Git("update-index", "--add", "--cacheinfo", "100644,"+l.Git("rev-parse", "HEAD")+",elsewhere")
	}
	if got := after.NewBlobs(File{}); len(got) != 13 {
		t.Errorf("compared with an empty index: %d %q", len(got), got)
	}
	if got := (File{}).NewBlobs(after); got != nil {
		t.Errorf("an empty index needs %q", got)
	}
}

func TestReadRefusesSplitAndSparseIndex(t *testing.T) {
	t.Parallel()
	l := newTestRepo(t, "sha1")
	l.Git("update-index", "--split-index")
	data, err := os.ReadFile(indexPath(l))
	l.Must(err)
	var not *NotPlainError
	if _, err := Read(data, object.SHA1); !errors.As(err, &not) || not.Kind != "split" {
		t.Errorf("split: %v", err)
	}
	l.Git("update-index", "--no-split-index")
	l.Git("sparse-checkout", "set", "--cone", "--sparse-index", "ab")
	data, err = os.ReadFile(indexPath(l))
	l.Must(err)
	if _, err := Read(data, object.SHA1); !errors.As(err, &not) || not.Kind != "sparse" {
		t.Errorf("sparse: %v", err)
	}
	l.Git("sparse-checkout", "disable")
	readIndexFile(l, "sha1")
}

// testEntry is an index entry for encodeTestIndex.
type testEntry struct {
	name          string
	mode          uint32
	flags         uint16
	extendedFlags uint16 // extended flags
	nameLength    int    // length of the name in the flags; 0: the true one
	padding       string // padding after the name; empty: the correct one
	nullOID       bool   // null object name
}

// encodeTestIndex writes an index of version 2 or 3, valid or not. rest is put between the entries and the checksum.
func encodeTestIndex(version uint32, rest string, entries ...testEntry) []byte {
	data := []byte("DIRC")
	data = binary.BigEndian.AppendUint32(data, version)
	data = binary.BigEndian.AppendUint32(data, uint32(len(entries)))
	for _, e := range entries {
		stat := make([]byte, StatSize)
		binary.BigEndian.PutUint32(stat[ModeOffset:], e.mode)
		oid := bytes.Repeat([]byte{7}, 20)
		if e.nullOID {
			clear(oid)
		}
		start := len(data)
		data = append(append(data, stat...), oid...)
		length := min(len(e.name), flagNameLengthMask)
		if e.nameLength != 0 {
			length = e.nameLength
		}
		data = binary.BigEndian.AppendUint16(data, e.flags|uint16(length))
		if e.flags&flagExtended != 0 {
			data = binary.BigEndian.AppendUint16(data, e.extendedFlags)
		}
		data = append(data, e.name...)
		if e.padding != "" {
			data = append(data, e.padding...)
			continue
		}
		data = append(data, make([]byte, paddedLength(len(data)-start)-(len(data)-start))...)
	}
	data = append(data, rest...)
	h := object.SHA1.NewHash()
	h.Write(data)
	return h.Sum(data)
}

// fileEntry returns an entry for a regular file.
func fileEntry(name string) testEntry { return testEntry{name: name, mode: object.ModeFile} }

// stagedEntry returns an entry for a regular file in a stage of a conflict.
func stagedEntry(name string, stage uint16) testEntry {
	return testEntry{name: name, mode: object.ModeFile, flags: stage << 12}
}

func TestReadRefusesMalformedIndex(t *testing.T) {
	t.Parallel()
	good := encodeTestIndex(2, "", fileEntry("a"), fileEntry("b"))
	changed := func(at int, to byte) []byte {
		data := bytes.Clone(good)
		data[at] = to
		return data
	}
	tests := map[string][]byte{
		"empty file":                     {},
		"only a header":                  good[:12],
		"not an index":                   bytes.Repeat([]byte("x"), 200),
		"version 1":                      changed(7, 1),
		"version 5":                      changed(7, 5),
		"more entries":                   changed(11, 3),
		"fewer entries":                  changed(11, 1),
		"very many entries":              changed(8, 0xff),
		"a wrong checksum":               changed(len(good)-1, good[len(good)-1]^1),
		"a changed time, old checksum":   changed(13, 1),
		"cut off":                        good[:len(good)-20],
		"a directory":                    encodeTestIndex(2, "", testEntry{name: "a", mode: 0o040755}),
		"another mode":                   encodeTestIndex(2, "", testEntry{name: "a", mode: 0o100664}),
		"a pipe":                         encodeTestIndex(2, "", testEntry{name: "a", mode: 0o010644}),
		"a setuid program":               encodeTestIndex(2, "", testEntry{name: "a", mode: 0o104755}),
		"no mode":                        encodeTestIndex(2, "", testEntry{name: "a"}),
		"out of order":                   encodeTestIndex(2, "", fileEntry("b"), fileEntry("a")),
		"out of order, longer":           encodeTestIndex(2, "", fileEntry("ab"), fileEntry("a")),
		"same name twice":                encodeTestIndex(2, "", fileEntry("a"), fileEntry("a")),
		"stages 0 and 1 of one name":     encodeTestIndex(2, "", fileEntry("a"), stagedEntry("a", 1)),
		"stages out of order":            encodeTestIndex(2, "", stagedEntry("a", 2), stagedEntry("a", 1)),
		"a stage twice":                  encodeTestIndex(2, "", stagedEntry("a", 2), stagedEntry("a", 2)),
		"null object name":               encodeTestIndex(2, "", testEntry{name: "a", mode: object.ModeFile, nullOID: true}),
		"flags in version 2":             encodeTestIndex(2, "", testEntry{name: "a", mode: object.ModeFile, flags: flagExtended, extendedFlags: extendedSkipWorktree}),
		"unknown flags":                  encodeTestIndex(3, "", testEntry{name: "a", mode: object.ModeFile, flags: flagExtended, extendedFlags: 1}),
		"reserved flags":                 encodeTestIndex(3, "", testEntry{name: "a", mode: object.ModeFile, flags: flagExtended, extendedFlags: 1 << 15}),
		"padding":                        encodeTestIndex(2, "", testEntry{name: "a", mode: object.ModeFile, padding: "\x00x\x00\x00\x00\x00\x00\x00\x00"}),
		"no padding":                     encodeTestIndex(2, "", testEntry{name: "ab", mode: object.ModeFile, padding: "\x00"}),
		"a shorter name":                 encodeTestIndex(2, "", testEntry{name: "ab", mode: object.ModeFile, nameLength: 1}),
		"a longer name":                  encodeTestIndex(2, "", testEntry{name: "ab", mode: object.ModeFile, nameLength: 3}),
		"a much longer name":             encodeTestIndex(2, "", testEntry{name: "ab", mode: object.ModeFile, nameLength: flagNameLengthMask}),
		"too long a name":                encodeTestIndex(2, "", fileEntry(strings.Repeat("a/", 2048)+"a")),
		"an unknown extension":           encodeTestIndex(2, "abcd\x00\x00\x00\x00", fileEntry("a")),
		"an extension cut off":           encodeTestIndex(2, "TREE\x00\x00\x00\x05abcd", fileEntry("a")),
		"a huge extension":               encodeTestIndex(2, "TREE\xff\xff\xff\xffabcd", fileEntry("a")),
		"a byte before the checksum":     encodeTestIndex(2, "x", fileEntry("a")),
		"a file below a file":            encodeTestIndex(2, "", fileEntry("a"), fileEntry("a-"), fileEntry("a/b")),
		"a file far below a file":        encodeTestIndex(2, "", fileEntry("a"), fileEntry("a-"), fileEntry("a-b/c"), fileEntry("a/b/c/d")),
		"a file below a deep file":       encodeTestIndex(2, "", fileEntry("x/a"), fileEntry("x/a-b"), fileEntry("x/a.c/d"), fileEntry("x/a/b")),
		"a file below the one before":    encodeTestIndex(2, "", fileEntry("a"), fileEntry("a/b")),
		"a link that is .gitmodules":     encodeTestIndex(2, "", testEntry{name: ".gitmodules", mode: object.ModeSymlink}),
		"a link that may be .gitmodules": encodeTestIndex(2, "", testEntry{name: "x/gitmod~1", mode: object.ModeSymlink}),
	}
	for _, name := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "./a", "../a", "a/.", "a/..", "a/./b", "a/../b", "a\x00b", "\x00",
		".git", ".GIT", ".Git/config", "a/.git", "a/.git/b", ".git/hooks/x", "git~1", "GIT~1/x", ".git ", ".git.", ".git. . .", ".git::$INDEX_ALLOCATION", ".git:x", "git~1 ",
		".g\u200cit", "\u200c.git", ".git\u200f", ".gi\ufefft/config", ".\u206aGIT", `.git\config`, `a\.git\b`, `a\git~1`, `.git\`,
	} {
		tests[fmt.Sprintf("a file %q", name)] = encodeTestIndex(2, "", fileEntry(name))
	}
	for name, data := range tests {
		if x, err := Read(data, object.SHA1); err == nil {
			t.Errorf("%s: read, with %d entries", name, entryCount(x))
		}
	}
}

func TestReadAcceptsValidIndex(t *testing.T) {
	t.Parallel()
	tests := map[string][]byte{
		"nothing staged":                     encodeTestIndex(2, ""),
		"an extension":                       encodeTestIndex(2, "TREE\x00\x00\x00\x01aXXXX\x00\x00\x00\x00", fileEntry("a")),
		"no checksum":                        append(encodeTestIndex(2, "", fileEntry("a"))[:headerSize+64], make([]byte, 20)...),
		"a conflict":                         encodeTestIndex(2, "", stagedEntry("a", 1), stagedEntry("a", 2), stagedEntry("a", 3)),
		"a file and a directory in conflict": encodeTestIndex(2, "", stagedEntry("a", 2), fileEntry("a/b")),
		"intent to add":                      encodeTestIndex(3, "", testEntry{name: "a", mode: object.ModeFile, flags: flagExtended, extendedFlags: extendedIntentToAdd, nullOID: true}),
		"extended flags without a flag":      encodeTestIndex(3, "", testEntry{name: "a", mode: object.ModeFile, flags: flagExtended}, fileEntry("b")),
		"version 3":                          encodeTestIndex(3, "", fileEntry("a"), fileEntry("b")),
		"links and others":                   encodeTestIndex(2, "", testEntry{name: "a", mode: object.ModeSymlink}, testEntry{name: "b", mode: object.ModeExecutable}, testEntry{name: "c", mode: object.ModeGitlink}),
	}
	for _, name := range []string{
		"a", "...", "..a", "a..", ".gitignore", ".gitmodules", ".gitx", ".git-x", "git~2", "git~10", "git", ".gi", "x.git", ".git x", "a b", "a\nb", "\xff\xfe", "\u200c", "a\u200c", ".g\u200citx",
		"a\\b", "con", "a:b", strings.Repeat("x", 255), strings.Repeat("a/", 2046) + "abc", "a/.gitattributes", "git~1x",
	} {
		tests[fmt.Sprintf("a file %q", name)] = encodeTestIndex(2, "", fileEntry(name))
	}
	for name, data := range tests {
		x, err := Read(data, object.SHA1)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		again, err := Read(x.Encode(), object.SHA1)
		if err != nil || entryCount(again) != entryCount(x) || !bytes.Equal(again.Encode(), x.Encode()) {
			t.Errorf("%s: encoded and read again: %v", name, err)
		}
	}
}

func FuzzReadIndex(f *testing.F) {
	unsigned := func(data []byte) []byte { // without a checksum, so that changed bytes can be valid
		clear(data[len(data)-20:])
		return data
	}
	f.Add(unsigned(encodeTestIndex(2, "", fileEntry("a"), fileEntry("dir/b"))), false)
	f.Add(unsigned(encodeTestIndex(2, "TREE\x00\x00\x00\x01a", stagedEntry("a", 1), stagedEntry("a", 3))), false)
	f.Add(unsigned(encodeTestIndex(3, "", testEntry{name: "a", mode: object.ModeSymlink, flags: flagExtended | flagAssumeUnchanged, extendedFlags: extendedSkipWorktree})), true)
	f.Add(unsigned(encodeTestIndex(3, "", testEntry{name: "a", mode: object.ModeFile, flags: flagExtended}, fileEntry("b"))), false)
	four, _ := hex.DecodeString("444952430000000400000002" +
		strings.Repeat("00", ModeOffset) + "000081a4" + strings.Repeat("00", 12) + strings.Repeat("07", 20) + "0003" + "00" + "612f6200" +
		strings.Repeat("00", ModeOffset) + "000081a4" + strings.Repeat("00", 12) + strings.Repeat("07", 20) + "0003" + "01" + "6300" + strings.Repeat("00", 20))
	f.Add(four, false)
	f.Fuzz(func(t *testing.T, data []byte, long bool) {
		format := object.SHA1
		if long {
			format = object.SHA256
		}
		x, err := Read(data, format)
		trusted, trustedErr := ReadTrusted(data, format)
		if trustedErr == nil {
			_, _ = x.NewBlobs(trusted), trusted.Fingerprint() // the only operations on an index from ReadTrusted
		}
		if err != nil {
			return
		}
		if trustedErr != nil || len(x.NewBlobs(trusted)) > 0 {
			t.Errorf("%q: ReadTrusted differs from Read: %v", data, trustedErr)
		}
		encoded := x.Encode()
		again, err := Read(encoded, format)
		if err != nil {
			t.Fatalf("%q became %q: %v", data, encoded, err)
		}
		if !bytes.Equal(again.Encode(), encoded) || entryCount(again) != entryCount(x) || x.NewBlobs(again) != nil {
			t.Errorf("%q became %q", data, encoded)
		}
		last, n := "", 0
		for e := range x.AllEntries() {
			name := string(e.Name)
			if name < last || !filepath.IsLocal(name) || filepath.Clean(name) != name || strings.Contains(strings.ToLower("/"+name+"/"), "/.git/") {
				t.Errorf("entry %q after %q", name, last)
			}
			last = name
			n++
		}
		if n != entryCount(x) {
			t.Errorf("AllEntries gives %d entries of %d", n, entryCount(x))
		}
	})
}

func BenchmarkReadAndEncode100000Entries(b *testing.B) {
	var entries []testEntry
	for i := range 100_000 {
		entries = append(entries, fileEntry(fmt.Sprintf("packages/module%02d/source/directory%03d/file%06d.go", i/10000, i/100, i)))
	}
	data := encodeTestIndex(2, "", entries...)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		x, err := Read(data, object.SHA1)
		if err != nil {
			b.Fatal(err)
		}
		x.Encode()
	}
}

func BenchmarkMissingBlobsOf100000Entries(b *testing.B) {
	var entries []testEntry
	for i := range 100_000 {
		entries = append(entries, fileEntry(fmt.Sprintf("packages/module%02d/source/directory%03d/file%06d.go", i/10000, i/100, i)))
	}
	x, _ := Read(encodeTestIndex(2, "", entries...), object.SHA1)
	data := encodeTestIndex(2, "", entries...)
	data[headerSize+5*(len(data)-headerSize-20)/len(entries)+StatSize] = 9
	clear(data[len(data)-20:])
	y, err := Read(data, object.SHA1)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		y.NewBlobs(x)
	}
}

// entryCount returns the number of entries.
func entryCount(x File) int { return x.Count }

// neededBlobs yields the names of the blobs that the index needs, in its order and with repetitions.
func neededBlobs(x File) iter.Seq[string] {
	return func(yield func(string) bool) {
		for e := range x.AllEntries() {
			if e.needsBlob() && !yield(hex.EncodeToString(e.OID)) {
				return
			}
		}
	}
}

// A short file of version 4 must not make Read use much memory.
func TestReadWithinLimitsDecodedNames(t *testing.T) {
	t.Parallel()
	l := gittest.NewEmpty(t)
	l.Git("init", "-q", "-b", "main", ".")
	prefix := strings.Repeat("n", 250) + "/" + strings.Repeat("m", 250)
	var lines strings.Builder
	for i := range 500 {
		fmt.Fprintf(&lines, "100644 %s\t%s%03d\n", l.MakeBlob("x"), prefix, i)
	}
	l.Must(os.WriteFile(filepath.Join(l.Root, "lines"), []byte(lines.String()), 0o600))
	l.Git("config", "index.version", "4")
	l.Shell("git update-index --index-info <lines")
	data, err := os.ReadFile(indexPath(l))
	l.Must(err)
	const limit = 100 << 10
	if len(data) > limit/2 {
		t.Fatalf("the file has %d bytes", len(data))
	}
	if _, err := ReadWithin(data, object.SHA1, limit); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	if x, err := ReadWithin(data, object.SHA1, 10*limit); err != nil || x.Count != 500 {
		t.Errorf("got %d entries, %v", x.Count, err)
	}
}

// TestAppendAfterRead appends an entry to an index whose checksum Read has computed.
func TestAppendAfterRead(t *testing.T) {
	t.Parallel()
	data := encodeTestIndex(2, "", fileEntry("a"))
	x, err := Read(data, object.SHA1)
	if err != nil {
		t.Fatal(err)
	}
	x.Append(StatWithMode(object.ModeFile), object.HashObject(object.SHA1, "blob", nil), []byte("b"))
	again, err := Read(x.Encode(), object.SHA1)
	if err != nil || again.Count != 2 {
		t.Errorf("read %d entries, %v", again.Count, err)
	}
}
