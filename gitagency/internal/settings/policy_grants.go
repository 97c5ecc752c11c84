package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/copies"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

const (
	wantPath  = "an absolute path, or one that begins with ~/"
	wantGrant = "an absolute path, or one that begins with ~/; with the prefix private: for an overlay of the sandbox"
)

// grant is one path of a key, as set and resolved.
type grant struct {
	key        string // of the configuration
	setting    config.Setting
	configured string // absolute path as configured
	path       string // with symbolic links resolved
	private    bool

	inPrivateHome bool // configured is below the private home
}

// allowScope is the scope of a grant in the record of a sandbox, which 'git agency allow' made.
const allowScope = "allow"

// AllowFlags maps the keys of grants to the flags of 'git agency allow'.
var AllowFlags = map[string]string{ReadKey: "--read", WriteKey: "--write"}

// withAllowed returns the values of a key, with those in the record of a sandbox after them.
func withAllowed(cfg config.Settings, key string, allowed []string) []config.Setting {
	values := MultiValues(cfg, key)
	for _, value := range allowed {
		values = append(values, config.Setting{Value: value, Scope: allowScope, Origin: "git agency allow"})
	}
	return values
}

// readGrants returns the paths of a key, and those that the record of a sandbox has for it. Paths that cannot be found are
// skipped: the same configuration may be used on machines that lack some of them.
func (p *Policy) readGrants(config config.Settings, key string, allowed []string) ([]grant, error) {
	var found []grant
	names := namesOfHome(p.home)
	for _, s := range withAllowed(config, key, allowed) {
		value, private := s.Value, false
		if key == WriteKey {
			value, private = strings.CutPrefix(value, PrivatePrefix)
		}
		if err := checkPathSetting(key, s.Value, p.home); err != nil {
			return nil, invalidGrant(key, s, wantFor(key))
		}
		named := ExpandHome(value, p.home)
		inHome := p.privateHome && guard.Contains(names.name, names.rename(named))
		path, err := guard.Resolve(named)
		if err == nil {
			_, err = os.Lstat(path)
		}
		switch {
		case err == nil && s.Scope == allowScope && path != named: // it had no symbolic link when it was allowed
			return nil, invalidGrant(key, s, "a path that leads to the same place as when it was allowed, not to "+path+": to take it back, 'git agency allow <id> --reset'")
		case err == nil && private && inHome && sizeOf(path) > copies.MaxSize:
			p.skip(key, s, fmt.Sprintf("a file of more than %d MiB cannot be private; grant its directory", copies.MaxSize>>20))
		case err == nil && key == ReadKey && walls.IsKernelDir(path):
			p.skip(key, s, explainKernelGrant(path))
		case err == nil:
			found = append(found, grant{key, s, named, path, private, inHome})
		case strings.ContainsAny(value, "*?["):
			return nil, invalidGrant(key, s, "a path without wildcards: *, ? and [ are not expanded")
		case private && inHome && isMissing(err): // it begins empty, as all of the private home
		case isMissing(err) && slices.Contains(p.Separate, named):
			return nil, &fault.UnsafePathError{Path: named, Why: "the sandbox is over this directory, which does not exist; move it back, or end the sandbox and keep its changes with 'git agency discard'"}
		case isMissing(err):
			p.skip(key, s, "there is no such file or directory")
		default: // commands cannot look it up either
			p.skip(key, s, err.Error())
		}
	}
	return found, nil
}

// explainKernelGrant says why a path in a file system of the kernel cannot be made readable.
func explainKernelGrant(path string) string {
	switch {
	case guard.IsOrContains("/dev", path):
		return "every sandbox has its own /dev, with few devices; for those of this machine, start one with --isolation none"
	case guard.IsOrContains("/proc", path):
		return "every sandbox has its own /proc; for that of this machine, start one with --isolation none"
	}
	return "every sandbox can read it as far as you can"
}

// invalidGrant is InvalidSetting for a value of the configuration or of the record of a sandbox.
func invalidGrant(key string, s config.Setting, want string) error {
	if s.Scope != allowScope {
		return InvalidSetting(key, s, want)
	}
	flag := AllowFlags[key]
	return &fault.InvalidError{What: flag + " (" + s.Origin + ")", Value: s.Value, Want: want, AllowFlag: flag}
}

// isMissing reports whether an error says that there is nothing at a path.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// sizeOf returns the size of a regular file; zero for anything else.
func sizeOf(path string) int64 {
	if fi, err := os.Lstat(path); err == nil && fi.Mode().IsRegular() {
		return fi.Size()
	}
	return 0
}

// skip records a grant that is ignored.
func (p *Policy) skip(key string, s config.Setting, why string) {
	if s.Scope == allowScope {
		key = AllowFlags[key]
	}
	p.Skipped = append(p.Skipped, &SettingError{Setting{Key: key, Value: s.Value, Scope: s.Scope, Origin: s.Origin, Problem: why}})
}

// markedAncestor returns the innermost directory at or above path that has a marker; empty if there is none. A marker
// that cannot be read counts as present.
func markedAncestor(path string) string {
	for dir := path; ; dir = filepath.Dir(dir) {
		for _, m := range []guard.Marker{guard.Integration, guard.Sandbox} {
			if marked, err := m.IsIn(dir); marked || err != nil {
				return dir
			}
		}
		if dir == "/" {
			return ""
		}
	}
}
