package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// SeatsError is a branch that several worktrees have checked out: whichever were taken along, the others would show the
// reverse of what came.
type SeatsError struct {
	Branch string
	Trees  []string
}

func (e *SeatsError) Error() string {
	return fmt.Sprintf("%s is checked out more than once: %s", strings.TrimPrefix(e.Branch, "refs/heads/"), strings.Join(e.Trees, ", "))
}

// LostTreeError is a worktree that has a branch checked out, and whose directory is not there. It may be on a disk that
// is not there either, just now.
type LostTreeError struct {
	Branch string
	Tree   string
}

func (e *LostTreeError) Error() string {
	return fmt.Sprintf("%s is checked out in %s, which is not there", strings.TrimPrefix(e.Branch, "refs/heads/"), e.Tree)
}

// ReseatedError is a branch that another worktree has checked out than a moment ago: what is in that one would show the
// reverse of what came.
type ReseatedError struct {
	Branch string
	Tree   string // where it is now; empty when nobody has it any more
}

func (e *ReseatedError) Error() string {
	branch := strings.TrimPrefix(e.Branch, "refs/heads/")
	if e.Tree == "" {
		return branch + " is not checked out any more where it was"
	}
	return fmt.Sprintf("%s has been checked out in %s meanwhile", branch, e.Tree)
}

// sameSeat makes sure, when the branch cannot move any more but by us, that who has it checked out is who had it when that
// was asked. A git that is checking something out holds the lock of an index; it is waited for, but not for long: its lock
// may be one that was left behind.
func (x *Advancing) sameSeat(ctx context.Context) error {
	if x.a.Old == x.a.New {
		return nil
	}
	var failed error
	err := x.repo.waiting.until(ctx, func() bool {
		var worktrees map[string]string
		worktrees, failed = x.repo.seats(ctx)
		for dir := range worktrees {
			if _, err := os.Lstat(filepath.Join(dir, "index"+lockSuffix)); err == nil && dir != x.a.GitDir {
				return false
			}
		}
		return true
	})
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	gitDir, tree, err := x.repo.Seat(ctx, x.a.Branch)
	if err == nil && gitDir != x.a.GitDir {
		err = &ReseatedError{Branch: x.a.Branch, Tree: tree}
	}
	return err
}

// BehindError is a worktree that has checked out a branch in the very moment in which it moved: its index and its files may
// be those of the commit before, and look as if somebody had taken back all that came.
type BehindError struct {
	Branch, Old, New string
	Tree             string
	Err              error // why it could not be taken along
}

func (e *BehindError) Error() string {
	return fmt.Sprintf("%s was checked out in %s while it moved from %.12s to %.12s: %v", strings.TrimPrefix(e.Branch, "refs/heads/"), e.Tree, e.Old, e.New, e.Err)
}

func (e *BehindError) Unwrap() error { return e.Err }

// Behind is a worktree that has the branch now, and may show what was there before; nil when there is none.
func (x *Advancing) Behind() *BehindError { return x.behind }

// takeAlong looks once more, when a branch has moved that nobody had, whether somebody has it now. A checkout that had read
// where the branch was before we locked it, and said so after we looked, has the files of the commit before. Git takes them
// along as it does when one changes branches: what is already there stays, and what the person has changed is refused. Who
// says so later than now is not seen. Whoever was told to end is not listened to any more, so it must not take for ever: a
// filter may never end.
func (x *Advancing) takeAlong(ctx context.Context) (*BehindError, error) {
	if x.a.GitDir != "" || x.a.Old == x.a.New {
		return nil, nil
	}
	longest := cmp.Or(x.longest, 2*time.Minute)
	ctx, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("it took longer than %s", longest))
	defer cancel()
	gitDir, tree, err := x.repo.Seat(ctx, x.a.Branch)
	switch {
	case errors.As(err, new(*SeatsError)) || errors.As(err, new(*UnderWayError)):
		return nil, nil // several have it, or one rebases it: then it was not checked out just now
	case err != nil:
		return nil, fmt.Errorf("who has checked out %s meanwhile: %w", strings.TrimPrefix(x.a.Branch, "refs/heads/"), err)
	case gitDir == "":
		return nil, nil
	}
	if err = errors.New("filters that the repository names are not trusted"); x.a.Trusted {
		err = x.repo.waiting.until(ctx, func() bool { _, err := os.Lstat(filepath.Join(gitDir, "index"+lockSuffix)); return err != nil })
		if err == nil {
			_, err = x.repo.change(ctx, place{gitDir: gitDir, tree: tree}, "read-tree", "-m", "-u", x.a.Old, x.a.New)
		}
	}
	if err == nil {
		return nil, nil
	}
	return &BehindError{Branch: x.a.Branch, Old: x.a.Old, New: x.a.New, Tree: tree, Err: err}, nil
}

// Seat says which worktree has a branch checked out: its git directory and its tree, or nothing. One in the middle of a
// rebase of it, or of a bisection that began on it, has it too, and is an *UnderWayError.
func (r *Repo) Seat(ctx context.Context, branch string) (gitDir, tree string, err error) {
	worktrees, err := r.seats(ctx)
	if err != nil {
		return "", "", err
	}
	var found, busy []string
	what := ""
	for _, dir := range slices.Sorted(maps.Keys(worktrees)) {
		at := worktrees[dir]
		on, doing := r.holds(dir, branch)
		switch {
		case doing != "":
			busy, what = append(busy, at), doing
		case on:
			gitDir, tree = dir, at
		default:
			continue
		}
		found = append(found, at)
	}
	switch {
	case len(found) == 0:
		return "", "", nil
	case len(found) > 1:
		return "", "", &SeatsError{Branch: branch, Trees: found}
	case len(busy) > 0:
		return "", "", &UnderWayError{Tree: busy[0], What: what}
	}
	// One that was moved by hand leads elsewhere; git does not know where its tree is either.
	if linked, err := LinkedTo(tree); err != nil || linked == "" {
		if configured := r.Config.Value("core.worktree"); gitDir != r.CommonDir || configured == "" {
			return "", "", errors.Join(&LostTreeError{Branch: branch, Tree: tree}, err)
		}
	}
	return gitDir, tree, nil
}

// seats lists the worktrees that are not bare, by their git directories.
func (r *Repo) seats(ctx context.Context) (map[string]string, error) {
	if _, err := os.Lstat(filepath.Join(r.CommonDir, "reftable")); err == nil { // then no file says where HEAD is
		return nil, fmt.Errorf("%s keeps its refs as a reftable, of which nobody can say who has which", r.CommonDir)
	}
	worktrees := map[string]string{}
	if main := r.mainSeat(); main != "" {
		worktrees[r.CommonDir] = main
	}
	entries, err := os.ReadDir(filepath.Join(r.CommonDir, "worktrees"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if at := r.RegisteredAt(e.Name()); e.IsDir() && at != "" {
			worktrees[r.AdminDir(e.Name())] = at
		}
	}
	return worktrees, context.Cause(ctx)
}

// mainSeat is the main worktree; empty where the repository is bare. A setting of its own can say so, which a git in
// another worktree does not see.
func (r *Repo) mainSeat() string {
	bare := r.boolean("core.bare", false)
	if data, err := durable.ReadFile(filepath.Join(r.CommonDir, "config.worktree"), 1<<20); err == nil {
		entries, _ := parseConfigFile(string(data))
		for _, e := range entries {
			if e.key == "core.bare" {
				bare = e.bare || e.value == "true" || e.value == "yes" || e.value == "on" || e.value == "1"
			}
		}
	}
	trees := []Worktree{{Path: strings.TrimSuffix(r.CommonDir, "/.git"), Bare: bare}}
	r.correctMain(trees)
	if bare || trees[0].Path == r.CommonDir {
		return ""
	}
	return trees[0].Path
}

// holds reports whether a worktree has a branch checked out, and what it does with it if that is something else.
func (r *Repo) holds(gitDir, branch string) (on bool, doing string) {
	is := func(name, want string) bool {
		data, err := readSmall(gitDir, name)
		return err == nil && strings.TrimSpace(string(data)) == want
	}
	switch {
	case is("rebase-merge/head-name", branch), is("rebase-apply/head-name", branch):
		return false, "rebase"
	case is("BISECT_START", strings.TrimPrefix(branch, "refs/heads/")):
		return false, "bisect"
	}
	if data, err := readSmall(gitDir, "rebase-merge/update-refs"); err == nil {
		for line := range strings.Lines(string(data)) {
			if strings.TrimSpace(line) == branch {
				return false, "rebase"
			}
		}
	}
	var w Worktree
	if err := readHead(gitDir, &w); err != nil {
		return false, ""
	}
	ref := w.Branch
	for range 5 { // as many as git follows
		if ref == branch {
			return true, ""
		}
		data, err := durable.ReadFile(r.RefPath(ref), 1<<10)
		next, symbolic := strings.CutPrefix(string(data), "ref:")
		if ref == "" || err != nil || !symbolic {
			return false, ""
		}
		ref = strings.TrimSpace(next)
	}
	return false, ""
}
