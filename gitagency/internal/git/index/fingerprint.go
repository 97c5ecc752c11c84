package index

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Fingerprint returns a hash of the entries without their stat data: of modes, ids, flags and names.
func (x File) Fingerprint() string {
	h := sha256.New()
	size := x.Format.IDSize()
	some := make([]byte, 0, 1<<15) // hashing a few large blocks is faster than many small ones
	for left := x.Body; len(left) > 0; {
		entry := left
		_, left = NextEntry(left, size)
		entry = entry[:len(entry)-len(left)]
		some = binary.BigEndian.AppendUint32(some, uint32(len(entry)))
		some = append(some, entry[ModeOffset:ModeOffset+4]...)
		some = append(some, entry[StatSize:]...) // the object, the flags and the name
		if len(some) > 1<<14 {
			h.Write(some)
			some = some[:0]
		}
	}
	h.Write(some)
	return hex.EncodeToString(h.Sum(nil))
}
