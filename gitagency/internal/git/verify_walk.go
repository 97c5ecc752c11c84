package git

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
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
		e, rest, ok := nextTreeEntry(content, len(w.oid)/2)
		if content = rest; !ok {
			return errors.New("it is a tree that nobody can read")
		}
		kind := "blob"
		if e.isTree() {
			kind = "tree"
		}
		if e.isGitlink() {
			continue
		}
		path := string(e.name)
		if w.path != "" {
			path = w.path + "/" + path
		}
		if err := v.enqueue(hex.EncodeToString(e.oid), kind, path); err != nil {
			return err
		}
	}
	return nil
}

// partialCloneObjects lists the objects that a partial clone has; its remote has promised to have the others. Of any other
// repository it is nil.
func (r *Repo) partialCloneObjects(ctx context.Context) (map[objectID]struct{}, error) {
	_, err := r.runRead(ctx, runOptions{}, "config", "--get-regexp", `^(remote\..*\.promisor|extensions\.partialclone)$`)
	if exitedWith(err, 1) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out, err := r.runRead(ctx, runOptions{}, "cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objectname)")
	if err != nil {
		return nil, err
	}
	here := map[objectID]struct{}{}
	for line := range bytes.Lines(out) {
		if id, ok := parseObjectID(string(bytes.TrimSuffix(line, []byte("\n")))); ok {
			here[id] = struct{}{}
		}
	}
	return here, nil
}

// shallowCommits lists the commits at which the history of a shallow repository ends: their parents are not here.
func (r *Repo) shallowCommits() (map[string]bool, error) {
	data, err := durable.ReadFile(filepath.Join(r.CommonDir, "shallow"), 1<<26)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	cut := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		cut[strings.TrimSpace(line)] = true
	}
	return cut, err
}
