// Package cachefile encodes the values of caches, so that a reader gets what was written, or an error. It knows neither where
// they are stored nor whether they are still true.
package cachefile

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"reflect"
	"strings"
)

// Suffix ends the names of files with encoded values.
const Suffix = ".cache"

// Encode encodes the value of a cache. Decode takes a small fraction of the time that decoding JSON takes.
func Encode[T any](v T) ([]byte, error) {
	b, err := appendValue(nil, reflect.ValueOf(v))
	if err != nil {
		return nil, err
	}
	return binary.BigEndian.AppendUint32(b, checksum[T](b)), nil
}

// Decode decodes what Encode of the same version of git-agency has made of a T; anything else is an error.
func Decode[T any](data []byte) (v T, err error) {
	content := data[:max(0, len(data)-crc32.Size)]
	if sum := data[len(content):]; len(sum) < crc32.Size || binary.BigEndian.Uint32(sum) != checksum[T](content) {
		return v, errors.New("the cache was not written by this version, or not completely")
	}
	d := decoder{data: string(content)}
	d.decode(reflect.ValueOf(&v).Elem())
	if d.err == nil && d.data != "" {
		d.err = errDamaged
	}
	return v, d.err
}

// checksum returns a checksum of encoded data and of the fields of their type: a version of git-agency with other fields
// must not take a field that it does not find for empty.
func checksum[T any](data []byte) uint32 {
	var b strings.Builder
	writeFields(&b, reflect.TypeFor[T]())
	return crc32.Update(crc32.ChecksumIEEE([]byte(b.String())), crc32.IEEETable, data)
}

// writeFields writes the names, types and tags of all fields of a type, and of the types of these.
func writeFields(b *strings.Builder, t reflect.Type) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return
	}
	for f := range t.Fields() {
		if f.IsExported() {
			b.WriteString(f.Name + " " + f.Type.String() + " " + string(f.Tag) + "\n")
			writeFields(b, f.Type)
		}
	}
}
