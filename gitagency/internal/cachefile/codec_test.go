package cachefile

import (
	"math"
	"reflect"
	"testing"
	"time"
)

type values struct {
	Bool   bool
	Int    int
	Int64  int64
	Uint64 uint64
	Float  float64
	Text   string
	Slice  []part
	Map    map[string][]*part
	Ptr    *int
	Inner  part
}

type times struct {
	At, Zero, Zoned time.Time
	Ptr, ZeroPtr    *time.Time
}

func someValues() map[string]values {
	return map[string]values{
		"zero":     {},
		"smallest": {Bool: true, Int: math.MinInt, Int64: math.MinInt64, Float: math.Copysign(0, -1)},
		"largest":  {Int: math.MaxInt, Int64: math.MaxInt64, Uint64: math.MaxUint64, Float: math.MaxFloat64, Text: "\x00\xff"},
		"empty":    {Slice: []part{}, Map: map[string][]*part{}, Ptr: new(int), Inner: part{Texts: []string{}}},
		"nested":   {Slice: []part{{}, {Numbers: map[string]int{"a": -1}}}, Map: map[string][]*part{"": {nil, {Texts: []string{"x"}}}, "b": nil}, Inner: part{Texts: []string{"", "y"}}},
	}
}

// Nothing changes by being encoded: neither is nil taken for empty, nor a pointer to zero for nil.
func TestDecodePreservesValues(t *testing.T) {
	t.Parallel()
	for name, want := range someValues() {
		data, err := Encode(want)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Decode[values](data); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v and %v, want %+v", name, got, err, want)
		}
	}
}

// Times keep their zone, as in JSON.
func TestDecodePreservesTimes(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	want := times{At: at, Zoned: at.In(time.FixedZone("", 5400)), Ptr: &at, ZeroPtr: new(time.Time)}
	data, err := Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Decode[times](data); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v and %v, want %+v", got, err, want)
	}
}

// A value that would not be decoded as it was is refused.
func TestEncodeRefusesTypes(t *testing.T) {
	t.Parallel()
	if _, err := Encode(struct{ text string }{"x"}); err == nil {
		t.Error("a field that is not exported is encoded")
	}
	if _, err := Encode(struct{ Any any }{1}); err == nil {
		t.Error("an interface is encoded")
	}
}

// FuzzDecode decodes any bytes, as if the checksum were right: whatever can be decoded can be encoded again, and decoded to
// the same.
func FuzzDecode(f *testing.F) {
	for _, v := range someValues() {
		data, err := appendValue(nil, reflect.ValueOf(v))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	decode := func(data string) (v values, err error) {
		d := decoder{data: data}
		d.decode(reflect.ValueOf(&v).Elem())
		return v, d.err
	}
	f.Fuzz(func(t *testing.T, data string) {
		v, err := decode(data)
		if err != nil {
			return
		}
		again, err := appendValue(nil, reflect.ValueOf(v))
		if err != nil {
			t.Fatal(err)
		}
		if w, err := decode(string(again)); err != nil || !sameValues(v, w) {
			t.Errorf("%q: got %+v and %v, want %+v", again, w, err, v)
		}
	})
}

// sameValues is reflect.DeepEqual for values without NaN, which equals nothing.
func sameValues(v, w values) bool {
	return reflect.DeepEqual(v, w) || !reflect.DeepEqual(v, v)
}
