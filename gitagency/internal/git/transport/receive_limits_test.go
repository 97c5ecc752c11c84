package transport

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
)

// Promise: a pack that needs more work than a limit allows is refused without the repository lock, and leaves nothing.
func TestReceiveRefusesPackBeyondLimits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		deltas int // of 512 MiB each
		limits readlimit.Limits
	}{
		readlimit.Inflated: {60, readlimit.Limits{Inflated: 1 << 30}},
		readlimit.Memory:   {1, readlimit.Limits{Memory: 256 << 20}},
		readlimit.Time:     {8, readlimit.Limits{Time: time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo, a := repotest.OpenRepo(l), newSandboxRepo(l)
			in := a.newRequest()
			var pack gittest.Pack
			pack.AddBomb(test.deltas)
			in.Pack = bytes.NewReader(pack.Bytes(object.SHA1.NewHash()))
			in.Lock = func(context.Context) (*git.Repo, func(), error) {
				t.Error("the lock was taken")
				return repo, func() {}, nil
			}
			repo.ReadLimits = test.limits
			l.Must(os.Mkdir(filepath.Join(l.Root, ".git/agency"), 0o755))
			before := gitDirState(l)
			var exceeded *readlimit.ExceededError
			if err := Receive(t.Context(), repo, in); !errors.As(err, &exceeded) || exceeded.Limit != name {
				t.Errorf("the error is %v", err)
			}
			gittest.RequireSame(t, "the repository", gitDirState(l), before)
		})
	}
}

// Promise: the lock is taken once, when the pack is complete and checked, and held until the ref has moved.
func TestReceiveLocksOnlyToPublish(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo, a := repotest.OpenRepo(l), newSandboxRepo(l)
	repo.ReadLimits = readlimit.Default()
	in := a.newRequest()
	var steps []string
	in.Lock = func(context.Context) (*git.Repo, func(), error) {
		steps = append(steps, "lock")
		if idx, _ := filepath.Glob(filepath.Join(l.Root, ".git/agency", git.QuarantinePrefix+"*/pack/pack-*.idx")); len(idx) != 1 {
			t.Errorf("packs in quarantine: %q", idx)
		}
		return repo, func() { steps = append(steps, "unlock") }, nil
	}
	in.Published = func(*git.Repo) error {
		steps = append(steps, "published "+l.Git("rev-parse", sandboxRef))
		return nil
	}
	l.Must(Receive(t.Context(), repo, in))
	if got, want := strings.Join(steps, ", "), "lock, published "+in.New+", unlock"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	requireFsck(l)
}

// Promise: objects that the check relied on, and that git gc removes before the lock is taken, are missed. Packs that
// others add meanwhile are no reason to check again.
func TestReceiveChecksAgainAfterObjectsWereRemoved(t *testing.T) {
	t.Parallel()
	for _, packed := range []bool{false, true} {
		l := gittest.New(t)
		repo, a := repotest.OpenRepo(l), newSandboxRepo(l)
		in := a.newRequest()
		file := a.writeObject("blob", "a file that is unreachable\n")
		copyObject(l, a, file)
		stored := filepath.Join(l.Root, ".git/objects", file[:2], file[2:])
		if packed {
			name := l.Git("rev-parse", "HEAD") // any name
			pack := filepath.Join(l.Root, ".git/objects/pack/pack-"+name)
			l.Must(os.WriteFile(pack+".pack", a.packOnly(file), 0o444))
			l.Git("index-pack", pack+".pack")
			l.Must(os.Remove(stored))
			stored = pack + ".idx"
		}
		tree := a.writeTree("100644 file", file)
		in.New = a.writeCommit(tree, in.Old)
		in.Pack = bytes.NewReader(a.packOnly(in.New, tree))
		locked := 0
		in.Lock = func(context.Context) (*git.Repo, func(), error) {
			if locked++; locked == 1 {
				l.Must(os.Remove(stored))
			}
			return repo, func() {}, nil
		}
		var incomplete *object.IncompleteError
		if err := Receive(t.Context(), repo, in); !errors.As(err, &incomplete) || incomplete.OID != file {
			t.Errorf("packed %t: the error is %v", packed, err)
		}
		if got := l.Git("rev-parse", sandboxRef); got != in.Old || locked != 1 {
			t.Errorf("packed %t: the ref is at %s, locked %d times", packed, got, locked)
		}
	}
}

// Promise: objects that always change end with a check under the lock, not in an endless loop.
func TestReceiveEndsWhileObjectsChange(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo, a := repotest.OpenRepo(l), newSandboxRepo(l)
	in := a.newRequest()
	locked := 0
	in.Lock = func(context.Context) (*git.Repo, func(), error) {
		locked++
		dirs, err := filepath.Glob(filepath.Join(l.Root, ".git/objects/??"))
		l.Must(err)
		for _, dir := range dirs {
			at := time.Unix(int64(locked), 0)
			l.Must(os.Chtimes(dir, at, at))
		}
		return repo, func() {}, nil
	}
	l.Must(Receive(t.Context(), repo, in))
	if got := l.Git("rev-parse", sandboxRef); got != in.New || locked != 3 {
		t.Errorf("the ref is at %s, locked %d times", got, locked)
	}
}

// Promise: Receive leaves a quarantine alone that a process uses, such as a git whose parent was killed.
func TestReceiveLeavesQuarantineInUse(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo, a := repotest.OpenRepo(l), newSandboxRepo(l)
	in := a.newRequest()
	own := filepath.Join(l.Root, ".git/agency")
	used, left := filepath.Join(own, "incoming-1-sandbox-"+gittest.SandboxName), filepath.Join(own, "incoming-2-sandbox-"+gittest.SandboxName)
	l.WriteIn(used, "pack/tmp_pack_x", "PACK")
	l.WriteIn(left, "pack/tmp_pack_x", "PACK")
	held, err := lock.AcquireDirExclusive(t.Context(), used, 0)
	l.Must(err)
	defer held.Close()
	l.Must(Receive(t.Context(), repo, in))
	if names, _ := filepath.Glob(filepath.Join(own, "incoming-*")); len(names) != 1 || names[0] != used {
		t.Errorf("quarantines are %q", names)
	}
}
