package confine

import (
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// listenAt listens on a socket until the end of the test.
func listenAt(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	t.Cleanup(func() { _ = l.Close() })
}

// TestListeningSocketsFindsAll checks sockets with any names, more than one netlink message holds, and a socket that was
// renamed.
func TestListeningSocketsFindsAll(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/tmp", "sockets-") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	names := []string{"new\nline", "\xff\x80", " blanks ", "@at", "a\n0000000000000000: 00000002 00000000 00010000 0001 01 1 x"}
	for i := range 400 {
		names = append(names, "socket-with-a-long-name-"+strconv.Itoa(i))
	}
	var want []string
	for _, name := range names {
		path := filepath.Join(dir, name)
		listenAt(t, path)
		want = append(want, path)
	}
	listenAt(t, filepath.Join(dir, "before"))
	if err := os.Rename(filepath.Join(dir, "before"), filepath.Join(dir, "after")); err != nil {
		t.Fatal(err)
	}
	listenAt(t, "@"+dir) // abstract
	want = append(want, filepath.Join(dir, "after"))
	got := slices.DeleteFunc(listeningSockets(), func(path string) bool { return !strings.HasPrefix(path, dir) })
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestParseUnixTable(t *testing.T) {
	t.Parallel()
	const table = `Num       RefCount Protocol Flags    Type St Inode Path
000000006dc3f7fd: 00000003 00000000 00000000 0001 03 39375706
00000000a704bdf9: 00000002 00000000 00010000 0001 01  1583 /run/plain
00000000a704bdfa: 00000002 00000000 00010000 0001 01 1584 @abstract
continued
00000000a704bdfb: 00000002 00000000 00010000 0001 01 15840000 relative/two
lines

000000003f28155f: 00000003 00000000 00000000 0002 01 1583  /blanks  
`
	want := []boundSocket{
		{name: "/run/plain", uid: -1}, {name: "relative/two\nlines\n", uid: -1}, {name: " /blanks  ", uid: -1},
	}
	if got := parseUnixTable(table); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func FuzzParseUnixDiag(f *testing.F) {
	f.Add([]byte("\x08\x00\x00\x00/a\x00\x00\x0c\x00\x01\x00\x01\x00\x00\x00\x02\x00\x00\x00\x08\x00\x07\x00\x05\x00\x00\x00"))
	f.Add([]byte("\x05\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, attributes []byte) {
		if s := parseUnixDiag(attributes); strings.ContainsRune(s.name, 0) {
			t.Errorf("%q", s.name)
		}
	})
}

func TestWithParents(t *testing.T) {
	t.Parallel()
	if got, want := withParents([]string{"/a/b/c", "/a/x"}), []string{"/", "/a", "/a/b", "/a/b/c", "/a/x"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
