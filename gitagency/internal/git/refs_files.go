package git

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// MaxPackedRefs is the size limit for reading packed-refs.
const MaxPackedRefs = 64 << 20

// PackedRefsLocks are the files that keep git from writing packed-refs, and so from deleting a ref: the lock, and the
// file that becomes packed-refs.
var PackedRefsLocks = []string{"packed-refs.lock", "packed-refs.new"}

// WithPackedRefsLock returns the error of a git that was to delete a ref as a *LockedError if packed-refs is locked.
func (r *Repo) WithPackedRefsLock(err error) error {
	for _, name := range PackedRefsLocks {
		path := filepath.Join(r.CommonDir, name)
		if _, statErr := os.Lstat(path); err != nil && statErr == nil {
			return &LockedError{Path: path, Err: err}
		}
	}
	return err
}

// readRefFiles reads refs from their files, which is faster than starting git. ok is false for anything unusual,
// which git has to read.
func (r *Repo) readRefFiles(prefixes []string) (_ map[string]string, ok bool) {
	if !r.keepsRefsInFiles() {
		return nil, false
	}
	refs := map[string]string{}
	for _, prefix := range prefixes {
		if !strings.HasSuffix(prefix, "/") || !object.IsValidRef(prefix+"x") || !r.addLooseRefs(refs, prefix, 0) {
			return nil, false
		}
	}
	// "git pack-refs" writes packed-refs before it deletes the loose file; so packed-refs is read last.
	packed, err := durable.ReadFile(filepath.Join(r.CommonDir, "packed-refs"), MaxPackedRefs)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, false
	}
	for _, prefix := range prefixes {
		if !addPackedRefs(refs, packed, prefix) {
			return nil, false
		}
	}
	return refs, true
}

// RefFiles reads loose refs and files of worktree entries relative to open directories: a listing reads those of a thousand
// worktrees, and the kernel takes most of the time to resolve the other components of an absolute path.
type RefFiles struct {
	worktrees  *os.File        // directory of the worktree entries; nil if there is none
	unlisted   *os.File        // directory of the entries that git does not list; nil if there is none
	isUnlisted map[string]bool // names of these

	prefix string   // of the refs
	refs   *os.File // directory of the refs; nil if there is none
}

// OpenRefFiles opens the directory of the loose refs with a prefix, which ends with a slash, and that of the worktree entries.
// The caller closes them.
func (r *Repo) OpenRefFiles(prefix string) (RefFiles, error) {
	f := RefFiles{prefix: prefix, isUnlisted: map[string]bool{}}
	var errs [3]error
	f.refs, errs[0] = os.Open(filepath.Join(r.CommonDir, filepath.FromSlash(prefix)))
	f.worktrees, errs[1] = os.Open(r.CommonDir + "/worktrees")
	f.unlisted, errs[2] = os.Open(r.UnlistedAdminDir(""))
	for _, err := range errs {
		if err != nil && !IsNotExist(err) { // with reftable, refs/heads is a file
			return RefFiles{}, errors.Join(err, f.Close())
		}
	}
	if f.unlisted == nil {
		return f, nil
	}
	names, err := f.unlisted.Readdirnames(-1)
	if err != nil {
		return RefFiles{}, errors.Join(err, f.Close())
	}
	for _, name := range names {
		f.isUnlisted[name] = true
	}
	return f, nil
}

// Close closes the directories.
func (f RefFiles) Close() error {
	var errs []error
	for _, dir := range []*os.File{f.refs, f.worktrees, f.unlisted} {
		if dir != nil {
			errs = append(errs, dir.Close())
		}
	}
	return errors.Join(errs...)
}

// EntriesOf returns the directory that has the entry of a worktree; nil if there is none.
func (f RefFiles) EntriesOf(worktree string) *os.File {
	if f.isUnlisted[worktree] {
		return f.unlisted
	}
	return f.worktrees
}

// LooseRef is Repo.ReadLooseRef for a ref without its prefix.
func (f RefFiles) LooseRef(name string) string {
	return readLooseRef(int(f.refs.Fd()), name, f.prefix+name)
}

// Head reads HEAD of a worktree.
func (f RefFiles) Head(worktree string) (Head, error) {
	data, err := durable.ReadFileIn(int(f.EntriesOf(worktree).Fd()), worktree+"/HEAD", maxSmallFile)
	return ParseHead(data), err
}

// RefVersion returns the version of the file of a loose ref without its prefix.
func (f RefFiles) RefVersion(name string, now time.Time) durable.FileVersion {
	return durable.VersionIn(int(f.refs.Fd()), name, now)
}

// HeadVersion returns the version of HEAD of a worktree.
func (f RefFiles) HeadVersion(worktree string, now time.Time) durable.FileVersion {
	return durable.VersionIn(int(f.EntriesOf(worktree).Fd()), worktree+"/HEAD", now)
}

// keepsRefsInFiles reports whether refs are certainly files, and not in a reftable. Version 1 of the format only means that
// there are extensions, such as extensions.worktreeConfig.
func (r *Repo) keepsRefsInFiles() bool {
	version := r.Config.Value(config.FormatVersionKey)
	return version == "0" || version == "1" && checkRefStorage(r.Config.Value(config.RefStorageKey)) == nil
}

// ReadRefFile is readRefFiles for one ref; oid is empty when the ref does not exist.
func (r *Repo) ReadRefFile(ref string) (oid string, ok bool) {
	if oid := r.ReadLooseRef(ref); oid != "" {
		return oid, true
	}
	if !r.keepsRefsInFiles() || !object.IsValidRef(ref) {
		return "", false
	}
	if fi, err := os.Lstat(r.RefPath(ref)); err == nil && !fi.IsDir() || err != nil && !IsNotExist(err) {
		return "", false
	}
	packed, err := durable.ReadFile(filepath.Join(r.CommonDir, "packed-refs"), MaxPackedRefs)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Lstat(filepath.Join(r.CommonDir, "HEAD")) // without HEAD the whole repository is gone
	}
	if err != nil || len(packed) > 0 && packed[len(packed)-1] != '\n' {
		return "", false
	}
	at := bytes.Index(packed, []byte(" "+ref+"\n"))
	if at < 0 {
		return "", true
	}
	oid = string(packed[bytes.LastIndexByte(packed[:at], '\n')+1 : at])
	return oid, object.IsOID(oid)
}

// addPackedRefs adds the packed refs below a prefix, lines of "<oid> <ref>", unless a loose ref overrides them.
func addPackedRefs(refs map[string]string, packed []byte, prefix string) (ok bool) {
	for at := 0; ; {
		next := bytes.Index(packed[at:], []byte(" "+prefix))
		if next < 0 {
			return true
		}
		at += next
		begin := bytes.LastIndexByte(packed[:at], '\n') + 1
		length := bytes.IndexByte(packed[at:], '\n')
		if length < 0 || !object.IsOID(string(packed[begin:at])) {
			return false
		}
		if ref := string(packed[at+1 : at+length]); refs[ref] == "" {
			refs[ref] = string(packed[begin:at])
		}
		at += length
	}
}

// addLooseRefs adds the loose refs below a prefix.
func (r *Repo) addLooseRefs(refs map[string]string, prefix string, depth int) (ok bool) {
	const deepest = 8
	entries, err := os.ReadDir(filepath.Join(r.CommonDir, prefix))
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	if err != nil || depth > deepest {
		return false
	}
	for _, e := range entries {
		ref := prefix + e.Name()
		switch {
		case strings.HasSuffix(ref, index.LockSuffix): // the lock of a running or a killed git
		case e.IsDir():
			if !r.addLooseRefs(refs, ref+"/", depth+1) {
				return false
			}
		default:
			oid := r.ReadLooseRef(ref)
			if oid == "" {
				return false
			}
			refs[ref] = oid
		}
	}
	return true
}

// LastNumberedRef returns the highest number among the names of the refs directly below a prefix. ok is false where
// packed-refs has some of them, where there is none, or where git has to be asked.
func (r *Repo) LastNumberedRef(prefix string) (last int, ok bool) {
	const most = 9 // digits
	if !r.keepsRefsInFiles() {
		return 0, false
	}
	dir, err := os.Open(filepath.Join(r.CommonDir, prefix))
	if err != nil {
		return 0, false
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return 0, false
	}
	packed, err := durable.ReadFile(filepath.Join(r.CommonDir, "packed-refs"), MaxPackedRefs)
	if err != nil && !errors.Is(err, fs.ErrNotExist) || bytes.Contains(packed, []byte(" "+prefix)) {
		return 0, false
	}
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil && len(name) <= most && strconv.Itoa(n) == name {
			last = max(last, n)
		}
	}
	return last, last > 0
}

// HasReplaceRefs reports whether git shows other objects in place of some: refs/replace is not empty, or that cannot be read.
func (r *Repo) HasReplaceRefs() bool {
	const prefix = "refs/replace/"
	loose, err := os.ReadDir(filepath.Join(r.CommonDir, prefix))
	if err != nil && !errors.Is(err, fs.ErrNotExist) || len(loose) > 0 {
		return true
	}
	packed, err := durable.ReadFile(filepath.Join(r.CommonDir, "packed-refs"), MaxPackedRefs)
	return err != nil && !errors.Is(err, fs.ErrNotExist) || bytes.Contains(packed, []byte(" "+prefix))
}
