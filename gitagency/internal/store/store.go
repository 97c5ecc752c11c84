// Package store keeps the records: where they lie, how they are read and written, how they are
// found. It owns everything below DATA_DIR except what is inside the trees, and it reads every state
// that can be found there, also the ones that should not be: it names what is broken and repairs
// nothing.
//
// Directory names are the identity of a record. A record is there when its meta.json is; writing
// that file is one durable rename.
package store

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// SchemaVersion is what every record says of itself.
const SchemaVersion = "1.0"

// Store is a data directory.
type Store struct {
	Root string // canonical
}

// Tops are the names that everything of ours has directly below the root.
var Tops = []string{"repos", "directories"}

// RepoID names a repository by the canonical path of its common dir.
func RepoID(commonDir string) string {
	sum := sha256.Sum256([]byte(commonDir))
	return hex.EncodeToString(sum[:])[:16]
}

// RepoDir holds everything of one repository.
func (s Store) RepoDir(repoID string) string { return filepath.Join(s.Root, "repos", repoID) }

// InvocationDir holds the record of an invocation.
func (s Store) InvocationDir(repoID, invocationID string) string {
	return filepath.Join(s.RepoDir(repoID), "invocations", invocationID)
}

// InvocationMetaPath is the canonical record of an invocation.
func (s Store) InvocationMetaPath(repoID, invocationID string) string {
	return metaPath(s.InvocationDir(repoID, invocationID))
}

// SandboxDir holds the tree of a sandbox.
func (s Store) SandboxDir(repoID, invocationID string) string {
	return filepath.Join(s.RepoDir(repoID), "sandboxes", invocationID)
}

// WallsDir holds what the commands of a sandbox wrote elsewhere than to its tree, out of their reach and of
// anybody else's.
func (s Store) WallsDir(repoID, invocationID string) string {
	return filepath.Join(s.SandboxDir(repoID, invocationID), "walls")
}

// SandboxTreePath is the tree of a sandbox.
func (s Store) SandboxTreePath(repoID, invocationID string) string {
	return filepath.Join(s.SandboxDir(repoID, invocationID), "tree")
}

// WorktreeDir holds the record of an integration worktree, and its tree unless it was adopted.
func (s Store) WorktreeDir(repoID, worktreeID string) string {
	return filepath.Join(s.RepoDir(repoID), "worktrees", worktreeID)
}

// WorktreeTreePath is the tree of an integration worktree that was made here.
func (s Store) WorktreeTreePath(repoID, worktreeID string) string {
	return filepath.Join(s.WorktreeDir(repoID, worktreeID), "tree")
}

func metaPath(dir string) string   { return filepath.Join(dir, "meta.json") }
func intentPath(dir string) string { return filepath.Join(dir, "intent.json") }
func eventsPath(dir string) string { return filepath.Join(dir, "events.jsonl") }

// RepoRecord says, to whoever finds a directory with a hash for a name, which repository it is.
type RepoRecord struct {
	SchemaVersion string    `json:"schema_version"`
	RepoID        string    `json:"repo_id"`
	CommonDir     string    `json:"common_dir"`
	CreatedAt     time.Time `json:"created_at"`
	Formerly      []string  `json:"formerly,omitempty"` // ids it had elsewhere, whose records belong here
}

// EnsureRepo makes the directories of a repository and says in repo.json whose they are. The caller
// holds the repository lock.
func (s Store) EnsureRepo(repoID, commonDir string, now time.Time) error {
	dir := s.RepoDir(repoID)
	for _, sub := range []string{"worktrees", "invocations", "sandboxes"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return err
		}
	}
	if err := durable.RemoveTemps(dir); err != nil {
		return err
	}
	path := filepath.Join(dir, "repo.json")
	data, err := durable.ReadFile(path, maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return s.WriteRepo(repoID, commonDir, now)
	}
	if err != nil {
		return err
	}
	var have RepoRecord
	if err := json.Unmarshal(data, &have); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if have.CommonDir != commonDir {
		return fmt.Errorf("%s belongs to the repository at %s, not to %s", dir, have.CommonDir, commonDir)
	}
	return nil
}

// WriteRepo says in repo.json whose the records are.
func (s Store) WriteRepo(repoID, commonDir string, now time.Time) error {
	return writeJSON(filepath.Join(s.RepoDir(repoID), "repo.json"), RepoRecord{
		SchemaVersion: SchemaVersion, RepoID: repoID, CommonDir: commonDir, CreatedAt: now.UTC().Truncate(time.Second),
	})
}

// DropRepo takes back what EnsureRepo made, as far as nobody uses it.
func (s Store) DropRepo(repoID string) error {
	dir := s.RepoDir(repoID)
	for _, sub := range []string{"worktrees", "invocations", "sandboxes"} {
		if err := os.Remove(filepath.Join(dir, sub)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil // in use
		}
	}
	if err := durable.RemoveTree(s.RadarDir(repoID)); err != nil {
		return err
	}
	if err := durable.Remove(filepath.Join(dir, "repo.json")); err != nil {
		return err
	}
	for _, d := range []string{dir, filepath.Dir(dir), s.Root} {
		_ = os.Remove(d) // what is not empty has other users
	}
	return nil
}

// EnsureInvocationDir makes the directory of a new invocation; that it was not there before is what
// makes the id this invocation's.
func (s Store) EnsureInvocationDir(repoID, invocationID string) error {
	return durable.Mkdir(s.InvocationDir(repoID, invocationID), 0o700)
}

// EnsureWorktreeDir is EnsureInvocationDir for an integration worktree.
func (s Store) EnsureWorktreeDir(repoID, worktreeID string) error {
	return durable.Mkdir(s.WorktreeDir(repoID, worktreeID), 0o700)
}

// WriteInvocationMeta writes the record of an invocation, atomically and durably.
func (s Store) WriteInvocationMeta(repoID string, meta InvocationMeta) error {
	return writeJSON(s.InvocationMetaPath(repoID, meta.InvocationID), meta)
}

// UpdateInvocationMeta changes a record and keeps every field it does not know.
func (s Store) UpdateInvocationMeta(repoID, invocationID string, change func(*InvocationMeta)) error {
	return updateJSON(s.InvocationMetaPath(repoID, invocationID), change)
}

// WriteWorktreeMeta writes the record of an integration worktree, atomically and durably.
func (s Store) WriteWorktreeMeta(meta WorktreeMeta) error {
	return writeJSON(metaPath(s.WorktreeDir(meta.RepoID, meta.WorktreeID)), meta)
}

// UpdateWorktreeMeta changes a record and keeps every field it does not know.
func (s Store) UpdateWorktreeMeta(repoID, worktreeID string, change func(*WorktreeMeta)) error {
	return updateJSON(metaPath(s.WorktreeDir(repoID, worktreeID)), change)
}

// RemoveMeta takes a record back, durably. It is the first thing an undo does.
func RemoveMeta(dir string) error { return durable.Remove(metaPath(dir)) }

// RemoveSandboxTree removes the tree of a sandbox and the directory around it, as far as it gets.
func (s Store) RemoveSandboxTree(repoID, invocationID string) error {
	return errors.Join(
		durable.RemoveTree(s.SandboxTreePath(repoID, invocationID)),
		durable.RemoveTree(s.WallsDir(repoID, invocationID)),
		durable.Remove(s.SandboxDir(repoID, invocationID)))
}

// Aside and Done are the names a tree goes by, beside where it was, on its way out: out of the reach of
// whoever knows its path, but not yet looked at a last time; and looked at, so that it can go.
func Aside(tree string) string { return filepath.Join(filepath.Dir(tree), ".aside") }

// Done: see Aside.
func Done(tree string) string { return filepath.Join(filepath.Dir(tree), ".done") }

// RemoveLeftovers removes what a killed process left beside a record: files that were being written, and
// an intent that the record has made meaningless.
func RemoveLeftovers(dir string) error {
	if err := durable.RemoveTemps(dir); err != nil {
		return err
	}
	return RemoveIntent(dir)
}

// RemoveRemains removes the directories of something that has neither record nor tree nor intent. A
// directory with anything of substance in it stays, and is an error.
func RemoveRemains(dirs ...string) error {
	for _, dir := range dirs {
		if err := durable.RemoveTemps(dir); err != nil {
			return err
		}
		if err := durable.Remove(dir); err != nil {
			return err
		}
	}
	return nil
}

// AppendEvent adds one line to the history of an invocation.
func (s Store) AppendEvent(repoID, invocationID string, event any) error {
	line, err := encode(event, "")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(eventsPath(s.InvocationDir(repoID, invocationID)), os.O_RDWR|os.O_APPEND|os.O_CREATE|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	// One after the other, so that lines never mix; and none behind half a line that a full disk left, which
	// is what somebody else's line looks like while it is being written.
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return errors.Join(&os.PathError{Op: "flock", Path: f.Name(), Err: err}, f.Close())
	}
	last := []byte{'\n'}
	if fi, err := f.Stat(); err == nil && fi.Size() > 0 {
		_, _ = f.ReadAt(last, fi.Size()-1) // what cannot be read is taken for whole
	}
	if last[0] != '\n' {
		line = append([]byte{'\n'}, line...)
	}
	_, err = f.Write(line)
	return errors.Join(err, f.Close())
}

func writeJSON(path string, v any) error {
	data, err := encode(v, "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(path, data, 0o600)
}
