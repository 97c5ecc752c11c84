package git

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
)

// store writes objects that we made. A few become files of their own, as git does it with what it fetches; of
// many it keeps the pack.
func (r *Repo) store(ctx context.Context, format ObjectFormat, objects []object) error {
	const few = 100
	if len(objects) == 0 {
		return nil
	}
	args, level := []string{"unpack-objects", "-q"}, zlib.NoCompression // git packs each of them again
	if len(objects) > few {
		args, level = []string{"index-pack", "--stdin"}, zlib.BestSpeed
	}
	pack, err := packObjects(format, objects, level)
	if err != nil {
		return err
	}
	_, err = r.change(ctx, place{stdin: string(pack)}, args...)
	return err
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
