package object

import (
	"bytes"
	"strings"
	"testing"
)

func FuzzNextTreeEntry(f *testing.F) {
	oid := strings.Repeat("7", 20)
	f.Add([]byte("100644 a\x00"+oid+"40000 b\x00"+oid), true)
	f.Add([]byte("160000 a b\x00"+oid+oid), false)
	f.Add([]byte("x \x00"+oid), true)
	f.Fuzz(func(t *testing.T, data []byte, short bool) {
		size := 32
		if short {
			size = 20
		}
		for left := data; ; {
			e, rest, ok := NextTreeEntry(left, size)
			if !ok {
				break
			}
			if len(e.Name) == 0 || len(e.OID) != size || bytes.Contains(e.Name, []byte{0}) || e.IsTree() && e.IsGitlink() || len(rest) >= len(left) {
				t.Fatalf("first entry of %q is %+v", left, e)
			}
			left = rest
		}
	})
}
