package git

import (
	"strings"
	"testing"
)

func TestParseVersionReadsVendorVersions(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]Version{
		"git version 2.39.5\n":                  {2, 39, 5},
		"git version 2.39.5 (Apple Git-154)\n":  {2, 39, 5},
		"git version 2.46.0.windows.1\n":        {2, 46, 0},
		"git version 2.50.GIT\n":                {2, 50, 0},
		"git version 2.47.0.rc1\n":              {2, 47, 0},
		"git version 2.47.0-rc1\n":              {2, 47, 0},
		"git version 2.43.0.429.g432eaa2c6b\n":  {2, 43, 0},
		"git version 2.39\n":                    {2, 39, 0},
		"git version 3.0.0":                     {3, 0, 0},
		"git version 2.38.1.377.gabc (x) (y)\n": {2, 38, 1},
	} {
		if got, err := parseVersion(s); err != nil || got != want {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{
		"", "\n", "git", "git version", "git version ", "git version \n", "git version x", "git version 2.x",
		"git version .39", "version 2.39.5", "Git version 2.39.5", "git version 99999999999999999999.1", "git: 'version' is not",
	} {
		if got, err := parseVersion(s); err == nil {
			t.Errorf("%q: %v", s, got)
		}
	}
}

func TestAtLeastComparesNumbersNotStrings(t *testing.T) {
	t.Parallel()
	ascending := []Version{{}, {1, 99, 99}, {2, 0, 0}, {2, 9, 10}, {2, 10, 9}, {2, 37, 9}, {2, 38, 0}, {2, 38, 1}, {3, 0, 0}, {10, 0, 0}}
	for i, v := range ascending {
		for j, w := range ascending {
			if v.AtLeast(w) != (i >= j) {
				t.Errorf("%v at least %v: %v", v, w, v.AtLeast(w))
			}
		}
	}
}

func FuzzParseVersion(f *testing.F) {
	f.Add("git version 2.39.5 (Apple Git-154)\n")
	f.Add("git version 2.50.GIT")
	f.Add("git version 2.46.0.windows.1")
	f.Fuzz(func(t *testing.T, s string) {
		v, err := parseVersion(s)
		if err != nil {
			if v != (Version{}) {
				t.Errorf("%q: error with version %v", s, v)
			}
			return
		}
		if !strings.HasPrefix(s, "git version ") {
			t.Errorf("%q was parsed as %v", s, v)
		}
		again, err := parseVersion("git version " + v.String() + "\n")
		if err != nil || again != v {
			t.Errorf("%q was parsed as %v, but %s as %v, %v", s, v, v, again, err)
		}
	})
}
