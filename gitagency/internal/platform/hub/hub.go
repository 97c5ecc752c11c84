// Package hub carries runs to nodes and back by git: a job is a commit with what a run is given, a result is a commit
// with what it left, and each has one ref in a repository that both sides reach, the hub. A ref moves only from where its
// writer has seen it, so that of several attempts at one run one result counts.
//
// The package must never know engines, and never changes a sandbox or a record. What it reads from a hub is untrusted data.
package hub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/repair"
	"github.com/git-agency/git-agency/gitagency/internal/git/transport"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Prefixes of refs.
const (
	JobsPrefix    = "refs/agency/jobs/"    // starts the refs of jobs
	ResultsPrefix = "refs/agency/results/" // starts the refs of results
)

// JobRef returns the ref of what the last run of an invocation was given.
func JobRef(id string) string { return JobsPrefix + id }

// ResultRef returns the ref of what the last run of an invocation left.
func ResultRef(id string) string { return ResultsPrefix + id }

// Hub is the repository by which jobs and results travel, as seen from a repository with their objects.
type Hub struct {
	Name string // by which Open finds it from anywhere; empty for the repository itself
	URL  string // where other machines find it: a path or a URL

	// Lock takes the repository lock where the hub is the repository itself; nil where it cannot be.
	Lock func(context.Context) (repo *git.Repo, unlock func(), err error)

	repo   *git.Repo
	remote transport.Remote
	isRepo bool   // the hub is repo itself
	like   string // any object id of repo, which tells the hash algorithm
}

// Open returns a hub. Its name is a path, a URL, or the name of a remote of the repository; empty for the repository itself. A
// relative path is relative to the top of the repository, as that of a remote. like is the id of any object of the repository.
func Open(ctx context.Context, repo *git.Repo, name, like string) (*Hub, error) {
	h := &Hub{repo: repo, like: like, URL: repo.CommonDir, isRepo: name == ""}
	if h.isRepo {
		name = repo.CommonDir
	}
	remotes, err := transport.ReadRemotes(ctx, repo)
	if err != nil {
		return nil, err
	}
	isURL := strings.ContainsAny(name, "/:")
	if isURL {
		h.remote, err = remotes.At(ctx, name, repo.RemotePathBase())
	} else {
		h.remote, err = remotes.Find(ctx, name)
	}
	if err != nil {
		return nil, &fault.InvalidError{What: "hub", Value: name, Want: "a path, an ssh URL or the name of a remote (" + err.Error() + ")"}
	}
	h.URL = h.remote.URL
	if err := settings.CheckHub(h.URL); err != nil {
		return nil, err
	}
	if !h.isRepo {
		h.Name = h.URL
	}
	if path := h.remote.Path; path != "" && !h.isRepo {
		isGit, err := isRepository(path)
		if err == nil && !isGit {
			err = &fault.InvalidError{What: "hub", Value: path, Want: "a git repository; to make one: git init --bare " + path}
		}
		if err != nil {
			return nil, err
		}
		h.isRepo = samePath(path, repo.CommonDir) || samePath(filepath.Join(path, ".git"), repo.CommonDir)
	}
	return h, nil
}

// isRepository reports whether a path is one that git push takes: of a git directory, or of a directory with one.
func isRepository(path string) (bool, error) {
	is, err := git.IsGitDir(path)
	if err == nil && !is {
		is, err = git.IsGitDir(filepath.Join(path, ".git"))
	}
	if git.IsNotExist(err) {
		err = nil
	}
	return is, err
}

func samePath(a, b string) bool {
	a, aErr := filepath.EvalSymlinks(a)
	b, bErr := filepath.EvalSymlinks(b)
	return aErr == nil && bErr == nil && a == b
}

// Dir returns the git directory of the hub, if that is reached by its path; otherwise "".
func (h *Hub) Dir() string {
	path := h.remote.Path
	switch {
	case h.isRepo:
		return h.repo.CommonDir
	case path == "":
		return ""
	}
	if is, err := git.IsGitDir(filepath.Join(path, ".git")); err == nil && is {
		return filepath.Join(path, ".git")
	}
	return path
}

// CheckFullHistory refuses a repository of which a node could not get all objects.
func (h *Hub) CheckFullHistory(ctx context.Context) error {
	remotes, err := transport.ReadRemotes(ctx, h.repo)
	if err == nil {
		err = remotes.CheckFullHistory()
	}
	return err
}

// IsRepository reports whether the hub is the repository itself, so that nothing has to be transferred.
func (h *Hub) IsRepository() bool { return h.isRepo }

// withPusher calls do with a connection to the hub.
func (h *Hub) withPusher(open func(*git.Repo, transport.Remote) (*transport.Pusher, error), do func(*transport.Pusher) error) error {
	p, err := open(h.repo, h.remote)
	if err != nil {
		return err
	}
	return errors.Join(do(p), p.Close())
}

func (h *Hub) openPusher(repo *git.Repo, remote transport.Remote) (*transport.Pusher, error) {
	return transport.NewPusher(repo, remote, h.like, true)
}

func (h *Hub) openFetcher(repo *git.Repo, remote transport.Remote) (*transport.Pusher, error) {
	return transport.NewFetcher(repo, remote, h.like)
}

// Update moves refs of the hub, all of them or none, each only from where its update says. If one is elsewhere, or the hub does
// not let it move, the error is a *transport.RejectedError.
func (h *Hub) Update(ctx context.Context, updates ...transport.RefUpdate) error {
	if !h.isRepo {
		return h.withPusher(h.openPusher, func(p *transport.Pusher) error { return p.UpdateRefs(ctx, updates...) })
	}
	repo, unlock, err := h.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	for _, u := range updates {
		if err := updateRef(ctx, repo, u, h.like); err != nil && git.ChangedNothing(err) {
			return &transport.RejectedError{Reason: err.Error()}
		} else if err != nil {
			return err
		}
	}
	return nil
}

// updateRef moves a ref of the repository itself. The caller holds its lock. like is the id of any object.
func updateRef(ctx context.Context, repo *git.Repo, u transport.RefUpdate, like string) error {
	if err := repair.RemoveAbandonedLock(ctx, repo, repo.RefPath(u.Ref)+index.LockSuffix); err != nil {
		return err
	}
	switch {
	case u.New == "" && u.Old == "":
		return nil
	case u.New == "":
		return repo.DeleteRef(ctx, u.Ref, u.Old)
	case u.Old == "":
		u.Old = object.FormatOf(like).ZeroID()
	}
	if err := repo.MoveRef(ctx, u.Ref, u.New, u.Old, "agency: run"); err != nil {
		return err
	}
	return repo.SyncRef(u.Ref)
}

// Refs returns the refs of the jobs and results of some invocations.
func (h *Hub) Refs(ctx context.Context, ids ...string) (refs map[string]string, err error) {
	var names []string
	for _, id := range ids {
		names = append(names, JobRef(id), ResultRef(id))
	}
	if len(names) == 0 {
		return nil, nil
	}
	if h.isRepo {
		all, err := h.repo.Refs(ctx, JobsPrefix, ResultsPrefix)
		maps.DeleteFunc(all, func(ref, _ string) bool { return !slices.Contains(names, ref) })
		return all, err
	}
	err = h.withPusher(h.openPusher, func(p *transport.Pusher) error {
		refs, err = p.ListRefs(ctx, names...)
		return err
	})
	return refs, err
}

// Results returns the commits of the results of some invocations, by their ids.
func (h *Hub) Results(ctx context.Context, ids ...string) (map[string]string, error) {
	refs, err := h.Refs(ctx, ids...)
	results := map[string]string{}
	for _, id := range ids {
		if commit := refs[ResultRef(id)]; commit != "" {
			results[id] = commit
		}
	}
	return results, err
}

// Forget deletes the refs of an invocation in the hub. Those that do not exist are no error.
func (h *Hub) Forget(ctx context.Context, id string) error {
	const tries = 3 // a late attempt may push meanwhile
	for n := 1; ; n++ {
		refs, err := h.Refs(ctx, id)
		if err != nil {
			return err
		}
		if len(refs) == 0 {
			return h.removeLeftovers(ctx, JobRef(id))
		}
		var updates []transport.RefUpdate
		for ref, oid := range refs {
			updates = append(updates, transport.RefUpdate{Ref: ref, Old: oid})
		}
		err = h.Update(ctx, updates...)
		if rejected := (*transport.RejectedError)(nil); n < tries && errors.As(err, &rejected) {
			continue
		}
		return err
	}
}

// removeLeftovers removes what a killed process has left of a ref of the repository itself that does not exist. Only processes with the
// repository lock write the ref.
func (h *Hub) removeLeftovers(ctx context.Context, ref string) error {
	if !h.isRepo {
		return nil
	}
	if _, left := store.FirstExisting(h.repo.RefPath(ref)+index.LockSuffix, h.repo.ReflogPath(ref)); !left {
		return nil
	}
	repo, unlock, err := h.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return repo.RemoveRefLeftovers(ctx, ref)
}

// FetchJob fetches the job of an invocation into the repository, and returns its commit. known is a commit of the hub that the
// repository has, so that its history is not transferred; empty for none.
func (h *Hub) FetchJob(ctx context.Context, id, known string) (commit string, err error) {
	return h.fetch(ctx, JobRef(id), known)
}

// FetchResult fetches the result of an invocation into the repository, without checks, and returns its commit; empty if there is none.
// It is for an attempt that compares its result with that of another one.
func (h *Hub) FetchResult(ctx context.Context, id, known string) (commit string, err error) {
	return h.fetch(ctx, ResultRef(id), known)
}

// fetch fetches a ref into the repository, and returns its commit; empty if the ref does not exist.
func (h *Hub) fetch(ctx context.Context, ref, known string) (commit string, err error) {
	if h.isRepo {
		return h.repo.Tip(ctx, ref)
	}
	err = h.withPusher(h.openPusher, func(p *transport.Pusher) error {
		commit, err = p.Fetch(ctx, ref, known)
		return err
	})
	return commit, err
}

// Receive brings the objects of a result into the repository, after the checks of objects that come from a sandbox. base is a
// commit of the repository, of which the result descends. stored is called with the lock held when they are there.
func (h *Hub) Receive(ctx context.Context, id, commit, base string, lock func(context.Context) (*git.Repo, func(), error), stored func(*git.Repo) error) error {
	return h.withPusher(h.openFetcher, func(p *transport.Pusher) error {
		if !h.isRepo {
			fetched, err := p.Fetch(ctx, ResultRef(id), base)
			if err != nil {
				return err
			}
			if fetched != commit {
				return fmt.Errorf("the result of %s has changed in the hub meanwhile", id)
			}
		}
		pack, done := packStream(ctx, p, commit, base)
		err := transport.Receive(ctx, h.repo, transport.ReceiveRequest{
			Pack: pack, Ref: ResultRef(id), New: commit, Old: base, LeaveRef: true, Reason: "agency: result", Lock: lock,
			Stored: func(repo *git.Repo, _ transport.Checked) error { return stored(repo) },
		})
		done()
		return err
	})
}
