package git

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

// Promise: the next command removes the temporary directories of killed processes, and none that is in use.
func TestMakeTempDirRemovesDirectoriesOfKilledProcesses(t *testing.T) {
	t.Parallel()
	system, elsewhere := t.TempDir(), t.TempDir()
	l := &gittest.Fixture{T: t}
	l.WriteIn(elsewhere, "precious", "x")
	live, abandoned := mustMakeTempDir(t, system), mustMakeTempDir(t, system)
	l.WriteIn(live.Path, "deep/in/use", "x")
	l.WriteIn(abandoned.Path, "deep/left", "x")
	l.Must(abandoned.lockFile.Close()) // the only effect of a kill: the lock is released
	l.Must(os.Symlink(elsewhere, filepath.Join(filepath.Dir(abandoned.Path), "git-agency-link")))

	next := mustMakeTempDir(t, system)
	if _, err := os.Lstat(abandoned.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory of the killed process is left: %v", err)
	}
	for _, path := range []string{filepath.Join(live.Path, "deep/in/use"), filepath.Join(elsewhere, "precious"), next.Path} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	l.Must(os.Remove(filepath.Join(filepath.Dir(abandoned.Path), "git-agency-link")))
	l.Must(errors.Join(next.Remove(), live.Remove()))
	if left, err := os.ReadDir(system); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// Promise: in a shared temporary directory, no directory that another user could have created or changed is used.
func TestMakeTempDirAvoidsUntrustedParent(t *testing.T) {
	t.Parallel()
	name := fmt.Sprintf("git-agency-%d", os.Geteuid())
	for what, put := range map[string]func(system, elsewhere string) error{
		"a symlink": func(system, elsewhere string) error { return os.Symlink(elsewhere, filepath.Join(system, name)) },
		"a file":    func(system, _ string) error { return os.WriteFile(filepath.Join(system, name), nil, 0o600) },
		"writable by others": func(system, _ string) error {
			return errors.Join(os.Mkdir(filepath.Join(system, name), 0o700), os.Chmod(filepath.Join(system, name), 0o777))
		},
		"another owner": func(system, _ string) error {
			if os.Geteuid() != 0 { // only root can create it
				return os.Symlink("nowhere", filepath.Join(system, name))
			}
			return errors.Join(os.Mkdir(filepath.Join(system, name), 0o700), os.Chown(filepath.Join(system, name), 65534, 65534))
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			system, elsewhere := t.TempDir(), t.TempDir()
			l := &gittest.Fixture{T: t}
			l.Must(put(system, elsewhere))
			planted := filepath.Join(system, name, "git-agency-1")
			if fi, err := os.Stat(filepath.Join(system, name)); err == nil && fi.IsDir() {
				l.Must(os.Mkdir(planted, 0o700)) // without a lock, so that it looks abandoned
			}
			_, before := os.Lstat(planted)
			made := mustMakeTempDir(t, system)
			if filepath.Dir(made.Path) != system {
				t.Errorf("created %s", made.Path)
			}
			if _, after := os.Lstat(planted); (before == nil) != (after == nil) {
				t.Errorf("the directory of another user was removed: %v", after)
			}
			l.Must(made.Remove())
			if _, err := os.Lstat(made.Path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the directory is left: %v", err)
			}
		})
	}
}

func TestConcurrentTempDirs(t *testing.T) {
	t.Parallel()
	system := t.TempDir()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				made, err := makeTempDirIn(system)
				if err != nil {
					t.Error(err)
					return
				}
				file := filepath.Join(made.Path, "file")
				if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Remove(file), made.Remove()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if left, err := os.ReadDir(system); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// mustMakeTempDir creates a temporary directory below system, which stands for os.TempDir.
func mustMakeTempDir(t *testing.T, system string) *OwnedTempDir {
	t.Helper()
	made, err := makeTempDirIn(system)
	if err != nil {
		t.Fatal(err)
	}
	return made
}
