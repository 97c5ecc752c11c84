package preflight

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/creation"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
)

// checkBase checks the integration worktree and the commit that the sandbox would start from. Warnings of a start are part
// of its reason.
func checkBase(_ context.Context, s *subject) result {
	base, err := s.base()
	if err != nil {
		return failedBy(err)
	}
	return passed("%s", strings.Join(append([]string{"a sandbox can start from it"}, base.warnings...), "; "))
}

// base is the commit that a sandbox would start from.
type base struct {
	commit   string
	warnings []string // those of creation.CheckBase
}

func findBase(ctx context.Context, s *subject) (found base, err error) {
	var mutex sync.Mutex
	warn := func(message string) {
		mutex.Lock()
		defer mutex.Unlock()
		found.warnings = append(found.warnings, message)
	}
	found.commit, err = creation.CheckBase(ctx, s.repo.WithWarn(warn), s.req.Start)
	return found, err
}

// checkIdentity checks that git knows the author of commits that the agent makes.
func checkIdentity(ctx context.Context, s *subject) result {
	author, _, err := s.repo.Git.Signatures(ctx, object.IdentitySource{Env: s.repo.Opts.Env, Now: s.repo.Opts.Now()})
	var none *git.NoIdentityError
	if errors.As(err, &none) {
		return result{
			failed: true, reason: "git has no name and email for commits",
			remedy: "git config --global user.name '<name>' && git config --global user.email '<email>'",
		}
	}
	if err != nil {
		return failedBy(err)
	}
	return passed("%s <%s>", author.Name, author.Email)
}

const (
	minFreeBytes  = 256 << 20
	minFreeInodes = 1000
)

// checkDisk checks that the file system of the data directory has space for a checkout.
func checkDisk(_ context.Context, s *subject) result {
	bytes, files, err := s.checkoutSize()
	if err != nil {
		return failedBy(fmt.Errorf("the size of a checkout is not known: %w", err))
	}
	dir := s.repo.DataDir
	for !exists(dir) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
	}
	free, err := readFreeSpace(dir)
	if err != nil {
		return failedBy(fmt.Errorf("free space of %s: %w", dir, err))
	}
	return judgeSpace(s.repo.DataDir, free, bytes, files)
}

// freeSpace is the space that a file system has left for the user.
type freeSpace struct {
	bytes       uint64
	inodes      uint64
	anyInodes   bool // the file system has no fixed number of inodes
	notMeasured bool // this operating system does not say
}

// judgeSpace compares free space with the size and number of the files of a checkout.
func judgeSpace(dir string, free freeSpace, bytes, files uint64) result {
	wantBytes, wantInodes := max(minFreeBytes, 2*bytes), minFreeInodes+2*files
	const remedy = "free some space, or keep sandboxes on another file system: git config --global agency.dataDir <dir>; 'git agency prune' removes what has ended"
	switch {
	case free.notMeasured:
		return passed("the free space of %s is not known", dir)
	case free.bytes < wantBytes:
		return result{failed: true, remedy: remedy, reason: fmt.Sprintf("%s has %s free, and a sandbox should have %s", dir, roundSize(free.bytes), roundSize(wantBytes))}
	case !free.anyInodes && free.inodes < wantInodes:
		return result{failed: true, remedy: remedy, reason: fmt.Sprintf("%s has %d inodes free, and a sandbox should have %d", dir, free.inodes, wantInodes)}
	}
	return passed("%s free", roundSize(free.bytes))
}

// roundSize formats a number of bytes in MiB or GiB, rounded down.
func roundSize(n uint64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d GiB", n>>30)
}

// checkoutSize returns the size and the number of the files in the index of the integration worktree; zero if it has none.
// The size in an index is that of the files when git last compared them.
func (s *subject) checkoutSize() (bytes, files uint64, err error) {
	wt, err := s.repo.WithWarn(nil).Worktree(s.req.Start.Worktree)
	if err != nil || wt.TreePath == "" {
		return 0, 0, nil // checkBase reports it
	}
	gitDir, err := git.DotGitTarget(wt.TreePath)
	if err != nil || gitDir == "" {
		return 0, 0, nil // checkBase reports it
	}
	data, err := os.ReadFile(filepath.Join(gitDir, "index"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	format := object.SHA1
	if s.repo.Git.Config.Value(config.ObjectFormatKey) == string(object.SHA256) {
		format = object.SHA256
	}
	found, err := index.ReadTrusted(data, format)
	if err != nil {
		return 0, 0, err
	}
	for e := range found.AllEntries() {
		bytes += uint64(binary.BigEndian.Uint32(e.Stat[index.StatSize-4:]))
	}
	return bytes, uint64(found.Count), nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// checkLimits checks that this machine can enforce the limits of the sandbox.
func checkLimits(ctx context.Context, s *subject) result {
	limits := s.req.Start.Limits
	if limits == (confine.Limits{BestEffort: limits.BestEffort}) {
		return passed("none are set")
	}
	if _, err := sandbox.EnforceableLimits(ctx, s.repo.WithWarn(nil), limits); err != nil {
		res := failedBy(err)
		if !fault.Is[*fault.InvalidError](err) {
			res.remedy = "--best-effort-limits warns instead"
		}
		return res
	}
	return passed("they can be enforced")
}
