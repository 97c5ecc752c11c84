package transport

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

const (
	packSuffix = ".pack"
	keepSuffix = ".keep"
)

// keepPacks makes git keep the packs in a directory in the directory to which they will be moved, so that no "git gc --prune=now" removes
// them before a ref has their objects. The .keep of each is a symbolic link to the pack: it is made in one step, and unlike a file that a
// killed process left it cannot be taken for one of the user's. The caller holds the repository lock, and calls release when the ref has
// moved.
func keepPacks(from, to string) (release func() error, err error) {
	packs, err := os.ReadDir(from)
	if err != nil || len(packs) == 0 {
		return func() error { return nil }, err
	}
	if err := os.MkdirAll(to, 0o777); err != nil { // a repository without packs may lack it
		return nil, err
	}
	if err := removeAbandonedKeeps(to); err != nil {
		return nil, err
	}
	var made []string
	release = func() error {
		var errs []error
		for _, path := range made {
			errs = append(errs, durable.RemoveIfExists(path))
		}
		return errors.Join(errs...)
	}
	for _, e := range packs {
		name, isPack := strings.CutSuffix(e.Name(), packSuffix)
		if !isPack {
			continue
		}
		path := filepath.Join(to, name+keepSuffix)
		switch err := os.Symlink(e.Name(), path); {
		case errors.Is(err, fs.ErrExist): // the user keeps this pack
		case err != nil:
			return nil, errors.Join(err, release())
		default:
			made = append(made, path)
		}
	}
	return release, nil
}

// removeAbandonedKeeps removes the links of keepPacks that killed processes left.
func removeAbandonedKeeps(packs string) error {
	entries, err := os.ReadDir(packs)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, isKeep := strings.CutSuffix(e.Name(), keepSuffix)
		if !isKeep || e.Type() != fs.ModeSymlink {
			continue
		}
		path := filepath.Join(packs, e.Name())
		if target, err := os.Readlink(path); err != nil || target != name+packSuffix {
			continue
		}
		if err := durable.RemoveIfExists(path); err != nil {
			return err
		}
	}
	return nil
}
