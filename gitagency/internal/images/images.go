// Package images unpacks images of container engines, such as podman, into directories that walls can use as root file systems.
// An image is unpacked once, and nothing changes the directory until it is pruned.
//
// It must never fetch an image, nor run anything of one: it only asks the client of the user's engine for what is there.
package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
)

// Image is an image that an engine has.
type Image struct {
	ID  string   // hash of the image, in hexadecimal digits
	Env []string // variables of its commands, as NAME=value
}

// Dir is a directory of unpacked images: each is a directory named by its id, with the root file system in "root" and the
// variables in "environment".
type Dir string

const (
	rootName        = "root"
	environmentName = "environment"
	unfinishedName  = "unfinished-" // begins the name of a directory that is being filled, or was when its process was killed
	removedName     = "removed-"    // begins the name of a directory that is being removed
)

// Root returns the root file system of an unpacked image.
func (d Dir) Root(id string) string { return filepath.Join(string(d), id, rootName) }

// Has reports whether an image is unpacked.
func (d Dir) Has(id string) bool { return durable.IsDir(d.Root(id)) }

// maxEnvironment bounds the size of the variables of an image.
const maxEnvironment = 1 << 20

// Environment returns the variables of an unpacked image.
func (d Dir) Environment(id string) ([]string, error) {
	data, err := durable.ReadFile(filepath.Join(string(d), id, environmentName), maxEnvironment)
	if err != nil {
		return nil, err
	}
	return strings.FieldsFunc(string(data), func(c rune) bool { return c == 0 }), nil
}

// Use unpacks an image, unless it is unpacked, and keeps it from being pruned until the result is closed.
func (d Dir) Use(ctx context.Context, e Engine, image Image) (_ io.Closer, err error) {
	if err := checkID(image.ID); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return nil, err
	}
	if held, err := d.Hold(ctx, image.ID); err == nil {
		return held, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	all, err := lock.AcquireDirExclusive(ctx, string(d), -1) // unpacking may take minutes, and others wait for the same image
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, all.Close()) }()
	if !d.Has(image.ID) {
		if err := d.removeUnfinished(); err != nil {
			return nil, err
		}
		if err := d.unpack(ctx, e, image); err != nil {
			return nil, fmt.Errorf("unpack image %s: %w", image.ID, err)
		}
	}
	return d.Hold(ctx, image.ID)
}

// Hold keeps an unpacked image from being pruned until the result is closed, and notes that it is used. The error is fs.ErrNotExist if it
// is not unpacked.
func (d Dir) Hold(ctx context.Context, id string) (*os.File, error) {
	dir := filepath.Join(string(d), id)
	held, err := lock.AcquireDirShared(ctx, dir, -1)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	err = os.Chtimes(dir, now, now)
	if err == nil && !d.Has(id) { // pruned while this process waited
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, errors.Join(err, held.Close())
	}
	return held, nil
}

// unpack fills the directory of an image. It has its name only when everything in it is on disk.
func (d Dir) unpack(ctx context.Context, e Engine, image Image) (err error) {
	dir := filepath.Join(string(d), unfinishedName+image.ID)
	defer func() {
		if err != nil {
			err = errors.Join(err, durable.RemoveTree(dir))
		}
	}()
	root := filepath.Join(dir, rootName)
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	if err := e.export(ctx, string(d), image.ID, func(r io.Reader) error { return extract(r, root) }); err != nil {
		return err
	}
	env := slices.DeleteFunc(slices.Clone(image.Env), func(kv string) bool { return strings.Contains(kv, "\x00") })
	if err := durable.WriteNew(filepath.Join(dir, environmentName), []byte(strings.Join(env, "\x00")), 0o600); err != nil {
		return err
	}
	if err := durable.SyncFileSystem(dir); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	if err := os.Rename(dir, filepath.Join(string(d), image.ID)); err != nil {
		return err
	}
	return durable.SyncDir(string(d))
}

// removeUnfinished removes what killed processes have left. The caller holds the lock of the directory.
func (d Dir) removeUnfinished() error {
	entries, err := os.ReadDir(string(d))
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), unfinishedName) || strings.HasPrefix(entry.Name(), removedName) {
			err = errors.Join(err, durable.RemoveTree(filepath.Join(string(d), entry.Name())))
		}
	}
	return err
}

// Unpacked is an image that is unpacked.
type Unpacked struct {
	ID       string
	LastUsed time.Time // when a sandbox was last made with it
}

// List lists the unpacked images, by id.
func (d Dir) List() ([]Unpacked, error) {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []Unpacked
	for _, entry := range entries {
		if checkID(entry.Name()) != nil {
			continue
		}
		if fi, err := entry.Info(); err == nil {
			all = append(all, Unpacked{entry.Name(), fi.ModTime()})
		}
	}
	return all, err
}

// Prune removes the images that remove selects, unless a process uses one just now or isUsed says so once it is locked, and what
// killed processes have left. It returns the ids of those that are gone.
func (d Dir) Prune(ctx context.Context, remove []string, isUsed func(id string) (bool, error)) (removed []string, err error) {
	if !durable.IsDir(string(d)) {
		return nil, nil
	}
	all, err := lock.AcquireDirExclusive(ctx, string(d), 0)
	var busy *lock.TimeoutError
	if errors.As(err, &busy) { // an image is being unpacked
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, all.Close()) }()
	for _, id := range remove {
		gone, failed := d.withdraw(ctx, id, isUsed)
		if err = errors.Join(err, failed); gone {
			removed = append(removed, id)
		}
	}
	err = errors.Join(err, d.removeUnfinished())
	_ = os.Remove(string(d)) // fails when not empty
	return removed, err
}

// withdraw renames an image that nothing uses, so that it can be removed.
func (d Dir) withdraw(ctx context.Context, id string, isUsed func(id string) (bool, error)) (gone bool, err error) {
	dir := filepath.Join(string(d), id)
	held, err := lock.AcquireDirExclusive(ctx, dir, 0)
	var busy *lock.TimeoutError
	if errors.As(err, &busy) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	if used, err := isUsed(id); err != nil || used {
		return false, err
	}
	return true, os.Rename(dir, filepath.Join(string(d), removedName+id))
}

// checkID refuses what cannot be the id of an image, and could be another name in the directory.
func checkID(id string) error {
	if len(id) < 32 || strings.Trim(id, "0123456789abcdef") != "" {
		return fmt.Errorf("%q is no id of an image", id)
	}
	return nil
}
