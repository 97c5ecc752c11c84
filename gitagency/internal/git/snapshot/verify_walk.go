package snapshot

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// queueCommit queues the tree and the parents of a commit, and, of the commit to verify, the objects that its message
// names as parts of a captured state.
func (v *verifier) queueCommit(w wantedObject, content []byte) error {
	head, message, _ := bytes.Cut(content, []byte("\n\n"))
	tree := false
	for line := range bytes.Lines(head) {
		key, value, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
		switch {
		case key == "tree" && !tree:
			tree = true
			if err := v.enqueue(value, "tree", ""); err != nil {
				return err
			}
		case key == "parent" && v.shallow[w.oid]:
			v.result.ShallowCommits = append(v.result.ShallowCommits, w.oid)
			v.shallow[w.oid] = false // once is enough, also with several parents
		case key == "parent":
			if _, cut := v.shallow[w.oid]; cut {
				continue
			}
			if err := v.enqueue(value, "commit", ""); err != nil {
				return err
			}
		}
	}
	if !tree {
		return errors.New("it is a commit without a tree")
	}
	if w.oid != v.root {
		return nil
	}
	state := parseState(string(message))
	for _, part := range []wantedObject{{state.Base, "commit", ""}, {state.Head, "commit", ""}, {state.BranchTip, "commit", ""}, {state.OperationCommit, "commit", ""}, {state.IndexTree, "tree", ""}} {
		if part.oid == "" {
			continue
		}
		if err := v.enqueue(part.oid, part.kind, ""); err != nil {
			return err
		}
	}
	return nil
}

// queueTree queues the blobs and trees in a tree. Commits of submodules are in other repositories.
func (v *verifier) queueTree(w wantedObject, content []byte) error {
	for len(content) > 0 {
		e, rest, ok := object.NextTreeEntry(content, len(w.oid)/2)
		if content = rest; !ok {
			return errors.New("it is a malformed tree")
		}
		kind := "blob"
		if e.IsTree() {
			kind = "tree"
		}
		if e.IsGitlink() {
			continue
		}
		path := string(e.Name)
		if w.path != "" {
			path = w.path + "/" + path
		}
		if err := v.enqueue(hex.EncodeToString(e.OID), kind, path); err != nil {
			return err
		}
	}
	return nil
}
