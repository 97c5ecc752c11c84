package git

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// Pusher pushes to and fetches from a remote. Its git runs in a git directory of our own that shares only the objects
// of the repository: an agent could have written the repository's hooks, and its settings for ssh, proxies and
// credentials. The user's settings are used.
type Courier struct {
	repo    *Repo
	remote  Remote
	dir     string
	scratch *temporary // holds dir
	env     []string
	wary    bool
	turn    *os.File // flock on the remote's directory; nil without one
}

// NewPusher creates a Pusher. like is the id of any object, which tells the hash algorithm. untrusted also keeps
// a remote on this machine from running its hooks and configured programs: its URL comes from a configuration that
// could name any directory.
func (r *Repo) Courier(remote Remote, like string, untrusted bool) (*Courier, error) {
	m, err := r.Mirror(like)
	if err != nil {
		return nil, err
	}
	return &Courier{repo: r, remote: remote, dir: m.dir, scratch: m.scratch, wary: untrusted && remote.Path != "", env: slices.Concat(r.env, []string{
		"GIT_OBJECT_DIRECTORY=" + filepath.Join(r.CommonDir, "objects"), "GIT_ALLOW_PROTOCOL=" + remote.allow,
		"GIT_NO_LAZY_FETCH=1", "GIT_NO_REPLACE_OBJECTS=1",
	})}, nil
}

// Close deletes the git directory and releases the turn.
func (c *Courier) Close() error {
	var err error
	if c.turn != nil {
		err = c.turn.Close()
	}
	return errors.Join(err, c.scratch.remove())
}

// WaitTurn waits for other git-agency pushes to the same remote on this machine, so that each of many parallel pushes
// tries twice and not a dozen times. The turn is held until Close. Correctness does not depend on it: after a
// timeout, or where the directory cannot be locked, the push goes on without it.
func (c *Courier) Turn(ctx context.Context) {
	const longest = 10 * time.Second
	if c.turn != nil || c.remote.Path == "" {
		return
	}
	dir, err := os.Open(c.remote.Path)
	if err != nil {
		return // git reports the error
	}
	for until := time.Now().Add(longest); time.Now().Before(until) && ctx.Err() == nil; {
		err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			c.turn = dir
			return
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			break
		}
		wait := time.NewTimer(time.Millisecond + rand.N(10*time.Millisecond))
		select {
		case <-ctx.Done():
		case <-wait.C:
		}
		wait.Stop()
	}
	_ = dir.Close() // read-only, so no error matters
}

// PushResult is the answer of a remote to a push.
type Answer struct {
	Arrived bool
	Had     bool   // the remote had the commit already
	Words   string // text of the refusal; empty when accepted
}

// Push pushes a commit to a ref of the remote, never by force. A refusal by the remote is no error. The caller finds
// out why by fetching the ref, and must not parse Reason.
func (c *Courier) Push(ctx context.Context, commit, ref string) (Answer, error) {
	out, said, err := c.run(ctx, "receive-pack", "push", "--porcelain", "--no-verify", "--no-follow-tags", "--no-recurse-submodules",
		"--", c.remote.URL, commit+":"+ref)
	if err == nil {
		had := slices.ContainsFunc(parsePushed(string(out)), func(p pushed) bool { return p.flag == '=' && p.to == ref })
		return Answer{Arrived: true, Had: had}, nil
	}
	if !exitedWith(err, 1) {
		return Answer{}, err
	}
	for _, p := range parsePushed(string(out)) {
		if p.flag == '!' && p.to == ref {
			return Answer{Words: strings.Join(append([]string{p.summary}, remoteWords(string(said))...), "\n")}, nil
		}
	}
	return Answer{}, err
}

// pushedRef is the result for one ref.
type pushed struct {
	flag     byte // ' ', '+', '-', '*', '!' or '='
	from, to string
	summary  string
}

// parsePushPorcelain reads the lines "<flag> TAB <from>:<to> TAB <summary>" and skips all others.
func parsePushed(out string) (all []pushed) {
	for line := range strings.Lines(out) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3)
		if len(fields) < 3 || len(fields[0]) != 1 {
			continue
		}
		from, to, ok := strings.Cut(fields[1], ":")
		if !ok {
			continue
		}
		all = append(all, pushed{fields[0][0], from, to, fields[2]})
	}
	return all
}

// remoteMessages returns the lines that the remote printed.
func remoteWords(stderr string) (words []string) {
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
// remote has no such ref. known is a commit that the repository has, so that its history is not transferred.
func (c *Courier) Fetch(ctx context.Context, ref, known string) (string, error) {
	const ours, theirs = "refs/tips/ours", "refs/tips/theirs"
	if err := os.MkdirAll(filepath.Join(c.dir, "refs", "tips"), 0o700); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(c.dir, ours), []byte(known+"\n"), 0o600); err != nil {
		return "", err
	}
	_, _, err := c.run(ctx, "upload-pack", "fetch", "--quiet", "--no-tags", "--no-prune", "--no-write-fetch-head", "--no-auto-maintenance",
		"--no-write-commit-graph", "--no-recurse-submodules", "--refmap=", "--", c.remote.URL, "+"+ref+":"+theirs)
	if err != nil {
		if there, lookErr := c.has(ctx, ref); lookErr == nil && !there {
			return "", nil
		}
		return "", err
	}
	data, err := os.ReadFile(filepath.Join(c.dir, theirs))
	tip := strings.TrimSuffix(string(data), "\n")
	if err == nil && !isOID(tip) {
		err = fmt.Errorf("git fetch left %q", tip)
	}
	if packs := filepath.Join(c.repo.CommonDir, "objects", "pack"); err == nil {
		if err = durable.SyncDir(packs); nothingThere(err) {
			err = nil
		}
	}
	return tip, err
}

// hasRef reports whether the remote has a ref.
func (c *Courier) has(ctx context.Context, ref string) (bool, error) {
	out, _, err := c.run(ctx, "upload-pack", "ls-remote", "--refs", "--", c.remote.URL, ref)
	for line := range strings.Lines(string(out)) {
		if _, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); name == ref {
			return true, err
		}
	}
	return false, err
}

// runGit runs a git that talks to program, upload-pack or receive-pack, on the remote.
func (c *Courier) run(ctx context.Context, program string, args ...string) (stdout, stderr []byte, err error) {
	config := []string{"-c", "core.fsync=committed,pack-metadata", "-c", "core.fsyncMethod=batch", "-c", "advice.pushUpdateRejected=false"}
	if s, set := c.repo.Config.Last("core.sharedrepository"); set && !s.Bare {
		config = append(config, "-c", "core.sharedRepository="+s.Value)
	}
	if c.wary {
		args = slices.Insert(args, 1, "--"+program+"="+tame+program)
	}
	stdout, stderr, err = runner{dir: c.dir, env: c.env}.both(ctx, slices.Concat([]string{"--git-dir=" + c.dir}, quiet, config), args)
	var g *Error
	if errors.As(err, &g) {
		if words := remoteWords(g.Stderr); len(words) > 0 && lastWords(g.Stderr) != strings.TrimSpace(g.Stderr) {
			err = fmt.Errorf("%w\n%s", err, strings.Join(words, "\n"))
		}
	}
	return stdout, stderr, err
}

// hardenedCommandPrefix starts upload-pack or receive-pack in a repository that may be anyone's, without its hooks
// and the programs that its configuration names.
const tame = "GIT_ALLOW_PROTOCOL=none GIT_NO_LAZY_FETCH=1 git -c core.hooksPath=/dev/null -c core.alternateRefsCommand=true -c receive.autogc=false -c receive.denyCurrentBranch=refuse "
