// Package submodule works with the submodules of a worktree that are initialised in the repository: it checks them out
// without the network, and finds out whether a checkout holds anything that the repository of the submodule lacks.
//
// The repository of a submodule is <common dir>/modules/<name>, which belongs to the user. A worktree that is populated here
// gets a repository of its own in git's entry of the worktree, where git itself puts it; it borrows the objects of the
// user's. The package must never run git with the configuration of that one: an agent can write it.
package submodule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// Module is a submodule in the index of a worktree.
type Module struct {
	Name   string // name in .gitmodules
	Path   string // path in the worktree
	Commit string // commit in the index
}

// List lists the submodules in the index of a worktree that .gitmodules in its tree names, by path. A tree without
// .gitmodules costs one system call.
func List(ctx context.Context, r *git.Repo, worktree, tree string) ([]Module, error) {
	names, err := readNames(tree)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	staged, err := r.ReadEditableIndex(ctx, r.AdminDir(worktree), r.ObjectFormat())
	if err != nil {
		return nil, err
	}
	var found []Module
	for e := range staged.AllEntries() {
		if name := names[string(e.Name)]; e.Mode == object.ModeGitlink && e.Stage == 0 && name != "" {
			found = append(found, Module{Name: name, Path: string(e.Name), Commit: object.HexOID(e.OID)})
		}
	}
	return found, nil
}

// ListCommit lists the submodules of a commit that .gitmodules in a tree names, by path.
func ListCommit(ctx context.Context, r *git.Repo, commit, tree string) ([]Module, error) {
	names, err := readNames(tree)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	out, err := r.RunRead(ctx, git.RunOptions{Reading: r.ReadingOf("listing the submodules of " + commit)}, "ls-tree", "-r", "-z", commit)
	if err != nil {
		return nil, err
	}
	var found []Module
	for line := range strings.SplitSeq(string(out), "\x00") {
		fields, path, _ := strings.Cut(line, "\t")
		mode, rest, _ := strings.Cut(fields, " ")
		if name := names[path]; mode == object.ModeGitlinkText && name != "" {
			found = append(found, Module{Name: name, Path: path, Commit: strings.TrimPrefix(rest, "commit ")})
		}
	}
	return found, nil
}

// Dir returns the directory of the repositories of the submodules of a repository.
func Dir(r *git.Repo) string { return filepath.Join(r.CommonDir, "modules") }

// readNames returns the names of the submodules in the .gitmodules of a tree, by path. It ignores a file that git would not
// read, and names that lead out of the directory of the repositories.
func readNames(tree string) (map[string]string, error) {
	top, err := beneath.Open(tree)
	if err != nil {
		return nil, err
	}
	defer top.Close()
	file, _, err := top.OpenFile(".gitmodules")
	if beneath.IsGone(err) || errors.As(err, new(*beneath.NotRegularError)) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	const most = 1 << 20
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil || len(data) > most {
		return nil, err
	}
	names, _ := ParseNames(string(data))
	maps.DeleteFunc(names, func(_, name string) bool { return !isSafeName(name) })
	return names, nil
}

// ParseNames returns the names of the submodules in the text of a .gitmodules file, by path, and their URLs, by name; none of
// a file with syntax errors.
func ParseNames(text string) (names, urls map[string]string) {
	entries, err := config.ParsePlainFile(text)
	if err != nil {
		return nil, nil // git would not read it either
	}
	names, urls = map[string]string{}, map[string]string{}
	for _, e := range entries {
		key, is := strings.CutPrefix(e.Key, "submodule.")
		if name, ends := strings.CutSuffix(key, ".path"); is && ends {
			names[e.Value] = name
		}
		if name, ends := strings.CutSuffix(key, ".url"); is && ends {
			urls[name] = e.Value
		}
	}
	return names, urls
}

// isSafeName reports whether the name of a submodule stays below the directory of the repositories, as git demands.
func isSafeName(name string) bool {
	return filepath.IsLocal(name) && !slices.ContainsFunc(strings.FieldsFunc(name, func(c rune) bool { return c == '/' || c == '\\' }), func(part string) bool {
		return part == ".." || part == "."
	}) && !strings.ContainsAny(name, "\n\x00")
}

// NotInitialisedError reports that a submodule has no repository below <common dir>/modules, or that the configuration of the
// repository does not name it.
type NotInitialisedError struct{ Name string }

func (e *NotInitialisedError) Error() string {
	return fmt.Sprintf("submodule %s is not initialised in the repository", e.Name)
}

// OpenRepo opens the repository of a submodule in the user's repository. The error is a *NotInitialisedError where there is
// none, or "git submodule deinit" was run.
func OpenRepo(ctx context.Context, r *git.Repo, name string) (*git.Repo, error) {
	if active, err := isConfigured(r, name); err != nil || !active {
		return nil, cmp.Or(err, error(&NotInitialisedError{name}))
	}
	return openInitialised(ctx, r, name)
}

// openInitialised is OpenRepo for a submodule that the configuration of the repository need not name.
func openInitialised(ctx context.Context, r *git.Repo, name string) (*git.Repo, error) {
	dir := filepath.Join(Dir(r), name)
	if !isSafeName(name) {
		return nil, &NotInitialisedError{name}
	}
	if is, err := git.IsGitDir(dir); err != nil || !is {
		return nil, cmp.Or(err, error(&NotInitialisedError{name}))
	}
	return openAt(ctx, r, name, dir)
}

// openAt opens the repository of a submodule at a git directory of the user.
func openAt(ctx context.Context, r *git.Repo, name, dir string) (*git.Repo, error) {
	// The worktree that core.worktree names may not exist; git would end at once.
	env := []string{"GIT_WORK_TREE=" + dir}
	m, err := git.Open(ctx, dir, slices.Concat(r.Env, env, []string{"GIT_DIR=" + dir}))
	if err != nil {
		return nil, fmt.Errorf("submodule %s: %w", name, err)
	}
	m.Env, m.ReadLimits, m.Inherit, m.LockWait = slices.Concat(m.Env, env), r.ReadLimits, r.Inherit, r.LockWait
	return m, nil
}

// isConfigured reports whether the configuration of the repository names a submodule, as it does from "git submodule init"
// to "git submodule deinit".
func isConfigured(r *git.Repo, name string) (bool, error) {
	data, err := os.ReadFile(filepath.Join(r.CommonDir, "config"))
	if err != nil {
		return false, ignoreNotExist(err)
	}
	return slices.ContainsFunc(config.ParseAnyFile(string(data)), func(e config.FileEntry) bool {
		return e.Key == "submodule."+name+".url" || e.Key == "submodule."+name+".active"
	}), nil
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
