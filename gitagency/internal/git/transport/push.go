package transport

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Pusher pushes to and fetches from a remote. Its git runs in a git directory of our own that shares only the objects
// of the repository: an agent could have written the repository's hooks, and its settings for ssh, proxies and
// credentials. The user's settings are used.
type Pusher struct {
	repo      *git.Repo
	remote    Remote
	dir       string
	tempDir   *git.OwnedTempDir // holds dir
	env       []string
	untrusted bool
	turnLock  *os.File // lock of a directory for the remote; nil without one
}

// NewPusher creates a Pusher. like is the id of any object, which tells the hash algorithm. untrusted also keeps
// a remote on this machine from running its hooks and configured programs: its URL comes from a configuration that
// could name any directory.
func NewPusher(r *git.Repo, remote Remote, like string, untrusted bool) (*Pusher, error) {
	m, err := r.NewMirror(like)
	if err != nil {
		return nil, err
	}
	return &Pusher{repo: r, remote: remote, dir: m.Dir, tempDir: m.Scratch, untrusted: untrusted && remote.Path != "", env: slices.Concat(r.Env, []string{
		"GIT_OBJECT_DIRECTORY=" + filepath.Join(r.CommonDir, "objects"), "GIT_ALLOW_PROTOCOL=" + remote.allowedProtocols,
		"GIT_NO_LAZY_FETCH=1", "GIT_NO_REPLACE_OBJECTS=1",
	})}, nil
}

// Close deletes the git directory and releases the turn.
func (c *Pusher) Close() error {
	var err error
	if c.turnLock != nil {
		err = errors.Join(os.Remove(c.turnLock.Name()), c.turnLock.Close())
	}
	return errors.Join(err, c.tempDir.Remove())
}

// WaitTurn waits for other git-agency pushes of this user to the same remote on this machine, so that each of many
// parallel pushes tries twice and not a dozen times. The turn is held until Close. Correctness does not depend on it:
// after a timeout, or where there is no directory for the lock, the push goes on without it.
func (c *Pusher) WaitTurn(ctx context.Context) {
	const longest = 10 * time.Second
	if c.turnLock != nil || c.remote.Path == "" {
		return
	}
	remote, err := filepath.EvalSymlinks(c.remote.Path)
	if err != nil {
		return // git reports the error
	}
	// Not the remote's own directory: every process that can read it could hold its lock.
	parent := filepath.Dir(c.tempDir.Path)
	if fi, err := os.Stat(parent); err != nil || fi.Mode().Perm()&0o077 != 0 {
		return // not the private directory of this user
	}
	sum := sha256.Sum256([]byte(remote))
	dir := filepath.Join(parent, "push-"+hex.EncodeToString(sum[:8]))
	for until := time.Now().Add(longest); c.turnLock == nil && time.Now().Before(until); {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return
		}
		// The previous push removes the directory; then the next ones create it again.
		if c.turnLock, err = lock.AcquireDirExclusive(ctx, dir, time.Until(until)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return
		}
	}
}

// PushResult is the answer of a remote to a push.
type PushResult struct {
	Accepted bool
	UpToDate bool   // the remote had the commit already
	Reason   string // text of the refusal; empty when accepted
}

// Push pushes a commit to a ref of the remote, never by force. A refusal by the remote is no error. The caller finds
// out why by fetching the ref, and must not parse Reason.
func (c *Pusher) Push(ctx context.Context, commit, ref string) (PushResult, error) {
	out, said, err := c.runGit(ctx, "receive-pack", "push", "--porcelain", "--no-verify", "--no-follow-tags", "--no-recurse-submodules",
		"--", c.remote.URL, commit+":"+ref)
	if err == nil {
		had := slices.ContainsFunc(parsePushPorcelain(string(out)), func(p pushedRef) bool { return p.flag == '=' && p.to == ref })
		return PushResult{Accepted: true, UpToDate: had}, nil
	}
	if !git.ExitedWith(err, 1) {
		return PushResult{}, err
	}
	for _, p := range parsePushPorcelain(string(out)) {
		if p.flag == '!' && p.to == ref {
			return PushResult{Reason: strings.Join(append([]string{p.summary}, remoteMessages(string(said))...), "\n")}, nil
		}
	}
	return PushResult{}, err
}

// pushedRef is the result for one ref.
type pushedRef struct {
	flag     byte // ' ', '+', '-', '*', '!' or '='
	from, to string
	summary  string
}

// parsePushPorcelain reads the lines "<flag> TAB <from>:<to> TAB <summary>" and skips all others.
func parsePushPorcelain(out string) (all []pushedRef) {
	for line := range strings.Lines(out) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3)
		if len(fields) < 3 || len(fields[0]) != 1 {
			continue
		}
		from, to, ok := strings.Cut(fields[1], ":")
		if !ok {
			continue
		}
		all = append(all, pushedRef{fields[0][0], from, to, fields[2]})
	}
	return all
}

// remoteMessages returns the lines that the remote printed.
func remoteMessages(stderr string) (words []string) {
	const most = 20 // lines
	for line := range strings.Lines(stderr) {
		if said, is := strings.CutPrefix(line, "remote: "); is && len(words) < most {
			if said = strings.TrimSpace(said); said != "" {
				words = append(words, said)
			}
		}
	}
	return words
}

// Fetch fetches a ref of the remote into the repository's objects, durably, and returns its commit; empty when the
// remote has no such ref. known is a commit that the repository has, so that its history is not transferred; empty for none.
func (c *Pusher) Fetch(ctx context.Context, ref, known string) (string, error) {
	const ours, theirs = "refs/tips/ours", "refs/tips/theirs"
	if err := os.MkdirAll(filepath.Join(c.dir, "refs", "tips"), 0o700); err != nil {
		return "", err
	}
	if known != "" {
		if err := os.WriteFile(filepath.Join(c.dir, ours), []byte(known+"\n"), 0o600); err != nil {
			return "", err
		}
	}
	_, _, err := c.runGit(ctx, "upload-pack", "fetch", "--quiet", "--no-tags", "--no-prune", "--no-write-fetch-head", "--no-auto-maintenance",
		"--no-write-commit-graph", "--no-recurse-submodules", "--refmap=", "--", c.remote.URL, "+"+ref+":"+theirs)
	if err != nil {
		if there, lookErr := c.hasRef(ctx, ref); lookErr == nil && !there {
			return "", nil
		}
		return "", err
	}
	data, err := os.ReadFile(filepath.Join(c.dir, theirs))
	tip := strings.TrimSuffix(string(data), "\n")
	if err == nil && !object.IsOID(tip) {
		err = fmt.Errorf("unexpected value of the ref that git fetch wrote: %q", tip)
	}
	if packs := filepath.Join(c.repo.CommonDir, "objects", "pack"); err == nil {
		if err = durable.SyncDir(packs); git.IsNotExist(err) {
			err = nil
		}
	}
	return tip, err
}

// hasRef reports whether the remote has a ref.
func (c *Pusher) hasRef(ctx context.Context, ref string) (bool, error) {
	out, _, err := c.runGit(ctx, "upload-pack", "ls-remote", "--refs", "--", c.remote.URL, ref)
	for line := range strings.Lines(string(out)) {
		if _, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); name == ref {
			return true, err
		}
	}
	return false, err
}

// runGit runs a git that talks to program, upload-pack or receive-pack, on the remote. It dies with this process: a push
// that arrives after the next command has begun would change the remote after that command has read it.
func (c *Pusher) runGit(ctx context.Context, program string, args ...string) (stdout, stderr []byte, err error) {
	config := []string{"-c", "core.fsync=committed,pack-metadata", "-c", "core.fsyncMethod=batch", "-c", "advice.pushUpdateRejected=false"}
	if s, set := c.repo.Config.Last("core.sharedrepository"); set && !s.NoValue {
		config = append(config, "-c", "core.sharedRepository="+s.Value)
	}
	if c.untrusted {
		args = slices.Insert(args, 1, "--"+program+"="+hardenedCommandPrefix+program)
	}
	res, err := proc.Run(ctx, proc.Command{
		Argv: slices.Concat([]string{"git", "--git-dir=" + c.dir}, git.NoSideEffectArgs, config, args),
		Dir:  c.dir, Env: c.env, DieWithParent: true,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("git %s: %w", args[0], err)
	}
	if res.ExitCode == 0 {
		return res.Stdout, res.Stderr, nil
	}
	failed := &git.Error{Args: args, ExitCode: res.ExitCode, Stderr: string(res.Stderr)}
	if words := remoteMessages(failed.Stderr); len(words) > 0 && git.StderrReason(failed.Stderr) != strings.TrimSpace(failed.Stderr) {
		return res.Stdout, res.Stderr, fmt.Errorf("%w\n%s", failed, strings.Join(words, "\n"))
	}
	return res.Stdout, res.Stderr, failed
}

// hardenedCommandPrefix starts upload-pack or receive-pack in a repository that may be anyone's, without its hooks
// and the programs that its configuration names. Refs of git-agency are there for itself, also if they are hidden from others.
const hardenedCommandPrefix = "GIT_ALLOW_PROTOCOL=none GIT_NO_LAZY_FETCH=1 git -c core.hooksPath=/dev/null -c core.alternateRefsCommand=true -c receive.autogc=false -c receive.denyCurrentBranch=refuse -c transfer.hideRefs='!refs/agency' "
