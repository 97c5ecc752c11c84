package handoff

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
)

// TestImportLFSTakesObjectsOnly imports from an upper directory with an object and with things that an agent may put in
// its place.
func TestImportLFSTakesObjectsOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	upper, common := filepath.Join(dir, "upper"), filepath.Join(dir, "git")
	object := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		name := hex.EncodeToString(sum[:])
		return filepath.Join("lfs/objects", name[:2], name[2:4], name)
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(upper, object("good")), "good")
	write(filepath.Join(upper, object("forged")), "other")
	write(filepath.Join(upper, object("there")), "there")
	write(filepath.Join(upper, "lfs/objects/ab/cd/note"), "x")
	write(filepath.Join(upper, "lfs/objects/xyz"), "x")
	elsewhere := filepath.Join("lfs/objects/01/02", filepath.Base(object("elsewhere")))
	write(filepath.Join(upper, elsewhere), "elsewhere")
	write(filepath.Join(upper, object("closed")), "closed")
	if err := os.Chmod(filepath.Join(upper, object("closed")), 0); err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(upper, "lfs/objects/ef"), "x")
	write(filepath.Join(common, object("there")), "there")
	write(filepath.Join(dir, "secret"), "secret")
	for _, name := range []string{object("secret"), object("fifo")} {
		if err := os.MkdirAll(filepath.Join(upper, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "secret"), filepath.Join(upper, object("secret"))); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(upper, object("fifo")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(upper, "lfs/objects/00")); err != nil {
		t.Fatal(err)
	}

	limits := readlimit.Limits{Inflated: 3}
	var warnings []string
	e := &Exchange{repo: &core.Repository{CommonDir: common, Git: &git.Repo{ReadLimits: limits}}, upper: upper}
	e.repo.Opts.Warn = func(text string) { warnings = append(warnings, text) }
	var exceeded *readlimit.ExceededError
	if err := e.importLFS(t.Context()); !errors.As(err, &exceeded) {
		t.Errorf("beyond the limit: %v", err)
	}
	e.repo.Git.ReadLimits.Inflated = 100
	if err := e.importLFS(t.Context()); err != nil {
		t.Fatal(err)
	}
	canReadAll := os.Geteuid() == 0
	if warned := strings.Contains(strings.Join(warnings, "\n"), object("closed")); warned == canReadAll {
		t.Errorf("warnings: %q", warnings)
	}
	if _, err := os.Lstat(filepath.Join(common, elsewhere)); err == nil {
		t.Error("an object was imported from where git-lfs does not look")
	}
	for text, want := range map[string]bool{"good": true, "there": true, "forged": false, "secret": false, "fifo": false, "closed": canReadAll} {
		data, err := os.ReadFile(filepath.Join(common, object(text)))
		if want != (err == nil) || want && string(data) != text {
			t.Errorf("%s: %q, %v", text, data, err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(common, "lfs/tmp")); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}
