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

// Courier speaks to a remote. The git that does so runs in a git directory of our own, with the objects of the repository
// and no more: what its own settings say of how to reach others, by which ssh, through which proxy and with whose
// credentials, and which hooks it has, somebody in a sandbox could have written. Those of the user count.
type Courier struct {
	repo    *Repo
	remote  Remote
	dir     string
	scratch *temporary // which that is
	env     []string
	wary    bool
	turn    *os.File // while it is ours
}

// Courier makes one. like is the id of any object, which says how ids are made. A wary one lets a repository on this
// machine run nothing of its own either: somebody could have named any.
func (r *Repo) Courier(remote Remote, like string, wary bool) (*Courier, error) {
	m, err := r.Mirror(like)
	if err != nil {
		return nil, err
	}
	return &Courier{repo: r, remote: remote, dir: m.dir, scratch: m.scratch, wary: wary && remote.Path != "", env: slices.Concat(r.env, []string{
		"GIT_OBJECT_DIRECTORY=" + filepath.Join(r.CommonDir, "objects"), "GIT_ALLOW_PROTOCOL=" + remote.allow,
		"GIT_NO_LAZY_FETCH=1", "GIT_NO_REPLACE_OBJECTS=1",
	})}, nil
}

// Close takes the directory away, and gives others their turn.
func (c *Courier) Close() error {
	var err error
	if c.turn != nil {
		err = c.turn.Close()
	}
	return errors.Join(err, c.scratch.remove())
}

// Turn waits until it is our turn to push to a remote on this machine, among those who ask for theirs: where many of us
// push to one, each tries twice and not a dozen times. It is ours until Close. It is a courtesy: nothing depends on it, so
// that who cannot ask, or has waited long enough, goes on.
func (c *Courier) Turn(ctx context.Context) {
	const longest = 10 * time.Second
	if c.turn != nil || c.remote.Path == "" {
		return
	}
	dir, err := os.Open(c.remote.Path)
	if err != nil {
		return // who speaks to it will say why
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
	_ = dir.Close() // of which nothing was written
}

// Answer is what a remote said to a push.
type Answer struct {
	Arrived bool
	Had     bool   // it was there before
	Words   string // if it has not arrived, why
}

// Push brings a commit to the remote, as a ref of the given name. Nothing is ever forced. A remote that heard of it and
// said no is no error: why is for who has looked at what it has now, and not for who can read.
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

// pushed is what became of one ref.
type pushed struct {
	flag     byte // ' ', '+', '-', '*', '!' or '='
	from, to string
	summary  string
}

// parsePushed reads "<flag> TAB <from>:<to> TAB <summary>", a line each, between lines that are about all of it.
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

// remoteWords is what the other side said itself.
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

// Fetch brings what a ref of the remote leads to, for good, and says where that is; empty when there is no such ref. known
// is a commit that need not be brought.
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

// has asks whether there is such a ref.
func (c *Courier) has(ctx context.Context, ref string) (bool, error) {
	out, _, err := c.run(ctx, "upload-pack", "ls-remote", "--refs", "--", c.remote.URL, ref)
	for line := range strings.Lines(string(out)) {
		if _, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); name == ref {
			return true, err
		}
	}
	return false, err
}

// run runs a git that speaks to a program at the other end.
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

// tame is how a program is started for a repository that anybody could have made: without what its settings and hooks
// would make it run.
const tame = "GIT_ALLOW_PROTOCOL=none GIT_NO_LAZY_FETCH=1 git -c core.hooksPath=/dev/null -c core.alternateRefsCommand=true -c receive.autogc=false -c receive.denyCurrentBranch=refuse "
