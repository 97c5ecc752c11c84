// Package object encodes and decodes git objects: ids, trees, commits, signatures, loose files and packs. It works on
// bytes alone: it runs no git, knows no repository, and opens no file but a loose object it is given.
package object

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"
)

// MustHex decodes an id in hex that was checked before. It does not panic: of another string it decodes a part.
func MustHex(oid string) []byte {
	raw, _ := hex.DecodeString(oid)
	return raw
}

// Format is the hash by which a repository names its objects.
type Format string

// The object formats of git.
const (
	SHA1   Format = "sha1"
	SHA256 Format = "sha256"
)

// FormatOf returns the object format of an id in hex, by its length. It is SHA1 for any other string.
func FormatOf(oid string) Format {
	if len(oid) == 2*sha256.Size {
		return SHA256
	}
	return SHA1
}

// IDSize returns the number of bytes of an object id.
func (f Format) IDSize() int {
	if f == SHA256 {
		return sha256.Size
	}
	return sha1.Size
}

// ZeroID returns the id in hex that stands for no object.
func (f Format) ZeroID() string { return strings.Repeat("0", 2*f.IDSize()) }

func (f Format) NewHash() hash.Hash {
	if f == SHA256 {
		return sha256.New()
	}
	return sha1.New()
}

// HashSum returns the hash of data.
func (f Format) HashSum(data []byte) []byte {
	if f == SHA256 {
		sum := sha256.Sum256(data)
		return sum[:]
	}
	sum := sha1.Sum(data)
	return sum[:]
}

// IsZero reports whether all bytes are 0.
func IsZero(data []byte) bool {
	for _, b := range data {
		if b != 0 {
			return false
		}
	}
	return true
}

func HexOID(oid []byte) string { return hex.EncodeToString(oid) }

// RawOID decodes an id in hex to the bytes that a tree object has; nil where it is not hex.
func RawOID(oid string) []byte {
	raw, err := hex.DecodeString(oid)
	if err != nil {
		return nil
	}
	return raw
}

// IsOID reports whether s is a full SHA-1 or SHA-256 id in lower-case hex.
func IsOID(s string) bool {
	if len(s) != 40 && len(s) != 64 {
		return false
	}
	return strings.Trim(s, "0123456789abcdef") == ""
}

// HashObject returns the id of an object.
func HashObject(format Format, kind string, content []byte) []byte {
	h := format.NewHash()
	fmt.Fprintf(h, "%s %d\x00", kind, len(content))
	h.Write(content)
	return h.Sum(nil)
}
