package layer

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/checkout"
	"github.com/git-agency/git-agency/gitagency/internal/git/fsck"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// DeltaRequest says which files Delta writes, and where.
type DeltaRequest struct {
	Dir     string // required: empty directory for the files and whiteouts
	Index   string // required: path of the index to write; beside it is a directory <path>.git meanwhile
	Tree    string // required: id of the tree whose files an overlay has with Dir above the layer
	SkipLFS bool   // Git LFS downloads nothing

	// UntrustedConfig: an untrusted process can write to the repository's configuration, so nothing in it applies, and nothing is
	// fetched. A file that needs a filter configured only there is refused with a *git.UntrustedFilterError.
	UntrustedConfig bool
}

// Delta writes into a directory what an overlay must have above the layer so that its files are those of a tree: changed and
// new files, and whiteouts for all others. The index of all files has the stat data of the files where they are. After an error
// the directory may have a part of them.
func (l Layer) Delta(ctx context.Context, r *git.Repo, req DeltaRequest) error {
	r, err := withSharedConfig(ctx, r, !req.UntrustedConfig)
	if err != nil {
		return err
	}
	if err := fsck.CheckTree(ctx, r, req.Tree, ""); err != nil { // an agent may have made it
		return err
	}
	_, err = l.writeDelta(ctx, r, req)
	return err
}

// writeDelta is Delta for a repository with the settings of new worktrees and a tree that may be checked out. It returns the
// number of entries of the index.
func (l Layer) writeDelta(ctx context.Context, r *git.Repo, req DeltaRequest) (entries int, err error) {
	began := time.Now()
	gitDir, env, err := makeGitDir(r, req.Index, req.Tree, !req.UntrustedConfig)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, durable.RemoveTree(gitDir)) }()
	at := git.RunOptions{GitDir: gitDir, WorkTree: req.Dir, Env: env, Config: checkout.PlainIndexArgs, LazyFetch: !req.UntrustedConfig}
	names, err := l.differences(ctx, r, at, req.Tree)
	if err != nil {
		return 0, err
	}
	format := object.FormatOf(req.Tree)
	base, err := l.readIndex(format)
	if err != nil {
		return 0, err
	}
	dirs := attributeDirs(names)
	if req.UntrustedConfig && len(names) > 0 {
		checked := names
		if len(dirs) > 0 {
			checked = nil // all files
		}
		if err := r.CheckSmudgeFilters(ctx, git.WorktreeSpec{}, at, req.Tree, checked); err != nil {
			return 0, err
		}
	}
	// Git writes no file of an entry that the index has already, and does not miss it.
	if err := writeKnownEntries(base, dirs, filepath.Join(gitDir, "index")); err != nil {
		return 0, err
	}
	if err := checkout.ByGit(ctx, r, at, req.Tree, req.SkipLFS); err != nil {
		return 0, err
	}
	x, err := r.ReadEditableIndex(ctx, gitDir, format)
	if err != nil {
		return 0, err
	}
	gone, fresh := compareIndexes(base, x)
	if err := writeWhiteouts(x, gone, req.Dir); err != nil {
		return 0, err
	}
	return x.Count, writeIndex(x, fresh, req.Dir, req.Index, began)
}

// differences lists the names of the entries in which the index of the layer and a tree differ. The tree of the layer itself
// need not exist any more.
func (l Layer) differences(ctx context.Context, r *git.Repo, at git.RunOptions, tree string) ([]string, error) {
	at.Env, at.WorkTree = append(slices.Clone(at.Env), "GIT_INDEX_FILE="+l.Index), ""
	at.Reading = r.CheckoutReading("comparing a layer with " + tree)
	out, err := r.RunRead(ctx, at, "diff-index", "--cached", "--name-only", "-z", "--no-renames", "--ignore-submodules=none", tree)
	if err != nil {
		return nil, err
	}
	return strings.FieldsFunc(string(out), func(c rune) bool { return c == 0 }), nil
}

func (l Layer) readIndex(format object.Format) (*index.Editable, error) {
	fi, err := os.Lstat(l.Index)
	if err != nil {
		return nil, err
	}
	data, err := durable.ReadFile(l.Index, index.MaxSize)
	if err != nil {
		return nil, err
	}
	x, err := index.ParseEditable(data, format)
	if err != nil {
		return nil, &DamagedError{Path: filepath.Dir(l.Index), Err: err}
	}
	x.ModTime = fi.ModTime()
	return x, nil
}

// attributeDirs returns the directories, with a slash, of the attribute files among names: the other files in them may be
// converted in another way. The top directory is "".
func attributeDirs(names []string) []string {
	var dirs []string
	for _, name := range names {
		if checkout.IsAttributesFile(name) {
			dirs = append(dirs, strings.TrimSuffix(name, index.AttributesFile))
		}
	}
	return dirs
}

// writeKnownEntries writes an index with the entries that are in none of the directories. Its mtime is that of the original, so
// that git trusts the stat data as it would there.
func writeKnownEntries(x *index.Editable, without []string, path string) error {
	data := []byte(nil)
	if len(without) == 0 {
		data = x.Encode()
	} else {
		known := index.File{Format: x.Format, Extended: x.Extended}
		for i, start := range x.Starts {
			in := func(dir string) bool { return strings.HasPrefix(string(x.EntryAt(i).Name), dir) }
			if slices.ContainsFunc(without, in) {
				continue
			}
			end := len(x.Body)
			if i+1 < x.Count {
				end = x.Starts[i+1]
			}
			known.Body = append(known.Body, x.Body[start:end]...)
			known.Count++
		}
		data = known.Encode()
	}
	if err := os.WriteFile(path, data, 0o666); err != nil {
		return err
	}
	return os.Chtimes(path, x.ModTime, x.ModTime)
}

// isOnDisk reports whether an entry has a file, or is a submodule, whose directory is there.
func isOnDisk(e index.Entry) bool { return !e.SkipWorktree }

// compareIndexes returns the entries of base that are not on disk any more, and those of x whose files are not those of base.
func compareIndexes(base, x *index.Editable) (gone, fresh []index.Entry) {
	at := 0
	for e := range x.AllEntries() {
		var was index.Entry
		found := false
		for ; at < base.Count && !found; at++ {
			was = base.EntryAt(at)
			order := bytes.Compare(was.Name, e.Name)
			if order > 0 {
				break
			}
			if found = order == 0; !found && isOnDisk(was) {
				gone = append(gone, was)
			}
		}
		switch {
		case found && isOnDisk(was) && !isOnDisk(e):
			gone = append(gone, was)
		case isOnDisk(e) && (!found || !isOnDisk(was) || !bytes.Equal(was.OID, e.OID) || !bytes.Equal(was.Stat, e.Stat)):
			fresh = append(fresh, e)
		}
	}
	for ; at < base.Count; at++ {
		if was := base.EntryAt(at); isOnDisk(was) {
			gone = append(gone, was)
		}
	}
	return gone, fresh
}

// writeWhiteouts hides the files of entries that are gone. x has all entries that are left. A directory without any gets one
// whiteout.
func writeWhiteouts(x *index.Editable, gone []index.Entry, dir string) error {
	made := map[string]bool{}
	for _, e := range gone {
		for _, name := range withParents(string(e.Name)) {
			kind := kindIn(x, name)
			if kind == directory {
				continue
			}
			if kind == nothing && !made[name] {
				made[name] = true
				if err := writeWhiteout(dir, name); err != nil {
					return err
				}
			}
			break // a whiteout or a new file hides all that was below it
		}
	}
	return nil
}

func writeWhiteout(dir, name string) error {
	at := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o777); err != nil {
		return err
	}
	if err := unix.Mknod(at, unix.S_IFCHR, 0); err != nil {
		return &fs.PathError{Op: "make a whiteout", Path: at, Err: err}
	}
	return nil
}

// withParents returns the directories that a name is in, the top one first, and the name itself.
func withParents(name string) []string {
	var all []string
	for ; name != "."; name = path.Dir(name) {
		all = append(all, name)
	}
	slices.Reverse(all)
	return all
}

// kind is what a name is on disk after a checkout.
type kind int

const (
	nothing kind = iota
	directory
	file
)

// kindIn returns what a name is after the checkout of an index.
func kindIn(x *index.Editable, name string) kind {
	if i, found := x.Find(name); found && isOnDisk(x.EntryAt(i)) {
		if x.EntryAt(i).Mode == object.ModeGitlink {
			return directory
		}
		return file
	}
	for i, _ := x.Find(name + "/"); i < x.Count; i++ {
		e := x.EntryAt(i)
		if !strings.HasPrefix(string(e.Name), name+"/") {
			break
		}
		if isOnDisk(e) {
			return directory
		}
	}
	return nothing
}
