package object

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/hex"
	"hash/adler32"
)

// HexOID returns the id of the object in hex.
func (o Raw) HexOID() string { return hex.EncodeToString(o.OID) }

// Raw is an object as it is hashed and written: its type, id and content.
type Raw struct {
	Kind    string // commit, tree or blob
	OID     []byte
	Content []byte
}

// ZlibStored encodes data as a zlib stream of stored, uncompressed blocks. Git compresses objects when it packs them,
// and setting up a compressor takes longer than writing the data.
func ZlibStored(data []byte) []byte {
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

// EncodePack returns a pack file of objects, without deltas and compressed at a zlib level.
func EncodePack(format Format, objects []Raw, level int) ([]byte, error) {
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
		size := len(o.Content)
		b := kinds[o.Kind]<<4 | byte(size&15)
		for size >>= 4; size > 0; size >>= 7 {
			pack.WriteByte(b | 0x80)
			b = byte(size & 0x7f)
		}
		pack.WriteByte(b)
		z.Reset(&pack)
		if _, err := z.Write(o.Content); err != nil {
			return nil, err
		}
		if err := z.Close(); err != nil {
			return nil, err
		}
	}
	h := format.NewHash()
	h.Write(pack.Bytes())
	return h.Sum(pack.Bytes()), nil
}
