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

// mostOneByOne is how many files are seen to one by one: written without git, or brought to the disk each by itself.
const mostOneByOne = 1000

// writeOurselves writes the new files without git, which takes longer to start than to write a few. It is not done where
// anything is said about how they are to be written, and for more than a few; nothing has been written then.
func (s *seat) writeOurselves(ctx context.Context, g *stage, coming []stagedEntry) (done bool, err error) {
	if s.a.by == nil || len(coming) > mostOneByOne || !s.asTheyAre() {
		return false, nil
	}
	if small, err := s.a.by.areSmall(ctx, coming); err != nil || !small {
		return false, err
	}
	contents := make([][]byte, len(coming))
	for i, e := range coming {
		if contents[i], err = s.a.by.contents(ctx, hexID(e.oid), "blob"); err != nil {
			return false, err
		}
	}
	g.numbers = map[string]string{} // to make directories takes longer than to make the files
	for i, e := range coming {
		number := slotName(i)
		if err := writeNew(filepath.Join(g.dir, "tree", number), e.mode, contents[i]); err != nil {
			return false, err
		}
		g.entries[string(e.name)], g.numbers[string(e.name)] = e, number
	}
	return true, context.Cause(ctx)
}

// areSmall reports whether files are there, and no more than is easily held in memory.
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

// writeNew makes a file or a link with the permissions that git gives it.
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

// asTheyAre reports whether files on disk are what objects hold, byte by byte, and all of them are checked out: no
// attribute is set for any of them, nor anything else that git would write them by.
func (s *seat) asTheyAre() bool {
	r := s.repo
	if !ofTheSystem(r.env) || r.boolean("core.ignorecase", false) || !r.boolean("core.symlinks", true) {
		return false
	}
	if v, set := r.Config.Last("core.autocrlf"); set && v.Value != "false" || r.Config.Value("attr.tree") != "" {
		return false
	}
	for _, v := range r.Config["core.attributesfile"] { // of others it is not easy to say where they are
		if !filepath.IsAbs(v.Value) && !strings.HasPrefix(v.Value, "~/") {
			return false
		}
	}
	rules := append(r.attributesElsewhere(), filepath.Join(s.a.GitDir, "info", "sparse-checkout"))
	for _, t := range s.touched {
		if t.entry.skipped {
			return false
		}
	}
	for at := range s.around() {
		name := path.Join(at, ".gitattributes")
		if _, there := s.index.find(name); there || s.by[name] != nil {
			return false
		}
		rules = append(rules, filepath.Join(s.a.Tree, name))
	}
	return !slices.ContainsFunc(rules, func(file string) bool {
		_, err := os.Lstat(file)
		return !nothingThere(err)
	})
}
