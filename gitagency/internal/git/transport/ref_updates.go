package transport

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// RefUpdate is a change of one ref of a remote.
type RefUpdate struct {
	Ref string // full name
	New string // commit; empty: the ref is deleted
	Old string // commit that the ref must be at; empty: it must not exist
}

// RejectedError reports refs that a remote did not change: one has moved, or a rule of the remote forbids it.
type RejectedError struct{ Reason string }

func (e *RejectedError) Error() string { return "the push was rejected: " + e.Reason }

// UpdateRefs changes refs of the remote, all of them or none, each only if it is where its update says. If the remote refuses
// one of them, the error is a *RejectedError. The caller finds out why by ListRefs.
func (c *Pusher) UpdateRefs(ctx context.Context, updates ...RefUpdate) error {
	args := []string{"push", "--porcelain", "--no-verify", "--no-follow-tags", "--no-recurse-submodules"}
	if len(updates) > 1 {
		args = append(args, "--atomic")
	}
	var specs []string
	for _, u := range updates {
		args = append(args, "--force-with-lease="+u.Ref+":"+u.Old)
		specs = append(specs, u.New+":"+u.Ref)
	}
	out, said, err := c.runGit(ctx, "receive-pack", slices.Concat(args, []string{"--", c.remote.URL}, specs)...)
	if err == nil || !git.ExitedWith(err, 1) {
		return err
	}
	for _, p := range parsePushPorcelain(string(out)) {
		if p.flag == '!' {
			return &RejectedError{strings.Join(append([]string{p.to + ": " + p.summary}, remoteMessages(string(said))...), "\n")}
		}
	}
	return err
}

// ListRefs returns the refs of the remote that match patterns of ls-remote.
func (c *Pusher) ListRefs(ctx context.Context, patterns ...string) (map[string]string, error) {
	out, _, err := c.runGit(ctx, "upload-pack", slices.Concat([]string{"ls-remote", "--refs", "--", c.remote.URL}, patterns)...)
	if err != nil {
		return nil, err
	}
	refs := map[string]string{}
	for line := range strings.Lines(string(out)) {
		oid, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !object.IsOID(oid) || !object.IsValidRef(name) {
			return nil, fmt.Errorf("unexpected output of git ls-remote: %q", line)
		}
		refs[name] = oid
	}
	return refs, nil
}

// NewFetcher returns a Pusher whose Fetch leaves the repository as it is: what it fetches is in its own git directory, unchecked,
// and WritePack passes it on to Receive.
func NewFetcher(r *git.Repo, remote Remote, like string) (*Pusher, error) {
	c, err := NewPusher(r, remote, like, true)
	if err != nil {
		return nil, err
	}
	objects := "GIT_OBJECT_DIRECTORY="
	c.env = slices.DeleteFunc(c.env, func(kv string) bool { return strings.HasPrefix(kv, objects) })
	c.env = append(c.env, objects+filepath.Join(c.dir, "objects"), "GIT_ALTERNATE_OBJECT_DIRECTORIES="+git.QuoteAlternate(filepath.Join(r.CommonDir, "objects")))
	return c, nil
}

// WritePack writes a thin pack with what is reachable from a commit and not from others.
func (c *Pusher) WritePack(ctx context.Context, commit string, not []string, to io.Writer) error {
	wants := commit + "\n"
	for _, oid := range not {
		wants += "^" + oid + "\n"
	}
	args := []string{"pack-objects", "--revs", "--thin", "--stdout", "--delta-base-offset", "--window=0", "-q"}
	res, err := proc.Run(ctx, proc.Command{
		Argv: slices.Concat([]string{"git", "--git-dir=" + c.dir}, git.NoSideEffectArgs, []string{"-c", "pack.packSizeLimit=0"}, args),
		Dir:  c.dir, Env: c.env, Stdin: strings.NewReader(wants), Stdout: to, DieWithParent: true,
	})
	if err != nil {
		return fmt.Errorf("git %s: %w", args[0], err)
	}
	if res.ExitCode != 0 {
		return &git.Error{Args: args, ExitCode: res.ExitCode, Stderr: string(res.Stderr)}
	}
	return nil
}
