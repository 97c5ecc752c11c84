package git

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"path/filepath"
)

// Fingerprint returns a hash of the entries without their stat data: of modes, ids, flags and names.
func (x Index) Fingerprint() string {
	h := sha256.New()
	size := x.format.idSize()
	some := make([]byte, 0, 1<<15) // hashing a few large blocks is faster than many small ones
	for left := x.body; len(left) > 0; {
		entry := left
		_, left = nextIndexEntry(left, size)
		entry = entry[:len(entry)-len(left)]
		some = binary.BigEndian.AppendUint32(some, uint32(len(entry)))
		some = append(some, entry[modeOffset:modeOffset+4]...)
		some = append(some, entry[statSize:]...) // the object, the flags and the name
		if len(some) > 1<<14 {
			h.Write(some)
			some = some[:0]
		}
	}
	h.Write(some)
	return hex.EncodeToString(h.Sum(nil))
}

// IndexMatches reports whether the index of a linked worktree has the tree of a commit.
func (r *Repo) IndexMatches(ctx context.Context, name, commit string) (bool, error) {
	index := runOptions{env: []string{"GIT_INDEX_FILE=" + filepath.Join(r.AdminDir(name), "index")}}
	_, err := r.runRead(ctx, index, "diff-index", "--cached", "--quiet", commit)
	if exitedWith(err, 1) {
		return false, nil
	}
	return err == nil, err
}

// CommitIndex writes the tree of an index file, which git may update, as a commit whose parent is after. It returns "" where
// git cannot write a tree, as with conflicts.
func (r *Repo) CommitIndex(ctx context.Context, index, after string, who Identity, message string) (string, error) {
	tree, err := r.writeTree(ctx, runOptions{env: []string{"GIT_INDEX_FILE=" + index}})
	if exitedWith(err, 128) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return r.commitTree(ctx, WorktreeSpec{Author: who}, tree, []string{after}, message)
}
