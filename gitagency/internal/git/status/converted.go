package status

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// takeConverted takes over the blobs that git made of the staged files, from the index and the object directory that it
// wrote. Git read the data of an agent: only blobs that have the id in the index are taken over.
func (h *fileHasher) takeConverted(ctx context.Context, p git.RunOptions, idx string) error {
	x, err := readOutputIndex(p, idx, h.format)
	if err != nil {
		return err
	}
	dir, err := beneath.Open(filepath.Join(p.GitDir, outputDir, objectsDir))
	if err != nil {
		return err
	}
	defer dir.Close()
	for e := range x.AllEntries() {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		name := string(e.Name)
		h.leaves[name] = object.LeafChange{Mode: e.Mode, OID: slices.Clone(e.OID), Path: name}
		if err := h.takeBlob(dir, hex.EncodeToString(e.OID)); err != nil {
			return fmt.Errorf("%s: %w", h.tree.Join(name), err)
		}
		if st, ok := h.stats[name]; ok {
			h.recordCached(name, &st)
		}
	}
	return nil
}

// takeBlob takes over one blob: into memory if it fits, else into the repository. A blob that git did not write is in the
// repository already.
func (h *fileHasher) takeBlob(objects *beneath.Dir, oid string) error {
	file, _, err := objects.OpenFile(path.Join(oid[:2], oid[2:]))
	if beneath.IsGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	kind, size, content, err := object.DecodeLoose(file)
	if err != nil {
		return err
	}
	if kind != "blob" {
		return &object.IncompleteError{OID: oid, Want: "blob", Have: kind}
	}
	if h.taken += size; h.inMemory && h.taken <= maxMemoryBytes {
		data, err := io.ReadAll(io.LimitReader(content, size))
		if err != nil {
			return err
		}
		blob := object.Raw{Kind: kind, OID: object.HashObject(h.format, kind, data), Content: data}
		if blob.HexOID() != oid {
			return errWrongID
		}
		h.keepBlob(blob)
		return nil
	}
	h.writtenBlobs, h.unsyncedBlobs = append(h.writtenBlobs, oid), append(h.unsyncedBlobs, oid)
	return storeLoose(h.repo, file, h.format, oid)
}

var errWrongID = errors.New("git wrote another blob than it put into the index")

// storeLoose copies the file of a loose object to the repository, if it has this id. A git gc --prune=now may remove the
// temporary file meanwhile; then it tries again.
func storeLoose(r *git.Repo, file *os.File, format object.Format, oid string) (err error) {
	const tries = 5
	for range tries {
		if _, err = file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if err = tryStoreLoose(r, file, format, oid); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}

func tryStoreLoose(r *git.Repo, file *os.File, format object.Format, oid string) (err error) {
	to := r.LoosePath(oid)
	if now := time.Now(); os.Chtimes(to, now, now) == nil {
		return nil // it was there already
	}
	temp, err := git.CreateLooseTemp(to)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, durable.RemoveIfExists(temp.Name()))
		}
	}()
	err = checkLoose(bufio.NewReader(io.TeeReader(file, temp)), format, oid)
	if _, shared := r.Config.Last("core.sharedrepository"); err == nil && shared {
		err = sharePermissions(file, temp)
	}
	if err == nil && !r.IsDryRun() {
		err = durable.WriteBack(temp)
	}
	if err = errors.Join(err, temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), to)
}

// sharePermissions gives a loose object and its directory the permissions that git gave the original, by the settings of a
// repository that several users share.
func sharePermissions(original, object *os.File) error {
	fi, err := original.Stat()
	if err != nil {
		return err
	}
	dir, err := os.Stat(filepath.Dir(original.Name()))
	if err != nil {
		return err
	}
	const mode = fs.ModePerm | fs.ModeSetgid
	return errors.Join(object.Chmod(fi.Mode()&0o444), os.Chmod(filepath.Dir(object.Name()), dir.Mode()&mode))
}

// checkLoose reads the file of a loose object to its end, and checks that it is one of this id and nothing more.
func checkLoose(file *bufio.Reader, format object.Format, oid string) error {
	kind, size, content, err := object.DecodeLoose(file)
	if err != nil {
		return err
	}
	sum := format.NewHash()
	fmt.Fprintf(sum, "%s %d\x00", kind, size)
	if _, err := io.Copy(sum, content); err != nil {
		return err
	}
	if _, err := file.ReadByte(); !errors.Is(err, io.EOF) || hex.EncodeToString(sum.Sum(nil)) != oid {
		return errWrongID
	}
	return nil
}
