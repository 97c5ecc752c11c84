package confine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestOrderMountsPutsOuterMountsFirst(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		plan Plan
		want string
	}{
		{Plan{}, ""},
		{
			Plan{Private: []string{"/tmp"}, Writable: []string{"/tmp/a/b", "/tmp/a"}, Hidden: []string{"/home"}, Kept: []string{"/home/u/bin"}},
			"hidden /home, kept /home/u/bin in /home, private /tmp, writable /tmp/a in /tmp, writable /tmp/a/b in /tmp/a",
		},
		{Plan{Hidden: []string{"/a-b", "/a"}, Kept: []string{"/a/c"}}, "hidden /a, kept /a/c in /a, hidden /a-b"}, // "-" sorts before "/"
		{Plan{Hidden: []string{"/a/b/c", "/a/b", "/a/b"}, Kept: []string{"/a/b/c/d"}}, "hidden /a/b, kept /a/b/c/d in /a/b"},
		{Plan{Hidden: []string{"/a", "/a/b/c"}, Kept: []string{"/a/b"}}, "hidden /a, kept /a/b in /a, hidden /a/b/c in /a/b"},
		{Plan{Overlays: []OverlayMount{{"/r/.git", "/u", "/w"}}, Writable: []string{"/r"}, Fixed: []string{"/r/.git/config"}}, "writable /r, layered /r/.git in /r; fixed /r/.git/config"},
		{Plan{Fixed: []string{"/etc/x/y"}}, "; fixed /etc/x/y"},
		{Plan{Writable: []string{"/w"}, Fixed: []string{"/w/.git", "/w/a/b/.git", "/w/a/c"}}, "writable /w; fixed /w/.git, held /w/a, held /w/a/b, fixed /w/a/b/.git, fixed /w/a/c"},
		{Plan{Writable: []string{"/w"}, Hidden: []string{"/w/a/b/secret"}}, "writable /w, hidden /w/a/b/secret in /w; held /w/a, held /w/a/b"},
		{Plan{Private: []string{"/w"}, Writable: []string{"/w/a/b"}, Fixed: []string{"/w/a/b"}}, "private /w, writable /w/a/b in /w; held /w/a, fixed /w/a/b"},
	} {
		walls, fixtures, err := orderMounts(c.plan)
		if err != nil {
			t.Errorf("%+v: %v", c.plan, err)
		}
		got := mountList(walls, walls)
		if len(fixtures) > 0 {
			got += "; " + mountList(fixtures, walls)
		}
		if got != c.want {
			t.Errorf("%+v:\ngot  %s\nwant %s", c.plan, got, c.want)
		}
	}
}

// mountList formats mounts as "kind path in parent", separated by commas.
func mountList(walls, among []mountSpec) string {
	var words []string
	for _, w := range walls {
		word := fmt.Sprintf("%s %s", w.kind, w.path)
		if w.parent >= 0 {
			word += " in " + among[w.parent].path
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

func TestOrderMountsRefusesInvalidPlans(t *testing.T) {
	t.Parallel()
	for want, plans := range map[string][]Plan{
		"plain absolute path": {
			{Hidden: []string{""}},
			{Private: []string{"tmp"}},
			{Kept: []string{"/a/../b"}},
			{Writable: []string{"/a/"}},
			{Writable: []string{"/a\x00b"}},
			{Fixed: []string{"a"}},
			{Overlays: []OverlayMount{{Path: "/a", Upper: "u", Work: "/w"}}},
			{Overlays: []OverlayMount{{Path: "/a", Upper: "/u"}}},
		},
		"must not be changed by a plan": {
			{Writable: []string{"/"}},
			{Hidden: []string{"/proc"}},
			{Writable: []string{"/proc/sys"}},
			{Private: []string{"/dev"}},
			{Fixed: []string{"/"}},
		},
		"cannot be both": {
			{Hidden: []string{"/a"}, Writable: []string{"/a"}},
			{Private: []string{"/a"}, Hidden: []string{"/a"}},
			{Overlays: []OverlayMount{{"/a", "/u", "/w"}, {"/a", "/x", "/y"}}},
		},
	} {
		for _, p := range plans {
			if _, _, err := orderMounts(p); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v", p, err)
			}
		}
	}
}

func FuzzOrderMounts(f *testing.F) {
	f.Add("/a", "/a/b", "/a-b", "/a/b/c")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		walls, fixtures, err := orderMounts(Plan{Private: []string{a}, Hidden: []string{b}, Writable: []string{c}, Fixed: []string{d}})
		if err != nil {
			return
		}
		for i, w := range walls {
			if w.parent >= i || w.parent >= 0 && !isWithin(w.path, walls[w.parent].path) {
				t.Errorf("%+v", walls)
			}
		}
		if !slices.ContainsFunc(fixtures, func(w mountSpec) bool { return w.kind == fixed && w.path == d }) || !slices.IsSortedFunc(fixtures, byPath) {
			t.Errorf("%+v", fixtures)
		}
	})
}
