package handoff

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
)

// RepointAlternates has the git directories of a sandbox that is a clone borrow the objects of a repository that was moved. It removes
// the absolute paths of directories that do not exist, such as the former one.
func RepointAlternates(r *core.Repository, id string) error {
	const info, name = "objects/info", "alternates"
	if !r.IsClone(id) {
		return nil
	}
	objects, err := filepath.EvalSymlinks(objectDir(r))
	if err != nil {
		return err
	}
	for _, dir := range r.OwnGitDirs(id) {
		had, err := overlay.ReadUpperFile(dir, info+"/"+name, 1<<20)
		if err != nil {
			return err
		}
		lines := strings.Split(strings.TrimSuffix(string(had.Data), "\n"), "\n")
		if len(had.Data) == 0 || slices.Contains(lines, objects) { // without the file it has hard links
			continue
		}
		lines = slices.DeleteFunc(lines, func(line string) bool { return filepath.IsAbs(line) && !durable.IsDir(line) })
		if err := overlay.ReplaceUpperFile(dir, info, name, []byte(strings.Join(append([]string{objects}, lines...), "\n")+"\n")); err != nil {
			return err
		}
	}
	return nil
}

// RepointOrigin replaces the URL of the remote "origin" of a sandbox that is a clone by the path of the repository, if it is a former path
// of that. The configuration, which an agent may have written, is read as data, and otherwise left as it is.
func RepointOrigin(r *core.Repository, id string, isFormer func(path string) bool) error {
	const name, maxSize = "config", 1 << 20
	if !r.IsClone(id) {
		return nil
	}
	for _, dir := range r.OwnGitDirs(id) {
		had, err := overlay.ReadUpperFile(dir, name, maxSize)
		if err != nil {
			return err
		}
		now, err := config.ReplaceValues(string(had.Data), "remote.origin.url", func(url string) string {
			if isFormer(url) {
				return r.CommonDir
			}
			return url
		})
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
		}
		if now == string(had.Data) {
			continue
		}
		if err := overlay.ReplaceUpperFile(dir, ".", name, []byte(now)); err != nil {
			return err
		}
	}
	return nil
}
