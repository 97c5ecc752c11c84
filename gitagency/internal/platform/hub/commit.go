package hub

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// writeCommit writes a commit whose tree has only files at the top.
func writeCommit(ctx context.Context, repo *git.Repo, format object.Format, files map[string][]byte, parents []string, message string, who object.Identity) (string, error) {
	tree := object.BuiltTree{}
	var objects []object.Raw
	for _, name := range slices.Sorted(maps.Keys(files)) { // git's order, because no entry is a directory
		blob := object.Raw{Kind: "blob", OID: object.HashObject(format, "blob", files[name]), Content: files[name]}
		objects = append(objects, blob)
		tree.Entries = append(tree.Entries, object.TreeEntry{Mode: object.ModeFile, Name: []byte(name), OID: blob.OID})
	}
	tree.Encode(format)
	commit := object.EncodeCommit(format, who, tree.HexOID(), parents, message)
	objects = append(objects, object.Raw{Kind: "tree", OID: tree.OID, Content: tree.Content}, commit)
	return commit.HexOID(), repo.WriteObjects(ctx, format, objects)
}

// WriteEmptyCommit writes a commit without files and parents, to which nothing refers yet. It has the same id in all repositories of a
// format.
func WriteEmptyCommit(ctx context.Context, repo *git.Repo, format object.Format, who object.Identity) (string, error) {
	return writeCommit(ctx, repo, format, nil, nil, "agency: empty", who)
}

// readFiles reads files at the top of the tree of a commit. Those that do not exist are not in the result, except for the first,
// which is required; one that is larger than most is an error.
func readFiles(ctx context.Context, repo *git.Repo, commit string, most int64, names ...string) (map[string][]byte, error) {
	t, err := repo.OpenCatFile(ctx)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	files := map[string][]byte{}
	for i, name := range names {
		found, err := t.Lookup(commit + ":" + name)
		if err != nil {
			return nil, err
		}
		if !found[0].Missing() {
			_, content, err := t.Read(found[0].OID, "blob", most)
			if err != nil {
				return nil, fmt.Errorf("file %s of commit %s: %w", name, commit, err)
			}
			if content != nil {
				files[name] = content
			}
		}
		if files[name] == nil && i == 0 {
			return nil, fmt.Errorf("commit %s has no file %s", commit, name)
		}
	}
	return files, nil
}
