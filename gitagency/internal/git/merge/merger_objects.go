package merge

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// ReadContents returns the content of an object of a type; an *object.IncompleteError where there is none of that type.
func (m *Merger) ReadContents(ctx context.Context, oid, kind string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.readContentsLocked(ctx, oid, kind)
}

// readContentsLocked is ReadContents for a caller that holds the lock of the CatFile.
func (m *Merger) readContentsLocked(ctx context.Context, oid, kind string) ([]byte, error) {
	o, data, err := m.readAnyLocked(ctx, oid)
	if err == nil && o.Type != kind {
		err = &object.IncompleteError{OID: oid, Want: kind, Have: o.Type}
	}
	return data, err
}

// readAnyLocked returns an object of any type and its content, from memory or through git, for a caller that holds the
// lock of the CatFile. The object is Missing where there is none.
func (m *Merger) readAnyLocked(ctx context.Context, oid string) (git.Object, []byte, error) {
	if !object.IsOID(oid) {
		return git.Object{}, nil, fmt.Errorf("not an object id: %q", oid)
	}
	if err := context.Cause(ctx); err != nil {
		return git.Object{}, nil, err
	}
	if o, is := m.pending[string(object.RawOID(oid))]; is {
		return git.Object{OID: oid, Type: o.Kind}, o.Content, nil
	}
	if data, is := m.commitCache[oid]; is {
		return git.Object{OID: oid, Type: "commit"}, data, nil
	}
	t, release, err := m.catFileLocked(ctx)
	if err != nil {
		return git.Object{}, nil, err
	}
	defer release()
	o, data, err := t.ReadObject(oid)
	if err != nil {
		m.catFile.Close()
		m.catFile = nil
	}
	const most = 64 << 10 // commits are small, and are read again and again
	if err == nil && o.Type == "commit" && len(data) <= most {
		if len(m.commitCache) == 1<<10 {
			clear(m.commitCache)
		}
		m.commitCache[oid] = data
	}
	return o, data, err
}

// catFileLocked returns the merger's CatFile, which it starts if needed, for a caller that holds its lock and then
// calls release. It outlives the caller's context, but ends when that context ends before release: a file in the place
// of an object, such as a pipe, may keep git from answering.
func (m *Merger) catFileLocked(ctx context.Context) (t *git.CatFile, release func(), err error) {
	if m.catFile == nil {
		own, silence := context.WithCancelCause(context.WithoutCancel(ctx))
		if m.catFile, err = m.Repo.OpenCatFile(own); err != nil {
			silence(err)
			return nil, nil, err
		}
		m.killCatFile = silence
	}
	silence := m.killCatFile
	stop := context.AfterFunc(ctx, func() { silence(context.Cause(ctx)) })
	return m.catFile, func() { stop() }, nil
}

// WithCatFile calls ask with the merger's CatFile, under its lock, and drops the CatFile after an error.
func (m *Merger) WithCatFile(ctx context.Context, ask func(*git.CatFile) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, release, err := m.catFileLocked(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err = ask(t); err != nil { // it may be the cause
		t.Close()
		m.catFile = nil
	}
	return err
}

// AddObjects adds objects to the merger. They stay in memory as long as no git has to see them: most never need a file
// in the mirror.
func (m *Merger) AddObjects(ctx context.Context, objects ...object.Raw) error {
	const most = 32 << 20
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range objects {
		if _, is := m.pending[string(o.OID)]; !is {
			m.pending[string(o.OID)] = o
			m.pendingBytes += len(o.Content)
		}
	}
	if m.pendingBytes > most {
		return m.flushLocked(ctx)
	}
	return nil
}

// Flush writes the objects in memory to the mirror, where a git sees them.
func (m *Merger) Flush(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.flushLocked(ctx)
}

func (m *Merger) flushLocked(ctx context.Context) error {
	if len(m.pending) == 0 {
		return nil
	}
	if err := m.Repo.WriteObjects(ctx, m.format, slices.Collect(maps.Values(m.pending))); err != nil {
		return err
	}
	clear(m.pending)
	m.pendingBytes = 0
	return nil
}

// Compare is the function Compare, which also sees objects that were only in memory.
func (m *Merger) Compare(ctx context.Context, c CompareRequest) (string, error) {
	if err := m.Flush(ctx); err != nil {
		return "", err
	}
	return Compare(ctx, m.Mirror, c)
}

// Sizes is the function Sizes, which also sees objects that were only in memory.
func (m *Merger) Sizes(ctx context.Context, oids ...string) (map[string]int64, error) {
	if err := m.Flush(ctx); err != nil {
		return nil, err
	}
	return Sizes(ctx, m.Mirror, oids...)
}

// closeCatFile ends the merger's CatFile.
func (m *Merger) closeCatFile() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.catFile != nil {
		m.catFile.Close()
		m.catFile = nil
	}
}

// readTree parses a tree object, or returns it from the cache.
func (m *Merger) readTree(ctx context.Context, oid []byte) (*object.Tree, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.treeCache[string(oid)]; t != nil {
		return t, nil
	}
	data, err := m.readContentsLocked(ctx, object.HexOID(oid), "tree")
	if err != nil {
		return nil, err
	}
	t, err := object.ParseTree(data, len(oid))
	if err != nil {
		return nil, err
	}
	m.cacheTree(oid, t, len(data))
	return t, nil
}

// cacheTree adds a parsed tree to the cache, which is emptied when it holds more than 64 MiB of tree objects.
func (m *Merger) cacheTree(oid []byte, t *object.Tree, size int) {
	const most = 64 << 20
	if m.treeCacheBytes += size; m.treeCacheBytes > most {
		m.treeCacheBytes = size
		clear(m.treeCache)
	}
	m.treeCache[string(oid)] = t
}

// treeOf returns the id of the tree of a commit, or of a tree its own id.
func (m *Merger) treeOf(ctx context.Context, oid string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.treeCache[string(object.RawOID(oid))] != nil {
		return oid, nil
	}
	o, data, err := m.readAnyLocked(ctx, oid)
	switch {
	case err != nil:
		return "", err
	case o.Type == "tree":
		return oid, nil
	case o.Type != "commit":
		return "", &object.IncompleteError{OID: oid, Want: "commit", Have: o.Type}
	}
	tree, _, _, ok := object.ParseCommitHeader(string(data))
	if !ok {
		return "", &object.InvalidCommitError{Commit: oid, Why: "no tree"}
	}
	return tree, nil
}

// readCommit reads and parses a commit.
func (m *Merger) readCommit(ctx context.Context, oid string) (object.Commit, error) {
	data, err := m.ReadContents(ctx, oid, "commit")
	if err != nil {
		return object.Commit{}, err
	}
	c, err := object.ParseCommit(string(data))
	if err != nil {
		return c, &object.InvalidCommitError{Commit: oid, Why: err.Error()}
	}
	c.OID = oid
	return c, nil
}
