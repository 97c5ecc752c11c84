package repair

import (
	"errors"
	"os"
	"path/filepath"
)

// damages are the states an entry can be found in after a killed git, a power cut, or a person.
var damages = map[string]func(dir string) error{
	"nothing": func(string) error { return nil },
	"locked": func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "locked"), []byte("initializing"), 0o644)
	},
	"locks of git":       locks,
	"commondir is empty": empty("commondir"),
	"commondir is gone":  gone("commondir"),
	"gitdir is empty":    empty("gitdir"),
	"gitdir is gone":     gone("gitdir"),
	"HEAD is empty":      empty("HEAD"),
	"HEAD is gone":       gone("HEAD"),
	"all are empty": func(dir string) error {
		return errors.Join(empty("HEAD")(dir), empty("gitdir")(dir), empty("commondir")(dir))
	},
	"it is empty":       func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)) },
	"it is not there":   os.RemoveAll,
	"it is a file":      func(dir string) error { return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o644)) },
	"it is a dead link": func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Symlink("/nowhere", dir)) },
	"only a lock is left": func(dir string) error {
		return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "locked"), nil, 0o644))
	},
	"an earlier removal was killed": func(dir string) error {
		away := filepath.Join(dir, "../../agency/removed-bad")
		return errors.Join(os.MkdirAll(filepath.Join(away, "logs"), 0o755), os.WriteFile(filepath.Join(away, "logs/HEAD"), nil, 0o444))
	},
}

func empty(name string) func(string) error {
	return func(dir string) error { return os.Truncate(filepath.Join(dir, name), 0) }
}

func gone(name string) func(string) error {
	return func(dir string) error { return os.Remove(filepath.Join(dir, name)) }
}

func locks(dir string) error {
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "HEAD.lock"), nil, 0o644),
		os.WriteFile(filepath.Join(dir, "index.lock"), nil, 0o644),
		os.WriteFile(filepath.Join(dir, "ORIG_HEAD.lock"), nil, 0o644))
}
