// Package images unpacks images of container engines, such as podman, into directories that walls can use as root file systems.
// An image is unpacked once, and nothing changes the directory until it is pruned.
//
// It must never fetch an image, nor run anything of one: it only asks the client of the user's engine for what is there.
package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
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
// variables in "environment.json".
type Dir string

const (
	rootName        = "root"
	environmentName = "environment.json"
	unfinishedName  = "unfinished-" // begins the name of a directory that is being filled, or was when its process was killed
	removedName     = "removed-"    // begins the name of a directory that is being removed
)

// Root returns the root file system of an unpacked image.
func (d Dir) Root(id string) string { return filepath.Join(string(d), id, rootName) }

// Has reports whether an image is unpacked. A part of one, that something else has removed, does not count.
func (d Dir) Has(id string) bool {
	root, err := os.Lstat(d.Root(id))
	if err != nil || !root.IsDir() {
		return false
	}
	_, err = os.Lstat(filepath.Join(string(d), id, environmentName))
	return err == nil
}

// maxEnvironment bounds the size of the variables of an image.
const maxEnvironment = 1 << 20

// Environment returns the variables of an unpacked image.
func (d Dir) Environment(id string) (env []string, err error) {
	data, err := durable.ReadFile(filepath.Join(string(d), id, environmentName), maxEnvironment)
	if err == nil {
		err = json.Unmarshal(data, &env)
	}
	return env, err
}

// Use unpacks an image, unless it is unpacked, and keeps it from being pruned until the result is closed.
func (d Dir) Use(ctx context.Context, e Engine, image Image) (io.Closer, error) {
	for {
		held, err := d.Hold(ctx, image.ID)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return held, err
		}
		if err := d.add(ctx, e, image); err != nil && !errors.Is(err, errRemoved) {
			return nil, err
		}
	}
}

// Hold keeps an unpacked image from being pruned until the result is closed, and notes that it is used. The error is fs.ErrNotExist if it
// is not unpacked.
func (d Dir) Hold(ctx context.Context, id string) (io.Closer, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	dir := filepath.Join(string(d), id)
	held, err := lock.AcquireDirShared(ctx, dir, -1)
	if errors.Is(err, syscall.ENOTDIR) {
		err = fs.ErrNotExist
	}
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

// errRemoved reports that the directory was removed, because it was empty, before it was locked.
var errRemoved = errors.New("the directory of images was removed")

// add unpacks an image, unless another process has.
func (d Dir) add(ctx context.Context, e Engine, image Image) (err error) {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return err
	}
	all, err := lock.AcquireDirExclusive(ctx, string(d), -1) // unpacking may take minutes, and others wait for the same image
	if errors.Is(err, fs.ErrNotExist) {
		return errRemoved
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, all.Close()) }()
	locked, err := all.Stat()
	now, statErr := os.Stat(string(d))
	switch {
	case err != nil:
		return err
	case statErr != nil || !os.SameFile(locked, now):
		return errRemoved
	case d.Has(image.ID):
		return nil
	}
	// What is left of the image if something else has removed a part of it stays without that part while it is removed.
	if err := errors.Join(d.removeUnfinished(), durable.RemoveTree(filepath.Join(string(d), image.ID))); err != nil {
		return err
	}
	if err := d.unpack(ctx, e, image); err != nil {
		return fmt.Errorf("unpack image %.12s: %w", image.ID, err)
	}
	return nil
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
	env, err := json.Marshal(slices.DeleteFunc(slices.Clone(image.Env), func(kv string) bool { return strings.Contains(kv, "\x00") }))
	if err != nil {
		return err
	}
	if err := durable.WriteNew(filepath.Join(dir, environmentName), env, 0o600); err != nil {
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
	LastUsed time.Time // when a command or a new sandbox last used it
}

// List lists the unpacked images, by id.
func (d Dir) List() ([]Unpacked, error) {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []Unpacked
	for _, entry := range entries {
		if checkID(entry.Name()) != nil || !entry.IsDir() {
			continue
		}
		if fi, err := entry.Info(); err == nil {
			all = append(all, Unpacked{entry.Name(), fi.ModTime()})
		}
	}
	return all, err
}

// Prune removes images, unless a process uses one just now, or a sandbox: used returns the ids of those once no other process can
// begin to use one. It also removes what killed processes have left, and calls clean for what they have left elsewhere. It returns the ids
// of the images that are gone.
func (d Dir) Prune(ctx context.Context, remove []string, used func() (map[string]bool, error), clean func() error) (removed []string, err error) {
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
	left, err := filepath.Glob(filepath.Join(string(d), unfinishedName+"*"))
	if err == nil && len(left) > 0 {
		err = clean()
	}
	if err == nil { // else the next one cleans up: the directory says that there is something to clean
		err = d.removeUnfinished()
	}
	if err == nil {
		removed, err = d.withdraw(ctx, remove, used)
		err = errors.Join(err, d.removeUnfinished())
	}
	_ = os.Remove(string(d)) // fails when not empty
	return removed, errors.Join(err, all.Close())
}

// withdraw renames images that nothing uses, so that they can be removed.
func (d Dir) withdraw(ctx context.Context, ids []string, used func() (map[string]bool, error)) (gone []string, err error) {
	free := map[string]*os.File{}
	defer func() {
		for _, held := range free {
			err = errors.Join(err, held.Close())
		}
	}()
	for _, id := range ids {
		held, err := lock.AcquireDirExclusive(ctx, filepath.Join(string(d), id), 0)
		var busy *lock.TimeoutError
		switch {
		case err == nil:
			free[id] = held
		case !errors.As(err, &busy) && !errors.Is(err, fs.ErrNotExist): // which another process has just removed
			return nil, err
		}
	}
	inUse, err := used()
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if free[id] == nil || inUse[id] {
			continue
		}
		if err := os.Rename(filepath.Join(string(d), id), filepath.Join(string(d), removedName+id)); err != nil {
			return gone, err
		}
		gone = append(gone, id)
	}
	return gone, nil
}

// checkID refuses what cannot be the id of an image, and could be another name in the directory.
func checkID(id string) error {
	if len(id) < 32 || strings.Trim(id, "0123456789abcdef") != "" {
		return fmt.Errorf("%q is no id of an image", id)
	}
	return nil
}
