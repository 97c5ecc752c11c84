package git

import "testing"

func TestOffersFeatureFromItsFirstVersion(t *testing.T) {
	t.Parallel()
	for v, want := range map[Version]string{
		{2, 38, 0}:  "",
		{2, 39, 99}: "",
		{2, 40, 0}:  "merge-tree --merge-base;",
		{2, 43, 9}:  "merge-tree --merge-base;",
		{2, 44, 0}:  "merge-tree --merge-base;replay;",
		{3, 0, 0}:   "merge-tree --merge-base;replay;",
	} {
		got := ""
		for _, f := range Features {
			if v.Offers(f) {
				got += f.Name + ";"
			}
		}
		if got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}
