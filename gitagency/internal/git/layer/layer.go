// Package layer makes and removes layers: directories with the files of one tree each, which the overlays of all sandboxes share
// as lower directories. A layer may be a delta over another one, its base. The package must never change a layer that has got its
// final name: the kernel does not define an overlay whose lower directory changes, and every sandbox would see the change.
package layer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/checkout"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
)

// Request describes the layer that is wanted.
type Request struct {
	Dir     string          // required: directory of the layers of all repositories; made if it is missing
	Tree    string          // required: id of the tree whose files the layer has
	Source  checkout.Source // worktree to copy unchanged files from; the zero value copies nothing
	SkipLFS bool            // Git LFS downloads nothing
}

// Layer is a layer with the layers below it.
type Layer struct {
	Name   string   // name of its directory
	Lowers []string // directories for an overlay, the top one first
	Index  string   // index of all files, with the stat data of the files in Lowers
	Tree   string   // id of the tree of all files
}

// Names in the directory of all layers, and in that of one layer.
const (
	newPrefix  = "new-"       // a layer that is being made; its directory is locked by its maker
	oldPrefix  = "old-"       // a layer, or the remains of one, that is being removed
	treeName   = "tree"       // the files
	indexName  = "index"      // see Layer.Index
	recordName = "layer.json" // see record
)

// maxDepth is the number of layers that a delta and the layers below it may have.
const maxDepth = 8

// record is the file of a layer that is read with it. It has no path, so that the directory of all layers can be moved.
type record struct {
	Base    string `json:"base,omitempty"` // name of the layer that it is a delta over
	Entries int    `json:"entries"`        // of the index
}

// Ensure returns the layer of a tree, and makes it if there is none. The layer is not removed before release is called. Where
// several processes want the same layer at the same time, one makes it and the others wait.
func Ensure(ctx context.Context, r *git.Repo, req Request) (_ Layer, made bool, release func() error, err error) {
	m, err := newMaker(ctx, r, req)
	if err != nil {
		return Layer{}, false, nil, fmt.Errorf("find the layer of %s: %w", req.Tree, err)
	}
	for {
		l, held, err := acquire(ctx, req.Dir, m.name)
		if err == nil {
			return l, made, held.Close, nil
		}
		if cause := context.Cause(ctx); cause != nil {
			return Layer{}, false, nil, cause
		}
		if errors.As(err, new(*DamagedError)) {
			err = fmt.Errorf("%w; 'git agency doctor' says how to repair it; if it reports nothing, remove the directory", err)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return Layer{}, false, nil, err
		}
		if made, err = m.make(ctx); err != nil {
			return Layer{}, false, nil, fmt.Errorf("make the layer of %s: %w", req.Tree, err)
		}
	}
}

// acquire locks a layer shared, records that it is used, and opens it. The error is fs.ErrNotExist where there is none.
func acquire(ctx context.Context, dir, name string) (_ Layer, _ *os.File, err error) {
	path := filepath.Join(dir, name)
	held, err := lock.AcquireDirShared(ctx, path, -1)
	if err != nil {
		return Layer{}, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, held.Close())
		}
	}()
	// The mtime of the directory is the time of the last use: nothing else changes it, and it is no part of the files.
	if err := unix.Utimes(path, nil); err != nil {
		return Layer{}, nil, &fs.PathError{Op: "set the time of", Path: path, Err: err}
	}
	l, err := Open(dir, name)
	return l, held, err
}

// DamagedError is a layer that lacks a part, or a layer below it.
type DamagedError struct {
	Path string // its directory
	Err  error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("the layer %s is damaged: %v", e.Path, e.Err)
}

// Open returns a layer by its name, as a sandbox recorded it. The error is fs.ErrNotExist where there is none.
func Open(dir, name string) (Layer, error) {
	tree, _, _ := strings.Cut(name, "-")
	l := Layer{Name: name, Index: filepath.Join(dir, name, indexName), Tree: tree}
	for at := name; ; {
		path := filepath.Join(dir, at)
		rec, err := readRecord(dir, at)
		switch {
		case err == nil:
		case at == name && errors.Is(err, fs.ErrNotExist) && !durable.IsDir(path):
			return Layer{}, err
		default:
			return Layer{}, &DamagedError{Path: filepath.Join(dir, name), Err: errors.New(err.Error())} // it does exist
		}
		l.Lowers = append(l.Lowers, filepath.Join(path, treeName))
		for _, part := range []string{treeName, indexName} {
			if _, err := os.Lstat(filepath.Join(path, part)); err != nil {
				return Layer{}, &DamagedError{Path: filepath.Join(dir, name), Err: errors.New(err.Error())}
			}
		}
		if rec.Base == "" {
			return l, nil
		}
		if at = rec.Base; len(l.Lowers) == maxDepth {
			return Layer{}, &DamagedError{Path: filepath.Join(dir, name), Err: fmt.Errorf("more than %d layers", maxDepth)}
		}
	}
}

// readRecord reads the record of a layer.
func readRecord(dir, name string) (rec record, err error) {
	if !isName(name) {
		return rec, fmt.Errorf("%q is not the name of a layer", name)
	}
	path := filepath.Join(dir, name, recordName)
	data, err := durable.ReadFile(path, 1<<16)
	if err != nil {
		return rec, err
	}
	if err := json.Unmarshal(data, &rec); err != nil {
		return rec, fmt.Errorf("%s: %w", path, err)
	}
	return rec, nil
}

// isName reports whether a directory can be that of a layer: "<tree id>-<digest of settings>".
func isName(name string) bool {
	tree, digest, found := strings.Cut(name, "-")
	return found && object.IsOID(tree) && len(digest) == digestSize && strings.Trim(digest, "0123456789abcdef") == ""
}
