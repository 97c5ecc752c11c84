package guard

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestParseMounts(t *testing.T) {
	t.Parallel()
	got := parseMounts(`22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
25 22 254:0 /home/me/tree /mnt/again rw master:1 - ext4 /dev/vda rw
26 22 254:0 /with\040space\134and\011tab /mnt/new\012line rw - ext4 /dev/vda rw
27 22 0:30 / /mnt/é rw - tmpfs tmpfs rw
rubbish
`)
	want := []mount{
		{"22", "1", "254:0", "/", "/"},
		{"25", "22", "254:0", "/home/me/tree", "/mnt/again"},
		{"26", "22", "254:0", "/with space\\and\ttab", "/mnt/new\nline"},
		{"27", "22", "0:30", "/", "/mnt/é"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestUnescapeKeepsInvalidEscapes(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "", "plain": "plain", `\040`: " ", `a\040`: "a ", `\04`: `\04`, `\`: `\`, `\\040`: `\ `, `\999`: `\999`, `\134040`: `\040`, `\400`: `\400`,
	} {
		if got := unescape(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestOtherNames(t *testing.T) {
	t.Parallel()
	mounts := []mount{
		{"1", "0", "8:1", "/", "/"},
		{"2", "1", "8:1", "/home/me", "/mnt/me"},
		{"3", "1", "8:1", "/home/me/.ssh/old", "/mnt/part"},
		{"4", "1", "8:1", "/home/me/.netrc", "/mnt/file"},
		{"5", "1", "8:1", "/home", "/covered"},
		{"6", "5", "0:9", "/", "/covered/me"}, // covers part of the previous mount
		{"7", "1", "0:40", "/@home", "/subvolume/home"},
		{"8", "1", "0:40", "/", "/subvolume/top"},
		{"9", "1", "8:2", "/", "/single"},
		{"10", "1", "8:3", "/", "/home/me/.ssh/disk"},
		{"11", "1", "8:3", "/keys", "/mnt/disk"},
		{"12", "1", "8:1", "/home/me/.ssh", "/home/me/.ssh/again"},
	}
	for path, want := range map[string][]string{
		"/home/me/.netrc":           {"/mnt/file", "/mnt/me/.netrc"},
		"/home/me/.ssh":             {"/mnt/disk", "/mnt/me/.ssh", "/mnt/part"},
		"/mnt/part":                 {"/home/me/.ssh/again/old", "/home/me/.ssh/old", "/mnt/me/.ssh/old"},
		"/subvolume/home/me/.netrc": {"/subvolume/top/@home/me/.netrc"},
		"/subvolume/top/@home":      {"/subvolume/home"},
		"/subvolume/top/@other":     nil,
		"/single/x":                 nil,
		"/covered/me/.netrc":        nil, // of another file system
		"/var":                      nil,
	} {
		if got := newMountTable(mounts).OtherNames(path); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if got := newMountTable(mounts[:1]).OtherNames("/home"); got != nil {
		t.Errorf("without other mounts: %q", got)
	}
}

func TestRelationByDevice(t *testing.T) {
	t.Parallel()
	mounts := []mount{
		{"1", "0", "8:1", "/", "/"},
		{"2", "1", "8:1", "/home/tree/sub", "/mnt/part"},
		{"3", "1", "8:1", "/home", "/mnt/home"},
		{"4", "3", "0:9", "/", "/mnt/home/tree/over"}, // another file system mounted below
		{"5", "1", "8:2", "/", "/other"},
		{"6", "1", "8:1", "/var", "/twice"},
		{"7", "6", "8:1", "/home/tree", "/twice"}, // hides the previous mount
		{"8", "1", "8:1", "/home/tree/sub", "/hidden/x"},
		{"9", "1", "8:1", "/var", "/hidden"}, // hides the mount on /hidden/x
	}
	for _, c := range []struct {
		path, other string
		want        Relation
	}{
		{"/mnt/part", "/home/tree", Inside},
		{"/mnt/part/new", "/home/tree/sub", Inside},
		{"/mnt/part", "/home/tree/sub", Same},
		{"/home/tree", "/mnt/part", Encloses},
		{"/mnt/home/tree/sub/x", "/mnt/part/x", Same},
		{"/mnt/home/tree/over/sub", "/mnt/part", Disjoint},
		{"/other/home/tree", "/home/tree", Disjoint},
		{"/twice/sub", "/mnt/part", Same},
		{"/mnt/partial", "/home/tree", Disjoint},
		{"/hidden/x", "/home/tree", Disjoint},
		{"/hidden/x", "/var/x", Same},
		{"/home/tree2", "/mnt/home/tree", Disjoint},
	} {
		if got := relationByDevice(mounts, c.path, c.other); got != c.want {
			t.Errorf("%s and %s: %q, want %q", c.path, c.other, got, c.want)
		}
	}
	for name, list := range map[string][]mount{
		"no list": nil, "no root": mounts[1:], "only rubbish": {{"", "", "", "", ""}},
	} {
		if got := relationByDevice(list, "/a", "/a/b"); got != Disjoint {
			t.Errorf("%s: %q", name, got)
		}
	}
	// The parent of the root mount is not listed in a container; at boot it is the mount itself.
	for _, parent := range []string{"99", "1"} {
		list := []mount{{"1", parent, "8:1", "/", "/"}, {"2", "1", "8:1", "/a", "/m"}}
		if got := relationByDevice(list, "/m/x", "/a"); got != Inside {
			t.Errorf("parent %s: %q", parent, got)
		}
	}
}

func FuzzParseMounts(f *testing.F) {
	f.Add("22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n")
	f.Add("25 22 254:0 /a\\040b /m\\012n rw - ext4 x rw\n")
	f.Fuzz(func(t *testing.T, text string) {
		mounts := parseMounts(text)
		seen := map[string]bool{}
		for _, m := range mounts { // mount ids are unique
			if seen[m.id] {
				t.Skip()
			}
			seen[m.id] = true
		}
		relationByDevice(mounts, "/a/b", "/m")
		for _, m := range mounts {
			if strings.Contains(m.device, " ") || strings.Contains(m.id, "\n") {
				t.Errorf("%q: %+v", text, m)
			}
		}
	})
}
