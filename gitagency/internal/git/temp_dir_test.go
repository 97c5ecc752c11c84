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

// Promise: what the killed leave in the temporary directory goes with the next command, and nothing that anybody uses.
func TestTemporaryDirectoriesOfTheKilledGoWithTheNext(t *testing.T) {
	t.Parallel()
	system, elsewhere := t.TempDir(), t.TempDir()
	l := &gittest.Lab{T: t}
	l.WriteIn(elsewhere, "precious", "x")
	live, dead := temporaryDirectory(t, system), temporaryDirectory(t, system)
	l.WriteIn(live.Path, "deep/in/use", "x")
	l.WriteIn(dead.Path, "deep/left", "x")
	l.Must(dead.lockFile.Close()) // which is all that is left to do for who is killed
	l.Must(os.Symlink(elsewhere, filepath.Join(filepath.Dir(dead.Path), "git-agency-link")))

	next := temporaryDirectory(t, system)
	if _, err := os.Lstat(dead.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("that of the dead is there: %v", err)
	}
	for _, path := range []string{filepath.Join(live.Path, "deep/in/use"), filepath.Join(elsewhere, "precious"), next.Path} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	l.Must(os.Remove(filepath.Join(filepath.Dir(dead.Path), "git-agency-link")))
	l.Must(errors.Join(next.Remove(), live.Remove()))
	if left, err := os.ReadDir(system); err != nil || len(left) > 0 {
		t.Errorf("%v is left: %v", left, err)
	}
}

// Promise: in a temporary directory that others use too, nothing of theirs is gone into.
func TestATemporaryDirectoryIsMadeBesideWhatOthersHavePutInItsPlace(t *testing.T) {
	t.Parallel()
	name := fmt.Sprintf("git-agency-%d", os.Geteuid())
	for what, put := range map[string]func(system, elsewhere string) error{
		"a link": func(system, elsewhere string) error { return os.Symlink(elsewhere, filepath.Join(system, name)) },
		"a file": func(system, _ string) error { return os.WriteFile(filepath.Join(system, name), nil, 0o600) },
		"open to others": func(system, _ string) error {
			return errors.Join(os.Mkdir(filepath.Join(system, name), 0o700), os.Chmod(filepath.Join(system, name), 0o777))
		},
		"somebody else's": func(system, _ string) error {
			if os.Geteuid() != 0 { // who alone can make such a thing
				return os.Symlink("nowhere", filepath.Join(system, name))
			}
			return errors.Join(os.Mkdir(filepath.Join(system, name), 0o700), os.Chown(filepath.Join(system, name), 65534, 65534))
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			system, elsewhere := t.TempDir(), t.TempDir()
			l := &gittest.Lab{T: t}
			l.Must(put(system, elsewhere))
			planted := filepath.Join(system, name, "git-agency-1")
			if fi, err := os.Stat(filepath.Join(system, name)); err == nil && fi.IsDir() {
				l.Must(os.Mkdir(planted, 0o700)) // which nobody holds
			}
			_, before := os.Lstat(planted)
			made := temporaryDirectory(t, system)
			if filepath.Dir(made.Path) != system {
				t.Errorf("it is %s", made.Path)
			}
			if _, after := os.Lstat(planted); (before == nil) != (after == nil) {
				t.Errorf("what was there is not any more: %v", after)
			}
			l.Must(made.Remove())
			if _, err := os.Lstat(made.Path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("it is left: %v", err)
			}
		})
	}
}

func TestManyHaveTemporaryDirectoriesAtTheSameTime(t *testing.T) {
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
		t.Errorf("%v is left: %v", left, err)
	}
}

func temporaryDirectory(t *testing.T, system string) *OwnedTempDir {
	t.Helper()
	made, err := makeTempDirIn(system)
	if err != nil {
		t.Fatal(err)
	}
	return made
}
