package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// part is an object that came with a commit: a file, a directory, or the commit itself.
type part struct {
	commit, path string // empty for the commit
	oid, kind    string
	size         int64
	done         bool // it is what it has to be
}

// fault is what is wrong with it, for who has to mend it.
func (p part) fault(why string) error {
	if p.path == "" {
		return &UnsoundCommitError{Commit: p.commit, Why: why}
	}
	return fmt.Errorf("commit %.12s: %w", p.commit, &UnsoundError{Path: p.path, Why: why})
}

// mostRead is how many bytes of what came with commits are read to see that they are what their names say.
const mostRead = 4 << 20

// whole refuses commits of which something is not there that came with them, or is of another kind than the tree says, an
// *UnsoundError. Who has no walls can write such, and git takes them: then the branch leads to what nobody can check out.
//
// What is there is read too, and has to be what its name says, as far as all of it is small: commits and directories, then
// files in the order of the commits, until mostRead bytes have been. Of the rest only that git finds it, and takes it for a
// file. Not looked at is what one of the parents of a commit has at the same path, nor anything that was there before the
// first of them. In a partial clone files may be missing, and then also such as never were anywhere.
func (m *Merger) whole(ctx context.Context, commits []written) error {
	c := &collector{m: m, seen: map[string]bool{}}
	for _, one := range commits {
		if err := c.commit(ctx, one); err != nil {
			return err
		}
	}
	m.talking.Lock()
	defer m.talking.Unlock()
	isOurs := func(p part) bool { _, is := m.pending[string(rawID(p.oid))]; return is }
	files, read := slices.DeleteFunc(c.files, isOurs), slices.DeleteFunc(c.others, isOurs)
	if len(files)+len(read) == 0 {
		return nil
	}
	left := int64(mostRead)
	open := &opener{format: m.format}
	var err error
	for _, list := range []*[]part{&read, &files} {
		for i := range *list {
			p := &(*list)[i]
			if err := context.Cause(ctx); err != nil {
				return err
			}
			if p.done, err = m.readSelf(open, p, &left); err != nil {
				return err
			}
		}
		*list = slices.DeleteFunc(*list, func(p part) bool { return p.done })
	}
	if len(files)+len(read) == 0 {
		return nil
	}
	partial := m.real.promised()
	t, release, err := m.reader(ctx, partial)
	if err != nil {
		return err
	}
	defer release()
	err = m.read(ctx, t, files, read, left, partial)
	if err != nil || partial { // who knows what it would answer next; or it is of no use to others
		t.close()
		if t == m.teller {
			m.teller = nil
		}
	}
	return err
}

// readSelf reads an object that has a file to itself, as nearly all have that are new: git takes several times as long. It is
// not done where git has to be asked.
func (m *Merger) readSelf(open *opener, p *part, left *int64) (done bool, err error) {
	data, err := durable.ReadFile(m.real.loosePath(p.oid), *left)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		_, err := os.Lstat(m.repo.loosePath(p.oid))
		return err == nil, nil // what we made is what it says
	case err != nil:
		if fi, statErr := os.Lstat(m.real.loosePath(p.oid)); statErr == nil && !fi.Mode().IsRegular() { // git would wait for a pipe
			return false, p.fault("it is no file")
		}
		return false, nil
	}
	size, why := open.check(data, p.oid, p.kind, *left)
	if *left -= max(size, 0); why != "" {
		return false, p.fault(why)
	}
	return size >= 0, nil
}

// reader is a git that reads objects. That of a partial clone would want to fetch those that are missing, unless it does
// not know that it is one.
func (m *Merger) reader(ctx context.Context, partial bool) (t *teller, release func(), err error) {
	if partial {
		t, err = m.repo.askIn(ctx, m.dir)
		return t, func() {}, err
	}
	return m.listening(ctx)
}

// promised reports whether it is a partial clone: what is missing a remote has promised to have.
func (r *Repo) promised() bool {
	found, err := os.ReadDir(filepath.Join(r.CommonDir, "objects", "pack"))
	return err == nil && slices.ContainsFunc(found, func(e os.DirEntry) bool { return filepath.Ext(e.Name()) == ".promisor" })
}

// read asks for files, and reads what is small enough.
func (m *Merger) read(ctx context.Context, t *teller, files, read []part, left int64, partial bool) error {
	if err := sized(ctx, t, files, partial); err != nil {
		return err
	}
	for _, p := range files {
		if p.size < 0 {
			continue
		}
		if left -= p.size; left < 0 {
			break
		}
		read = append(read, p)
	}
	return m.proven(ctx, t, read)
}

// collector finds what came with commits.
type collector struct {
	m             *Merger
	seen          map[string]bool // by kind and id
	others, files []part          // commits and directories; and files
}

func (c *collector) commit(ctx context.Context, one written) error {
	c.others = append(c.others, part{commit: one.oid, oid: one.oid, kind: "commit"})
	var known []item
	for _, parent := range one.parents {
		tree, err := c.m.treeOf(ctx, parent)
		if errors.As(err, new(*IncompleteError)) { // where the history of a shallow clone ends
			continue
		}
		if err != nil {
			return err
		}
		known = append(known, leafOf(tree))
	}
	err := c.m.brought(ctx, ".", leafOf(one.tree), known, func(path string, it item) (bool, error) {
		p := part{commit: one.oid, path: path, oid: hexID(it.oid), kind: it.object()}
		seen := c.seen[p.kind+p.oid]
		c.seen[p.kind+p.oid] = true
		switch {
		case seen:
		case it.mode == modeTree:
			c.others = append(c.others, p)
		default:
			c.files = append(c.files, p)
		}
		return !seen, nil
	})
	if err != nil {
		return fmt.Errorf("commit %.12s: %w", one.oid, err)
	}
	return nil
}

// sized asks git for the sizes of files. One that is missing, and may be, has none.
func sized(ctx context.Context, t *teller, files []part, partial bool) error {
	return t.each(ctx, "info", oidsOf(files), func(i int, a answer) error {
		p := &files[i]
		switch {
		case a.err != nil:
			return p.fault(a.err.Error())
		case a.Missing() && partial:
			p.size = -1
		case a.Missing():
			return p.fault("it is not there, or nobody can read it")
		case a.Type != p.kind:
			return p.fault(notOfKind(p.kind, a.Type))
		default:
			p.size = a.size
		}
		return nil
	})
}

// proven reads objects, and makes sure that they are what their names say.
func (m *Merger) proven(ctx context.Context, t *teller, parts []part) error {
	return t.each(ctx, "contents", oidsOf(parts), func(i int, a answer) error {
		p := &parts[i]
		if a.err != nil {
			return p.fault(a.err.Error())
		}
		if a.Missing() {
			return p.fault(unreadableObject)
		}
		h := m.format.hash()
		fmt.Fprintf(h, "%s %d\x00", p.kind, a.size)
		if _, err := io.Copy(h, a.body); err != nil {
			return p.fault(unreadableObject)
		}
		if a.Type != p.kind || hexID(h.Sum(nil)) != p.oid {
			return p.fault(notItsName)
		}
		return nil
	})
}

func oidsOf(parts []part) []string {
	oids := make([]string, len(parts))
	for i, p := range parts {
		oids[i] = p.oid
	}
	return oids
}
