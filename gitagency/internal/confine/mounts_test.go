package confine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

func TestOrderMountsPutsOuterMountsFirst(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		plan walls.Plan
		want string
	}{
		{walls.Plan{}, ""},
		{
			walls.Plan{Private: []string{"/tmp"}, Writable: []string{"/tmp/a/b", "/tmp/a"}, Hidden: []string{"/home"}, Kept: []string{"/home/u/bin"}},
			"hidden /home, kept /home/u/bin in /home, private /tmp, writable /tmp/a in /tmp, writable /tmp/a/b in /tmp/a",
		},
		{walls.Plan{Hidden: []string{"/a-b", "/a"}, Kept: []string{"/a/c"}}, "hidden /a, kept /a/c in /a, hidden /a-b"}, // "-" sorts before "/"
		{walls.Plan{Hidden: []string{"/a/b/c", "/a/b", "/a/b"}, Kept: []string{"/a/b/c/d"}}, "hidden /a/b, kept /a/b/c/d in /a/b"},
		{walls.Plan{Hidden: []string{"/a", "/a/b/c"}, Kept: []string{"/a/b"}}, "hidden /a, kept /a/b in /a, hidden /a/b/c in /a/b"},
		{walls.Plan{Overlays: []walls.OverlayMount{{Path: "/r/.git", Upper: "/u", Work: "/w"}}, Writable: []string{"/r"}, Fixed: []string{"/r/.git/config"}}, "writable /r, layered /r/.git in /r; fixed /r/.git/config"},
		{walls.Plan{Fixed: []string{"/etc/x/y"}}, "; fixed /etc/x/y"},
		{walls.Plan{Writable: []string{"/w"}, Fixed: []string{"/w/.git", "/w/a/b/.git", "/w/a/c"}}, "writable /w; fixed /w/.git, held /w/a, held /w/a/b, fixed /w/a/b/.git, fixed /w/a/c"},
		{walls.Plan{Writable: []string{"/w"}, Hidden: []string{"/w/a/b/secret"}}, "writable /w, hidden /w/a/b/secret in /w; held /w/a, held /w/a/b"},
		{walls.Plan{Private: []string{"/w"}, Writable: []string{"/w/a/b"}, Fixed: []string{"/w/a/b"}}, "private /w, writable /w/a/b in /w; held /w/a, fixed /w/a/b"},
	} {
		mounts, fixtures, err := orderMounts(c.plan)
		if err != nil {
			t.Errorf("%+v: %v", c.plan, err)
		}
		got := mountList(mounts, mounts)
		if len(fixtures) > 0 {
			got += "; " + mountList(fixtures, mounts)
		}
		if got != c.want {
			t.Errorf("%+v:\ngot  %s\nwant %s", c.plan, got, c.want)
		}
	}
}

// mountList formats mounts as "kind path in parent", separated by commas.
func mountList(mounts, among []mountSpec) string {
	var words []string
	for _, w := range mounts {
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
	for want, plans := range map[string][]walls.Plan{
		"plain absolute path": {
			{Hidden: []string{""}},
			{Private: []string{"tmp"}},
			{Kept: []string{"/a/../b"}},
			{Writable: []string{"/a/"}},
			{Writable: []string{"/a\x00b"}},
			{Fixed: []string{"a"}},
			{Overlays: []walls.OverlayMount{{Path: "/a", Upper: "u", Work: "/w"}}},
			{Overlays: []walls.OverlayMount{{Path: "/a", Upper: "/u"}}},
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
			{Overlays: []walls.OverlayMount{{Path: "/a", Upper: "/u", Work: "/w"}, {Path: "/a", Upper: "/x", Work: "/y"}}},
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
		mounts, fixtures, err := orderMounts(walls.Plan{Private: []string{a}, Hidden: []string{b}, Writable: []string{c}, Fixed: []string{d}})
		if err != nil {
			return
		}
		for i, w := range mounts {
			if w.parent >= i || w.parent >= 0 && !guard.IsOrContains(mounts[w.parent].path, w.path) {
				t.Errorf("%+v", mounts)
			}
		}
		if !slices.ContainsFunc(fixtures, func(w mountSpec) bool { return w.kind == fixed && w.path == d }) || !slices.IsSortedFunc(fixtures, byPath) {
			t.Errorf("%+v", fixtures)
		}
	})
}
