package git

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// maxLooseObjects is the number of objects up to which each is written as a loose object; more become one pack.
const maxLooseObjects = 100

// writeObjects writes objects to the repository durably, and makes the loose objects in written durable, which git has
// written without fsync. Up to maxLooseObjects are written by us, concurrently: git writes one after the other and waits
// for the disk at each.
func (r *Repo) writeObjects(ctx context.Context, format ObjectFormat, objects []rawObject, written ...string) error {
	_, err := r.writeObjectsWithPaths(ctx, format, objects, written...)
	return err
}

// writeObjectsWithPaths is writeObjects, which also returns the paths of the files that hold the objects.
func (r *Repo) writeObjectsWithPaths(ctx context.Context, format ObjectFormat, objects []rawObject, written ...string) (at []string, err error) {
	for _, o := range objects {
		at = append(at, r.loosePath(o.hexOID()))
	}
	_, shared := r.Config.Last("core.sharedrepository") // then git sets the permissions
	if len(objects) > maxLooseObjects || shared && len(objects) > 0 {
		many, level := len(objects) > maxLooseObjects, zlib.BestSpeed
		if !many {
			level = zlib.NoCompression // unpack-objects compresses each again
		}
		pack, err := encodePack(format, objects, level)
		if err != nil {
			return nil, err
		}
		if many {
			name, err := r.storePack(ctx, bytes.NewReader(pack), "index-pack", "--stdin")
			if err != nil {
				return nil, err
			}
			at = []string{name}
		} else if _, err := r.runWrite(ctx, runOptions{stdin: string(pack)}, "unpack-objects", "-q"); err != nil {
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
		run(func() error { return r.writeLoose(o) })
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
			written = append(written, o.hexOID())
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
		if err := durable.Sync(r.loosePath(oid)); !errors.Is(err, fs.ErrNotExist) { // a missing one is in a pack
			return err
		}
	}
	return nil
}

// loosePath returns the path of an object as a loose object, in the scratch repository of a dry run if this is one.
func (r *Repo) loosePath(oid string) string {
	objects := filepath.Join(r.CommonDir, "objects")
	if r.dryRunDir != "" {
		objects = filepath.Join(r.dryRunDir, "objects")
	}
	return filepath.Join(objects, oid[:2], oid[2:])
}

// writeLoose writes a loose object, as git does: of one that exists it only updates the mtime, so that git gc does not
// prune it as old. A git gc --prune=now may remove the temporary file or the directory meanwhile; then it tries again.
func (r *Repo) writeLoose(o rawObject) (err error) {
	const tries = 5
	for range tries {
		if err = r.tryWriteLoose(o); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}

// tryWriteLoose is one try of writeLoose. Its error is fs.ErrNotExist where git gc removed the temporary file.
func (r *Repo) tryWriteLoose(o rawObject) (err error) {
	path := r.loosePath(o.hexOID())
	if now := time.Now(); os.Chtimes(path, now, now) == nil {
		return nil
	}
	// Git gc removes files of this name that a killed process left. The name is random and not the process id, because in a
	// container the next process may have the same id.
	temp := filepath.Join(filepath.Dir(path), fmt.Sprintf("tmp_obj_%016x", rand.Uint64()))
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if errors.Is(err, fs.ErrNotExist) { // the directory of the first two digits is missing
		if err = os.MkdirAll(filepath.Dir(path), 0o777); err == nil {
			f, err = os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
		}
	}
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeIfExists(temp))
		}
	}()
	_, err = f.Write(zlibStored(slices.Concat(fmt.Appendf(nil, "%s %d\x00", o.kind, len(o.content)), o.content)))
	if err == nil && r.dryRunDir == "" {
		err = durable.WriteBack(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

// zlibStored encodes data as a zlib stream of stored, uncompressed blocks. Git compresses objects when it packs them, and
// setting up a compressor takes longer than writing the data.
func zlibStored(data []byte) []byte {
	const block = 1<<16 - 1
	packed := append(make([]byte, 0, len(data)+len(data)/block*5+16), 0x78, 0x01)
	for sum := adler32.Checksum(data); ; {
		some := data[:min(len(data), block)]
		data = data[len(some):]
		last := byte(0)
		if len(data) == 0 {
			last = 1
		}
		packed = binary.LittleEndian.AppendUint16(append(packed, last), uint16(len(some)))
		packed = binary.LittleEndian.AppendUint16(packed, ^uint16(len(some)))
		packed = append(packed, some...)
		if last == 1 {
			return binary.BigEndian.AppendUint32(packed, sum)
		}
	}
}

// syncLoose writes a loose object that git has just written out to disk. A missing one is in a pack.
func (r *Repo) syncLoose(oid string) error {
	if r.dryRunDir != "" {
		return nil
	}
	f, err := os.Open(r.loosePath(oid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(durable.WriteBack(f), f.Close())
}

// encodePack returns a pack file of objects, without deltas.
func encodePack(format ObjectFormat, objects []rawObject, level int) ([]byte, error) {
	kinds := map[string]byte{"commit": 1, "tree": 2, "blob": 3}
	var pack bytes.Buffer
	pack.WriteString("PACK")
	pack.Write(binary.BigEndian.AppendUint32(nil, 2))
	pack.Write(binary.BigEndian.AppendUint32(nil, uint32(len(objects))))
	z, err := zlib.NewWriterLevel(&pack, level)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		size := len(o.content)
		b := kinds[o.kind]<<4 | byte(size&15)
		for size >>= 4; size > 0; size >>= 7 {
			pack.WriteByte(b | 0x80)
			b = byte(size & 0x7f)
		}
		pack.WriteByte(b)
		z.Reset(&pack)
		if _, err := z.Write(o.content); err != nil {
			return nil, err
		}
		if err := z.Close(); err != nil {
			return nil, err
		}
	}
	h := format.newHash()
	h.Write(pack.Bytes())
	return h.Sum(pack.Bytes()), nil
}
