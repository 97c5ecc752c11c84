package submodule

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/git/fsck"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
)

// PopulateRequest says which worktree gets its submodules.
type PopulateRequest struct {
	Worktree     string      // required: name of git's entry of the worktree
	Tree         string      // required: its directory
	ScratchDir   string      // required: path that does not exist, for git's working files
	UpperEntry   string      // entry of the worktree in an upper directory, whose repositories of submodules stay as they are; empty: none
	TrustsConfig func() bool // required: reports whether programs that the configuration of the repository of a submodule names are run
}

// Skipped is a submodule that Populate left empty or, with a *NestedError, that has submodules which it left empty.
type Skipped struct {
	Path string
	Err  error
}

// NestedError reports a submodule that has initialised submodules of its own.
type NestedError struct{ Count int }

func (e *NestedError) Error() string {
	return fmt.Sprintf("%d submodules inside of the submodule are not checked out", e.Count)
}

// Populate checks out the submodules of a worktree that are initialised in the repository, at the commits in its index. It
// fetches nothing. Submodules that are not initialised, or whose directory is missing or not empty, stay as they are; one
// whose commit cannot be checked out is left empty and listed. Submodules inside of submodules are left empty.
//
// The caller undoes it by removing the tree and git's entry of the worktree.
func Populate(ctx context.Context, r *git.Repo, req PopulateRequest) (skipped []Skipped, err error) {
	all, err := List(ctx, r, req.Worktree, req.Tree)
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		repo := filepath.Join("modules", m.Name)
		if !isEmptyDir(req.Tree, m.Path) || !isFree(r.AdminDir(req.Worktree), repo) || req.UpperEntry != "" && !isFree(req.UpperEntry, repo) {
			continue
		}
		source, err := OpenRepo(ctx, r, m.Name)
		if errors.As(err, new(*NotInitialisedError)) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := populate(ctx, r, source, m, req); err != nil {
			if !isContentError(err) {
				return nil, fmt.Errorf("submodule %s: %w", m.Path, err)
			}
			skipped = append(skipped, Skipped{m.Path, err})
			continue
		}
		nested, err := findRepos(Dir(source))
		if err != nil {
			return nil, err
		}
		if len(nested) > 0 {
			skipped = append(skipped, Skipped{m.Path, &NestedError{len(nested)}})
		}
	}
	return skipped, nil
}

// isEmptyDir reports whether there is an empty directory at a path of a tree, and no symbolic link on the way.
func isEmptyDir(tree, path string) bool {
	at := filepath.Join(tree, path)
	fi, err := os.Lstat(at)
	if err != nil || !fi.IsDir() || !git.ParentsAreDirs(tree, path) {
		return false
	}
	entries, err := os.ReadDir(at)
	return err == nil && len(entries) == 0
}

// isFree reports whether nothing exists at a path below a directory, and no symbolic link or file on the way: restore may
// have unpacked there what an agent had written.
func isFree(top, path string) bool {
	at := top
	for part := range strings.SplitSeq(path, string(filepath.Separator)) {
		at = filepath.Join(at, part)
		fi, err := os.Lstat(at)
		if err != nil {
			return errors.Is(err, fs.ErrNotExist)
		}
		if !fi.IsDir() {
			return false
		}
	}
	return false
}

// isContentError reports whether a submodule cannot be checked out because of its content or configuration.
func isContentError(err error) bool {
	return errors.As(err, new(*MissingCommitError)) || errors.As(err, new(*git.UntrustedFilterError)) || errors.As(err, new(*fsck.Error))
}

// MissingCommitError reports a commit that the repository of a submodule does not have.
type MissingCommitError struct{ Commit, Repo string }

func (e *MissingCommitError) Error() string {
	return fmt.Sprintf("commit %.10s does not exist in %s", e.Commit, e.Repo)
}

// populate checks out one submodule: the files, then its repository, then the link between them.
func populate(ctx context.Context, r, source *git.Repo, m Module, req PopulateRequest) error {
	found, err := source.Lookup(ctx, m.Commit+"^{commit}")
	if err != nil {
		return err
	}
	if found[0].Missing() {
		return &MissingCommitError{m.Commit, source.CommonDir}
	}
	dir := filepath.Join(req.Tree, m.Path)
	err = snapshot.CopyFiles(ctx, source, snapshot.CopyRequest{
		Commit: m.Commit, Dir: dir, ScratchDir: req.ScratchDir, UntrustedConfig: !req.TrustsConfig(),
	})
	if err == nil {
		err = createRepo(ctx, source, PrivateDir(r, req.Worktree, m.Name), dir, m.Commit, filepath.Join(req.ScratchDir, "index"))
	}
	return errors.Join(err, durable.RemoveTree(req.ScratchDir))
}

// PrivateDir returns the path of the repository of a submodule that is checked out in a linked worktree, as git itself
// chooses it.
func PrivateDir(r *git.Repo, worktree, name string) string {
	return filepath.Join(r.AdminDir(worktree), "modules", name)
}

// createRepo creates the repository of a populated submodule. It borrows the objects of source, and has its remote-tracking
// branches and tags. HEAD is detached, as "git submodule update" leaves it.
func createRepo(ctx context.Context, source *git.Repo, dir, tree, commit, index string) error {
	refs, err := source.Refs(ctx, "refs/remotes", "refs/tags")
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(source.CommonDir, "config"))
	if err != nil {
		return err
	}
	settings, err := config.RemoveSecrets(string(text))
	if err != nil {
		return err
	}
	worktree, err := filepath.Rel(dir, tree)
	if err != nil {
		return err
	}
	link, err := filepath.Rel(tree, dir)
	if err != nil {
		return err
	}
	objects, err := filepath.Rel(filepath.Join(dir, "objects"), filepath.Join(source.CommonDir, "objects"))
	if err != nil {
		return err
	}
	for _, sub := range []string{"objects/info", "objects/pack", "refs/heads", "info"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o777); err != nil {
			return err
		}
	}
	for name, content := range map[string]string{
		"HEAD": commit + "\n", "config": settings, "packed-refs": packedRefs(refs), "objects/info/alternates": objects + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666); err != nil {
			return err
		}
	}
	file := filepath.Join(dir, "config")
	if _, err := source.RunWrite(ctx, git.RunOptions{}, "config", "--file", file, "--replace-all", "core.worktree", worktree); err != nil {
		return err
	}
	for _, name := range []string{"shallow", "info/exclude", "info/attributes"} {
		if err := git.CopySmallFile(filepath.Join(source.CommonDir, name), filepath.Join(dir, name)); err != nil && !git.IsNotExist(err) {
			return err
		}
	}
	if err := git.CopyFileWithMtime(index, filepath.Join(dir, "index")); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(tree, ".git"), []byte("gitdir: "+link+"\n"), 0o666)
}

// packedRefs returns the text of a packed-refs file. Symbolic refs such as refs/remotes/origin/HEAD are left out.
func packedRefs(refs map[string]string) string {
	var text strings.Builder
	text.WriteString("# pack-refs with: sorted \n")
	for _, ref := range slices.Sorted(maps.Keys(refs)) {
		if !strings.HasSuffix(ref, "/HEAD") {
			fmt.Fprintf(&text, "%s %s\n", refs[ref], ref)
		}
	}
	return text.String()
}

// AllBorrow reports whether every repository of a submodule below a directory, which may not exist, borrows objects, as those
// do that Populate creates. They hold only what was added to them.
func AllBorrow(modules string) (bool, error) {
	repos, err := findRepos(modules)
	return err == nil && !slices.ContainsFunc(repos, func(dir string) bool {
		_, err := os.Lstat(filepath.Join(dir, "objects", "info", "alternates"))
		return err != nil
	}), err
}

// findRepos lists the repositories of submodules below a directory, whose names may contain slashes, and not those inside of
// another.
func findRepos(dir string) (found []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, ignoreNotExist(err)
	}
	for _, e := range entries {
		at := filepath.Join(dir, e.Name())
		if !e.IsDir() {
			continue
		}
		if is, err := git.IsGitDir(at); err != nil {
			return nil, err
		} else if is {
			found = append(found, at)
			continue
		}
		below, err := findRepos(at)
		if err != nil {
			return nil, err
		}
		found = append(found, below...)
	}
	return found, nil
}
