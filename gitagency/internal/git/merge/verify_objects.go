package merge

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
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/fsck"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// commitObject is an object that a commit adds: a blob, a tree, or the commit itself.
type commitObject struct {
	commit, path string // path is empty for the commit itself
	oid, kind    string
	size         int64
	verified     bool // read, and its hash is its name
}

// problem returns an error that names the commit and the path.
func (p commitObject) problem(why string) error {
	if p.path == "" {
		return &object.InvalidCommitError{Commit: p.commit, Why: why}
	}
	return fmt.Errorf("commit %.12s: %w", p.commit, &fsck.Error{Path: p.path, Why: why})
}

// maxVerifiedBytes limits how many bytes of new objects checkComplete reads to verify their hashes.
const maxVerifiedBytes = 4 << 20

// checkComplete refuses commits that add an object which is missing or has another type than its tree entry says. An agent
// without walls can write such commits, and git accepts them: the branch could then not be checked out.
//
// It also reads small objects and verifies their hashes: commits and trees, then blobs in the order of the commits, until
// maxVerifiedBytes are read. Of the other blobs it checks only that git finds them as blobs. It skips objects that a parent
// has at the same path, and all history before the range. In a partial clone blobs may be missing; it cannot tell blobs of
// the promisor remote from blobs that never existed.
func (m *Merger) checkComplete(ctx context.Context, commits []object.Commit) error {
	c := &objectCollector{m: m, seen: map[string]bool{}}
	for _, one := range commits {
		if err := c.addCommit(ctx, one); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	isOurs := func(p commitObject) bool { _, is := m.pending[string(object.RawOID(p.oid))]; return is }
	files, read := slices.DeleteFunc(c.blobs, isOurs), slices.DeleteFunc(c.commitsAndTrees, isOurs)
	if len(files)+len(read) == 0 {
		return nil
	}
	left := int64(maxVerifiedBytes)
	open := &object.LooseReader{Format: m.format}
	var err error
	for _, list := range []*[]commitObject{&read, &files} {
		for i := range *list {
			p := &(*list)[i]
			if err := context.Cause(ctx); err != nil {
				return err
			}
			if p.verified, err = m.verifyLoose(open, p, &left); err != nil {
				return err
			}
		}
		*list = slices.DeleteFunc(*list, func(p commitObject) bool { return p.verified })
	}
	if len(files)+len(read) == 0 {
		return nil
	}
	partial := isPartialClone(m.realRepo)
	t, release, err := m.openReader(ctx, partial)
	if err != nil {
		return err
	}
	defer release()
	err = m.verifyWithGit(ctx, t, files, read, left, partial)
	if err != nil || partial { // its state is unknown after an error; that of a partial clone serves no other caller
		t.Close()
		if t == m.catFile {
			m.catFile = nil
		}
	}
	return err
}

// verifyLoose reads and verifies a loose object, as nearly all new objects are: asking git takes several times as long.
// done is false if git has to be asked.
func (m *Merger) verifyLoose(open *object.LooseReader, p *commitObject, left *int64) (done bool, err error) {
	data, err := durable.ReadFile(m.realRepo.LoosePath(p.oid), *left)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		_, err := os.Lstat(m.Repo.LoosePath(p.oid))
		return err == nil, nil // an object of the merger's own needs no check
	case err != nil:
		if fi, statErr := os.Lstat(m.realRepo.LoosePath(p.oid)); statErr == nil && !fi.Mode().IsRegular() { // git would block on a pipe
			return false, p.problem("not a regular file")
		}
		return false, nil
	}
	size, why := open.Check(data, p.oid, p.kind, *left)
	if *left -= max(size, 0); why != "" {
		return false, p.problem(why)
	}
	return size >= 0, nil
}

// openReader returns a git cat-file. In a partial clone git would fetch missing objects, so there it runs in the mirror's
// git directory, which is not configured as a partial clone.
func (m *Merger) openReader(ctx context.Context, partial bool) (t *git.CatFile, release func(), err error) {
	if partial {
		t, err = m.Repo.OpenCatFileAt(ctx, git.RunOptions{GitDir: m.Dir})
		return t, func() {}, err
	}
	return m.catFileLocked(ctx)
}

// isPartialClone reports whether missing objects may be in a promisor remote: whether there is a .promisor pack.
func isPartialClone(r *git.Repo) bool {
	found, err := os.ReadDir(filepath.Join(r.CommonDir, "objects", "pack"))
	return err == nil && slices.ContainsFunc(found, func(e os.DirEntry) bool { return filepath.Ext(e.Name()) == ".promisor" })
}

// verifyWithGit checks that all blobs (files) exist, and verifies the given objects (read) and blobs up to left bytes.
func (m *Merger) verifyWithGit(ctx context.Context, t *git.CatFile, files, read []commitObject, left int64, partial bool) error {
	if err := readSizes(ctx, t, files, partial); err != nil {
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
	return m.verifyContents(ctx, t, read)
}

// objectCollector collects the objects that commits add.
type objectCollector struct {
	m                      *Merger
	seen                   map[string]bool // by type and id
	commitsAndTrees, blobs []commitObject  // commits and trees; blobs
}

func (c *objectCollector) addCommit(ctx context.Context, one object.Commit) error {
	c.commitsAndTrees = append(c.commitsAndTrees, commitObject{commit: one.OID, oid: one.OID, kind: "commit"})
	var known []object.TreeEntry
	for _, parent := range one.Parents {
		tree, err := c.m.treeOf(ctx, parent)
		if errors.As(err, new(*object.IncompleteError)) { // parent beyond the boundary of a shallow clone
			continue
		}
		if err != nil {
			return err
		}
		known = append(known, rootEntry(tree))
	}
	err := c.m.walkNew(ctx, ".", rootEntry(one.Tree), known, func(path string, it object.TreeEntry) (bool, error) {
		p := commitObject{commit: one.OID, path: path, oid: object.HexOID(it.OID), kind: it.ObjectType()}
		seen := c.seen[p.kind+p.oid]
		c.seen[p.kind+p.oid] = true
		switch {
		case seen:
		case it.Mode == object.ModeTree:
			c.commitsAndTrees = append(c.commitsAndTrees, p)
		default:
			c.blobs = append(c.blobs, p)
		}
		return !seen, nil
	})
	if err != nil {
		return fmt.Errorf("commit %.12s: %w", one.OID, err)
	}
	return nil
}

// readSizes sets the sizes of blobs, and checks that they exist. A missing one in a partial clone gets size -1.
func readSizes(ctx context.Context, t *git.CatFile, files []commitObject, partial bool) error {
	return t.QueryEach(ctx, "info", oidsOf(files), func(i int, a git.CatFileAnswer) error {
		p := &files[i]
		switch {
		case a.Err != nil:
			return p.problem(a.Err.Error())
		case a.Missing() && partial:
			p.size = -1
		case a.Missing():
			return p.problem("missing or unreadable")
		case a.Type != p.kind:
			return p.problem(object.WrongKindReason(p.kind, a.Type))
		default:
			p.size = a.Size
		}
		return nil
	})
}

// verifyContents reads objects with git and verifies their hashes.
func (m *Merger) verifyContents(ctx context.Context, t *git.CatFile, parts []commitObject) error {
	return t.QueryEach(ctx, "contents", oidsOf(parts), func(i int, a git.CatFileAnswer) error {
		p := &parts[i]
		if a.Err != nil {
			return p.problem(a.Err.Error())
		}
		if a.Missing() {
			return p.problem(object.DamagedUnreadable)
		}
		h := m.format.NewHash()
		fmt.Fprintf(h, "%s %d\x00", p.kind, a.Size)
		if _, err := io.Copy(h, a.Body); err != nil {
			return p.problem(object.DamagedUnreadable)
		}
		if a.Type != p.kind || object.HexOID(h.Sum(nil)) != p.oid {
			return p.problem(object.DamagedHash)
		}
		return nil
	})
}

func oidsOf(parts []commitObject) []string {
	oids := make([]string, len(parts))
	for i, p := range parts {
		oids[i] = p.oid
	}
	return oids
}
