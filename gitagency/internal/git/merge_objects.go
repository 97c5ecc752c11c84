package git

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// contents is an object of a kind, and an *IncompleteError where there is no such.
func (m *Merger) contents(ctx context.Context, oid, kind string) ([]byte, error) {
	m.talking.Lock()
	defer m.talking.Unlock()
	return m.askFor(ctx, oid, kind)
}

// askFor is contents for who has the lock.
func (m *Merger) askFor(ctx context.Context, oid, kind string) ([]byte, error) {
	o, data, err := m.askForAny(ctx, oid)
	if err == nil && o.Type != kind {
		err = &IncompleteError{OID: oid, Want: kind, Have: o.Type}
	}
	return data, err
}

func (m *Merger) askForAny(ctx context.Context, oid string) (Object, []byte, error) {
	if !isOID(oid) {
		return Object{}, nil, fmt.Errorf("not a name of an object: %q", oid)
	}
	if err := context.Cause(ctx); err != nil {
		return Object{}, nil, err
	}
	if o, is := m.pending[string(rawID(oid))]; is {
		return Object{OID: oid, Type: o.kind}, o.content, nil
	}
	if data, is := m.commits[oid]; is {
		return Object{OID: oid, Type: "commit"}, data, nil
	}
	t, release, err := m.listening(ctx)
	if err != nil {
		return Object{}, nil, err
	}
	defer release()
	o, data, err := t.object(oid)
	if err != nil {
		m.teller.close()
		m.teller = nil
	}
	const most = 64 << 10 // commits are small, and are asked for again and again
	if err == nil && o.Type == "commit" && len(data) <= most {
		if len(m.commits) == 1<<10 {
			clear(m.commits)
		}
		m.commits[oid] = data
	}
	return o, data, err
}

// listening is the git that is asked, for who has the lock. It serves others after us, but ends with the context of who
// waits for its answer: what somebody put in the place of an object may keep it from giving one. Whoever has it calls
// release.
func (m *Merger) listening(ctx context.Context) (t *teller, release func(), err error) {
	if m.teller == nil {
		own, silence := context.WithCancelCause(context.WithoutCancel(ctx))
		if m.teller, err = m.repo.ask(own); err != nil {
			silence(err)
			return nil, nil, err
		}
		m.silence = silence
	}
	silence := m.silence
	stop := context.AfterFunc(ctx, func() { silence(context.Cause(ctx)) })
	return m.teller, func() { stop() }, nil
}

// asking asks git something.
func (m *Merger) asking(ctx context.Context, ask func(*teller) error) error {
	m.talking.Lock()
	defer m.talking.Unlock()
	t, release, err := m.listening(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err = ask(t); err != nil { // it may be why
		t.close()
		m.teller = nil
	}
	return err
}

// add makes objects. They stay in memory as long as no git has to see them: most never need a file here.
func (m *Merger) add(ctx context.Context, objects ...object) error {
	const most = 32 << 20
	m.talking.Lock()
	defer m.talking.Unlock()
	for _, o := range objects {
		if _, is := m.pending[string(o.oid)]; !is {
			m.pending[string(o.oid)] = o
			m.waiting += len(o.content)
		}
	}
	if m.waiting > most {
		return m.flushLocked(ctx)
	}
	return nil
}

// flush puts what is in memory where a git can see it.
func (m *Merger) flush(ctx context.Context) error {
	m.talking.Lock()
	defer m.talking.Unlock()
	return m.flushLocked(ctx)
}

func (m *Merger) flushLocked(ctx context.Context) error {
	if len(m.pending) == 0 {
		return nil
	}
	if err := m.repo.store(ctx, m.format, slices.Collect(maps.Values(m.pending))); err != nil {
		return err
	}
	clear(m.pending)
	m.waiting = 0
	return nil
}

// Compare is that of a Mirror.
func (m *Merger) Compare(ctx context.Context, c Comparison) (string, error) {
	if err := m.flush(ctx); err != nil {
		return "", err
	}
	return m.Mirror.Compare(ctx, c)
}

// Sizes is that of a Mirror.
func (m *Merger) Sizes(ctx context.Context, oids ...string) (map[string]int64, error) {
	if err := m.flush(ctx); err != nil {
		return nil, err
	}
	return m.Mirror.Sizes(ctx, oids...)
}

// hangUp ends the git that was asked.
func (m *Merger) hangUp() {
	m.talking.Lock()
	defer m.talking.Unlock()
	if m.teller != nil {
		m.teller.close()
		m.teller = nil
	}
}

// twig is a directory as it is in a tree object.
type twig struct {
	items []item // by name, which is not always git's order
	plain bool   // nothing about it is such that git would write it otherwise
}

func (t *twig) find(name string) (item, bool) {
	at, there := slices.BinarySearchFunc(t.items, name, func(it item, name string) int { return cmp.Compare(string(it.name), name) })
	if !there {
		return item{}, false
	}
	return t.items[at], true
}

// twig reads a directory, or remembers it.
func (m *Merger) twig(ctx context.Context, oid []byte) (*twig, error) {
	m.talking.Lock()
	defer m.talking.Unlock()
	if t := m.trees[string(oid)]; t != nil {
		return t, nil
	}
	data, err := m.askFor(ctx, hexID(oid), "tree")
	if err != nil {
		return nil, err
	}
	t, err := parseTwig(data, len(oid))
	if err != nil {
		return nil, err
	}
	m.remember(oid, t, len(data))
	return t, nil
}

// remember keeps a directory in mind, and forgets all of them when they are too many.
func (m *Merger) remember(oid []byte, t *twig, size int) {
	const most = 64 << 20
	if m.held += size; m.held > most {
		m.held = size
		clear(m.trees)
	}
	m.trees[string(oid)] = t
}

// parseTwig reads a tree object.
func parseTwig(data []byte, size int) (*twig, error) {
	t := &twig{plain: len(data) > 0}
	for len(data) > 0 {
		space, end := bytes.IndexByte(data, ' '), bytes.IndexByte(data, 0)
		e, rest, ok := nextInTree(data, size)
		if !ok || space < 0 || end < space {
			return nil, fmt.Errorf("tree: %w", errCutOff)
		}
		it := item{mode: e.mode, name: data[space+1 : end], oid: data[end+1 : end+1+size]}
		switch e.mode {
		case modeFile, modeProgram, modeLink, modeGitlink, modeTree:
			t.plain = t.plain && string(data[:space]) == modeText(e.mode)
		default:
			t.plain = false
		}
		if n := len(t.items); n > 0 && inTreeOrder(t.items[n-1], it) >= 0 {
			t.plain = false
		}
		t.items = append(t.items, it)
		data = rest
	}
	if byName := func(a, b item) int { return bytes.Compare(a.name, b.name) }; !slices.IsSortedFunc(t.items, byName) {
		slices.SortStableFunc(t.items, byName)
	}
	for i := 1; i < len(t.items); i++ {
		t.plain = t.plain && !bytes.Equal(t.items[i-1].name, t.items[i].name)
	}
	return t, nil
}

// treeOf is the tree of a commit; one of a tree is itself.
func (m *Merger) treeOf(ctx context.Context, oid string) (string, error) {
	m.talking.Lock()
	defer m.talking.Unlock()
	if m.trees[string(rawID(oid))] != nil {
		return oid, nil
	}
	o, data, err := m.askForAny(ctx, oid)
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
		return "", &UnsoundCommitError{Commit: oid, Why: "no tree"}
	}
	return tree, nil
}

// UnsoundCommitError is a commit that no git would have made.
type UnsoundCommitError struct{ Commit, Why string }

func (e *UnsoundCommitError) Error() string {
	return fmt.Sprintf("commit %.12s is not sound: %s", e.Commit, e.Why)
}

// written is a commit as it is in the repository.
type written struct {
	oid, tree         string
	parents           []string
	author, committer string // "<name> <<email>> <seconds> <zone>"
	encoding          string
	message           string
}

func (m *Merger) commit(ctx context.Context, oid string) (written, error) {
	data, err := m.contents(ctx, oid, "commit")
	if err != nil {
		return written{}, err
	}
	c, err := parseCommit(string(data))
	if err != nil {
		return c, &UnsoundCommitError{Commit: oid, Why: err.Error()}
	}
	c.oid = oid
	return c, nil
}

// parseCommit reads a commit, and refuses one that git would not have made, as far as anybody here relies on it.
func parseCommit(data string) (c written, err error) {
	strange := func(what string) (written, error) { return written{}, errors.New(what) }
	header, message, ok := strings.Cut(data, "\n\n")
	if !ok {
		if header, ok = strings.CutSuffix(data, "\n"); !ok { // it has no message
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

// skimCommit reads no more of a commit than says where it stands. In the history of a person there may be commits of any
// age, by any tool.
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
				when, _ = strconv.ParseInt(fields[0], 10, 64) // git too takes what it cannot read for the oldest
			}
			return tree, parents, when, isOID(tree)
		}
	}
	return tree, parents, 0, isOID(tree)
}

// isSignature: "<name> <<email>> <seconds> <zone>".
func isSignature(s string) bool {
	who, when, ok := strings.Cut(s, "> ")
	name, email, has := strings.Cut(who, "<")
	if !ok || !has || strings.ContainsAny(name, "<>") || strings.ContainsAny(email, "<>") || name != "" && !strings.HasSuffix(name, " ") {
		return false
	}
	return isWhen(when)
}

// isWhen: "<seconds> <zone>".
func isWhen(when string) bool {
	seconds, zone, ok := strings.Cut(when, " ")
	return ok && seconds != "" && len(seconds) <= 19 && strings.Trim(seconds, "0123456789") == "" &&
		len(zone) == 5 && (zone[0] == '+' || zone[0] == '-') && strings.Trim(zone[1:], "0123456789") == ""
}

func hexID(oid []byte) string { return hex.EncodeToString(oid) }

// rawID is an id as it stands in a tree; nil of what is none.
func rawID(oid string) []byte {
	raw, err := hex.DecodeString(oid)
	if err != nil {
		return nil
	}
	return raw
}
