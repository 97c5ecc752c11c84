package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
)

// readSandboxHeads returns HEAD and the branch of a worktree as a git inside the sandbox has them, by the names "HEAD" and
// "branch", as far as they differ from the real ones.
func readSandboxHeads(r *git.Repo, s git.WorktreeSpec, branch string) map[string]string {
	if overlay.OpaqueEntry(s.UpperDir, s.Name) == "" {
		return nil
	}
	inside := map[string]string{}
	outside, _ := git.ReadSmallFile(r.AdminDir(s.Name), "HEAD")
	head, err := overlay.ReadUpperFile(s.UpperDir, filepath.Join(overlay.EntryIn(s.UpperDir, s.Name), "HEAD"), 1<<12)
	if text := strings.TrimSpace(string(head.Data)); err == nil && head.Found && text != strings.TrimSpace(string(outside)) {
		inside["HEAD"] = text
	}
	tip, err := overlay.ReadUpperFile(s.UpperDir, s.Branch, 1<<12)
	if oid := strings.TrimSpace(string(tip.Data)); err == nil && tip.Found && object.IsOID(oid) && oid != branch {
		inside["branch"] = oid
	}
	return inside
}

// readOperation reads the files of a merge, rebase and the like in progress from the git directory of a worktree. The
// sandbox could have written any of them, so they are read as data: through no link that leads out of the directory, and
// without waiting for a pipe.
func readOperation(entry string) (map[string][]byte, error) {
	root, err := os.OpenRoot(entry)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	files, left := map[string][]byte{}, maxOperationBytes
	add := func(name string) error {
		fi, err := root.Lstat(name)
		if err != nil || !fi.Mode().IsRegular() {
			return nil // a pipe, a link, or gone: git does not write these
		}
		f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		data, err := io.ReadAll(io.LimitReader(f, int64(left)+1))
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		if left -= len(data); left < 0 || len(files) >= maxOperationFiles {
			return overlay.ErrLimitExceeded
		}
		files[name] = data
		return nil
	}
	for _, name := range operationFiles {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	for _, dir := range operationDirs {
		if fi, err := root.Lstat(dir); err != nil || !fi.IsDir() {
			continue
		}
		err := fs.WalkDir(root.FS(), dir, func(name string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
				return nil
			case err != nil:
				return err
			case d.IsDir() || strings.HasSuffix(name, ".lock"):
				return nil
			}
			return add(name)
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// ReadOperation reads the operation in progress (merge, rebase, conflicts) that a captured state holds.
func ReadOperation(ctx context.Context, r *git.Repo, state State) (Operation, error) {
	u := Operation{Files: map[string][]byte{}, HostFiles: map[string][]byte{}, SandboxRefs: map[string]string{}}
	if state.OperationCommit == "" {
		return u, nil
	}
	found, err := r.Lookup(ctx, state.OperationCommit+":conflicts/0")
	if err != nil {
		return u, err
	}
	u.MergedTree = found[0].OID
	out, err := r.RunRead(ctx, git.RunOptions{Reading: r.ReadingOf("listing the files of " + state.OperationCommit)}, "ls-tree", "-r", "-z", state.OperationCommit, "--", "git", "outside", "inside", "conflicts/1", "conflicts/2", "conflicts/3")
	if err != nil {
		return u, err
	}
	var names, oids []string
	for line := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		info, name, ok := strings.Cut(line, "\t")
		fields := strings.Fields(info) // "<mode> <type> <oid>"
		if line == "" || !ok || len(fields) != 3 {
			continue
		}
		if rest, is := strings.CutPrefix(name, "conflicts/"); is {
			stage, file, _ := strings.Cut(rest, "/")
			u.Conflicts = append(u.Conflicts, UnmergedEntry{Mode: fields[0], OID: fields[2], Stage: stage, Path: file})
			continue
		}
		names, oids = append(names, name), append(oids, fields[2])
	}
	contents, err := readBlobs(ctx, r, oids)
	if err != nil {
		return u, err
	}
	for i, name := range names {
		if inside, is := strings.CutPrefix(name, "inside/"); is {
			u.SandboxRefs[inside] = strings.TrimSpace(string(contents[i]))
		} else if file, is := strings.CutPrefix(name, "outside/"); is && isOperationFile(file) {
			u.HostFiles[file] = contents[i]
		} else if file := strings.TrimPrefix(name, "git/"); isOperationFile(file) {
			u.Files[file] = contents[i]
		}
	}
	return u, nil
}

// isOperationFile reports whether a name is that of a file of an operation in progress. A state may be forged,
// and no other file of a git directory is ever written from one.
func isOperationFile(name string) bool {
	if slices.Contains(operationFiles, name) {
		return true
	}
	return path.Clean(name) == name && slices.ContainsFunc(operationDirs, func(dir string) bool { return strings.HasPrefix(name, dir+"/") })
}

// readBlobs reads the contents of several blobs with one git.
func readBlobs(ctx context.Context, r *git.Repo, oids []string) ([][]byte, error) {
	if len(oids) == 0 {
		return nil, nil
	}
	t, err := r.OpenCatFile(ctx)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	contents := make([][]byte, len(oids))
	err = t.QueryEach(ctx, "contents", oids, func(i int, a git.CatFileAnswer) error {
		switch {
		case a.Err != nil:
			return a.Err
		case a.Missing():
			return fmt.Errorf("git cat-file answered %q", strings.TrimSuffix(a.Line, "\n"))
		}
		contents[i] = make([]byte, a.Size)
		if _, err := io.ReadFull(a.Body, contents[i]); err != nil {
			return t.ExitError(err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return contents, nil
}

// writeOperation replaces the operation in progress in the git directory of a worktree by these files. No git may run
// there.
func writeOperation(entry string, files map[string][]byte) error {
	root, err := os.OpenRoot(entry)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range slices.Concat(operationFiles, operationDirs) {
		if _, err := root.Lstat(name); err != nil {
			continue // missing, or behind a link that leads out
		}
		if err := root.RemoveAll(name); err != nil {
			return err
		}
	}
	for name, data := range files {
		if err := root.MkdirAll(path.Dir(name), 0o777); err != nil {
			return err
		}
		if err := root.WriteFile(name, data, 0o666); err != nil {
			return err
		}
	}
	return nil
}
