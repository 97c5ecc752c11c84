package git

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// maxFilesOneByOne is the largest number of files that are written without git, or synced one by one.
const mostOneByOne = 1000

// writeFilesDirectly writes the new files without git, which takes longer to start than to write a few. It does not do so,
// and writes nothing, if attributes or config affect how files are written, or if there are too many.
func (co *seat) writeOurselves(ctx context.Context, sd *stage, coming []stagedEntry) (done bool, err error) {
	if co.a.by == nil || len(coming) > mostOneByOne || !co.asTheyAre() {
		return false, nil
	}
	if small, err := co.a.by.areSmall(ctx, coming); err != nil || !small {
		return false, err
	}
	contents := make([][]byte, len(coming))
	for i, e := range coming {
		if contents[i], err = co.a.by.contents(ctx, hexID(e.oid), "blob"); err != nil {
			return false, err
		}
	}
	sd.numbers = map[string]string{} // numbered files need no directories, which take longer to make than the files
	for i, e := range coming {
		number := slotName(i)
		if err := writeNew(filepath.Join(sd.dir, "tree", number), e.mode, contents[i]); err != nil {
			return false, err
		}
		sd.entries[string(e.name)], sd.numbers[string(e.name)] = e, number
	}
	return true, context.Cause(ctx)
}

// blobsFitInMemory reports whether all blobs exist and have at most 16 MiB in all.
func (m *Merger) areSmall(ctx context.Context, files []stagedEntry) (small bool, err error) {
	const most = 16 << 20
	names := make([]string, len(files))
	for i, e := range files {
		names[i] = hexID(e.oid)
	}
	err = m.asking(ctx, func(t *teller) error {
		found, sizes, err := t.sized(names...)
		sum := int64(0)
		for _, size := range sizes {
			sum += size
		}
		small = sum <= most && !slices.ContainsFunc(found, func(o Object) bool { return o.Type != "blob" })
		return err
	})
	return small, err
}

// createFile creates a file or symlink with the permissions that git gives it.
func writeNew(to string, mode uint32, content []byte) error {
	perm := os.FileMode(0o666)
	switch mode {
	case modeLink:
		return os.Symlink(string(content), to)
	case modeProgram:
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
func (co *seat) asTheyAre() bool {
	r := co.repo
	if !ofTheSystem(r.env) || r.boolean("core.ignorecase", false) || !r.boolean("core.symlinks", true) {
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
	rules := append(r.attributesElsewhere(), filepath.Join(co.a.GitDir, "info", "sparse-checkout"))
	for _, t := range co.touched {
		if t.entry.skipped {
			return false
		}
	}
	for at := range co.around() {
		name := path.Join(at, ".gitattributes")
		if _, there := co.index.find(name); there || co.by[name] != nil {
			return false
		}
		rules = append(rules, filepath.Join(co.a.Tree, name))
	}
	return !slices.ContainsFunc(rules, func(file string) bool {
		_, err := os.Lstat(file)
		return !nothingThere(err)
	})
}
