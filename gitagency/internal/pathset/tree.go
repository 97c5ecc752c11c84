package pathset

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// Leaf is a file or symbolic link in a state of the directories.
type Leaf struct {
	Mode uint32 // one of the modes of git: a file, an executable file or a symbolic link
	OID  string // blob, in hex
}

// Tree is a state of the directories of a sandbox: their files by path, "<n>/<path in the directory n>".
type Tree map[string]Leaf

// encode returns the tree objects of a state, and the id of the top one.
func (t Tree) encode() (objects []object.Raw, top string, err error) {
	paths := slices.Sorted(maps.Keys(t))
	root := &object.BuiltTree{}
	root.Encode(format)
	changes := make([]object.LeafChange, 0, len(paths))
	for _, p := range paths {
		oid, err := hex.DecodeString(t[p].OID)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", p, err)
		}
		changes = append(changes, object.LeafChange{Mode: t[p].Mode, OID: oid, Path: p})
	}
	root = root.WithChanges(format, changes)
	collect(root, &objects)
	return objects, hex.EncodeToString(root.OID), nil
}

// collect adds a tree and all trees in it to objects.
func collect(t *object.BuiltTree, objects *[]object.Raw) {
	*objects = append(*objects, object.Raw{Kind: "tree", OID: t.OID, Content: t.Content})
	for _, e := range t.Entries {
		if e.Subtree != nil {
			collect(e.Subtree, objects)
		}
	}
}

// Write writes the tree objects of a state to a repository, except those that known has too, which the repository has. It returns the id
// of the top tree.
func (t Tree) Write(ctx context.Context, repo *git.Repo, known Tree) (string, error) {
	objects, top, err := t.encode()
	if err != nil {
		return "", err
	}
	had := map[string]bool{}
	if known != nil {
		others, _, err := known.encode()
		if err != nil {
			return "", err
		}
		for _, o := range others {
			had[string(o.OID)] = true
		}
	}
	fresh := objects[:0]
	for _, o := range objects {
		if !had[string(o.OID)] {
			had[string(o.OID)] = true
			fresh = append(fresh, o)
		}
	}
	if len(fresh) == 0 {
		return top, nil
	}
	return top, repo.WriteObjects(ctx, format, fresh)
}

// ReadTree reads the state that a commit or tree holds.
func ReadTree(ctx context.Context, repo *git.Repo, treeish string) (Tree, error) {
	out, err := repo.RunRead(ctx, git.RunOptions{}, "ls-tree", "-r", "-z", "--full-tree", treeish)
	if err != nil {
		return nil, err
	}
	t := Tree{}
	for line := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if line == "" {
			continue
		}
		about, path, ok := strings.Cut(line, "\t")
		fields := strings.Fields(about)
		if !ok || len(fields) != 3 {
			return nil, fmt.Errorf("git ls-tree answered %q", line)
		}
		mode, err := strconv.ParseUint(fields[0], 8, 32)
		if err != nil {
			return nil, fmt.Errorf("git ls-tree answered %q", line)
		}
		t[path] = Leaf{Mode: uint32(mode), OID: fields[2]}
	}
	return t, nil
}
