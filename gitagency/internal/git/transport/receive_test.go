package transport

import (
	"bytes"
	"context"
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

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/fsck"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

// sandboxRepo is the repository that an agent sees in a sandbox: a clone that shares the objects of the fixture and has
// its own in addition.
type sandboxRepo struct {
	fixture *gittest.Fixture
	dir     string
}

// sandboxRef is the branch that the sandbox may move.
const sandboxRef = "refs/heads/agency/sandbox-" + gittest.SandboxName

// newSandboxRepo creates the clone, and sandboxRef at main in the fixture.
func newSandboxRepo(l *gittest.Fixture) *sandboxRepo {
	l.T.Helper()
	dir := filepath.Join(gittest.TempDir(l.T), "inside")
	l.Git("clone", "-q", "--shared", l.Root, dir)
	l.Git("update-ref", sandboxRef, "main")
	return &sandboxRepo{l, dir}
}

// git runs git in the clone.
func (a *sandboxRepo) git(args ...string) string {
	a.fixture.T.Helper()
	return a.fixture.GitIn(a.dir, args...)
}

// gitWithStdin runs git in the clone with standard input and returns its standard output.
func (a *sandboxRepo) gitWithStdin(stdin string, args ...string) []byte {
	a.fixture.T.Helper()
	cmd := exec.CommandContext(a.fixture.T.Context(), "git", args...)
	cmd.Dir, cmd.Env, cmd.Stdin = a.dir, a.fixture.Env, strings.NewReader(stdin)
	out, err := cmd.Output()
	if err != nil {
		a.fixture.T.Fatalf("git %q: %v", args, err)
	}
	return out
}

// writeObject writes an object with exactly this content, even if git considers it malformed.
func (a *sandboxRepo) writeObject(kind, content string) string {
	a.fixture.T.Helper()
	return strings.TrimSpace(string(a.gitWithStdin(content, "hash-object", "-t", kind, "-w", "--stdin", "--literally")))
}

// writeTree writes a tree. entries alternates between mode and name, such as "100644 name", and the object name.
func (a *sandboxRepo) writeTree(entries ...string) string {
	a.fixture.T.Helper()
	content := ""
	for i := 0; i < len(entries); i += 2 {
		raw, err := hex.DecodeString(entries[i+1])
		a.fixture.Must(err)
		content += entries[i] + "\x00" + string(raw)
	}
	return a.writeObject("tree", content)
}

// writeCommit writes a commit of a tree.
func (a *sandboxRepo) writeCommit(tree string, parents ...string) string {
	a.fixture.T.Helper()
	text := "tree " + tree + "\n"
	for _, p := range parents {
		text += "parent " + p + "\n"
	}
	return a.writeObject("commit", text+"author A <a@example.com> 1 +0000\ncommitter A <a@example.com> 1 +0000\n\nx\n")
}

// commitFile writes a file and commits it in the clone.
func (a *sandboxRepo) commitFile(name, content string) string {
	a.fixture.T.Helper()
	a.fixture.WriteIn(a.dir, name, content)
	a.git("add", "-A")
	a.git("commit", "-q", "-m", "inside")
	return a.git("rev-parse", "HEAD")
}

// packSinceMain returns a thin pack of the objects that tip and also reach and main does not.
func (a *sandboxRepo) packSinceMain(tip string, also ...string) []byte {
	a.fixture.T.Helper()
	return a.gitWithStdin(tip+"\n"+strings.Join(also, "\n")+"\n^"+a.fixture.Git("rev-parse", "main")+"\n", "pack-objects", "--revs", "--thin", "--stdout", "-q")
}

// packOnly returns a pack of exactly these objects.
func (a *sandboxRepo) packOnly(oids ...string) []byte {
	a.fixture.T.Helper()
	list := ""
	for _, oid := range oids {
		list += oid + "\n"
	}
	return a.gitWithStdin(list, "pack-objects", "--stdout", "-q")
}

// newRequest returns a valid request to receive a new commit.
func (a *sandboxRepo) newRequest() ReceiveRequest {
	a.fixture.T.Helper()
	tip := a.commitFile("new.txt", "new\n")
	return ReceiveRequest{Pack: bytes.NewReader(a.packSinceMain(tip)), Ref: sandboxRef, New: tip, Old: a.fixture.Git("rev-parse", "main"), Reason: "taken in"}
}

// gitDirState returns the state of all files in the git directory of the fixture.
func gitDirState(l *gittest.Fixture) map[string]string {
	l.T.Helper()
	return gittest.DiskState(l.T, filepath.Join(l.Root, ".git"))
}

// requireFsck fails the test if git fsck reports a problem in the repository of the fixture.
func requireFsck(l *gittest.Fixture) {
	l.T.Helper()
	if out, err := l.TryGit(l.Root, "fsck", "--full", "--strict", "--no-dangling"); err != nil || strings.TrimSpace(out) != "" {
		l.T.Errorf("git fsck: %v %s", err, out)
	}
}

// changedPaths lists the paths, relative to the git directory, that got has and before does not or with another state, and
// those that are gone.
func changedPaths(l *gittest.Fixture, before, got map[string]string) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if was, there := before[name]; !there || was != got[name] {
			names = append(names, strings.TrimPrefix(name, filepath.Join(l.Root, ".git")+"/"))
		}
	}
	for name := range before {
		if _, there := got[name]; !there {
			names = append(names, "gone: "+name)
		}
	}
	return names
}

func TestReceiveStoresObjectsAndMovesRef(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"sha1", "sha256"} {
		l := gittest.NewEmpty(t)
		l.Git("init", "-q", "-b", "main", "--object-format="+format, ".")
		l.Write("dir/b.txt", strings.Repeat("some text that makes a delta worth while\n", 99))
		l.Commit("first")
		repo, a := repotest.OpenRepo(l), newSandboxRepo(l)
		in := a.newRequest()
		staged := a.writeObject("blob", "staged\n")
		in.New = a.commitFile("dir/b.txt", strings.Repeat("some text that makes a delta worth while\n", 99)+"more\n")
		in.Pack, in.Blobs = bytes.NewReader(a.packSinceMain(in.New, staged)), []string{staged}
		l.Must(os.Mkdir(filepath.Join(l.Root, ".git/agency"), 0o755))
		before := gitDirState(l)
		l.Must(Receive(t.Context(), repo, in))
		after := gitDirState(l)
		packs, _ := filepath.Glob(filepath.Join(l.Root, ".git/objects/pack/*"))
		want := []string{"logs/" + sandboxRef}
		for _, p := range packs {
			want = append(want, "objects/pack/"+filepath.Base(p))
		}
		if got := changedPaths(l, before, after); !slices.Equal(got, append(want, sandboxRef)) {
			t.Errorf("%s: changed paths are %q", format, got)
		}
		if got := l.Git("rev-parse", sandboxRef); got != in.New {
			t.Errorf("%s: ref is at %s", format, got)
		}
		if log := l.Reflog(sandboxRef); !strings.Contains(log, "taken in") {
			t.Errorf("%s: reflog is %q", format, log)
		}
		if got := l.Git("cat-file", "blob", staged); got != "staged" {
			t.Errorf("%s: staged blob is %q", format, got)
		}
		requireFsck(l)
		if got := l.Files(sandboxRef)["new.txt"]; got != "100644 new\n" {
			t.Errorf("%s: new.txt is %q", format, got)
		}
	}
}

func TestRefusedReceiveLeavesNothing(t *testing.T) {
	t.Parallel()
	missing := strings.Repeat("1", 40)
	tests := map[string]struct {
		make func(a *sandboxRepo, in *ReceiveRequest)
		want func(error) bool
	}{
		"not a pack":       {func(a *sandboxRepo, in *ReceiveRequest) { in.Pack = strings.NewReader("something else\n") }, isErrorOf[*git.Error]},
		"a header cut off": {func(a *sandboxRepo, in *ReceiveRequest) { in.Pack = strings.NewReader("PACK\x00") }, isErrorOf[*git.Error]},
		"a damaged pack": {func(a *sandboxRepo, in *ReceiveRequest) {
			data := a.packSinceMain(in.New)
			data[len(data)/2] ^= 1
			in.Pack = bytes.NewReader(data)
		}, isErrorOf[*git.Error]},
		"a pack cut off": {func(a *sandboxRepo, in *ReceiveRequest) {
			data := a.packSinceMain(in.New)
			in.Pack = bytes.NewReader(data[:len(data)-30])
		}, isErrorOf[*git.Error]},
		"a header with too many objects": {func(a *sandboxRepo, in *ReceiveRequest) {
			in.Pack = strings.NewReader("PACK\x00\x00\x00\x02\xff\xff\xff\xff")
		}, isErrorOf[*git.Error]},
		"an endless pack": {func(a *sandboxRepo, in *ReceiveRequest) {
			in.Pack = io.MultiReader(bytes.NewReader(a.packSinceMain(in.New)[:40]), endlessReader{})
		}, nil},
		"a reader that fails": {func(a *sandboxRepo, in *ReceiveRequest) {
			in.Pack = io.MultiReader(bytes.NewReader(a.packSinceMain(in.New)[:40]), failingReader{})
		}, nil},
		"a tree entry named .git": {func(a *sandboxRepo, in *ReceiveRequest) {
			config := a.writeObject("blob", "[core]\n")
			in.New = a.writeCommit(a.writeTree("40000 .git", a.writeTree("100644 config", config)), in.Old)
			in.Pack = bytes.NewReader(a.packSinceMain(in.New))
		}, isErrorOf[*git.Error]},
		"a tree entry that HFS+ reads as .git": {func(a *sandboxRepo, in *ReceiveRequest) {
			config := a.writeObject("blob", "[core]\n")
			in.New = a.writeCommit(a.writeTree("40000 .g\u200cit", a.writeTree("100644 config", config)), in.Old)
			in.Pack = bytes.NewReader(a.packSinceMain(in.New))
		}, isErrorOf[*git.Error]},
		"a tree entry named ..": {func(a *sandboxRepo, in *ReceiveRequest) {
			in.New = a.writeCommit(a.writeTree("40000 ..", a.writeTree("100644 x", a.writeObject("blob", "x"))), in.Old)
			in.Pack = bytes.NewReader(a.packSinceMain(in.New))
		}, isErrorOf[*git.Error]},
		"a slash in a name": {func(a *sandboxRepo, in *ReceiveRequest) {
			x := a.writeObject("blob", "x")
			in.New = a.writeCommit(a.writeTree("100644 a/b", x), in.Old)
			in.Pack = bytes.NewReader(a.packOnly(in.New, a.git("rev-parse", in.New+"^{tree}"), x))
		}, isErrorOf[*git.Error]},
		"a symlink named .gitmodules": {func(a *sandboxRepo, in *ReceiveRequest) {
			in.New = a.writeCommit(a.writeTree("120000 .gitmodules", a.writeObject("blob", "x")), in.Old)
			in.Pack = bytes.NewReader(a.packSinceMain(in.New))
		}, isErrorOf[*git.Error]},
		"a submodule URL that is an option": {func(a *sandboxRepo, in *ReceiveRequest) {
			in.New = a.writeCommit(a.writeTree("100644 .gitmodules", a.writeObject("blob", "[submodule \"x\"]\n\tpath = x\n\turl = -u./x\n")), in.Old)
			in.Pack = bytes.NewReader(a.packSinceMain(in.New))
		}, isErrorOf[*git.Error]},
		"missing tree": {func(a *sandboxRepo, in *ReceiveRequest) { in.Pack = bytes.NewReader(a.packOnly(in.New)) }, isErrorOf[*git.Error]},
		"missing blob": {func(a *sandboxRepo, in *ReceiveRequest) {
			in.Pack = bytes.NewReader(a.packOnly(in.New, a.git("rev-parse", in.New+"^{tree}")))
		}, isErrorOf[*git.Error]},
		"missing parent": {func(a *sandboxRepo, in *ReceiveRequest) {
			in.New = a.commitFile("later", "x")
			in.Pack = bytes.NewReader(a.packOnly(in.New, a.git("rev-parse", in.New+"^{tree}"), a.git("rev-parse", in.New+":later"), a.git("rev-parse", in.New+":new.txt")))
		}, isErrorOf[*git.Error]},
		"a commit instead of the tree": {func(a *sandboxRepo, in *ReceiveRequest) {
			in.New = a.writeCommit(in.New, in.Old)
			in.Pack = bytes.NewReader(a.packOnly(in.New))
		}, isErrorOf[*git.Error]},
		"a blob as a directory": {func(a *sandboxRepo, in *ReceiveRequest) {
			x := a.writeObject("blob", "x")
			tree := a.writeTree("40000 dir", x)
			in.New = a.writeCommit(tree, in.Old)
			in.Pack = bytes.NewReader(a.packOnly(in.New, tree, x))
		}, isErrorOf[*git.Error]},
		"no pack":         {func(a *sandboxRepo, in *ReceiveRequest) { in.Pack = nil }, isErrorOf[*git.Error]},
		"an empty stream": {func(a *sandboxRepo, in *ReceiveRequest) { in.Pack = strings.NewReader("") }, isErrorOf[*git.Error]},
		"an empty pack":   {func(a *sandboxRepo, in *ReceiveRequest) { in.Pack = bytes.NewReader(a.packOnly()) }, isErrorOf[*git.Error]},
		"a pack of other objects": {func(a *sandboxRepo, in *ReceiveRequest) {
			in.Pack = bytes.NewReader(a.packOnly(a.writeObject("blob", "x")))
		}, isErrorOf[*git.Error]},
		"a blob for the commit": {func(a *sandboxRepo, in *ReceiveRequest) {
			in.New = a.git("rev-parse", "HEAD:a.txt")
		}, nil},
		"a tree for the commit": {func(a *sandboxRepo, in *ReceiveRequest) {
			in.New = a.git("rev-parse", "HEAD^{tree}")
		}, nil},
		"a tag for the commit": {func(a *sandboxRepo, in *ReceiveRequest) {
			a.git("tag", "-a", "-m", "x", "v1", in.New)
			in.New = a.git("rev-parse", "v1")
			in.Pack = bytes.NewReader(a.packSinceMain(in.New))
		}, isErrorOf[*object.IncompleteError]},
		"a ref that moved": {func(a *sandboxRepo, in *ReceiveRequest) {
			a.fixture.Write("more", "x")
			a.fixture.Git("update-ref", sandboxRef, a.fixture.Commit("meanwhile"))
		}, isErrorOf[*git.RefMovedError]},
		"an existing ref": {func(a *sandboxRepo, in *ReceiveRequest) { in.Old = "" }, isErrorOf[*git.RefMovedError]},
		"a missing ref":   {func(a *sandboxRepo, in *ReceiveRequest) { in.Ref += "-other" }, isErrorOf[*git.RefMovedError]},
		"a symbolic ref to main": {func(a *sandboxRepo, in *ReceiveRequest) {
			a.fixture.Git("symbolic-ref", sandboxRef, "refs/heads/main")
		}, isErrorOf[*git.SymrefError]},
		"a dangling symbolic ref": {func(a *sandboxRepo, in *ReceiveRequest) {
			a.fixture.Git("update-ref", "-d", sandboxRef)
			a.fixture.Git("symbolic-ref", sandboxRef, "refs/heads/none")
			in.Old = ""
		}, isErrorOf[*git.SymrefError]},
		"a missing staged blob": {func(a *sandboxRepo, in *ReceiveRequest) { in.Blobs = []string{missing} }, isErrorOf[*object.IncompleteError]},
		"a staged tree": {func(a *sandboxRepo, in *ReceiveRequest) {
			in.Blobs = []string{a.git("rev-parse", in.New+"^{tree}")}
		}, isErrorOf[*object.IncompleteError]},
		"a ref name for the new commit":      {func(a *sandboxRepo, in *ReceiveRequest) { in.New = "HEAD" }, nil},
		"an option for the old commit":       {func(a *sandboxRepo, in *ReceiveRequest) { in.Old = "--all" }, nil},
		"an option for a ref":                {func(a *sandboxRepo, in *ReceiveRequest) { in.Ref = "--stdin" }, nil},
		"a ref with ..":                      {func(a *sandboxRepo, in *ReceiveRequest) { in.Ref = "refs/heads/../../config" }, nil},
		"a ref that ends in .lock":           {func(a *sandboxRepo, in *ReceiveRequest) { in.Ref, in.Old = sandboxRef+".lock", "" }, nil},
		"a ref component with a leading dot": {func(a *sandboxRepo, in *ReceiveRequest) { in.Ref = "refs/heads/.x" }, nil},
		"HEAD for a ref":                     {func(a *sandboxRepo, in *ReceiveRequest) { in.Ref = "HEAD" }, nil},
	}
	for name, test := range tests {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo, a := repotest.OpenRepo(l), newSandboxRepo(l)
			in := a.newRequest()
			l.Must(os.Mkdir(filepath.Join(l.Root, ".git/agency"), 0o755))
			test.make(a, &in)
			before := gitDirState(l)
			err := Receive(t.Context(), repo, in)
			if err == nil {
				t.Error("Receive succeeded")
			}
			if test.want != nil && !test.want(err) {
				t.Errorf("the error is %T %v", err, err)
			}
			gittest.RequireSame(t, "the repository", gitDirState(l), before)
			if name != "a dangling symbolic ref" {
				requireFsck(l)
			}
		})
	}
}

// isErrorOf reports whether err wraps an error of type E.
func isErrorOf[E error](err error) bool { var e E; return errors.As(err, &e) }

// endlessReader is a reader of zero bytes without end.
type endlessReader struct{}

func (endlessReader) Read(p []byte) (int, error) { return len(p), nil }

// failingReader is a reader that always fails.
type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("it broke") }

func TestReceiveReportsMovedRef(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo, a := repotest.OpenRepo(l), newSandboxRepo(l)
	in := a.newRequest()
	old := in.Old
	l.Write("more", "x")
	now := l.Commit("meanwhile")
	l.Git("update-ref", sandboxRef, now)
	var moved *git.RefMovedError
	if err := Receive(t.Context(), repo, in); !errors.As(err, &moved) || *moved != (git.RefMovedError{Ref: sandboxRef, Want: old, Have: now}) {
		t.Errorf("the error is %v", err)
	}
	l.Git("update-ref", "-d", sandboxRef)
	in.Pack = bytes.NewReader(a.packSinceMain(in.New))
	if err := Receive(t.Context(), repo, in); !errors.As(err, &moved) || *moved != (git.RefMovedError{Ref: sandboxRef, Want: old, Have: ""}) {
		t.Errorf("the error is %v", err)
	}
	in.Pack, in.Old = bytes.NewReader(a.packSinceMain(in.New)), ""
	l.Must(Receive(t.Context(), repo, in))
	if got := l.Git("rev-parse", sandboxRef); got != in.New {
		t.Errorf("ref is at %s", got)
	}
}

func TestReceiveOfExistingObjectsNeedsNoPack(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	older, newer := l.TwoCommits()
	repo, a := repotest.OpenRepo(l), newSandboxRepo(l)
	for i, pack := range []io.Reader{nil, strings.NewReader(""), bytes.NewReader(a.packOnly())} {
		from, to := newer, older
		if i%2 == 1 {
			from, to = older, newer
		}
		l.Must(Receive(t.Context(), repo, ReceiveRequest{Pack: pack, Ref: sandboxRef, New: to, Old: from, Blobs: []string{l.Git("rev-parse", "HEAD:a.txt")}}))
		if got := l.Git("rev-parse", sandboxRef); got != to {
			t.Errorf("ref is at %s", got)
		}
	}
	// Staged blobs are received even if the ref does not move.
	staged := a.writeObject("blob", "staged\n")
	at := l.Git("rev-parse", sandboxRef)
	log := l.Reflog(sandboxRef)
	l.Must(Receive(t.Context(), repo, ReceiveRequest{Pack: bytes.NewReader(a.packOnly(staged)), Ref: sandboxRef, New: at, Old: at, Blobs: []string{staged}}))
	if got := l.Git("cat-file", "-t", staged); got != "blob" || l.Reflog(sandboxRef) != log {
		t.Errorf("object type is %s; the reflog is %q", got, l.Reflog(sandboxRef))
	}
	requireFsck(l)
}

func TestReceiveSamePackTwice(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo, a := repotest.OpenRepo(l), newSandboxRepo(l)
	in := a.newRequest()
	pack := a.packSinceMain(in.New)
	l.Must(Receive(t.Context(), repo, in))
	l.Git("update-ref", sandboxRef, in.Old)
	in.Pack = bytes.NewReader(pack)
	l.Must(Receive(t.Context(), repo, in))
	// A process killed between the two files of a pack leaves one that git ignores; the next Receive adds the other.
	idx, _ := filepath.Glob(filepath.Join(l.Root, ".git/objects/pack/*.idx"))
	l.Git("update-ref", sandboxRef, in.Old)
	l.Must(os.RemoveAll(filepath.Join(l.Root, ".git/logs"))) // the reflogs name commits that are now missing
	l.Must(os.Remove(idx[0]))
	requireFsck(l)
	in.Pack = bytes.NewReader(pack)
	l.Must(Receive(t.Context(), repo, in))
	if got := l.Git("rev-parse", sandboxRef); got != in.New {
		t.Errorf("ref is at %s", got)
	}
	requireFsck(l)
	// A different pack file of the same name is not overwritten.
	packs, _ := filepath.Glob(filepath.Join(l.Root, ".git/objects/pack/*.pack"))
	l.Git("update-ref", sandboxRef, in.Old)
	l.Must(os.Remove(idx[0]))
	l.Must(os.Chmod(packs[0], 0o644))
	l.Must(os.WriteFile(packs[0], []byte("PACK"), 0o644))
	before := gitDirState(l)
	in.Pack = bytes.NewReader(pack)
	if err := Receive(t.Context(), repo, in); err == nil {
		t.Error("Receive succeeded")
	}
	gittest.RequireSame(t, "the repository", gitDirState(l), before)
}

func TestReceiveRemovesQuarantineOfKilledProcess(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo, a := repotest.OpenRepo(l), newSandboxRepo(l)
	in := a.newRequest()
	left := filepath.Join(l.Root, ".git/agency", git.QuarantinePrefix+"sandbox-"+gittest.SandboxName)
	l.WriteIn(left, "pack/tmp_pack_x", "PACK")
	l.WriteIn(left, "pack/pack-"+in.New+".idx", "x")
	requireFsck(l)
	l.Must(Receive(t.Context(), repo, in))
	if gittest.Exists(left) {
		t.Error("the quarantine directory is left")
	}
	packs, _ := filepath.Glob(filepath.Join(l.Root, ".git/objects/pack/*.idx"))
	if len(packs) != 1 {
		t.Errorf("pack indexes are %q", packs)
	}
	requireFsck(l)
}

func TestReceiveIgnoresReplaceRefsAndGrafts(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	l.TwoCommits()
	repo, a := repotest.OpenRepo(l), newSandboxRepo(l)
	in := a.newRequest()
	// The parent of the received commit is missing; a graft and a replace ref claim that it has none.
	missing := a.commitFile("later", "x")
	tip := a.commitFile("last", "y")
	l.Git("replace", "-f", "--graft", "main")
	l.Write(".git/info/grafts", tip+"\n")
	in.New, in.Pack = tip, bytes.NewReader(a.packOnly(tip, a.git("rev-parse", tip+"^{tree}"), a.git("rev-parse", tip+":last"), a.git("rev-parse", tip+":later"), a.git("rev-parse", tip+":new.txt")))
	if err := Receive(t.Context(), repo, in); err == nil {
		t.Errorf("received without the parent %s", missing)
	}
	in.Pack = bytes.NewReader(a.packSinceMain(tip))
	l.Must(Receive(t.Context(), repo, in))
}

// Receive must check objects that exist in the repository but are unreachable: git prunes objects by age, so that some of
// the objects they need may be missing.
func TestReceiveChecksUnreachableExistingObjects(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"blob", "tree", "commit"} {
		l := gittest.New(t)
		repo, a := repotest.OpenRepo(l), newSandboxRepo(l)
		in := a.newRequest()
		file := a.writeObject("blob", "a file that was pruned\n")
		deep := a.writeTree("100644 file", file)
		tree := a.writeTree("40000 deep", deep)
		commit := a.writeCommit(tree, in.Old)
		unreachable := map[string][]string{"blob": {deep, tree, commit}, "tree": {tree, commit}, "commit": {commit}}[what]
		for _, oid := range unreachable {
			copyObject(l, a, oid)
		}
		for name, tip := range map[string]string{
			"as the tip": commit, "as a parent": a.writeCommit(l.Git("rev-parse", "main^{tree}"), commit), "as a tree": a.writeCommit(a.writeTree("40000 x", tree), in.Old),
		} {
			if name == "as a tree" && what == "commit" {
				continue // git index-pack detects it
			}
			before := gitDirState(l)
			var objects []string
			for _, oid := range []string{tip, a.git("rev-parse", tip+"^{tree}")} {
				if !slices.Contains(unreachable, oid) && oid != tree {
					objects = append(objects, oid)
				}
			}
			in.New, in.Pack = tip, bytes.NewReader(a.packOnly(objects...))
			var incomplete *object.IncompleteError
			if err := Receive(t.Context(), repo, in); !errors.As(err, &incomplete) {
				t.Errorf("missing %s, %s: %v", what, name, err)
			}
			delete(before, filepath.Join(l.Root, ".git/agency"))
			after := gitDirState(l)
			delete(after, filepath.Join(l.Root, ".git/agency"))
			gittest.RequireSame(t, what+" "+name, after, before)
		}
	}
}

// copyObject copies a loose object from the clone to the repository of the fixture.
func copyObject(l *gittest.Fixture, a *sandboxRepo, oid string) {
	l.T.Helper()
	name := filepath.Join(".git/objects", oid[:2], oid[2:])
	data, err := os.ReadFile(filepath.Join(a.dir, name))
	l.Must(err)
	l.Must(os.MkdirAll(filepath.Dir(filepath.Join(l.Root, name)), 0o755))
	l.Must(os.WriteFile(filepath.Join(l.Root, name), data, 0o444))
}

func TestReceiveReadsRepeatedSubtreeOnce(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo, a := repotest.OpenRepo(l), newSandboxRepo(l)
	in := a.newRequest()
	tree := a.writeTree("100644 x", a.writeObject("blob", "x"))
	for range 40 {
		tree = a.writeTree("40000 a", tree, "40000 b", tree, "40000 c", tree)
	}
	in.New = a.writeCommit(tree, in.Old)
	in.Pack = bytes.NewReader(a.packSinceMain(in.New))
	gittest.Within(t, "Receive", func() {
		if err := Receive(t.Context(), repo, in); err != nil {
			t.Error(err)
		}
	})
}

// Receive must refuse a delta bomb: a small delta copies its base many times, and the next delta copies that result many
// times.
func TestReceiveRefusesDeltaBomb(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo, a := repotest.OpenRepo(l), newSandboxRepo(l)
	in := a.newRequest()
	var pack gittest.Pack
	base := strings.Repeat("0123456789abcdef", 1<<12)
	at := pack.Add(gittest.PackBlob, len(base), "", base)
	first := gittest.RepeatDelta(len(base), 1<<6) // 4 MiB
	at = pack.Add(gittest.PackOfsDelta, len(first), pack.OffsetTo(at), first)
	second := gittest.RepeatDelta(len(base)<<6, 1<<9) // 2 GiB
	pack.Add(gittest.PackOfsDelta, len(second), pack.OffsetTo(at), second)
	in.Pack = bytes.NewReader(pack.Bytes(object.SHA1.NewHash()))
	l.Must(os.Mkdir(filepath.Join(l.Root, ".git/agency"), 0o755))
	before := gitDirState(l)
	var failed *git.Error
	if err := Receive(t.Context(), repo, in); !errors.As(err, &failed) || !strings.Contains(failed.Stderr, "limit") {
		t.Error(err)
	}
	gittest.RequireSame(t, "the repository", gitDirState(l), before)
}

func TestReceiveMergesRootsAndManyCommits(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	for i := range fsck.ManyReceivedCommits + 10 {
		l.Git("commit", "-q", "--allow-empty", "-m", fmt.Sprint(i))
	}
	repo, a := repotest.OpenRepo(l), newSandboxRepo(l)
	first := l.Git("rev-list", "--max-parents=0", "main")
	l.Git("update-ref", sandboxRef, first)
	a.git("checkout", "-q", "-b", "work", first)
	a.commitFile("dir/c", "c")
	a.git("merge", "-q", "-m", "merge", "origin/main")
	a.git("checkout", "-q", "--orphan", "alone")
	a.commitFile("alone", "x")
	a.git("checkout", "-q", "work")
	a.git("merge", "-q", "--allow-unrelated-histories", "-m", "both", "alone")
	tip := a.git("rev-parse", "HEAD")
	l.Must(Receive(t.Context(), repo, ReceiveRequest{Pack: bytes.NewReader(a.packSinceMain(tip)), Ref: sandboxRef, New: tip, Old: first}))
	gittest.RequireSame(t, "files", l.Files(sandboxRef), (&gittest.Fixture{T: t, Root: a.dir, Env: l.Env}).Files(tip))
	requireFsck(l)
}

// Promise: a new file of slow patterns is refused even if its blob is in the repository, and one that the repository's
// own commits have is not, wherever it is in the received ones.
func TestReceiveRefusesNewSlowPatterns(t *testing.T) {
	t.Parallel()
	const slow = "*a*a*a*a*a*a*b text\n"
	receive := func(l *gittest.Fixture, repo *git.Repo, a *sandboxRepo) error {
		tip, old := a.git("rev-parse", "HEAD"), l.Git("rev-parse", sandboxRef)
		return Receive(t.Context(), repo, ReceiveRequest{Pack: bytes.NewReader(a.packSinceMain(tip)), Ref: sandboxRef, New: tip, Old: old})
	}
	for name, make := range map[string]func(l *gittest.Fixture, a *sandboxRepo){
		"new": func(_ *gittest.Fixture, a *sandboxRepo) { a.commitFile("dir/.gitattributes", slow) },
		"removed by the next commit": func(_ *gittest.Fixture, a *sandboxRepo) {
			a.commitFile(".gitignore", slow)
			a.git("rm", "-q", ".gitignore")
			a.git("commit", "-q", "-m", "gone")
		},
		"a blob that exists": func(l *gittest.Fixture, a *sandboxRepo) {
			l.MakeBlob(slow)
			a.commitFile(".gitattributes", slow)
		},
		"another slow pattern in a file that has one": func(l *gittest.Fixture, a *sandboxRepo) {
			l.Write(".gitattributes", slow)
			l.Commit("own")
			a.git("fetch", "-q", l.Root, "main")
			a.git("reset", "-q", "--hard", "FETCH_HEAD")
			a.commitFile(".gitattributes", slow+"c"+slow)
		},
		"new, in the trees of a later commit too": func(_ *gittest.Fixture, a *sandboxRepo) {
			a.commitFile("dir/.gitattributes", slow)
			a.commitFile("dir/.gitattributes", slow+"x text\n")
			a.commitFile("dir/.gitattributes", slow)
		},
		"another name on some file systems": func(_ *gittest.Fixture, a *sandboxRepo) { a.commitFile(".GitIgnore", slow) },
		"a symlink": func(_ *gittest.Fixture, a *sandboxRepo) {
			tree := a.writeTree("120000 .gitattributes", a.writeObject("blob", slow))
			a.git("reset", "-q", "--soft", a.writeCommit(tree, a.git("rev-parse", "HEAD")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo, a := repotest.OpenRepo(l), newSandboxRepo(l)
			l.Git("update-ref", sandboxRef, "main")
			make(l, a)
			l.Must(os.MkdirAll(repo.AgencyDir(), 0o777))
			before := gitDirState(l)
			if err := receive(l, repo, a); !isErrorOf[*fsck.Error](err) {
				t.Error(err)
			}
			gittest.RequireSame(t, "the repository", gitDirState(l), before)
		})
	}
	t.Run("own", func(t *testing.T) {
		t.Parallel()
		l := gittest.New(t)
		repo := repotest.OpenRepo(l)
		l.Git("update-ref", sandboxRef, "main")
		l.Write(".gitattributes", slow)
		l.Commit("own")
		a := newSandboxRepo(l)
		l.Must(receive(l, repo, a)) // the commit of main itself
		a.commitFile("sub/.gitattributes", slow)
		l.Must(receive(l, repo, a))
		a.commitFile(".gitattributes", "*.txt text\n"+slow)
		a.commitFile(".gitattributes", "*.txt text\n"+slow+"*.c text\n")
		l.Must(receive(l, repo, a))
	})
}

func TestReceiveInDirectoryWithSpecialCharacters(t *testing.T) {
	t.Parallel()
	l := gittest.NewEmpty(t)
	l.Root = filepath.Join(filepath.Dir(l.Root), "a:b \"c\" \\d\ne")
	l.Must(os.Mkdir(l.Root, 0o755))
	l.Git("init", "-q", "-b", "main", ".")
	l.Write("a.txt", "a\n")
	l.Commit("first")
	repo := repotest.OpenRepo(l)
	a := &sandboxRepo{l, filepath.Join(gittest.TempDir(t), "inside")}
	l.GitIn(filepath.Dir(a.dir), "init", "-q", "-b", "main", a.dir)
	a.git("fetch", "-q", l.Root, "main")
	a.git("reset", "-q", "--hard", "FETCH_HEAD")
	l.Git("update-ref", sandboxRef, "main")
	in := a.newRequest()
	l.Must(Receive(t.Context(), repo, in))
	requireFsck(l)
}

func TestConcurrentReceive(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo, a := repotest.OpenRepo(l), newSandboxRepo(l)
	base := l.Git("rev-parse", "main")
	var all []ReceiveRequest
	for i := range 6 {
		a.git("checkout", "-q", "-B", "work", base)
		tip := a.commitFile(fmt.Sprint("file", i), fmt.Sprint(i))
		ref := fmt.Sprint(sandboxRef, i)
		l.Git("update-ref", ref, base)
		all = append(all, ReceiveRequest{Pack: bytes.NewReader(a.packSinceMain(tip)), Ref: ref, New: tip, Old: base})
	}
	var wg sync.WaitGroup
	for _, in := range all {
		wg.Go(func() {
			if err := Receive(t.Context(), repo, in); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, in := range all {
		if got := l.Git("rev-parse", in.Ref); got != in.New {
			t.Errorf("%s is at %s", in.Ref, got)
		}
	}
	requireFsck(l)
}

func TestReceiveReturnsOnCancellation(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo, a := repotest.OpenRepo(l), newSandboxRepo(l)
	in := a.newRequest()
	l.Must(os.Mkdir(filepath.Join(l.Root, ".git/agency"), 0o755))
	before := gitDirState(l)
	pack := a.packSinceMain(in.New)
	read, write, err := os.Pipe()
	l.Must(err)
	defer write.Close()
	in.Pack = read
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = write.Write(pack[:len(pack)-5])
		pollUntil(t, func() bool { // until git has begun to write the pack
			found, _ := filepath.Glob(filepath.Join(l.Root, ".git/agency/*/pack/*"))
			return len(found) > 0
		})
		cancel()
		write.Close()
	}()
	gittest.Within(t, "Receive", func() { err = Receive(ctx, repo, in) })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	gittest.RequireSame(t, "the repository", gitDirState(l), before)
}

// pollUntil waits until is returns true, at most for gittest.Timeout.
func pollUntil(t *testing.T, is func() bool) {
	for end := time.Now().Add(gittest.Timeout); !is() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}
