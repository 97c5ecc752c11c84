package status

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/fsck"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
	"golang.org/x/sys/unix"
)

// hashFiles reads files and returns their modes and blob ids. Each file is opened once, below the handle of the worktree,
// and hashed from that descriptor: a symlink that takes its place meanwhile is never followed. A file that has gone is not
// in the result.
//
// Files that git would not convert are hashed here. The others are copied into a private work tree, where git converts
// them: no git process ever opens a file of the worktree. seed are the index entries of some of the files, because the
// conversion of line endings depends on them.
func (v *worktreeScan) hashFiles(ctx context.Context, names []string, seed []int) (map[string]object.LeafChange, error) {
	h := v.newFileHasher(seed)
	if v.spec.IndexCache != "" {
		if err := v.loadIndexCache(); err != nil {
			return nil, err
		}
	}
	if err := h.addFiles(ctx, names); err != nil {
		return nil, err
	}
	err := h.hashStaged(ctx)
	return h.leaves, err
}

// hashUnconverted is hashFiles without git: it returns the ids that the files would have if git converted none of them.
func (v *worktreeScan) hashUnconverted(ctx context.Context, names []string, seed []int) (map[string]object.LeafChange, error) {
	h := v.newFileHasher(seed)
	h.inMemory, h.unconverted = true, true
	err := h.addFiles(ctx, names)
	return h.leaves, err
}

func (v *worktreeScan) newFileHasher(seed []int) *fileHasher {
	h := &fileHasher{worktreeScan: v, entries: map[string]*index.Entry{}, leaves: map[string]object.LeafChange{}, inMemory: v.fitIntoMemory(seed)}
	for _, i := range seed {
		h.entries[string(v.entries[i].Name)] = &v.entries[i]
	}
	return h
}

// Bounds of the files that are kept in memory until they are written.
const (
	maxMemoryFiles = 20_000
	maxMemoryBytes = 32 << 20
)

// fitIntoMemory reports whether the files that are to be hashed may be kept in memory.
func (v *worktreeScan) fitIntoMemory(seed []int) bool {
	total := int64(0)
	for _, i := range seed {
		total += v.result.stats[i].Size
	}
	for _, f := range v.untrackedFiles {
		total += f.stat.Size
	}
	return len(seed)+len(v.untrackedFiles) <= maxMemoryFiles && total <= maxMemoryBytes
}

// fileHasher is one hashFiles.
type fileHasher struct {
	*worktreeScan
	entries  map[string]*index.Entry // present index entries of files
	leaves   map[string]object.LeafChange
	inMemory bool  // files that need no conversion are read into memory
	total    int64 // bytes of all files so far

	unconverted bool // files are hashed as they are, also those that git might convert

	stage  *staging // work tree with copies of files; nil until the first
	staged []string // files in it
	stats  map[string]unix.Stat_t
	taken  int64 // bytes of the blobs that git made of them, so far
}

func (h *fileHasher) addFiles(ctx context.Context, names []string) error {
	for _, name := range names {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := h.addFile(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// addFile hashes one file, or copies it into the staging work tree.
func (h *fileHasher) addFile(ctx context.Context, name string) error {
	if index.PathProblem([]byte(name), 0, false) != "" {
		return &RejectedNameError{Path: h.tree.Join(name)}
	}
	if h.addCached(name) {
		return nil
	}
	if h.inMemory && (h.unconverted || !h.mayConvert(name)) {
		content, st, err := h.tree.ReadFile(name, maxMemoryBytes)
		if err != nil {
			return h.addUnreadable(ctx, name, err)
		}
		if content != nil {
			if err := h.countBytes(name, &st); err != nil {
				return err
			}
			h.addBlob(name, h.fileMode(name, &st), content) // shorter: it was truncated, which checkStable finds
			h.recordCached(name, &st)
			return nil
		}
	}
	f, st, err := h.tree.OpenFile(name)
	if err != nil {
		return h.addUnreadable(ctx, name, err)
	}
	defer f.Close()
	if err := h.countBytes(name, &st); err != nil {
		return err
	}
	return h.addStaged(ctx, name, f, &st)
}

// addUnreadable adds a symlink, leaves out a file that is gone, and returns any other error.
func (h *fileHasher) addUnreadable(ctx context.Context, name string, err error) error {
	switch {
	case errors.As(err, new(*beneath.NotRegularError)):
		return h.addLink(ctx, name)
	case beneath.IsGone(err):
		return nil
	case errors.Is(err, fs.ErrPermission):
		return &UnreadableError{Path: h.tree.Join(name)}
	}
	return err
}

// countBytes refuses a sparse file, and one that exceeds the limit of all files together.
func (h *fileHasher) countBytes(name string, st *unix.Stat_t) error {
	if isSparseFile(st) {
		return &SparseFileError{Path: h.tree.Join(name), Size: st.Size}
	}
	h.total += st.Size
	return h.repo.ReadLimits.CheckSize("the size of the changed and untracked files in "+h.spec.Dir, readlimit.Inflated, h.total)
}

// addLink adds a symlink. Anything else that has taken its place counts as gone.
func (h *fileHasher) addLink(ctx context.Context, name string) error {
	target, err := h.tree.Readlink(name)
	if beneath.IsGone(err) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	if err != nil {
		return err
	}
	if index.PathProblem([]byte(name), 0, true) != "" { // git refuses symlinks under some names
		return &RejectedNameError{Path: h.tree.Join(name)}
	}
	// Git takes the target of a committed symlink for attributes when it checks out the commit.
	if err := fsck.CheckAttributes(ctx, h.repo, fsck.NewRuleFile(name, []byte(target), h.head)); err != nil {
		return err
	}
	h.addBlob(name, object.ModeSymlink, []byte(target))
	return nil
}

func (h *fileHasher) addBlob(name string, mode uint32, content []byte) {
	blob := object.Raw{Kind: "blob", OID: object.HashObject(h.format, "blob", content), Content: content}
	h.keepBlob(blob)
	h.leaves[name] = object.LeafChange{Mode: mode, OID: blob.OID, Path: name}
}

// keepBlob keeps a blob in memory until it is written.
func (h *fileHasher) keepBlob(blob object.Raw) {
	if h.blobs == nil {
		h.blobs = map[string]object.Raw{}
	}
	h.blobs[string(blob.OID)] = blob
}

// fileMode returns the mode of a regular file in a tree, by the rules of git for file systems without executable bits or
// symlinks.
func (h *fileHasher) fileMode(name string, st *unix.Stat_t) uint32 {
	e := h.entries[name]
	switch {
	case e != nil && e.Mode == object.ModeSymlink && !h.repo.ConfigBool("core.symlinks", true):
		return object.ModeSymlink
	case h.repo.ConfigBool("core.filemode", true):
		if st.Mode&unix.S_IXUSR != 0 {
			return object.ModeExecutable
		}
	case e != nil && e.Mode == object.ModeExecutable:
		return object.ModeExecutable
	}
	return object.ModeFile
}

// mayConvert reports whether git might convert the content of a file: by core.autocrlf, or by an attribute that any
// attribute file could set.
func (v *worktreeScan) mayConvert(name string) bool {
	if v.attributes == nil {
		v.attributes = map[string]bool{"": v.mayConvertAll()}
	}
	return v.hasAttributes(path.Dir(name))
}

// hasAttributes reports whether attributes may apply to the files in a directory.
func (v *worktreeScan) hasAttributes(dir string) bool {
	has, known := v.attributes[dir]
	if !known {
		above := ""
		if dir != "." {
			above = path.Dir(dir)
		}
		var st unix.Stat_t
		has = v.hasAttributes(above) || v.tree.Lstat(path.Join(dir, ".gitattributes"), &st) == nil
		v.attributes[dir] = has
	}
	return has
}

// mayConvertAll reports whether git might convert any file of the worktree.
func (v *worktreeScan) mayConvertAll() bool {
	if s, set := v.repo.Config.Last("core.autocrlf"); set && (strings.EqualFold(s.Value, "input") || v.repo.ConfigBool("core.autocrlf", false)) {
		return true
	}
	return slices.ContainsFunc(ExternalAttributeFiles(v.repo), func(file string) bool {
		fi, err := os.Stat(file)
		return err == nil && fi.Size() > 0
	})
}

// addStaged copies a file into the staging work tree.
func (h *fileHasher) addStaged(ctx context.Context, name string, f *os.File, st *unix.Stat_t) error {
	if h.stage == nil {
		p, err := h.scratch()
		if err != nil {
			return err
		}
		if h.stage, err = newStaging(p.WorkTree, h.repo, h.head); err != nil {
			return err
		}
		h.stats = map[string]unix.Stat_t{}
	}
	if err := h.stage.addAttributes(ctx, h.tree, path.Dir(name)); err != nil {
		return err
	}
	h.staged, h.stats[name] = append(h.staged, name), *st
	return h.stage.addFile(ctx, name, f, st)
}

// hashStaged has git convert the staged files, with the user's filters, to blobs, unless that exceeded a limit before.
func (h *fileHasher) hashStaged(ctx context.Context) error {
	if h.stage == nil {
		return nil
	}
	input := h.stagedDigest()
	err := h.knownVerdict(input)
	if err == nil {
		err = h.rememberVerdict(input, h.convertStaged(ctx))
	}
	return errors.Join(err, h.stage.close())
}

func (h *fileHasher) convertStaged(ctx context.Context) error {
	p, err := h.scratch()
	if err != nil {
		return err
	}
	if err := h.repo.CheckCleanFilters(ctx, h.spec, p, h.staged); err != nil {
		return err
	}
	plain, filtered, err := h.splitByFilter(ctx, p)
	if err != nil {
		return err
	}
	if err := h.convert(ctx, p, plain); err != nil || len(filtered) == 0 {
		return err
	}
	if p, err = filterOptions(h.repo, h.spec, h.head, p); err != nil {
		return err
	}
	return h.convert(ctx, p, filtered)
}

// splitByFilter separates the staged files to which a filter of the user's applies.
func (h *fileHasher) splitByFilter(ctx context.Context, p git.RunOptions) (plain, filtered []string, err error) {
	filters, err := h.repo.FiltersOf(ctx, p, h.repo.CleanFilters(), h.staged)
	for _, name := range h.staged {
		if filters[name] == "" {
			plain = append(plain, name)
		} else {
			filtered = append(filtered, name)
		}
	}
	return plain, filtered, err
}

// convert has git convert copied files, and takes over the blobs that it made of them.
func (h *fileHasher) convert(ctx context.Context, p git.RunOptions, names []string) error {
	if len(names) == 0 {
		return nil
	}
	idx, err := os.CreateTemp(filepath.Join(p.GitDir, outputDir), "read-")
	if err != nil {
		return err
	}
	_, err = idx.Write(h.seedIndex(names).Encode())
	if err := errors.Join(err, idx.Close()); err != nil {
		return err
	}
	p.Env = append(slices.Clone(p.Env), "GIT_INDEX_FILE="+idx.Name())
	p.Stdin = strings.Join(names, "\x00") + "\x00"
	if _, err := h.repo.RunWrite(ctx, p, "update-index", "--add", "--remove", "--replace", "-z", "--stdin"); err != nil {
		return err
	}
	return h.takeConverted(ctx, p, filepath.Base(idx.Name()))
}

// seedIndex returns an index with the present entries of some staged files.
func (h *fileHasher) seedIndex(names []string) index.File {
	known := index.File{Format: h.format}
	for _, name := range slices.SortedFunc(slices.Values(names), strings.Compare) {
		e := h.entries[name]
		if e == nil || e.Mode == object.ModeGitlink {
			continue
		}
		known.Append(index.StatWithMode(e.Mode), e.OID, e.Name)
	}
	return known
}
