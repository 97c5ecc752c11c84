package repair

import (
	"errors"
	"os"
	"path/filepath"
)

// adminDirDamages maps the states in which a killed git, a power cut or a user can leave the administrative directory
// of a worktree to functions that produce them.
var adminDirDamages = map[string]func(dir string) error{
	"no damage": func(string) error { return nil },
	"locked": func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "locked"), []byte("initializing"), 0o644)
	},
	"lock files":         addLockFiles,
	"commondir is empty": truncateFile("commondir"),
	"commondir is gone":  removeFile("commondir"),
	"gitdir is empty":    truncateFile("gitdir"),
	"gitdir is gone":     removeFile("gitdir"),
	"HEAD is empty":      truncateFile("HEAD"),
	"HEAD is gone":       removeFile("HEAD"),
	"all are empty": func(dir string) error {
		return errors.Join(truncateFile("HEAD")(dir), truncateFile("gitdir")(dir), truncateFile("commondir")(dir))
	},
	"directory is empty": func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)) },
	"directory is gone":  os.RemoveAll,
	"a file":             func(dir string) error { return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o644)) },
	"a dangling symlink": func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Symlink("/nowhere", dir)) },
	"only the locked file": func(dir string) error {
		return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "locked"), nil, 0o644))
	},
	"after a killed removal": func(dir string) error {
		away := filepath.Join(dir, "../../agency/removed-bad")
		return errors.Join(os.MkdirAll(filepath.Join(away, "logs"), 0o755), os.WriteFile(filepath.Join(away, "logs/HEAD"), nil, 0o444))
	},
}

// truncateFile returns a function that truncates a file of the directory.
func truncateFile(name string) func(string) error {
	return func(dir string) error { return os.Truncate(filepath.Join(dir, name), 0) }
}

// removeFile returns a function that removes a file of the directory.
func removeFile(name string) func(string) error {
	return func(dir string) error { return os.Remove(filepath.Join(dir, name)) }
}

// addLockFiles creates the lock files that a killed git leaves.
func addLockFiles(dir string) error {
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "HEAD.lock"), nil, 0o644),
		os.WriteFile(filepath.Join(dir, "index.lock"), nil, 0o644),
		os.WriteFile(filepath.Join(dir, "ORIG_HEAD.lock"), nil, 0o644))
}
