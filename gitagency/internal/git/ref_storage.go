package git

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// RefStorageError reports a repository whose refs are not files, such as one with a reftable. This program reads and
// repairs refs as files.
type RefStorageError struct{ Format string }

func (e *RefStorageError) Error() string {
	return fmt.Sprintf("the repository stores its refs as %q (extensions.refStorage); git-agency needs refs that are files", e.Format)
}

// checkRefStorage returns a *RefStorageError unless format, a value of extensions.refStorage, means files.
func checkRefStorage(format string) error {
	if format == "" || format == "files" {
		return nil
	}
	return &RefStorageError{Format: format}
}

// explainRefusal returns a *RefStorageError if the format of the refs is why git refused to open the repository, and
// err otherwise. A git before 2.45 supports files only.
func explainRefusal(ctx context.Context, run Runner, err error) error {
	own := proc.Getenv(run.Env, "GIT_DIR")
	if own != "" && !filepath.IsAbs(own) {
		own = filepath.Join(run.Dir, own)
	}
	for at := run.Dir; own == ""; at = filepath.Dir(at) {
		if dir, _, err := resolveGitDirs(at); err == nil {
			own = dir
		} else if _, err := ReadSmallFile(at, "HEAD"); err == nil || at == filepath.Dir(at) {
			own = at // a bare repository, or none
		}
	}
	common, rerr := resolveCommonDir(own)
	if rerr != nil {
		return err
	}
	out, _ := run.Output(ctx, "config", "--file", filepath.Join(common, "config"), "--get", config.RefStorageKey) // it may not be set
	return cmp.Or(checkRefStorage(strings.TrimSpace(string(out))), err)
}
