package object_test

import (
	"bytes"
	"compress/zlib"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// validPack returns a pack with each type of entry, and the size of its objects.
func validPack(format object.Format) ([]byte, object.PackSize) {
	var p gittest.Pack
	blob := p.Add(gittest.PackBlob, 300, "", strings.Repeat("abc", 100))
	p.Add(gittest.PackCommit, 5, "", "tree ")
	p.Add(gittest.PackBlob, 0, "", "")
	delta := gittest.RepeatDelta(300, 4)
	p.Add(gittest.PackOfsDelta, len(delta), p.OffsetTo(blob), delta)
	p.Add(gittest.PackRefDelta, len(delta), strings.Repeat("\xee", format.IDSize()), delta)
	return p.Bytes(format.NewHash()), object.PackSize{Objects: 5, Inflated: int64(305 + 2*len(delta) + 2400), Largest: 1200}
}

func TestCopyPackAddsUpObjects(t *testing.T) {
	t.Parallel()
	for _, format := range []object.Format{object.SHA1, object.SHA256} {
		pack, want := validPack(format)
		for name, src := range map[string]io.Reader{
			"at once": bytes.NewReader(pack), "byte by byte": iotest.OneByteReader(bytes.NewReader(pack)), "with the error": iotest.DataErrReader(bytes.NewReader(pack)),
			"with more behind": io.MultiReader(bytes.NewReader(pack), strings.NewReader("more")),
		} {
			var dst bytes.Buffer
			got, err := object.CopyPack(&dst, src, format, want.Inflated)
			if err != nil || got != want || !bytes.Equal(dst.Bytes(), pack) {
				t.Errorf("%s, %s: %+v, %v, %d bytes of %d", format, name, got, err, dst.Len(), len(pack))
			}
		}
		if got, err := object.CopyPack(io.Discard, bytes.NewReader(pack), format, want.Inflated-1); !errors.Is(err, object.ErrPackTooLarge) {
			t.Errorf("%s: one byte too many: %+v, %v", format, got, err)
		}
		for cut := range len(pack) {
			var dst bytes.Buffer
			var invalid *object.InvalidPackError
			if _, err := object.CopyPack(&dst, bytes.NewReader(pack[:cut]), format, 0); !errors.As(err, &invalid) || dst.Len() != cut {
				t.Errorf("%s: cut off at %d: %v, %d bytes", format, cut, err, dst.Len())
			}
		}
	}
}

// A pack of some kilobytes that stands for gigabytes is found without making them.
func TestCopyPackFindsDeltaBomb(t *testing.T) {
	t.Parallel()
	var p gittest.Pack
	p.AddBomb(60)
	pack := p.Bytes(object.SHA1.NewHash())
	if len(pack) > 32<<10 {
		t.Errorf("the pack has %d bytes", len(pack))
	}
	size, err := object.CopyPack(io.Discard, bytes.NewReader(pack), object.SHA1, 0)
	if err != nil || size.Objects != 61 || size.Inflated < 29<<30 || size.Largest != 512<<20 {
		t.Errorf("got %+v, %v", size, err)
	}
	var dst bytes.Buffer
	if size, err = object.CopyPack(&dst, bytes.NewReader(pack), object.SHA1, 16<<30); !errors.Is(err, object.ErrPackTooLarge) || size.Inflated > 16<<30 {
		t.Errorf("got %+v, %v", size, err)
	}
}

// An entry that inflates to more than its header says is not inflated any further, and one that is a bomb by its header
// not at all.
func TestCopyPackRefusesInvalidEntries(t *testing.T) {
	t.Parallel()
	zeros := compress(t, io.LimitReader(zeroReader{}, 64<<20))
	for name, add := range map[string]func(p *gittest.Pack){
		"larger than its size":  func(p *gittest.Pack) { p.AddRaw(gittest.PackBlob, 100, "", zeros) },
		"smaller than its size": func(p *gittest.Pack) { p.Add(gittest.PackBlob, 4, "", "abc") },
		"a delta that is larger": func(p *gittest.Pack) {
			p.Add(gittest.PackRefDelta, 4, strings.Repeat("x", 20), gittest.RepeatDelta(9, 9))
		},
		"a delta without a size": func(p *gittest.Pack) { p.Add(gittest.PackRefDelta, 1, strings.Repeat("x", 20), "\x80") },
		"a delta of no bytes":    func(p *gittest.Pack) { p.Add(gittest.PackRefDelta, 0, strings.Repeat("x", 20), "") },
		"a delta size overflow": func(p *gittest.Pack) {
			p.Add(gittest.PackRefDelta, 12, strings.Repeat("x", 20), "\x01"+strings.Repeat("\xff", 11))
		},
		"a negative delta size": func(p *gittest.Pack) {
			p.Add(gittest.PackRefDelta, 11, strings.Repeat("x", 20), "\x01"+strings.Repeat("\xff", 9)+"\x01")
		},
		"a base before the pack":   func(p *gittest.Pack) { p.Add(gittest.PackOfsDelta, 4, "\x7f", "\x01\x01\x01x") },
		"itself as its base":       func(p *gittest.Pack) { p.Add(gittest.PackOfsDelta, 4, "\x00", "\x01\x01\x01x") },
		"an endless base offset":   func(p *gittest.Pack) { p.Add(gittest.PackOfsDelta, 4, strings.Repeat("\xff", 30), "\x01\x01\x01x") },
		"no type":                  func(p *gittest.Pack) { p.Add(0, 1, "", "x") },
		"an unknown type":          func(p *gittest.Pack) { p.Add(5, 1, "", "x") },
		"no compressed data":       func(p *gittest.Pack) { p.AddRaw(gittest.PackBlob, 1, "", "abcdefgh") },
		"a wrong zlib checksum":    func(p *gittest.Pack) { p.AddRaw(gittest.PackBlob, 64<<20, "", zeros[:len(zeros)-1]+"x") },
		"a size without an end":    func(p *gittest.Pack) { p.AddRaw(gittest.PackBlob, 1<<62, "", strings.Repeat("\xff", 30)) },
		"a size that is too large": func(p *gittest.Pack) { p.AddRaw(gittest.PackBlob, 1<<58, "", zeros) },
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			var p gittest.Pack
			p.Add(gittest.PackBlob, 3, "", "abc")
			add(&p)
			var invalid *object.InvalidPackError
			size, err := object.CopyPack(io.Discard, bytes.NewReader(p.Bytes(object.SHA1.NewHash())), object.SHA1, 1<<40)
			if name == "a size that is too large" {
				if !errors.Is(err, object.ErrPackTooLarge) {
					t.Errorf("got %v", err)
				}
			} else if !errors.As(err, &invalid) || size.Objects != 1 {
				t.Errorf("got %+v, %v", size, err)
			}
		})
	}
	var p gittest.Pack
	p.Add(gittest.PackBlob, 3, "", "abc")
	for name, pack := range map[string]string{
		"too many objects": string(p.BytesWithCount(1<<32-1, object.SHA1.NewHash())),
		"another version":  "PACK\x00\x00\x00\x04\x00\x00\x00\x00" + strings.Repeat("x", 20),
		"something else":   "something that is not a pack",
	} {
		var invalid *object.InvalidPackError
		if _, err := object.CopyPack(io.Discard, strings.NewReader(pack), object.SHA1, 0); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCopyPackReturnsErrorsOfReaderAndWriter(t *testing.T) {
	t.Parallel()
	pack, _ := validPack(object.SHA1)
	broken := errors.New("it broke")
	if _, err := object.CopyPack(io.Discard, io.MultiReader(bytes.NewReader(pack[:60]), iotest.ErrReader(broken)), object.SHA1, 0); err != broken {
		t.Errorf("reader: %v", err)
	}
	read, write := io.Pipe()
	_ = read.CloseWithError(broken)
	if _, err := object.CopyPack(write, bytes.NewReader(pack), object.SHA1, 0); !errors.Is(err, broken) {
		t.Errorf("writer: %v", err)
	}
}

// compress returns the zlib stream of r.
func compress(t *testing.T, r io.Reader) string {
	t.Helper()
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	if _, err := io.Copy(w, r); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return z.String()
}

// zeroReader is a reader of zero bytes without end.
type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// FuzzCopyPack: what reaches dst is a prefix of src, and all of a valid pack; the size stays within the limit.
func FuzzCopyPack(f *testing.F) {
	for _, format := range []object.Format{object.SHA1, object.SHA256} {
		pack, _ := validPack(format)
		f.Add(pack, format == object.SHA256)
	}
	var bomb gittest.Pack
	bomb.AddBomb(3)
	f.Add(bomb.Bytes(object.SHA1.NewHash()), false)
	f.Fuzz(func(t *testing.T, data []byte, sha256 bool) {
		format := object.SHA1
		if sha256 {
			format = object.SHA256
		}
		const limit = 64 << 20
		var dst bytes.Buffer
		size, err := object.CopyPack(&dst, bytes.NewReader(data), format, limit)
		if !bytes.HasPrefix(data, dst.Bytes()) || size.Inflated < 0 || size.Inflated > limit || size.Largest > limit {
			t.Fatalf("%d bytes of %d, %+v, %v", dst.Len(), len(data), size, err)
		}
		var invalid *object.InvalidPackError
		if err != nil && !errors.As(err, &invalid) && !errors.Is(err, object.ErrPackTooLarge) {
			t.Fatalf("the error is %v", err)
		}
		if err == nil && dst.Len() < 12+format.IDSize() {
			t.Fatalf("a pack of %d bytes is valid", dst.Len())
		}
	})
}
