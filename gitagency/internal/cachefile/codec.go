package cachefile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"time"
)

// The encoding of a value has no types, since checksum covers these:
//
//	bool, integer     varint
//	float             the eight bytes of its bits
//	string            length, bytes
//	slice             length + 1, elements; 0 for nil
//	map               length + 1, keys and values; 0 for nil
//	pointer           1, value; 0 for nil
//	struct            for each field that is not zero: distance from the last such field, value; then 0
//	time.Time         length, the bytes of MarshalBinary
//
// It is a fraction of the size of JSON, and every value has at least one byte, which bounds the memory that decoding needs.

var timeType = reflect.TypeFor[time.Time]()

// appendValue appends the encoding of a value. A type that the list above does not have is an error.
func appendValue(b []byte, v reflect.Value) ([]byte, error) {
	if v.Type() == timeType {
		text, err := v.Interface().(time.Time).MarshalBinary()
		return append(binary.AppendUvarint(b, uint64(len(text))), text...), err
	}
	var err error
	switch v.Kind() {
	case reflect.Bool:
		n := int64(0)
		if v.Bool() {
			n = 1
		}
		return binary.AppendVarint(b, n), nil
	case reflect.Int, reflect.Int64:
		return binary.AppendVarint(b, v.Int()), nil
	case reflect.Uint64:
		return binary.AppendUvarint(b, v.Uint()), nil
	case reflect.Float64:
		return binary.BigEndian.AppendUint64(b, math.Float64bits(v.Float())), nil
	case reflect.String:
		return append(binary.AppendUvarint(b, uint64(v.Len())), v.String()...), nil
	case reflect.Pointer:
		if v.IsNil() {
			return append(b, 0), nil
		}
		return appendValue(append(b, 1), v.Elem())
	case reflect.Slice, reflect.Map:
		if v.IsNil() {
			return append(b, 0), nil
		}
		b = binary.AppendUvarint(b, uint64(v.Len())+1)
		for key, elem := range v.Seq2() {
			if v.Kind() == reflect.Map {
				if b, err = appendValue(b, key); err != nil {
					return nil, err
				}
			}
			if b, err = appendValue(b, elem); err != nil {
				return nil, err
			}
		}
		return b, nil
	case reflect.Struct:
		last := -1
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				continue
			}
			if !v.Type().Field(i).IsExported() {
				return nil, fmt.Errorf("field %s of %s cannot be cached", v.Type().Field(i).Name, v.Type())
			}
			if b, err = appendValue(binary.AppendUvarint(b, uint64(i-last)), v.Field(i)); err != nil {
				return nil, err
			}
			last = i
		}
		return append(b, 0), nil
	}
	return nil, fmt.Errorf("a %s cannot be cached", v.Type())
}

var errDamaged = errors.New("the cache is damaged")

// decoder decodes values. The decoded strings are parts of data, which takes less time and memory than copies.
type decoder struct {
	data string // what is left to decode
	err  error  // why the rest cannot be decoded; it counts as empty
}

func (d *decoder) fail() { d.data, d.err = "", errDamaged }

// uvarint decodes a number, which is at most limit.
func (d *decoder) uvarint(limit uint64) uint64 {
	n := uint64(0)
	for i, shift := 0, 0; i < len(d.data) && shift < 64; i, shift = i+1, shift+7 {
		c := d.data[i]
		if n |= uint64(c&0x7f) << shift; c < 0x80 {
			if d.data = d.data[i+1:]; n > limit {
				break
			}
			return n
		}
	}
	d.fail()
	return 0
}

func (d *decoder) varint() int64 {
	n := d.uvarint(math.MaxUint64)
	return int64(n>>1) ^ -int64(n&1)
}

// bytes decodes bytes after their number.
func (d *decoder) bytes(n int) string {
	if n > len(d.data) {
		d.fail()
		return ""
	}
	text := d.data[:n]
	d.data = d.data[n:]
	return text
}

// text decodes the length of a string and the string.
func (d *decoder) text() string { return d.bytes(int(d.uvarint(uint64(len(d.data))))) }

// decode decodes into a value that is zero.
func (d *decoder) decode(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(d.varint() != 0)
	case reflect.Int, reflect.Int64:
		v.SetInt(d.varint())
	case reflect.Uint64:
		v.SetUint(d.uvarint(math.MaxUint64))
	case reflect.Float64:
		if bits := d.bytes(8); bits != "" {
			v.SetFloat(math.Float64frombits(binary.BigEndian.Uint64([]byte(bits))))
		}
	case reflect.String:
		v.SetString(d.text())
	case reflect.Pointer:
		if d.uvarint(1) != 0 {
			v.Set(reflect.New(v.Type().Elem()))
			d.decode(v.Elem())
		}
	case reflect.Slice:
		if n := int(d.uvarint(uint64(len(d.data)))); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n-1, n-1))
			for i := 0; i < n-1 && d.err == nil; i++ {
				d.decode(v.Index(i))
			}
		}
	case reflect.Map:
		d.decodeMap(v)
	case reflect.Struct:
		if t, is := v.Addr().Interface().(*time.Time); is {
			if t.UnmarshalBinary([]byte(d.text())) != nil {
				d.fail()
			}
			return
		}
		fields := v.NumField()
		for i := -1; ; {
			step := int(d.uvarint(uint64(fields - 1 - i)))
			if step == 0 {
				return
			}
			i += step
			d.decode(v.Field(i))
		}
	default:
		d.fail()
	}
}

func (d *decoder) decodeMap(v reflect.Value) {
	n := int(d.uvarint(uint64(len(d.data))))
	if n == 0 {
		return
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), n-1))
	key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
	for i := 0; i < n-1 && d.err == nil; i++ {
		key.SetZero()
		elem.SetZero()
		d.decode(key)
		d.decode(elem)
		v.SetMapIndex(key, elem)
	}
}
