package git

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// inside is a repository that stands for what an agent has: all objects of the lab's, and its own on top.
type inside struct {
	l   *lab
	dir string
}

const ownRef = "refs/heads/agency/sandbox-" + sandboxName

// inside makes one, and the ref it may move, which is at main.
func (l *lab) inside() *inside {
	l.t.Helper()
	dir := filepath.Join(tempDir(l.t), "inside")
	l.git("clone", "-q", "--shared", l.dir, dir)
	l.git("update-ref", ownRef, "main")
	return &inside{l, dir}
}

func (a *inside) git(args ...string) string { a.l.t.Helper(); return a.l.in(a.dir, args...) }

func (a *inside) feed(stdin string, args ...string) []byte {
	a.l.t.Helper()
	cmd := exec.CommandContext(a.l.t.Context(), "git", args...)
	cmd.Dir, cmd.Env, cmd.Stdin = a.dir, a.l.env, strings.NewReader(stdin)
	out, err := cmd.Output()
	if err != nil {
		a.l.t.Fatalf("git %q: %v", args, err)
	}
	return out
}

// object writes an object as it is, whatever git thinks of it.
func (a *inside) object(kind, content string) string {
	a.l.t.Helper()
	return strings.TrimSpace(string(a.feed(content, "hash-object", "-t", kind, "-w", "--stdin", "--literally")))
}

// tree is a tree with entries such as "100644 name".
func (a *inside) tree(entries ...string) string {
	a.l.t.Helper()
	content := ""
	for i := 0; i < len(entries); i += 2 {
		raw, err := hex.DecodeString(entries[i+1])
		a.l.must(err)
		content += entries[i] + "\x00" + string(raw)
	}
	return a.object("tree", content)
}

func (a *inside) commitOf(tree string, parents ...string) string {
	a.l.t.Helper()
	text := "tree " + tree + "\n"
	for _, p := range parents {
		text += "parent " + p + "\n"
	}
	return a.object("commit", text+"author A <a@example.com> 1 +0000\ncommitter A <a@example.com> 1 +0000\n\nx\n")
}

// commit changes a file and commits it.
func (a *inside) commit(name, content string) string {
	a.l.t.Helper()
	a.l.put(a.dir, name, content)
	a.git("add", "-A")
	a.git("commit", "-q", "-m", "inside")
	return a.git("rev-parse", "HEAD")
}

// pack is what leads to tip and not to main.
func (a *inside) pack(tip string, also ...string) []byte {
	a.l.t.Helper()
	return a.feed(tip+"\n"+strings.Join(also, "\n")+"\n^"+a.l.git("rev-parse", "main")+"\n", "pack-objects", "--revs", "--thin", "--stdout", "-q")
}

// packOf holds these objects and no others.
func (a *inside) packOf(oids ...string) []byte {
	a.l.t.Helper()
	list := ""
	for _, oid := range oids {
		list += oid + "\n"
	}
	return a.feed(list, "pack-objects", "--stdout", "-q")
}

// incoming is a commit as it should come.
func (a *inside) incoming() ReceiveRequest {
	a.l.t.Helper()
	tip := a.commit("new.txt", "new\n")
	return ReceiveRequest{Pack: bytes.NewReader(a.pack(tip)), Ref: ownRef, New: tip, Old: a.l.git("rev-parse", "main"), Reason: "taken in"}
}

// store is all that is in the git directory of the lab.
func (l *lab) store() map[string]string {
	l.t.Helper()
	return states(l.t, filepath.Join(l.dir, ".git"))
}

// sound fails the test when something is wrong with the lab's repository.
func (l *lab) sound() {
	l.t.Helper()
	if out, err := l.try(l.dir, "fsck", "--full", "--strict", "--no-dangling"); err != nil || strings.TrimSpace(out) != "" {
		l.t.Errorf("git fsck: %v %s", err, out)
	}
}

// appeared lists the names in got that are not in before, and those that differ, from the git directory on.
func (l *lab) appeared(before, got map[string]string) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if was, there := before[name]; !there || was != got[name] {
			names = append(names, strings.TrimPrefix(name, filepath.Join(l.dir, ".git")+"/"))
		}
	}
	for name := range before {
		if _, there := got[name]; !there {
			names = append(names, "gone: "+name)
		}
	}
	return names
}

func TestTakeInBringsObjectsAndMovesOneRef(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"sha1", "sha256"} {
		l := emptyLab(t)
		l.git("init", "-q", "-b", "main", "--object-format="+format, ".")
		l.write("dir/b.txt", strings.Repeat("some text that makes a delta worth while\n", 99))
		l.commit("first")
		repo, a := l.open(), l.inside()
		in := a.incoming()
		staged := a.object("blob", "staged\n")
		in.New = a.commit("dir/b.txt", strings.Repeat("some text that makes a delta worth while\n", 99)+"more\n")
		in.Pack, in.Blobs = bytes.NewReader(a.pack(in.New, staged)), []string{staged}
		l.must(os.Mkdir(filepath.Join(l.dir, ".git/agency"), 0o755))
		before := l.store()
		l.must(repo.Receive(t.Context(), in))
		after := l.store()
		packs, _ := filepath.Glob(filepath.Join(l.dir, ".git/objects/pack/*"))
		want := []string{"logs/" + ownRef}
		for _, p := range packs {
			want = append(want, "objects/pack/"+filepath.Base(p))
		}
		if got := l.appeared(before, after); !slices.Equal(got, append(want, ownRef)) {
			t.Errorf("%s: there appeared %q", format, got)
		}
		if got := l.git("rev-parse", ownRef); got != in.New {
			t.Errorf("%s: it is at %s", format, got)
		}
		if log := l.log(ownRef); !strings.Contains(log, "taken in") {
			t.Errorf("%s: its log is %q", format, log)
		}
		if got := l.git("cat-file", "blob", staged); got != "staged" {
			t.Errorf("%s: staged is %q", format, got)
		}
		l.sound()
		if got := l.files(ownRef)["new.txt"]; got != "100644 new\n" {
			t.Errorf("%s: new.txt is %q", format, got)
		}
	}
}

func TestTakeInLeavesNothingOfWhatItRefuses(t *testing.T) {
	t.Parallel()
	nothing := strings.Repeat("1", 40)
	tests := map[string]struct {
		make func(a *inside, in *ReceiveRequest)
		want func(error) bool
	}{
		"not a pack": {func(a *inside, in *ReceiveRequest) { in.Pack = strings.NewReader("something else\n") }, isA[*Error]},
		"five bytes": {func(a *inside, in *ReceiveRequest) { in.Pack = strings.NewReader("PACK\x00") }, isA[*Error]},
		"a damaged pack": {func(a *inside, in *ReceiveRequest) {
			data := a.pack(in.New)
			data[len(data)/2] ^= 1
			in.Pack = bytes.NewReader(data)
		}, isA[*Error]},
		"a pack cut off": {func(a *inside, in *ReceiveRequest) {
			data := a.pack(in.New)
			in.Pack = bytes.NewReader(data[:len(data)-30])
		}, isA[*Error]},
		"a header that promises too much": {func(a *inside, in *ReceiveRequest) {
			in.Pack = strings.NewReader("PACK\x00\x00\x00\x02\xff\xff\xff\xff")
		}, isA[*Error]},
		"an endless pack": {func(a *inside, in *ReceiveRequest) {
			in.Pack = io.MultiReader(bytes.NewReader(a.pack(in.New)[:40]), endless{})
		}, nil},
		"a reader that fails": {func(a *inside, in *ReceiveRequest) {
			in.Pack = io.MultiReader(bytes.NewReader(a.pack(in.New)[:40]), failing{})
		}, nil},
		"a git directory": {func(a *inside, in *ReceiveRequest) {
			config := a.object("blob", "[core]\n")
			in.New = a.commitOf(a.tree("40000 .git", a.tree("100644 config", config)), in.Old)
			in.Pack = bytes.NewReader(a.pack(in.New))
		}, isA[*Error]},
		"a git directory in disguise": {func(a *inside, in *ReceiveRequest) {
			config := a.object("blob", "[core]\n")
			in.New = a.commitOf(a.tree("40000 .g\u200cit", a.tree("100644 config", config)), in.Old)
			in.Pack = bytes.NewReader(a.pack(in.New))
		}, isA[*Error]},
		"a way out": {func(a *inside, in *ReceiveRequest) {
			in.New = a.commitOf(a.tree("40000 ..", a.tree("100644 x", a.object("blob", "x"))), in.Old)
			in.Pack = bytes.NewReader(a.pack(in.New))
		}, isA[*Error]},
		"a slash in a name": {func(a *inside, in *ReceiveRequest) {
			x := a.object("blob", "x")
			in.New = a.commitOf(a.tree("100644 a/b", x), in.Old)
			in.Pack = bytes.NewReader(a.packOf(in.New, a.git("rev-parse", in.New+"^{tree}"), x))
		}, isA[*Error]},
		"a link for .gitmodules": {func(a *inside, in *ReceiveRequest) {
			in.New = a.commitOf(a.tree("120000 .gitmodules", a.object("blob", "x")), in.Old)
			in.Pack = bytes.NewReader(a.pack(in.New))
		}, isA[*Error]},
		"a submodule that runs something": {func(a *inside, in *ReceiveRequest) {
			in.New = a.commitOf(a.tree("100644 .gitmodules", a.object("blob", "[submodule \"x\"]\n\tpath = x\n\turl = -u./x\n")), in.Old)
			in.Pack = bytes.NewReader(a.pack(in.New))
		}, isA[*Error]},
		"no tree": {func(a *inside, in *ReceiveRequest) { in.Pack = bytes.NewReader(a.packOf(in.New)) }, isA[*Error]},
		"no blob": {func(a *inside, in *ReceiveRequest) {
			in.Pack = bytes.NewReader(a.packOf(in.New, a.git("rev-parse", in.New+"^{tree}")))
		}, isA[*Error]},
		"no parent": {func(a *inside, in *ReceiveRequest) {
			in.New = a.commit("later", "x")
			in.Pack = bytes.NewReader(a.packOf(in.New, a.git("rev-parse", in.New+"^{tree}"), a.git("rev-parse", in.New+":later"), a.git("rev-parse", in.New+":new.txt")))
		}, isA[*Error]},
		"a commit in a tree's place": {func(a *inside, in *ReceiveRequest) {
			in.New = a.commitOf(in.New, in.Old)
			in.Pack = bytes.NewReader(a.packOf(in.New))
		}, isA[*Error]},
		"a blob as a directory": {func(a *inside, in *ReceiveRequest) {
			x := a.object("blob", "x")
			tree := a.tree("40000 dir", x)
			in.New = a.commitOf(tree, in.Old)
			in.Pack = bytes.NewReader(a.packOf(in.New, tree, x))
		}, isA[*Error]},
		"nothing at all":  {func(a *inside, in *ReceiveRequest) { in.Pack = nil }, isA[*Error]},
		"an empty stream": {func(a *inside, in *ReceiveRequest) { in.Pack = strings.NewReader("") }, isA[*Error]},
		"an empty pack":   {func(a *inside, in *ReceiveRequest) { in.Pack = bytes.NewReader(a.packOf()) }, isA[*Error]},
		"another pack": {func(a *inside, in *ReceiveRequest) {
			in.Pack = bytes.NewReader(a.packOf(a.object("blob", "x")))
		}, isA[*Error]},
		"a blob for a commit": {func(a *inside, in *ReceiveRequest) {
			in.New = a.git("rev-parse", "HEAD:a.txt")
		}, nil},
		"a tree for a commit": {func(a *inside, in *ReceiveRequest) {
			in.New = a.git("rev-parse", "HEAD^{tree}")
		}, nil},
		"a tag for a commit": {func(a *inside, in *ReceiveRequest) {
			a.git("tag", "-a", "-m", "x", "v1", in.New)
			in.New = a.git("rev-parse", "v1")
			in.Pack = bytes.NewReader(a.pack(in.New))
		}, isA[*IncompleteError]},
		"a ref that moved": {func(a *inside, in *ReceiveRequest) {
			a.l.write("more", "x")
			a.l.git("update-ref", ownRef, a.l.commit("meanwhile"))
		}, isA[*RefMovedError]},
		"a ref that is there":     {func(a *inside, in *ReceiveRequest) { in.Old = "" }, isA[*RefMovedError]},
		"a ref that is not there": {func(a *inside, in *ReceiveRequest) { in.Ref += "-other" }, isA[*RefMovedError]},
		"a ref for main": {func(a *inside, in *ReceiveRequest) {
			a.l.git("symbolic-ref", ownRef, "refs/heads/main")
		}, isA[*SymrefError]},
		"a ref for nothing": {func(a *inside, in *ReceiveRequest) {
			a.l.git("update-ref", "-d", ownRef)
			a.l.git("symbolic-ref", ownRef, "refs/heads/none")
			in.Old = ""
		}, isA[*SymrefError]},
		"a staged file that is not there": {func(a *inside, in *ReceiveRequest) { in.Blobs = []string{nothing} }, isA[*IncompleteError]},
		"a staged tree": {func(a *inside, in *ReceiveRequest) {
			in.Blobs = []string{a.git("rev-parse", in.New+"^{tree}")}
		}, isA[*IncompleteError]},
		"no name of an object": {func(a *inside, in *ReceiveRequest) { in.New = "HEAD" }, nil},
		"an option":            {func(a *inside, in *ReceiveRequest) { in.Old = "--all" }, nil},
		"an option for a ref":  {func(a *inside, in *ReceiveRequest) { in.Ref = "--stdin" }, nil},
		"a ref outside":        {func(a *inside, in *ReceiveRequest) { in.Ref = "refs/heads/../../config" }, nil},
		"a lock for a ref":     {func(a *inside, in *ReceiveRequest) { in.Ref, in.Old = ownRef+".lock", "" }, nil},
		"a file's place":       {func(a *inside, in *ReceiveRequest) { in.Ref = "refs/heads/.x" }, nil},
		"HEAD for a ref":       {func(a *inside, in *ReceiveRequest) { in.Ref = "HEAD" }, nil},
	}
	for name, test := range tests {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			repo, a := l.open(), l.inside()
			in := a.incoming()
			l.must(os.Mkdir(filepath.Join(l.dir, ".git/agency"), 0o755))
			test.make(a, &in)
			before := l.store()
			err := repo.Receive(t.Context(), in)
			if err == nil {
				t.Error("taken in")
			}
			if test.want != nil && !test.want(err) {
				t.Errorf("the error is %T %v", err, err)
			}
			requireSame(t, "the repository", l.store(), before)
			if name != "a ref for nothing" {
				l.sound()
			}
		})
	}
}

// isA reports whether an error is of a kind.
func isA[E error](err error) bool { var e E; return errors.As(err, &e) }

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("it broke") }

func TestMovedErrorSaysWhereTheRefIs(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo, a := l.open(), l.inside()
	in := a.incoming()
	old := in.Old
	l.write("more", "x")
	now := l.commit("meanwhile")
	l.git("update-ref", ownRef, now)
	var moved *RefMovedError
	if err := repo.Receive(t.Context(), in); !errors.As(err, &moved) || *moved != (RefMovedError{ownRef, old, now}) {
		t.Errorf("it is %v", err)
	}
	l.git("update-ref", "-d", ownRef)
	in.Pack = bytes.NewReader(a.pack(in.New))
	if err := repo.Receive(t.Context(), in); !errors.As(err, &moved) || *moved != (RefMovedError{ownRef, old, ""}) {
		t.Errorf("it is %v", err)
	}
	in.Pack, in.Old = bytes.NewReader(a.pack(in.New)), ""
	l.must(repo.Receive(t.Context(), in))
	if got := l.git("rev-parse", ownRef); got != in.New {
		t.Errorf("it is at %s", got)
	}
}

func TestWhatIsThereAlreadyNeedsNoPack(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	older, newer := l.two()
	repo, a := l.open(), l.inside()
	for i, pack := range []io.Reader{nil, strings.NewReader(""), bytes.NewReader(a.packOf())} {
		from, to := newer, older
		if i%2 == 1 {
			from, to = older, newer
		}
		l.must(repo.Receive(t.Context(), ReceiveRequest{Pack: pack, Ref: ownRef, New: to, Old: from, Blobs: []string{l.git("rev-parse", "HEAD:a.txt")}}))
		if got := l.git("rev-parse", ownRef); got != to {
			t.Errorf("it is at %s", got)
		}
	}
	// Nothing moves, and staged files come in all the same.
	staged := a.object("blob", "staged\n")
	at := l.git("rev-parse", ownRef)
	log := l.log(ownRef)
	l.must(repo.Receive(t.Context(), ReceiveRequest{Pack: bytes.NewReader(a.packOf(staged)), Ref: ownRef, New: at, Old: at, Blobs: []string{staged}}))
	if got := l.git("cat-file", "-t", staged); got != "blob" || l.log(ownRef) != log {
		t.Errorf("it is a %s; the log is %q", got, l.log(ownRef))
	}
	l.sound()
}

func TestAPackCanComeTwice(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo, a := l.open(), l.inside()
	in := a.incoming()
	pack := a.pack(in.New)
	l.must(repo.Receive(t.Context(), in))
	l.git("update-ref", ownRef, in.Old)
	in.Pack = bytes.NewReader(pack)
	l.must(repo.Receive(t.Context(), in))
	// Killed between the two files of a pack: git takes no notice of the one, and the other comes anew.
	idx, _ := filepath.Glob(filepath.Join(l.dir, ".git/objects/pack/*.idx"))
	l.git("update-ref", ownRef, in.Old)
	l.must(os.RemoveAll(filepath.Join(l.dir, ".git/logs"))) // which remembers what will not be there
	l.must(os.Remove(idx[0]))
	l.sound()
	in.Pack = bytes.NewReader(pack)
	l.must(repo.Receive(t.Context(), in))
	if got := l.git("rev-parse", ownRef); got != in.New {
		t.Errorf("it is at %s", got)
	}
	l.sound()
	// Something else by the same name is not written over.
	packs, _ := filepath.Glob(filepath.Join(l.dir, ".git/objects/pack/*.pack"))
	l.git("update-ref", ownRef, in.Old)
	l.must(os.Remove(idx[0]))
	l.must(os.Chmod(packs[0], 0o644))
	l.must(os.WriteFile(packs[0], []byte("PACK"), 0o644))
	before := l.store()
	in.Pack = bytes.NewReader(pack)
	if err := repo.Receive(t.Context(), in); err == nil {
		t.Error("taken in")
	}
	requireSame(t, "the repository", l.store(), before)
}

func TestWhatAKilledTakeInLeftGoesWithTheNext(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo, a := l.open(), l.inside()
	in := a.incoming()
	left := filepath.Join(l.dir, ".git/agency", quarantinePrefix+"sandbox-"+sandboxName)
	l.put(left, "pack/tmp_pack_x", "PACK")
	l.put(left, "pack/pack-"+in.New+".idx", "x")
	l.sound()
	l.must(repo.Receive(t.Context(), in))
	if exists(left) {
		t.Error("it is still there")
	}
	packs, _ := filepath.Glob(filepath.Join(l.dir, ".git/objects/pack/*.idx"))
	if len(packs) != 1 {
		t.Errorf("packs are %q", packs)
	}
	l.sound()
}

func TestTakeInBelievesNoReplacementAndNoGraft(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.two()
	repo, a := l.open(), l.inside()
	in := a.incoming()
	// The commit that comes has no parent here, which a graft and a replacement say it need not have.
	missing := a.commit("later", "x")
	tip := a.commit("last", "y")
	l.git("replace", "-f", "--graft", "main")
	l.write(".git/info/grafts", tip+"\n")
	in.New, in.Pack = tip, bytes.NewReader(a.packOf(tip, a.git("rev-parse", tip+"^{tree}"), a.git("rev-parse", tip+":last"), a.git("rev-parse", tip+":later"), a.git("rev-parse", tip+":new.txt")))
	if err := repo.Receive(t.Context(), in); err == nil {
		t.Errorf("taken in without %s", missing)
	}
	in.Pack = bytes.NewReader(a.pack(tip))
	l.must(repo.Receive(t.Context(), in))
}

// What nothing refers to may be there in part: git prunes objects by their age.
func TestWhatLiesAboutInTheRepositoryIsNotTakenForWhole(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"blob", "tree", "commit"} {
		l := newLab(t)
		repo, a := l.open(), l.inside()
		in := a.incoming()
		file := a.object("blob", "a file that was pruned\n")
		deep := a.tree("100644 file", file)
		tree := a.tree("40000 deep", deep)
		commit := a.commitOf(tree, in.Old)
		lying := map[string][]string{"blob": {deep, tree, commit}, "tree": {tree, commit}, "commit": {commit}}[what]
		for _, oid := range lying {
			copyObject(l, a, oid)
		}
		for name, tip := range map[string]string{
			"as it is": commit, "as a parent": a.commitOf(l.git("rev-parse", "main^{tree}"), commit), "as a tree": a.commitOf(a.tree("40000 x", tree), in.Old),
		} {
			if name == "as a tree" && what == "commit" {
				continue // git sees that itself
			}
			before := l.store()
			var objects []string
			for _, oid := range []string{tip, a.git("rev-parse", tip+"^{tree}")} {
				if !slices.Contains(lying, oid) && oid != tree {
					objects = append(objects, oid)
				}
			}
			in.New, in.Pack = tip, bytes.NewReader(a.packOf(objects...))
			var incomplete *IncompleteError
			if err := repo.Receive(t.Context(), in); !errors.As(err, &incomplete) {
				t.Errorf("no %s, %s: %v", what, name, err)
			}
			delete(before, filepath.Join(l.dir, ".git/agency"))
			after := l.store()
			delete(after, filepath.Join(l.dir, ".git/agency"))
			requireSame(t, what+" "+name, after, before)
		}
	}
}

func copyObject(l *lab, a *inside, oid string) {
	l.t.Helper()
	name := filepath.Join(".git/objects", oid[:2], oid[2:])
	data, err := os.ReadFile(filepath.Join(a.dir, name))
	l.must(err)
	l.must(os.MkdirAll(filepath.Dir(filepath.Join(l.dir, name)), 0o755))
	l.must(os.WriteFile(filepath.Join(l.dir, name), data, 0o444))
}

func TestATreeThatUnfoldsWithoutEndIsReadOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo, a := l.open(), l.inside()
	in := a.incoming()
	tree := a.tree("100644 x", a.object("blob", "x"))
	for range 40 {
		tree = a.tree("40000 a", tree, "40000 b", tree, "40000 c", tree)
	}
	in.New = a.commitOf(tree, in.Old)
	in.Pack = bytes.NewReader(a.pack(in.New))
	within(t, "TakeIn", func() {
		if err := repo.Receive(t.Context(), in); err != nil {
			t.Error(err)
		}
	})
}

// A delta of a few bytes says to copy another object many times over, and so does the next.
func TestADeltaThatUnfoldsBeyondMeasureIsRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo, a := l.open(), l.inside()
	in := a.incoming()
	base := strings.Repeat("0123456789abcdef", 1<<12)
	pack := []byte("PACK\x00\x00\x00\x02\x00\x00\x00\x03")
	object := func(kind byte, size int, before, content string) int {
		at, c := len(pack), kind<<4|byte(size&15)
		for size >>= 4; size > 0; size >>= 7 {
			pack = append(pack, c|0x80)
			c = byte(size & 0x7f)
		}
		pack = append(append(pack, c), before...)
		var z bytes.Buffer
		w := zlib.NewWriter(&z)
		_, _ = w.Write([]byte(content))
		l.must(w.Close())
		pack = append(pack, z.Bytes()...)
		return at
	}
	at, size := object(3, len(base), "", base), len(base)
	for _, times := range []int{1 << 6, 1 << 9} { // 4 MiB, 2 GiB
		delta := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(size)), uint64(size*times))
		chunk := min(size, 1<<22)
		for range times * (size / chunk) {
			delta = append(delta, 0xf0, byte(chunk), byte(chunk>>8), byte(chunk>>16)) // copy from the beginning
		}
		back := len(pack) - at
		offset := []byte{byte(back & 0x7f)}
		for back >>= 7; back > 0; back >>= 7 {
			back--
			offset = append([]byte{0x80 | byte(back&0x7f)}, offset...)
		}
		at, size = object(6, len(delta), string(offset), string(delta)), size*times
	}
	h := SHA1.newHash()
	h.Write(pack)
	in.Pack = bytes.NewReader(h.Sum(pack))
	l.must(os.Mkdir(filepath.Join(l.dir, ".git/agency"), 0o755))
	before := l.store()
	var failed *Error
	if err := repo.Receive(t.Context(), in); !errors.As(err, &failed) || !strings.Contains(failed.Stderr, "limit") {
		t.Errorf("of %d bytes: %v", len(pack), err)
	}
	requireSame(t, "the repository", l.store(), before)
}

func TestMergesRootsAndManyCommitsAreTakenIn(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for i := range manyReceivedCommits + 10 {
		l.git("commit", "-q", "--allow-empty", "-m", fmt.Sprint(i))
	}
	repo, a := l.open(), l.inside()
	first := l.git("rev-list", "--max-parents=0", "main")
	l.git("update-ref", ownRef, first)
	a.git("checkout", "-q", "-b", "work", first)
	a.commit("dir/c", "c")
	a.git("merge", "-q", "-m", "merge", "origin/main")
	a.git("checkout", "-q", "--orphan", "alone")
	a.commit("alone", "x")
	a.git("checkout", "-q", "work")
	a.git("merge", "-q", "--allow-unrelated-histories", "-m", "both", "alone")
	tip := a.git("rev-parse", "HEAD")
	l.must(repo.Receive(t.Context(), ReceiveRequest{Pack: bytes.NewReader(a.pack(tip)), Ref: ownRef, New: tip, Old: first}))
	requireSame(t, "files", l.files(ownRef), (&lab{t: t, dir: a.dir, env: l.env}).files(tip))
	l.sound()
}

func TestTakeInWorksInAnyDirectory(t *testing.T) {
	t.Parallel()
	l := emptyLab(t)
	l.dir = filepath.Join(filepath.Dir(l.dir), "a:b \"c\" \\d\ne")
	l.must(os.Mkdir(l.dir, 0o755))
	l.git("init", "-q", "-b", "main", ".")
	l.write("a.txt", "a\n")
	l.commit("first")
	repo := l.open()
	a := &inside{l, filepath.Join(tempDir(t), "inside")}
	l.in(filepath.Dir(a.dir), "init", "-q", "-b", "main", a.dir)
	a.git("fetch", "-q", l.dir, "main")
	a.git("reset", "-q", "--hard", "FETCH_HEAD")
	l.git("update-ref", ownRef, "main")
	in := a.incoming()
	l.must(repo.Receive(t.Context(), in))
	l.sound()
}

func TestSandboxesAreTakenInAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo, a := l.open(), l.inside()
	base := l.git("rev-parse", "main")
	var all []ReceiveRequest
	for i := range 6 {
		a.git("checkout", "-q", "-B", "work", base)
		tip := a.commit(fmt.Sprint("file", i), fmt.Sprint(i))
		ref := fmt.Sprint(ownRef, i)
		l.git("update-ref", ref, base)
		all = append(all, ReceiveRequest{Pack: bytes.NewReader(a.pack(tip)), Ref: ref, New: tip, Old: base})
	}
	var wg sync.WaitGroup
	for _, in := range all {
		wg.Go(func() {
			if err := repo.Receive(t.Context(), in); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, in := range all {
		if got := l.git("rev-parse", in.Ref); got != in.New {
			t.Errorf("%s is at %s", in.Ref, got)
		}
	}
	l.sound()
}

func TestTakeInEndsWithItsContext(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo, a := l.open(), l.inside()
	in := a.incoming()
	l.must(os.Mkdir(filepath.Join(l.dir, ".git/agency"), 0o755))
	before := l.store()
	pack := a.pack(in.New)
	read, write, err := os.Pipe()
	l.must(err)
	defer write.Close()
	in.Pack = read
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = write.Write(pack[:len(pack)-5])
		waitFor(t, func() bool { // until git has begun with it
			found, _ := filepath.Glob(filepath.Join(l.dir, ".git/agency/*/pack/*"))
			return len(found) > 0
		})
		cancel()
		write.Close()
	}()
	within(t, "TakeIn", func() { err = repo.Receive(ctx, in) })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	requireSame(t, "the repository", l.store(), before)
}

func waitFor(t *testing.T, is func() bool) {
	for end := time.Now().Add(patience); !is() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

func TestWriteIndexIsWrittenAsGitDoes(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	l.put(w.Tree, "staged", "s\n")
	l.in(w.Tree, "add", "staged")
	path := filepath.Join(repo.AdminDir(w.Name), "index")
	data, err := os.ReadFile(path)
	l.must(err)
	x, err := ReadIndex(data, SHA1)
	l.must(err)
	l.in(w.Tree, "reset", "-q", "--hard")
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	l.must(repo.WriteIndex(w.Name, x, at))
	fi, err := os.Stat(path)
	l.must(err)
	if exists(path+".lock") || !fi.ModTime().Equal(at) {
		t.Errorf("it is of %s, want %s", fi.ModTime(), at)
	}
	if got := l.in(w.Tree, "ls-files", "staged"); got != "staged" {
		t.Errorf("staged are %q", got)
	}
	before := states(t, repo.AdminDir(w.Name))
	l.must(os.WriteFile(path+".lock", nil, 0o644))
	var locked *LockedError
	if err := repo.WriteIndex(w.Name, x, at); !errors.As(err, &locked) || locked.Path != path+".lock" {
		t.Errorf("locked: %v", err)
	}
	l.must(os.Remove(path + ".lock"))
	for _, name := range []string{"", ".", "..", "../..", "a/b", "none"} {
		if err := repo.WriteIndex(name, x, at); err == nil {
			t.Errorf("%q was written to", name)
		}
	}
	requireSame(t, "the entry", states(t, repo.AdminDir(w.Name)), before)
}

// Whoever is killed while an index is put in place leaves a lock that the next one knows for ours; that of a
// git is left alone.
func TestALockThatAKilledWriterLeftIsTakenBack(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	path := filepath.Join(repo.AdminDir(w.Name), "index")
	data, err := os.ReadFile(path)
	l.must(err)
	x, err := ReadIndex(data, SHA1)
	l.must(err)
	before := states(t, repo.AdminDir(w.Name))
	for name, until := range map[string]func(d *IndexDraft) error{
		"begun":     func(*IndexDraft) error { return nil },
		"written":   func(d *IndexDraft) error { return d.Write(x, time.Now()) },
		"locked":    func(d *IndexDraft) error { return d.Lock() },
		"published": func(d *IndexDraft) error { return errors.Join(d.Lock(), os.Rename(path+".lock", path)) },
	} {
		d, err := repo.NewIndexDraft(w.Name)
		l.must(err)
		if name != "written" { // what is published has to be an index
			l.must(d.Write(x, time.Now().Add(-time.Hour)))
		}
		l.must(until(d))
		l.must(d.file.Close()) // and that is all that a killed one does
		l.must(repo.WriteIndex(w.Name, x, time.Now().Add(-time.Hour)))
		if exists(path+".lock") || exists(path+".agency") {
			t.Errorf("%s: something is left", name)
		}
		l.in(w.Tree, "status")
	}
	for _, fresh := range []bool{false, true} {
		l.must(os.WriteFile(path+".lock", nil, 0o644))
		if fresh {
			l.must(os.WriteFile(path+".agency", nil, 0o644)) // left before a git took the lock
		}
		var locked *LockedError
		if err := repo.WriteIndex(w.Name, x, time.Now()); !errors.As(err, &locked) || !exists(path+".lock") {
			t.Errorf("the lock of another: %v", err)
		}
		l.must(os.Remove(path + ".lock"))
	}
	after := states(t, repo.AdminDir(w.Name))
	if len(after) != len(before) {
		t.Errorf("there is %d, and there was %d", len(after), len(before))
	}
}

func FuzzNextTreeEntry(f *testing.F) {
	oid := strings.Repeat("7", 20)
	f.Add([]byte("100644 a\x00"+oid+"40000 b\x00"+oid), true)
	f.Add([]byte("160000 a b\x00"+oid+oid), false)
	f.Add([]byte("x \x00"+oid), true)
	f.Fuzz(func(t *testing.T, data []byte, short bool) {
		size := 32
		if short {
			size = 20
		}
		for left := data; ; {
			e, rest, ok := nextTreeEntry(left, size)
			if !ok {
				break
			}
			if len(e.name) == 0 || len(e.oid) != size || bytes.Contains(e.name, []byte{0}) || e.isTree() && e.isGitlink() || len(rest) >= len(left) {
				t.Fatalf("%q begins with %+v", left, e)
			}
			left = rest
		}
	})
}
