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

// few is how many objects become files of their own; of more there is a pack.
const few = 100

// store writes objects that we made, and makes sure that some lasts that git has written without doing so. A few we
// write ourselves, all at the same time: git, which does one after the other, waits for the disk at each.
func (r *Repo) store(ctx context.Context, format ObjectFormat, objects []object, written ...string) error {
	_, err := r.storeAt(ctx, format, objects, written...)
	return err
}

// storeAt is store that says where the objects are that we made.
func (r *Repo) storeAt(ctx context.Context, format ObjectFormat, objects []object, written ...string) (at []string, err error) {
	for _, o := range objects {
		at = append(at, r.loosePath(o.name()))
	}
	_, shared := r.Config.Last("core.sharedrepository") // then who may read them is for git to say
	if len(objects) > few || shared && len(objects) > 0 {
		many, level := len(objects) > few, zlib.BestSpeed
		if !many {
			level = zlib.NoCompression // git packs each of them again
		}
		pack, err := packObjects(format, objects, level)
		if err != nil {
			return nil, err
		}
		if many {
			name, err := r.storePack(ctx, bytes.NewReader(pack), "index-pack", "--stdin")
			if err != nil {
				return nil, err
			}
			at = []string{name}
		} else if _, err := r.change(ctx, place{stdin: string(pack)}, "unpack-objects", "-q"); err != nil {
			return nil, err
		}
		if !many { // what is packed already gets no file
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
		run(func() error { return r.storeLoose(o) })
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
	if r.rehearsal == "" {
		for _, o := range objects {
			written = append(written, o.name())
		}
		if err := r.syncOne(written); err != nil {
			return nil, err
		}
	}
	return at, context.Cause(ctx)
}

// syncOne syncs the last object that has a file, for all of them, as git does it in a batch: what was written out before
// is on the disk when this returns.
func (r *Repo) syncOne(oids []string) error {
	for _, oid := range slices.Backward(oids) {
		if err := durable.Sync(r.loosePath(oid)); !errors.Is(err, fs.ErrNotExist) { // else it is in a pack
			return err
		}
	}
	return nil
}

// loosePath is where an object is that has a file to itself.
func (r *Repo) loosePath(oid string) string {
	objects := filepath.Join(r.CommonDir, "objects")
	if r.rehearsal != "" {
		objects = filepath.Join(r.rehearsal, "objects")
	}
	return filepath.Join(objects, oid[:2], oid[2:])
}

// storeLoose gives an object a file, as git does: one that is there is only made to look new, so that nobody who
// tidies up takes it for old. Who tidies up at once takes away what it is not yet done with: then it begins again.
func (r *Repo) storeLoose(o object) (err error) {
	const tries = 5
	for range tries {
		if err = r.tryLoose(o); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}

// tryLoose is storeLoose, once.
func (r *Repo) tryLoose(o object) (err error) {
	path := r.loosePath(o.name())
	if now := time.Now(); os.Chtimes(path, now, now) == nil {
		return nil
	}
	// Git removes it, if we do not live to. In a container the next one may well have our number, so that does not tell.
	temp := filepath.Join(filepath.Dir(path), fmt.Sprintf("tmp_obj_%016x", rand.Uint64()))
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if errors.Is(err, fs.ErrNotExist) { // nothing begins with these two digits yet
		if err = os.MkdirAll(filepath.Dir(path), 0o777); err == nil {
			f, err = os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
		}
	}
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeIfThere(temp))
		}
	}()
	_, err = f.Write(deflated(slices.Concat(fmt.Appendf(nil, "%s %d\x00", o.kind, len(o.content)), o.content)))
	if err == nil && r.rehearsal == "" {
		err = durable.WriteOut(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

// deflated is data in the form that zlib has, but not a byte smaller: whoever packs objects does that, and what a
// compressor needs to begin with takes longer than to write all of this.
func deflated(data []byte) []byte {
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

// syncLoose makes an object last that git has just written. One that was there before may be in a pack.
func (r *Repo) syncLoose(oid string) error {
	if r.rehearsal != "" {
		return nil
	}
	f, err := os.Open(r.loosePath(oid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(durable.WriteOut(f), f.Close())
}

// packObjects is a pack with these objects, each of them whole.
func packObjects(format ObjectFormat, objects []object, level int) ([]byte, error) {
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
	h := format.hash()
	h.Write(pack.Bytes())
	return h.Sum(pack.Bytes()), nil
}
