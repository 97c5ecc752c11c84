package core

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"
	"sync"

	"github.com/git-agency/git-agency/gitagency/internal/archive"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// CapturedCommit is a commit that may be a capture.
type CapturedCommit struct {
	Parents []string
	Tree    string

	byTool  bool // its author is git-agency; an agent can choose that author too
	message string
}

// IsCaptureOf reports whether the commit is a capture of the sandbox of an invocation.
func (c CapturedCommit) IsCaptureOf(id string) bool {
	return c.byTool && snapshot.InvocationOf(c.message) == id && len(c.Parents) > 0
}

// IsStaged reports whether the commit holds the index of a capture.
func (c CapturedCommit) IsStaged() bool {
	return c.byTool && strings.TrimSpace(c.message) == snapshot.StagedSubject
}

// ReadCapture reads a commit that may be a capture.
func ReadCapture(ctx context.Context, repo *git.Repo, commit string) (CapturedCommit, error) {
	out, err := repo.RunRead(ctx, git.RunOptions{}, "rev-list", "--no-commit-header", "--max-count=1", "--format=%an%x00%ae%x00%P%x00%T%x00%B", commit)
	if err != nil {
		return CapturedCommit{}, err
	}
	fields := strings.SplitN(string(out), "\x00", 5)
	if len(fields) != 5 {
		return CapturedCommit{}, &fault.NoCommitError{Name: commit}
	}
	return CapturedCommit{
		byTool:  fields[0] == ToolIdentity.Name && fields[1] == ToolIdentity.Email,
		Parents: strings.Fields(fields[2]), Tree: fields[3], message: fields[4],
	}, nil
}

// restoredGit is the name in a restored tree of an entry that was in the place of the .git file of the sandbox.
const restoredGit = ".git.discarded"

// UnpackTrash writes the archive of an ended invocation into the tree of a new one, over the files of its commit, and the
// repositories of its submodules into the directory modules, whose parent exists.
func (r *Repository) UnpackTrash(ctx context.Context, from, id, modules string) error {
	file := r.Store.TrashArchivePath(r.ID, from)
	sections, err := archive.Sections(ctx, file)
	if err != nil || len(sections) == 0 {
		return err
	}
	tree := r.Store.SandboxTreePath(r.ID, id)
	layers, err := r.OverlayTree(id)
	if err != nil {
		return err
	}
	var whiteouts []string
	if layers != nil {
		tree = layers.Upper // what is below it is in no archive
		if whiteouts, err = overlay.Whiteouts(tree); err != nil {
			return err
		}
	}
	// Submodules and their repositories refer to each other by paths with the id in it.
	rewrite := func(at string, content []byte) []byte {
		if path.Base(at) == ".git" && bytes.HasPrefix(content, []byte("gitdir: ")) || path.Base(at) == "config" {
			return bytes.ReplaceAll(content, []byte("/"+from+"/"), []byte("/"+id+"/"))
		}
		return content
	}
	rewriteLinks := func(at string, content []byte) []byte {
		if path.Base(at) == ".git" {
			return rewrite(at, content)
		}
		return content
	}
	if whole, there := sections[archivedTree]; there {
		warnGit := sync.OnceFunc(func() {
			r.Warn("the .git of sandbox %s was not that of its worktree; it is restored as %s", from, restoredGit)
		})
		err := r.unpackInto(ctx, file, tree, whole, archive.UnpackRequest{Section: archivedTree, Rewrite: rewriteLinks, Rename: func(name string) string {
			switch name {
			case guard.AgencyDir:
				return ""
			case ".git":
				warnGit()
				return restoredGit
			}
			return name
		}})
		if err == nil {
			err = overlay.MakeOpaque(whiteouts)
		}
		if err != nil {
			return err
		}
	}
	for _, layer := range []string{archivedLayer, archivedClone} {
		if _, there := sections[layer]; there {
			r.Warn("git state of sandbox %s that was refused is not restored; it is in %s, below %s", from, file, layer)
		}
	}
	if _, there := sections[archivedModules]; !there {
		return nil
	}
	if err := durable.Mkdir(modules, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return r.unpackInto(ctx, file, modules, false, archive.UnpackRequest{Section: archivedModules, Rewrite: rewrite, LeaveOut: func(at string) bool {
		return path.Ext(at) == ".lock" // of a command that was killed
	}})
}

// unpackInto unpacks a section of an archive into a directory; with clean it first removes everything but .git.
func (r *Repository) unpackInto(ctx context.Context, file, dir string, clean bool, req archive.UnpackRequest) (err error) {
	resolved, err := guard.Resolve(dir)
	if err != nil {
		return err
	}
	tree, err := guard.OpenTree(resolved)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tree.Close()) }()
	if req.Top, err = tree.OpenTop(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, req.Top.Close()) }()
	if clean {
		names, err := req.Top.Names()
		if err != nil {
			return err
		}
		for _, name := range names {
			if name == ".git" {
				continue
			}
			if err := req.Top.RemoveAll(name); err != nil {
				return err
			}
		}
	}
	skipped, err := archive.Unpack(ctx, file, req)
	for _, s := range skipped {
		r.Warn("%s was %s; it is not restored", guard.QuotePath(s.Path), s.Why)
	}
	return err
}
