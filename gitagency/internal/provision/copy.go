package provision

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// Destination is the tree of a new sandbox, in which no program runs yet.
type Destination struct {
	Tree        string         // required: canonical path
	Overlay     *overlay.Tree  // of which the tree consists, if it is an overlay; else nil
	TrustConfig bool           // as in git.WorktreeSpec
	Progress    func(Progress) // called after each file, never concurrently; may be nil
}

// Progress is the progress of a copy.
type Progress struct {
	Files int   // number of files and symlinks copied
	Bytes int64 // their size
}

// Result reports which of the selected files were not copied.
type Result struct {
	NotIgnored []string // entries that the rules in the sandbox do not ignore, so that they would be uncommitted changes
	InTheWay   []string // entries in whose place, or in that of a parent directory, the sandbox has something else
	Special    []string // named pipes, sockets and devices
}

// UnreadableError reports a file that is to be copied and cannot be read.
type UnreadableError struct {
	Path string // relative to the worktree
	Err  error
}

func (e *UnreadableError) Error() string {
	pattern := "!/" + strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(e.Path)
	return fmt.Sprintf("agency.copy: %s cannot be read: %v; make it readable, or leave it out: git config --add agency.copy %s", quote.Path(e.Path), withoutPath(e.Err), quote.Shell(pattern))
}

func (e *UnreadableError) Unwrap() error { return e.Err }

// withoutPath returns the cause of an error of a file system operation.
func withoutPath(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// unreadable wraps an error of reading a path of the worktree.
func unreadable(name string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return &UnreadableError{Path: name, Err: err}
	}
	return err
}

// CopyTo copies the selected files into the tree of a sandbox, with their permissions and modification times. Files that
// the sandbox has already stay as they are. Symlinks are copied as they are. Files that disappear meanwhile are left out. After an
// error some of the files may have been copied.
func (s Selection) CopyTo(ctx context.Context, repo *git.Repo, to Destination) (_ Result, err error) {
	if len(s.entries) == 0 {
		return Result{}, nil
	}
	spec := git.WorktreeSpec{Dir: to.Tree, Overlay: to.Overlay, TrustConfig: to.TrustConfig}
	rules, err := status.OpenIgnoreRules(repo, spec, to.Tree)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, rules.Close()) }()
	lower, err := openLower(to)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, lower.close()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := copier{ctx: ctx, lower: lower, fail: cancel, patterns: s.patterns, progress: to.Progress, idle: make(chan struct{}, runtime.GOMAXPROCS(0)-1)}
	from, err := openTop(s.tree)
	if err != nil {
		return Result{}, err
	}
	defer from.Close()
	into, err := openTop(spec.WriteDir())
	if err != nil {
		return Result{}, err
	}
	defer into.Close()
	var group sync.WaitGroup
	for _, e := range s.entries {
		ignored, err := rules.IsIgnored(e.name, e.isDir)
		if err != nil {
			cancel(err)
			break
		}
		if !ignored {
			c.result.NotIgnored = append(c.result.NotIgnored, e.name)
			continue
		}
		c.run(&group, func() error { return c.copyEntry(from, into, e) })
	}
	group.Wait()
	for _, names := range [][]string{c.result.InTheWay, c.result.Special} {
		slices.Sort(names) // entries are copied in no particular order
	}
	return c.result, context.Cause(ctx)
}

// openTop opens the top directory of a tree.
func openTop(tree string) (*guard.DirHandle, error) {
	t, err := guard.OpenTree(tree)
	if err != nil {
		return nil, err
	}
	top, err := t.OpenTop()
	return top, errors.Join(err, t.Close())
}

// copier is one CopyTo.
type copier struct {
	ctx      context.Context
	fail     context.CancelCauseFunc // ends the copy with an error
	patterns *patterns
	progress func(Progress)
	lower    *lowerFiles   // files that the sandbox has already, besides those in the directory that is written to
	idle     chan struct{} // has room for each further goroutine that may copy
	noClone  atomic.Bool   // the file system cannot share the blocks of files

	whole bool                   // git directories are copied too, and the owner can read all copies
	omit  func(path string) bool // paths of which only an empty file or directory is made; may be nil

	mutex  sync.Mutex
	done   Progress
	result Result
}

// run calls do, in another goroutine if one is idle.
func (c *copier) run(group *sync.WaitGroup, do func() error) {
	call := func() {
		if err := do(); err != nil {
			c.fail(err)
		}
	}
	select {
	case c.idle <- struct{}{}:
		group.Go(func() {
			defer func() { <-c.idle }()
			call()
		})
	default:
		call()
	}
}

// note adds a path to a list of the result.
func (c *copier) note(list *[]string, name string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	*list = append(*list, name)
}

// copyEntry copies an entry of the selection, and makes its missing parent directories.
func (c *copier) copyEntry(from, into *guard.DirHandle, e entry) error {
	if err := context.Cause(c.ctx); err != nil {
		return err
	}
	parent, name := path.Split(e.name)
	from, err := from.OpenPath(path.Clean(parent))
	if isGone(err) {
		return nil
	}
	if err != nil {
		return unreadable(e.name, err)
	}
	defer from.Close()
	if c.lower.coversParent(e.name) {
		c.note(&c.result.InTheWay, e.name)
		return nil
	}
	into, err = c.makePath(into, parent)
	if isGone(err) {
		c.note(&c.result.InTheWay, e.name)
		return nil
	}
	if err != nil {
		return err
	}
	defer into.Close()
	return c.copyName(from, into, name)
}

// makePath opens a directory of the sandbox, and makes what is missing of it.
func (c *copier) makePath(into *guard.DirHandle, dir string) (*guard.DirHandle, error) {
	at, err := into.OpenDir(".")
	for name := range strings.SplitSeq(strings.TrimSuffix(dir, "/"), "/") {
		if err != nil || name == "" {
			return at, err
		}
		next, made, openErr := openOrMake(at, name)
		if made && openErr == nil {
			openErr = next.Chmod(0o755)
		}
		err = errors.Join(openErr, at.Close())
		at = next
	}
	return at, err
}

// openOrMake opens a subdirectory, and makes it with mode 0700 if it is missing. Two goroutines may do so at once.
func openOrMake(in *guard.DirHandle, name string) (dir *guard.DirHandle, made bool, err error) {
	dir, err = in.Mkdir(name)
	if errors.Is(err, fs.ErrExist) {
		dir, err = in.OpenDir(name)
		return dir, false, err
	}
	return dir, true, err
}

// copyName copies a file, symlink or directory into another directory.
func (c *copier) copyName(from, into *guard.DirHandle, name string) error {
	if err := context.Cause(c.ctx); err != nil {
		return err
	}
	at := path.Join(from.Path, name)
	fi, err := from.Lstat(name)
	switch {
	case isGone(err):
		return nil
	case err != nil:
		return unreadable(at, err)
	}
	if kind, there := c.lower.lookup(at); there && !(kind.IsDir() && fi.Mode.IsDir()) {
		if fi.Mode.IsDir() {
			c.note(&c.result.InTheWay, at)
		}
		return nil // a tracked file
	}
	switch {
	case c.omit != nil && c.omit(at):
		return makeEmpty(into, name, fi.Mode)
	case fi.Mode.IsDir():
		return c.copySubdir(from, into, name)
	case fi.Mode.IsRegular():
		return c.copyFile(from, into, name)
	case fi.Mode&fs.ModeSymlink != 0:
		return c.copySymlink(from, into, name)
	}
	c.note(&c.result.Special, at)
	return nil
}

// copySubdir copies a directory. One that the sandbox has already keeps its permissions.
func (c *copier) copySubdir(from, into *guard.DirHandle, name string) error {
	at := path.Join(from.Path, name)
	from, err := from.OpenDir(name)
	if isGone(err) {
		return nil
	}
	if err != nil {
		return unreadable(at, err)
	}
	defer from.Close()
	before, err := from.Stat()
	if err != nil {
		return err
	}
	into, made, err := openOrMake(into, name)
	if isGone(err) {
		c.note(&c.result.InTheWay, at)
		return nil
	}
	if err != nil {
		return err
	}
	defer into.Close()
	if err := c.copyContent(from, into); err != nil || !made {
		return err
	}
	// The modification time too: npm reads all of node_modules again if a package is newer than its list of packages.
	return c.finishDir(into, before)
}

// finishDir gives a copied directory its modification time and permissions.
func (c *copier) finishDir(into *guard.DirHandle, as guard.Info) error {
	if err := into.SetModified(".", as.Modified); err != nil {
		return err
	}
	return into.Chmod(c.permissions(as.Mode, 0o500))
}

// permissions returns the permissions of a copy. The original may belong to another user, who may do less than others.
func (c *copier) permissions(of, needed fs.FileMode) fs.FileMode {
	if c.whole {
		return of.Perm() | needed
	}
	return of.Perm()
}

// copyContent copies what is in a directory.
func (c *copier) copyContent(from, into *guard.DirHandle) error {
	names, err := from.Names()
	if err != nil {
		return unreadable(from.Path, err)
	}
	var group sync.WaitGroup
	for _, name := range names {
		if guard.IsReservedName(name) && !c.whole {
			continue
		}
		if c.patterns.hasNegated {
			fi, err := from.Lstat(name)
			if err != nil {
				continue // copyName would find it gone too
			}
			if selected, err := c.patterns.selects(path.Join(from.Path, name), fi.Mode.IsDir(), true); err != nil || !selected {
				if err != nil {
					return err
				}
				continue
			}
		}
		if len(names) > 1 {
			c.run(&group, func() error { return c.copyName(from, into, name) })
		} else if err := c.copyName(from, into, name); err != nil {
			c.fail(err)
		}
	}
	group.Wait() // before the handles are closed
	return context.Cause(c.ctx)
}

func (c *copier) copySymlink(from, into *guard.DirHandle, name string) error {
	target, err := from.Readlink(name)
	if isGone(err) || errors.Is(err, syscall.EINVAL) { // no symlink any more
		return nil
	}
	if err == nil {
		err = into.Symlink(target, name)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil // a tracked file
	}
	if err == nil {
		c.count(0)
	}
	return err
}

// count adds a file to the progress.
func (c *copier) count(size int64) {
	if c.progress == nil {
		return
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.done.Files++
	c.done.Bytes += size
	c.progress(c.done)
}

// isGone reports whether a name no longer leads to what it was listed as.
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) || errors.As(err, new(*guard.ConfinementError))
}
