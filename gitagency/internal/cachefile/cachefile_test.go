package cachefile

import (
	"reflect"
	"testing"
)

type part struct {
	Numbers map[string]int
	Texts   []string
}

type whole struct {
	Name  string
	Parts []*part
}

func TestDecodeReturnsWhatWasEncoded(t *testing.T) {
	t.Parallel()
	want := whole{"x", []*part{{Numbers: map[string]int{"zero": 0, "one": 1}}, {Texts: []string{"a", ""}}}}
	data, err := Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Decode[whole](data); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v and %v, want %+v", got, err, want)
	}
}

// A type of the same name with other fields is that of another version.
func TestDecodeRefusesOtherFields(t *testing.T) {
	t.Parallel()
	type field struct{ A int }
	type tagged struct {
		A int `json:"b"`
	}
	type more struct{ A, B int }
	type within struct{ Fields []map[string]*field }
	type withinMore struct{ Fields []map[string]*more }
	refuse := func(name string, data []byte, err error, decode func([]byte) error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if decode(data) == nil {
			t.Errorf("%s: no error", name)
		}
	}
	data, err := Encode(field{7})
	refuse("tag", data, err, func(data []byte) error { _, err := Decode[tagged](data); return err })
	refuse("another field", data, err, func(data []byte) error { _, err := Decode[more](data); return err })
	data, err = Encode(within{})
	refuse("field of a field", data, err, func(data []byte) error { _, err := Decode[withinMore](data); return err })
}

func TestDecodeRefusesDamage(t *testing.T) {
	t.Parallel()
	data, err := Encode(whole{"x", []*part{{Texts: []string{"a", "b"}}}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		for bit := range 8 {
			data[i] ^= 1 << bit
			if got, err := Decode[whole](data); err == nil {
				t.Errorf("bit %d of byte %d flipped: got %+v", bit, i, got)
			}
			data[i] ^= 1 << bit
		}
		if got, err := Decode[whole](data[:i]); err == nil {
			t.Errorf("cut to %d bytes: got %+v", i, got)
		}
	}
}
