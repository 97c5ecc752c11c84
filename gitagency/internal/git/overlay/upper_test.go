package overlay

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

// newUpperDir creates an upper directory over a git directory, as a sandbox leaves it.
func newUpperDir(t *testing.T) string {
	t.Helper()
	upper := filepath.Join(gittest.TempDir(t), "upper")
	for name, content := range map[string]string{
		"worktrees/" + gittest.SandboxName + "/HEAD":      "ref: refs/heads/x\n",
		"worktrees/" + gittest.SandboxName + "/index":     "DIRC",
		"worktrees/" + gittest.SandboxName + "/logs/HEAD": "log\n",
		"refs/heads/agency/x":                             strings.Repeat("1", 40) + "\n",
		"logs/refs/heads/agency/x":                        "log\n",
		"objects/ab/cdef":                                 "x",
		"config":                                          "[core]\n",
	} {
		path := filepath.Join(upper, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return upper
}

// mustFingerprint returns the fingerprint of an upper directory.
func mustFingerprint(t *testing.T, upper string) string {
	t.Helper()
	sum, err := Fingerprint(upper, gittest.SandboxName)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func TestFingerprintChangesWithHeadIndexAndRefs(t *testing.T) {
	t.Parallel()
	write := func(name, content string) func(string) error {
		return func(upper string) error {
			path := filepath.Join(upper, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			return os.WriteFile(path, []byte(content), 0o644)
		}
	}
	tests := map[string]struct {
		change func(upper string) error
		same   bool
	}{
		"no change":   {func(string) error { return nil }, true},
		"objects":     {write("objects/12/34", "x"), true},
		"logs":        {write("logs/refs/heads/agency/x", "more\n"), true},
		"log of HEAD": {write("worktrees/"+gittest.SandboxName+"/logs/HEAD", "more\n"), true},
		"a lock": {func(u string) error {
			return firstError(write("config.lock", "")(u), os.Remove(filepath.Join(u, "config.lock")))
		}, true},
		"HEAD":               {write("worktrees/"+gittest.SandboxName+"/HEAD", "ref: refs/heads/y\n"), false},
		"HEAD, same content": {write("worktrees/"+gittest.SandboxName+"/HEAD", "ref: refs/heads/x\n"), false},
		"index":              {write("worktrees/"+gittest.SandboxName+"/index", "DIRD"), false},
		"a ref":              {write("refs/heads/agency/x", strings.Repeat("2", 40)+"\n"), false},
		"a new ref":          {write("refs/heads/y", strings.Repeat("2", 40)+"\n"), false},
		"packed refs":        {write("packed-refs", "x"), false},
		"config":             {write("config", "[core ]\n"), false},
		"a ref removed":      {func(u string) error { return os.Remove(filepath.Join(u, "refs/heads/agency/x")) }, false},
		"a link":             {func(u string) error { return os.Symlink("config", filepath.Join(u, "HEAD")) }, false},
		"a pipe":             {func(u string) error { return syscall.Mkfifo(filepath.Join(u, "HEAD"), 0o644) }, false},
		"old mtime": {func(u string) error {
			path := filepath.Join(u, "worktrees", gittest.SandboxName, "index")
			fi, err := os.Stat(path)
			if err != nil {
				return err
			}
			return firstError(os.WriteFile(path, []byte("DIRX"), 0o644), os.Chtimes(path, fi.ModTime(), fi.ModTime()))
		}, false},
		"a mode": {func(u string) error { return os.Chmod(filepath.Join(u, "refs"), 0o700) }, false},
		"a directory for a file": {func(u string) error {
			return firstError(os.Remove(filepath.Join(u, "config")), os.Mkdir(filepath.Join(u, "config"), 0o755))
		}, false},
	}
	for name, test := range tests {
		upper := newUpperDir(t)
		before := mustFingerprint(t, upper)
		if err := test.change(upper); err != nil {
			t.Fatal(err)
		}
		if same := mustFingerprint(t, upper) == before; same != test.same {
			t.Errorf("%s: unchanged fingerprint: %v", name, same)
		}
	}
}

// firstError returns the first error that is not nil.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestFingerprintOfUnreadableUpperDirNeverRepeats(t *testing.T) {
	t.Parallel()
	many, deep, closed := newUpperDir(t), newUpperDir(t), newUpperDir(t)
	for i := range maxUpperNames + 1 {
		if err := os.WriteFile(filepath.Join(many, fmt.Sprint("refs/", i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(deep, strings.Repeat("d/", maxUpperDepth+5)), 0o755); err != nil {
		t.Fatal(err)
	}
	uppers := []string{many, deep}
	if os.Geteuid() != 0 {
		if err := os.Chmod(filepath.Join(closed, "refs"), 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Chmod(filepath.Join(closed, "refs"), 0o755) })
		uppers = append(uppers, closed)
	}
	for _, upper := range uppers {
		start := time.Now()
		if first := mustFingerprint(t, upper); first == mustFingerprint(t, upper) {
			t.Errorf("%s has the same fingerprint twice", upper)
		}
		if took := time.Since(start); took > gittest.Timeout {
			t.Errorf("two fingerprints took %s", took)
		}
	}
	if _, err := Fingerprint(filepath.Join(many, "none"), gittest.SandboxName); err == nil {
		t.Error("a missing upper directory has a fingerprint")
	}
}

func TestReadUpperFileFollowsNoLink(t *testing.T) {
	t.Parallel()
	upper := newUpperDir(t)
	outside := filepath.Join(filepath.Dir(upper), "outside")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(outside, "dir"), 0o755),
		os.WriteFile(filepath.Join(outside, "dir/secret"), []byte("secret"), 0o644),
		os.Symlink(filepath.Join(outside, "dir/secret"), filepath.Join(upper, "link")),
		os.Symlink(filepath.Join(outside, "dir"), filepath.Join(upper, "dirlink")),
		os.Symlink("config", filepath.Join(upper, "inner")),
		syscall.Mkfifo(filepath.Join(upper, "pipe"), 0o644),
		os.WriteFile(filepath.Join(upper, "empty"), nil, 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadUpperFile(upper, "worktrees/"+gittest.SandboxName+"/HEAD", 100)
	if err != nil || !got.Found || got.Deleted || string(got.Data) != "ref: refs/heads/x\n" || time.Since(got.ModTime) > time.Hour {
		t.Errorf("HEAD is %+v, %v", got, err)
	}
	if got, err := ReadUpperFile(upper, "empty", 0); err != nil || !got.Found || len(got.Data) != 0 {
		t.Errorf("empty is %+v, %v", got, err)
	}
	for _, name := range []string{"none", "refs/none", "none/deeper/still"} {
		if got, err := ReadUpperFile(upper, name, 100); err != nil || got.Found || got.Deleted {
			t.Errorf("%s is %+v, %v", name, got, err)
		}
	}
	for _, name := range []string{
		"link", "inner", "dirlink/secret", "pipe", "refs", "../outside/dir/secret", "refs/../../outside/dir/secret", "/etc/passwd", "", ".", "config/x", "empty/x", "pipe/x",
	} {
		gittest.Within(t, name, func() {
			if got, err := ReadUpperFile(upper, name, 100); err == nil {
				t.Errorf("%q is %+v", name, got)
			}
		})
	}
	if got, err := ReadUpperFile(upper, "config", 3); err == nil {
		t.Errorf("too large: %+v", got)
	}
}

func BenchmarkFingerprintOfSmallUpperDir(b *testing.B) {
	upper := b.TempDir()
	for i := range 20 {
		path := filepath.Join(upper, fmt.Sprint("d", i%5), fmt.Sprint("f", i))
		_ = os.MkdirAll(filepath.Dir(path), 0o755)
		_ = os.WriteFile(path, nil, 0o644)
	}
	for b.Loop() {
		if _, err := Fingerprint(upper, gittest.SandboxName); err != nil {
			b.Fatal(err)
		}
	}
}
