package git

import (
	"bytes"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	rand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

func (r *Repo) WriteTree(ctx context.Context, p RunOptions) (string, error) {
	out, err := r.RunWrite(ctx, p, "write-tree")
	return strings.TrimSpace(string(out)), err
}

// TreeWithout writes the tree of a commit without some of its files, and returns its id.
func (r *Repo) TreeWithout(ctx context.Context, commit string, names []string) (tree string, err error) {
	dir, err := MakeTempDir()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, dir.Remove()) }()
	p := RunOptions{Env: []string{"GIT_INDEX_FILE=" + filepath.Join(dir.Path, "index")}, Reading: r.ReadingOf("the tree of " + commit)}
	if _, err := r.RunWrite(ctx, p, "read-tree", commit); err != nil {
		return "", err
	}
	without := p
	without.Stdin = strings.Join(names, "\x00") + "\x00"
	if _, err := r.RunWrite(ctx, without, "update-index", "--force-remove", "-z", "--stdin"); err != nil {
		return "", err
	}
	return r.WriteTree(ctx, p)
}

// CommitTree writes a commit by the author of s and returns its id.
func (r *Repo) CommitTree(ctx context.Context, s WorktreeSpec, tree string, parents []string, message string) (string, error) {
	made := object.EncodeCommit(object.FormatOf(tree), s.Author, tree, parents, message)
	return made.HexOID(), r.WriteObjects(ctx, object.FormatOf(tree), []object.Raw{made})
}

// StorePack writes a pack to the repository with git index-pack and returns its path. It retries a failure: a concurrent
// gc with --prune=now deletes temporary packs too.
func (r *Repo) StorePack(ctx context.Context, pack io.ReadSeeker, args ...string) (string, error) {
	const tries = 5
	for n := 1; ; n++ {
		if _, err := pack.Seek(0, io.SeekStart); err != nil {
			return "", err
		}
		p := RunOptions{stdinReader: pack}
		if r.dryRunDir == "" {
			p.Config = []string{"-c", "core.fsync=committed,reference,pack-metadata"}
		}
		out, err := r.RunWrite(ctx, p, args...)
		if err != nil && (n == tries || !ExitedWith(err, 128)) {
			return "", err
		}
		if err == nil {
			_, name, _ := strings.Cut(strings.TrimSpace(string(out)), "\t") // "pack" or "keep" TAB <id>
			return filepath.Join(r.CommonDir, "objects", "pack", "pack-"+name+".pack"), nil
		}
	}
}

// VisitNewEntries visits the entries that a known tree, which is in the repository, does not have at the same path: trees, which
// have to be written, and leaves, whose objects an index claims to exist. It skips subtrees that both trees have.
func VisitNewEntries(n *object.BuiltTree, t *CatFile, known []byte, each func(path string, dir *object.BuiltTree, leaf object.TreeEntry)) error {
	return visitNewBelow(n, t, "", known, each)
}

func visitNewBelow(n *object.BuiltTree, t *CatFile, path string, known []byte, each func(path string, dir *object.BuiltTree, leaf object.TreeEntry)) error {
	if bytes.Equal(n.OID, known) {
		return nil
	}
	var has *object.Tree
	if known != nil {
		var err error
		if has, err = t.ReadTree(known); err != nil {
			return err
		}
	}
	each(path, n, object.TreeEntry{})
	for _, it := range n.Entries {
		had, _ := has.Find(string(it.Name))
		switch {
		case bytes.Equal(had.OID, it.OID) && had.Mode == it.Mode: // with another mode, the index may claim a wrong type
		case it.Subtree == nil:
			each(path+string(it.Name), nil, it)
		default:
			var below []byte
			if had.Mode == object.ModeTree {
				below = had.OID
			}
			if err := visitNewBelow(it.Subtree, t, path+string(it.Name)+"/", below, each); err != nil {
				return err
			}
		}
	}
	return nil
}

// MaxLooseObjects is the number of objects up to which each is written as a loose object; more become one pack.
const MaxLooseObjects = 100

// WriteObjects writes objects to the repository durably, and makes the loose objects in written durable, which git has
// written without fsync. Up to MaxLooseObjects are written by us, concurrently: git writes one after the other and waits
// for the disk at each.
func (r *Repo) WriteObjects(ctx context.Context, format object.Format, objects []object.Raw, written ...string) error {
	_, err := r.WriteObjectsWithPaths(ctx, format, objects, written...)
	return err
}

// WriteObjectsWithPaths is WriteObjects, which also returns the paths of the files that hold the objects.
func (r *Repo) WriteObjectsWithPaths(ctx context.Context, format object.Format, objects []object.Raw, written ...string) (at []string, err error) {
	for _, o := range objects {
		at = append(at, r.LoosePath(o.HexOID()))
	}
	_, shared := r.Config.Last("core.sharedrepository") // then git sets the permissions
	if len(objects) > MaxLooseObjects || shared && len(objects) > 0 {
		many, level := len(objects) > MaxLooseObjects, zlib.BestSpeed
		if !many {
			level = zlib.NoCompression // unpack-objects compresses each again
		}
		pack, err := object.EncodePack(format, objects, level)
		if err != nil {
			return nil, err
		}
		if many {
			name, err := r.StorePack(ctx, bytes.NewReader(pack), "index-pack", "--stdin")
			if err != nil {
				return nil, err
			}
			at = []string{name}
		} else if _, err := r.RunWrite(ctx, RunOptions{Stdin: string(pack)}, "unpack-objects", "-q"); err != nil {
			return nil, err
		}
		if !many { // unpack-objects writes no file for an object that is in a pack
			at = slices.DeleteFunc(at, func(path string) bool { _, err := os.Lstat(path); return err != nil })
		}
		objects = nil
	}
	const atOnce = 16
	var group sync.WaitGroup
	slots, failed := make(chan struct{}, atOnce), make(chan error, len(objects)+len(written))
	run := func(do func() error) {
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			failed <- do()
		})
	}
	for _, o := range objects {
		run(func() error { return r.WriteLoose(o) })
	}
	for _, oid := range written {
		run(func() error { return r.syncLoose(oid) })
	}
	group.Wait()
	close(failed)
	for err := range failed {
		if err != nil {
			return nil, fmt.Errorf("write objects: %w", err)
		}
	}
	if r.dryRunDir == "" {
		for _, o := range objects {
			written = append(written, o.HexOID())
		}
		if err := r.syncLastLoose(written); err != nil {
			return nil, err
		}
	}
	return at, context.Cause(ctx)
}

// syncLastLoose fsyncs the last loose object, for all of them, as core.fsyncMethod=batch does: the fsync flushes the disk
// cache, so that files written out before it are on disk too.
func (r *Repo) syncLastLoose(oids []string) error {
	for _, oid := range slices.Backward(oids) {
		if err := durable.Sync(r.LoosePath(oid)); !errors.Is(err, fs.ErrNotExist) { // a missing one is in a pack
			return err
		}
	}
	return nil
}

// LoosePath returns the path of an object as a loose object, in the scratch repository of a dry run if this is one.
func (r *Repo) LoosePath(oid string) string {
	objects := filepath.Join(r.CommonDir, "objects")
	if r.dryRunDir != "" {
		objects = filepath.Join(r.dryRunDir, "objects")
	}
	return filepath.Join(objects, oid[:2], oid[2:])
}

// WriteLoose writes a loose object, as git does: of one that exists it only updates the mtime, so that git gc does not
// prune it as old. A git gc --prune=now may remove the temporary file or the directory meanwhile; then it tries again.
func (r *Repo) WriteLoose(o object.Raw) (err error) {
	const tries = 5
	for range tries {
		if err = r.tryWriteLoose(o); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}

// tryWriteLoose is one try of WriteLoose. Its error is fs.ErrNotExist where git gc removed the temporary file.
func (r *Repo) tryWriteLoose(o object.Raw) (err error) {
	path := r.LoosePath(o.HexOID())
	if now := time.Now(); os.Chtimes(path, now, now) == nil {
		return nil
	}
	f, err := CreateLooseTemp(path)
	if err != nil {
		return err
	}
	temp := f.Name()
	defer func() {
		if err != nil {
			err = errors.Join(err, durable.RemoveIfExists(temp))
		}
	}()
	_, err = f.Write(object.ZlibStored(slices.Concat(fmt.Appendf(nil, "%s %d\x00", o.Kind, len(o.Content)), o.Content)))
	if err == nil && r.dryRunDir == "" {
		err = durable.WriteBack(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

// CreateLooseTemp creates the temporary file that is to become the loose object at a path. Git gc removes files of this
// name that a killed process left. The name is random and not the process id, because in a container the next process may
// have the same id.
func CreateLooseTemp(path string) (*os.File, error) {
	temp := filepath.Join(filepath.Dir(path), fmt.Sprintf("tmp_obj_%016x", rand.Uint64()))
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if errors.Is(err, fs.ErrNotExist) { // the directory of the first two digits is missing
		if err = os.MkdirAll(filepath.Dir(path), 0o777); err == nil {
			f, err = os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
		}
	}
	return f, err
}

// syncLoose writes a loose object that git has just written out to disk. A missing one is in a pack.
func (r *Repo) syncLoose(oid string) error {
	if r.dryRunDir != "" {
		return nil
	}
	f, err := os.Open(r.LoosePath(oid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(durable.WriteBack(f), f.Close())
}
