package submodule

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text  string
		names, urls map[string]string
	}{
		{"empty", "", map[string]string{}, map[string]string{}},
		{
			"two", "[submodule \"a\"]\n\tpath = deps/a\n\turl = ../a\n[submodule \"the/b\"]\n\tpath = b\n",
			map[string]string{"deps/a": "a", "b": "the/b"},
			map[string]string{"a": "../a"},
		},
		{"the last value counts", "[submodule \"a\"]\npath = x\nurl = 1\nurl = 2\n", map[string]string{"x": "a"}, map[string]string{"a": "2"}},
		{"names are case-sensitive, keys are not", "[SubModule \"A\"]\nPATH = x\n", map[string]string{"x": "A"}, map[string]string{}},
		{"a name that ends like a key", "[submodule \"a.path\"]\npath = x\n", map[string]string{"x": "a.path"}, map[string]string{}},
		{"other sections", "[core]\npath = x\n[submodule]\npath = y\n", map[string]string{}, map[string]string{}},
		{"syntax error", "[submodule \"a\"\npath = x\n", nil, nil},
	} {
		names, urls := ParseNames(c.text)
		if !maps.Equal(names, c.names) || !maps.Equal(urls, c.urls) {
			t.Errorf("%s: %q, %q", c.name, names, urls)
		}
	}
}

// A name of a submodule becomes part of a path.
func TestIsSafeName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"lib": true, "the/lib": true, "..lib": true, "a..b/c": true,
		"": false, "..": false, ".": false, "../lib": false, "a/../../lib": false, "a/..": false, "a\\..\\b": false, "/lib": false,
		"a\nb": false, "a\x00b": false,
	} {
		if got := isSafeName(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

// readNames ignores a .gitmodules that git would not read, and names that leave the directory of the repositories.
func TestReadNames(t *testing.T) {
	t.Parallel()
	const text = "[submodule \"good\"]\npath = a\n[submodule \"../bad\"]\npath = b\n"
	for _, c := range []struct {
		name  string
		write func(path string) error
		want  map[string]string
	}{
		{"missing", func(string) error { return nil }, nil},
		{"file", func(path string) error { return os.WriteFile(path, []byte(text), 0o644) }, map[string]string{"a": "good"}},
		{"directory", func(path string) error { return os.Mkdir(path, 0o755) }, nil},
		{"link", func(path string) error {
			if err := os.WriteFile(path+".real", []byte(text), 0o644); err != nil {
				return err
			}
			return os.Symlink(path+".real", path)
		}, nil},
		{"too large", func(path string) error { return os.WriteFile(path, []byte(text+strings.Repeat("#\n", 1<<20)), 0o644) }, nil},
	} {
		tree := t.TempDir()
		if err := c.write(filepath.Join(tree, ".gitmodules")); err != nil {
			t.Fatal(err)
		}
		if got, err := readNames(tree); err != nil || !maps.Equal(got, c.want) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
}

// The packed-refs of a populated submodule are sorted, as their header says, and have no symbolic refs.
func TestPackedRefs(t *testing.T) {
	t.Parallel()
	got := packedRefs(map[string]string{"refs/tags/v1": "22", "refs/remotes/origin/main": "11", "refs/remotes/origin/HEAD": "11"})
	const want = "# pack-refs with: sorted \n11 refs/remotes/origin/main\n22 refs/tags/v1\n"
	if got != want {
		t.Errorf("%q", got)
	}
}

// FuzzParseNames checks that no text makes the parser panic.
func FuzzParseNames(f *testing.F) {
	f.Add("[submodule \"a\"]\npath = x\nurl = y\n")
	f.Add("[submodule \"\"]\npath = x\n")
	f.Fuzz(func(t *testing.T, text string) {
		names, urls := ParseNames(text)
		if (names == nil) != (urls == nil) {
			t.Errorf("%q, %q", names, urls)
		}
	})
}
