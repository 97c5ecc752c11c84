package update

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
)

// maxFilesOneByOne is the largest number of files that are written without git, or synced one by one.
const maxFilesOneByOne = 1000

// writeFilesDirectly writes the new files without git, which takes longer to start than to write a few. It does not do so,
// and writes nothing, if attributes or config affect how files are written, or if there are too many.
func (co *checkout) writeFilesDirectly(ctx context.Context, sd *stagingDir, coming []index.Entry) (done bool, err error) {
	if co.spec.merger == nil || len(coming) > maxFilesOneByOne || !co.isContentVerbatim() {
		return false, nil
	}
	if small, err := blobsFitInMemory(ctx, co.spec.merger, coming); err != nil || !small {
		return false, err
	}
	contents := make([][]byte, len(coming))
	for i, e := range coming {
		if contents[i], err = co.spec.merger.ReadContents(ctx, object.HexOID(e.OID), "blob"); err != nil {
			return false, err
		}
	}
	sd.numberedNames = map[string]string{} // numbered files need no directories, which take longer to make than the files
	for i, e := range coming {
		number := slotName(i)
		if err := createFile(filepath.Join(sd.dir, "tree", number), e.Mode, contents[i]); err != nil {
			return false, err
		}
		sd.entries[string(e.Name)], sd.numberedNames[string(e.Name)] = e, number
	}
	return true, context.Cause(ctx)
}

// blobsFitInMemory reports whether all blobs exist and have at most 16 MiB in all.
func blobsFitInMemory(ctx context.Context, m *merge.Merger, files []index.Entry) (small bool, err error) {
	const most = 16 << 20
	names := make([]string, len(files))
	for i, e := range files {
		names[i] = object.HexOID(e.OID)
	}
	err = m.WithCatFile(ctx, func(t *git.CatFile) error {
		found, sizes, err := t.LookupSizes(names...)
		sum := int64(0)
		for _, size := range sizes {
			sum += size
		}
		small = sum <= most && !slices.ContainsFunc(found, func(o git.Object) bool { return o.Type != "blob" })
		return err
	})
	return small, err
}

// createFile creates a file or symlink with the permissions that git gives it.
func createFile(to string, mode uint32, content []byte) error {
	perm := os.FileMode(0o666)
	switch mode {
	case object.ModeSymlink:
		return os.Symlink(string(content), to)
	case object.ModeExecutable:
		perm = 0o777
	}
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// isContentVerbatim reports whether git would write the blobs unchanged and check all of them out: no .gitattributes,
// line-ending setting or sparse checkout applies to them.
func (co *checkout) isContentVerbatim() bool {
	r := co.repo
	if !git.IsSystemGit(r.Env) || r.ConfigBool("core.ignorecase", false) || !r.ConfigBool("core.symlinks", true) {
		return false
	}
	if v, set := r.Config.Last("core.autocrlf"); set && v.Value != "false" || r.Config.Value("attr.tree") != "" {
		return false
	}
	for _, v := range r.Config["core.attributesfile"] { // other forms of paths are not easily resolved
		if !filepath.IsAbs(v.Value) && !strings.HasPrefix(v.Value, "~/") {
			return false
		}
	}
	rules := append(status.ExternalAttributeFiles(r), filepath.Join(co.spec.GitDir, "info", "sparse-checkout"))
	for _, t := range co.changes {
		if t.indexEntry.SkipWorktree {
			return false
		}
	}
	for at := range co.parentDirs() {
		name := path.Join(at, ".gitattributes")
		if _, there := co.index.Find(name); there || co.changeByPath[name] != nil {
			return false
		}
		rules = append(rules, filepath.Join(co.spec.Worktree, name))
	}
	return !slices.ContainsFunc(rules, func(file string) bool {
		_, err := os.Lstat(file)
		return !git.IsNotExist(err)
	})
}
