// Package store keeps git-agency's records: their paths, their formats, and how they are read, written and found. It
// owns everything below DATA_DIR except the content of the trees. It reads every possible state of these files,
// including inconsistent ones; it reports defects and must never repair them.
//
// The name of its directory is the identity of a record. A record exists if its meta.json exists, and that file is
// created by one durable rename.
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
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
)

// SchemaVersion is the version in every record that is written.
const SchemaVersion = "1.0"

// Store is a data directory.
type Store struct {
	Root string // canonical path
}

// TopLevelNames are the names of git-agency's entries directly below the root.
var TopLevelNames = []string{"repos", "directories", "layers", "paths", "software"}

// RepoID derives the id of a repository from the canonical path of its common directory.
func RepoID(commonDir string) string {
	sum := sha256.Sum256([]byte(commonDir))
	return hex.EncodeToString(sum[:])[:16]
}

// RepoDir returns the directory of all records and trees of one repository.
func (s Store) RepoDir(repoID string) string { return filepath.Join(s.Root, "repos", repoID) }

// InvocationDir returns the directory of an invocation's record.
func (s Store) InvocationDir(repoID, invocationID string) string {
	return filepath.Join(s.RepoDir(repoID), "invocations", invocationID)
}

// MailboxDir returns the directory in which the commands behind the walls of a sandbox leave questions and requests. Its
// content is untrusted.
func (s Store) MailboxDir(repoID, invocationID string) string {
	return filepath.Join(s.InvocationDir(repoID, invocationID), "mailbox")
}

// TaskPath returns the path of the file with the task of an invocation's agent, which exists only if there is one.
func (s Store) TaskPath(repoID, invocationID string) string {
	return filepath.Join(s.InvocationDir(repoID, invocationID), "task")
}

// AnswerPath returns the path of the file with the answer to the last question of an invocation's agent, which exists
// only if there is one.
func (s Store) AnswerPath(repoID, invocationID string) string {
	return filepath.Join(s.InvocationDir(repoID, invocationID), "answer")
}

// InvocationMetaPath returns the path of an invocation's record.
func (s Store) InvocationMetaPath(repoID, invocationID string) string {
	return metaPath(s.InvocationDir(repoID, invocationID))
}

// SandboxesDir returns the directory of all sandboxes of a repository.
func (s Store) SandboxesDir(repoID string) string {
	return filepath.Join(s.RepoDir(repoID), "sandboxes")
}

// SandboxDir returns the directory that holds the tree of a sandbox.
func (s Store) SandboxDir(repoID, invocationID string) string {
	return filepath.Join(s.SandboxesDir(repoID), invocationID)
}

// WallsDir returns the directory for files that a sandbox's commands wrote outside of its tree. Neither those
// commands nor other users can reach it.
func (s Store) WallsDir(repoID, invocationID string) string {
	return filepath.Join(s.SandboxDir(repoID, invocationID), "walls")
}

// OverlayDir returns the directory of the upper and work directories of a sandbox whose tree is an overlay, and the name of its
// layer.
func (s Store) OverlayDir(repoID, invocationID string) string {
	return OverlayOf(s.SandboxTreePath(repoID, invocationID))
}

// OverlayOf is OverlayDir, given the path of the tree.
func OverlayOf(tree string) string { return filepath.Join(filepath.Dir(tree), "overlay") }

// CloneDir returns the directory that a sandbox has only if it is a clone. It has the state of the exchange between the git directory
// in the tree and the repository.
func (s Store) CloneDir(repoID, invocationID string) string {
	return CloneOf(s.SandboxTreePath(repoID, invocationID))
}

// CloneOf is CloneDir, given the path of the tree.
func CloneOf(tree string) string { return filepath.Join(filepath.Dir(tree), "clone") }

// SoftwareDir returns the directory of the unpacked images that sandboxes of all repositories share.
func (s Store) SoftwareDir() string { return filepath.Join(s.Root, "software") }

// LayersDir returns the directory of the layers that the overlays of all repositories share.
func (s Store) LayersDir() string { return filepath.Join(s.Root, "layers") }

// PathsGitDir returns the git directory of all sandboxes over plain directories. It has none of the files in the directories: commands
// behind walls can read it.
func (s Store) PathsGitDir() string { return filepath.Join(s.Root, "paths", "git") }

// PathStatesDir returns the git directory of the states of plain directories, which no command behind walls can read.
func (s Store) PathStatesDir() string { return filepath.Join(s.Root, "paths", "states") }

// PathCopiesDir returns the directory of the copies of plain directories that are being made.
func (s Store) PathCopiesDir() string { return filepath.Join(s.Root, "paths", "copies") }

// PutLockDir returns the directory of the locks of uploads to a sandbox, which exists only while they are used. Neither
// the sandbox's commands nor other users can reach it.
func (s Store) PutLockDir(repoID, invocationID string) string {
	return filepath.Join(s.SandboxDir(repoID, invocationID), "puts")
}

// SandboxTreePath returns the path of a sandbox's tree.
func (s Store) SandboxTreePath(repoID, invocationID string) string {
	return filepath.Join(s.SandboxDir(repoID, invocationID), "tree")
}

// TrashDir returns the directory of the archives of a repository: files of ended sandboxes that no commit can hold.
func (s Store) TrashDir(repoID string) string { return filepath.Join(s.RepoDir(repoID), "trash") }

// TrashArchivePath returns the path of the archive of an ended invocation.
func (s Store) TrashArchivePath(repoID, invocationID string) string {
	return filepath.Join(s.TrashDir(repoID), invocationID+archiveSuffix)
}

const archiveSuffix = ".tar"

// TrashArchiveOf returns the path of the archive of an invocation, given the path of its sandbox's tree.
func TrashArchiveOf(tree string) string {
	dir := filepath.Dir(tree)
	return filepath.Join(filepath.Dir(filepath.Dir(dir)), "trash", filepath.Base(dir)+archiveSuffix)
}

// EnsureTrashDir creates the directory of archives.
func (s Store) EnsureTrashDir(repoID string) error {
	err := durable.Mkdir(s.TrashDir(repoID), 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// TrashArchives lists the ids that have an archive.
func (s Store) TrashArchives(repoID string) ([]string, error) {
	entries, err := os.ReadDir(s.TrashDir(repoID))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var found []string
	for _, e := range entries {
		if id, is := strings.CutSuffix(e.Name(), archiveSuffix); is && ids.Valid(id) {
			found = append(found, id)
		}
	}
	return found, nil
}

// RemoveTrashArchive removes the archive of an invocation, if there is one, and the directory of archives when that was
// the last.
func (s Store) RemoveTrashArchive(repoID, invocationID string) error {
	if err := durable.Remove(s.TrashArchivePath(repoID, invocationID)); err != nil {
		return err
	}
	_ = os.Remove(s.TrashDir(repoID)) // fails when not empty
	return nil
}

// WorktreeDir returns the directory of an integration worktree's record, and of its tree unless it was adopted.
func (s Store) WorktreeDir(repoID, worktreeID string) string {
	return filepath.Join(s.RepoDir(repoID), "worktrees", worktreeID)
}

// WorktreeTreePath returns the path of the tree of an integration worktree that git-agency created.
func (s Store) WorktreeTreePath(repoID, worktreeID string) string {
	return filepath.Join(s.WorktreeDir(repoID, worktreeID), "tree")
}

func metaPath(dir string) string   { return filepath.Join(dir, "meta.json") }
func intentPath(dir string) string { return filepath.Join(dir, "intent.json") }
func eventsPath(dir string) string { return filepath.Join(dir, "events.jsonl") }

// RepoRecord is repo.json. It names the repository that a directory, whose own name is a hash, belongs to.
type RepoRecord struct {
	SchemaVersion string    `json:"schema_version"`
	RepoID        string    `json:"repo_id"`
	CommonDir     string    `json:"common_dir"`
	CreatedAt     time.Time `json:"created_at"`
	FormerIDs     []string  `json:"formerly,omitempty"` // previous ids of the repository; they tell its former paths

	Relocations []Relocation `json:"relocations,omitempty"` // moves of records to here that have not ended
}

// EnsureRepo creates the directories of a repository and its repo.json. The caller holds the repository lock.
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
	data, err := durable.ReadFile(path, maxRecordBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return s.WriteRepoRecord(repoID, commonDir, now)
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

// WriteRepoRecord writes repo.json.
func (s Store) WriteRepoRecord(repoID, commonDir string, now time.Time) error {
	return writeJSON(filepath.Join(s.RepoDir(repoID), "repo.json"), RepoRecord{
		SchemaVersion: SchemaVersion, RepoID: repoID, CommonDir: commonDir, CreatedAt: now.UTC().Truncate(time.Second),
	})
}

// RemoveUnusedRepo undoes EnsureRepo, unless the repository has records or trees.
func (s Store) RemoveUnusedRepo(repoID string) error {
	dir := s.RepoDir(repoID)
	subs := []string{"worktrees", "invocations", "sandboxes", "probes", "trash"}
	for _, sub := range subs {
		if entries, err := os.ReadDir(filepath.Join(dir, sub)); len(entries) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil // in use
		}
	}
	for _, sub := range subs {
		if err := os.Remove(filepath.Join(dir, sub)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil // in use
		}
	}
	if err := durable.RemoveTree(s.RadarDir(repoID)); err != nil {
		return err
	}
	if err := durable.Remove(filepath.Join(dir, "repo.json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, d := range []string{dir, filepath.Dir(dir), s.Root} {
		_ = os.Remove(d) // fails when not empty: others use it
	}
	return nil
}

// CreateInvocationDir creates the directory of a new invocation. It fails if the directory exists, and thereby
// reserves the id.
func (s Store) CreateInvocationDir(repoID, invocationID string) error {
	return durable.Mkdir(s.InvocationDir(repoID, invocationID), 0o700)
}

// CreateWorktreeDir is CreateInvocationDir for an integration worktree.
func (s Store) CreateWorktreeDir(repoID, worktreeID string) error {
	return durable.Mkdir(s.WorktreeDir(repoID, worktreeID), 0o700)
}

// WriteInvocationMeta writes the record of an invocation, atomically and durably.
func (s Store) WriteInvocationMeta(repoID string, meta InvocationMeta) error {
	return writeJSON(s.InvocationMetaPath(repoID, meta.InvocationID), meta)
}

// UpdateInvocationMeta changes a record and preserves fields that this version does not know.
func (s Store) UpdateInvocationMeta(repoID, invocationID string, change func(*InvocationMeta)) error {
	return updateJSON(s.InvocationMetaPath(repoID, invocationID), change)
}

// WriteWorktreeMeta writes the record of an integration worktree, atomically and durably.
func (s Store) WriteWorktreeMeta(meta WorktreeMeta) error {
	return writeJSON(metaPath(s.WorktreeDir(meta.RepoID, meta.WorktreeID)), meta)
}

// UpdateWorktreeMeta changes a record and preserves fields that this version does not know.
func (s Store) UpdateWorktreeMeta(repoID, worktreeID string, change func(*WorktreeMeta)) error {
	return updateJSON(metaPath(s.WorktreeDir(repoID, worktreeID)), change)
}

// RemoveMeta deletes a record, durably. Undoing a creation starts with it.
func RemoveMeta(dir string) error { return durable.Remove(metaPath(dir)) }

// RemoveSandboxTree removes the tree of a sandbox and its directory. It goes on after errors and joins them.
func (s Store) RemoveSandboxTree(repoID, invocationID string) error {
	return errors.Join(
		durable.RemoveTree(s.SandboxTreePath(repoID, invocationID)),
		durable.RemoveTree(s.WallsDir(repoID, invocationID)),
		durable.RemoveTree(s.OverlayDir(repoID, invocationID)),
		durable.RemoveTree(s.CloneDir(repoID, invocationID)),
		durable.RemoveTree(s.PutLockDir(repoID, invocationID)), // left by a killed put
		durable.Remove(s.SandboxDir(repoID, invocationID)))
}

// WithdrawnPath returns the path, beside a tree's own, of a tree that is being removed: programs that know the
// original path cannot reach it any more, but its last check for new work is still to be done.
func WithdrawnPath(tree string) string { return filepath.Join(filepath.Dir(tree), ".aside") }

// RemovablePath returns the path, beside a tree's own, of a withdrawn tree that passed its last check and can be
// deleted.
func RemovablePath(tree string) string { return filepath.Join(filepath.Dir(tree), ".done") }

// IsBeingRemoved reports whether a path lies in a withdrawn or removable tree.
func IsBeingRemoved(path string) bool {
	for dir := path; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if (dir == WithdrawnPath(dir) || dir == RemovablePath(dir)) && ids.Valid(filepath.Base(filepath.Dir(dir))) {
			return true
		}
	}
	return false
}

// RemoveLeftovers deletes what a killed process left beside a record: temporary files, and an intent that the record
// made obsolete.
func RemoveLeftovers(dir string) error {
	if err := withoutUpdates(dir, func() error { return durable.RemoveTemps(dir) }); err != nil {
		return err
	}
	return RemoveIntent(dir)
}

// RemoveEmptyRecordDirs removes directories that hold neither record nor tree nor intent. It is an error if a
// directory holds anything but temporary files.
func RemoveEmptyRecordDirs(dirs ...string) error {
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

func writeJSON(path string, v any) error {
	data, err := encodeJSON(v, "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(path, data, 0o600)
}
