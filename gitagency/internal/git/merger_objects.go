package git

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// readContents returns the content of an object of a type; an *IncompleteError where there is none of that type.
func (m *Merger) readContents(ctx context.Context, oid, kind string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.readContentsLocked(ctx, oid, kind)
}

// readContentsLocked is readContents for a caller that holds the lock of the catFile.
func (m *Merger) readContentsLocked(ctx context.Context, oid, kind string) ([]byte, error) {
	o, data, err := m.readAnyLocked(ctx, oid)
	if err == nil && o.Type != kind {
		err = &IncompleteError{OID: oid, Want: kind, Have: o.Type}
	}
	return data, err
}

// readAnyLocked returns an object of any type and its content, from memory or through git, for a caller that holds the
// lock of the catFile. The object is Missing where there is none.
func (m *Merger) readAnyLocked(ctx context.Context, oid string) (Object, []byte, error) {
	if !isOID(oid) {
		return Object{}, nil, fmt.Errorf("not a name of an object: %q", oid)
	}
	if err := context.Cause(ctx); err != nil {
		return Object{}, nil, err
	}
	if o, is := m.pending[string(rawID(oid))]; is {
		return Object{OID: oid, Type: o.kind}, o.content, nil
	}
	if data, is := m.commitCache[oid]; is {
		return Object{OID: oid, Type: "commit"}, data, nil
	}
	t, release, err := m.catFileLocked(ctx)
	if err != nil {
		return Object{}, nil, err
	}
	defer release()
	o, data, err := t.readObject(oid)
	if err != nil {
		m.catFile.close()
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

// catFileLocked returns the merger's catFile, which it starts if needed, for a caller that holds its lock and then calls
// release. It outlives the caller's context, but ends when that context ends before release: a file in the place of an
// object, such as a pipe, may keep git from answering.
func (m *Merger) catFileLocked(ctx context.Context) (t *catFile, release func(), err error) {
	if m.catFile == nil {
		own, silence := context.WithCancelCause(context.WithoutCancel(ctx))
		if m.catFile, err = m.repo.openCatFile(own); err != nil {
			silence(err)
			return nil, nil, err
		}
		m.killCatFile = silence
	}
	silence := m.killCatFile
	stop := context.AfterFunc(ctx, func() { silence(context.Cause(ctx)) })
	return m.catFile, func() { stop() }, nil
}

// withCatFile calls ask with the merger's catFile, under its lock, and drops the catFile after an error.
func (m *Merger) withCatFile(ctx context.Context, ask func(*catFile) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, release, err := m.catFileLocked(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err = ask(t); err != nil { // it may be the cause
		t.close()
		m.catFile = nil
	}
	return err
}

// addObjects adds objects to the merger. They stay in memory as long as no git has to see them: most never need a file
// in the mirror.
func (m *Merger) addObjects(ctx context.Context, objects ...rawObject) error {
	const most = 32 << 20
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range objects {
		if _, is := m.pending[string(o.oid)]; !is {
			m.pending[string(o.oid)] = o
			m.pendingBytes += len(o.content)
		}
	}
	if m.pendingBytes > most {
		return m.flushLocked(ctx)
	}
	return nil
}

// flush writes the objects in memory to the mirror, where a git sees them.
func (m *Merger) flush(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.flushLocked(ctx)
}

func (m *Merger) flushLocked(ctx context.Context) error {
	if len(m.pending) == 0 {
		return nil
	}
	if err := m.repo.writeObjects(ctx, m.format, slices.Collect(maps.Values(m.pending))); err != nil {
		return err
	}
	clear(m.pending)
	m.pendingBytes = 0
	return nil
}

// Compare is Mirror.Compare, which also sees objects that were only in memory.
func (m *Merger) Compare(ctx context.Context, c Comparison) (string, error) {
	if err := m.flush(ctx); err != nil {
		return "", err
	}
	return m.Mirror.Compare(ctx, c)
}

// Sizes is Mirror.Sizes, which also sees objects that were only in memory.
func (m *Merger) Sizes(ctx context.Context, oids ...string) (map[string]int64, error) {
	if err := m.flush(ctx); err != nil {
		return nil, err
	}
	return m.Mirror.Sizes(ctx, oids...)
}

// closeCatFile ends the merger's catFile.
func (m *Merger) closeCatFile() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.catFile != nil {
		m.catFile.close()
		m.catFile = nil
	}
}

// readTree parses a tree object, or returns it from the cache.
func (m *Merger) readTree(ctx context.Context, oid []byte) (*Tree, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.treeCache[string(oid)]; t != nil {
		return t, nil
	}
	data, err := m.readContentsLocked(ctx, hexID(oid), "tree")
	if err != nil {
		return nil, err
	}
	t, err := parseTree(data, len(oid))
	if err != nil {
		return nil, err
	}
	m.cacheTree(oid, t, len(data))
	return t, nil
}

// cacheTree adds a parsed tree to the cache, which is emptied when it holds more than 64 MiB of tree objects.
func (m *Merger) cacheTree(oid []byte, t *Tree, size int) {
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
	if m.treeCache[string(rawID(oid))] != nil {
		return oid, nil
	}
	o, data, err := m.readAnyLocked(ctx, oid)
	switch {
	case err != nil:
		return "", err
	case o.Type == "tree":
		return oid, nil
	case o.Type != "commit":
		return "", &IncompleteError{OID: oid, Want: "commit", Have: o.Type}
	}
	tree, _, _, ok := skimCommit(string(data))
	if !ok {
		return "", &InvalidCommitError{Commit: oid, Why: "no tree"}
	}
	return tree, nil
}

// InvalidCommitError is a commit object that git would not have written.
type InvalidCommitError struct{ Commit, Why string }

func (e *InvalidCommitError) Error() string {
	return fmt.Sprintf("commit %.12s is not sound: %s", e.Commit, e.Why)
}

// Commit is a parsed commit object.
type Commit struct {
	oid, tree         string
	parents           []string
	author, committer string // "<name> <<email>> <seconds> <zone>"
	encoding          string
	message           string
}

// readCommit reads and parses a commit.
func (m *Merger) readCommit(ctx context.Context, oid string) (Commit, error) {
	data, err := m.readContents(ctx, oid, "commit")
	if err != nil {
		return Commit{}, err
	}
	c, err := parseCommit(string(data))
	if err != nil {
		return c, &InvalidCommitError{Commit: oid, Why: err.Error()}
	}
	c.oid = oid
	return c, nil
}

// parseCommit parses a commit object, and refuses one that git would not have written, as far as this package relies on
// its format. The error is the reason.
func parseCommit(data string) (c Commit, err error) {
	strange := func(what string) (Commit, error) { return Commit{}, errors.New(what) }
	header, message, ok := strings.Cut(data, "\n\n")
	if !ok {
		if header, ok = strings.CutSuffix(data, "\n"); !ok { // without a message
			return strange("its header has no end")
		}
	}
	c.message = message
	if strings.Contains(data, "\x00") {
		return strange("a NUL")
	}
	lines := strings.Split(header, "\n")
	next := func(key string) (string, bool) {
		if len(lines) == 0 {
			return "", false
		}
		value, is := strings.CutPrefix(lines[0], key+" ")
		if is {
			lines = lines[1:]
		}
		return value, is
	}
	if c.tree, ok = next("tree"); !ok || !isOID(c.tree) {
		return strange("no tree")
	}
	for {
		parent, is := next("parent")
		if !is {
			break
		}
		if !isOID(parent) || len(parent) != len(c.tree) || slices.Contains(c.parents, parent) {
			return strange("a parent that can be none")
		}
		c.parents = append(c.parents, parent)
	}
	if c.author, ok = next("author"); !ok || !isSignature(c.author) {
		return strange("no author")
	}
	if c.committer, ok = next("committer"); !ok || !isSignature(c.committer) {
		return strange("no committer")
	}
	for _, line := range lines {
		key, value, _ := strings.Cut(line, " ")
		switch key {
		case "tree", "parent", "author", "committer":
			return strange(key + " out of its place")
		case "encoding":
			if c.encoding != "" || value == "" || strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }) {
				return strange("an encoding that can be none")
			}
			c.encoding = value
		}
	}
	return c, nil
}

// skimCommit returns only the tree, the parents and the committer date of a commit, and checks nothing else: the user's
// history may have commits of any age, written by any tool. It is ok where there is a tree.
func skimCommit(data string) (tree string, parents []string, when int64, ok bool) {
	header, _, _ := strings.Cut(data, "\n\n")
	for line := range strings.Lines(header) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch {
		case key == "tree" && tree == "":
			tree = value
		case key == "parent" && when == 0:
			parents = append(parents, value)
		case key == "committer":
			fields := strings.Fields(value[strings.LastIndexByte(value, '>')+1:])
			if len(fields) > 0 {
				when, _ = strconv.ParseInt(fields[0], 10, 64) // an invalid date is the oldest, as for git
			}
			return tree, parents, when, isOID(tree)
		}
	}
	return tree, parents, 0, isOID(tree)
}

// isSignature reports whether s is "<name> <<email>> <seconds> <zone>".
func isSignature(s string) bool {
	who, when, ok := strings.Cut(s, "> ")
	name, email, has := strings.Cut(who, "<")
	if !ok || !has || strings.ContainsAny(name, "<>") || strings.ContainsAny(email, "<>") || name != "" && !strings.HasSuffix(name, " ") {
		return false
	}
	return isTimestamp(when)
}

// isTimestamp reports whether when is "<seconds> <zone>".
func isTimestamp(when string) bool {
	seconds, zone, ok := strings.Cut(when, " ")
	return ok && seconds != "" && len(seconds) <= 19 && strings.Trim(seconds, "0123456789") == "" &&
		len(zone) == 5 && (zone[0] == '+' || zone[0] == '-') && strings.Trim(zone[1:], "0123456789") == ""
}

func hexID(oid []byte) string { return hex.EncodeToString(oid) }

// rawID decodes an id in hex to the bytes that a tree object has; nil where it is not hex.
func rawID(oid string) []byte {
	raw, err := hex.DecodeString(oid)
	if err != nil {
		return nil
	}
	return raw
}
