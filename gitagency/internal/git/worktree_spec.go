package git

import (
	"context"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
)

// WorktreeSpec says which worktree to capture, and how.
type WorktreeSpec struct {
	Name           string          // required: name below <common dir>/worktrees; any name with IndexCache
	Dir            string          // directory of the worktree; empty when it is gone and at most git's entry is left
	Mounted        *MountedTree    // the overlay, if it is mounted, so that the files can be changed; else nil
	Overlay        *overlay.Tree   // where the files of the worktree are, if Dir is only where an overlay of them is mounted; else nil
	IsClone        bool            // the .git of the worktree is a git directory of its own, whose commits are imported
	Branch         string          // full ref of the worktree's own branch
	Base           string          // fallback commit when neither HEAD nor the branch leads to one
	Onto           string          // earlier capture to extend: only additions since then are captured
	Omit           string          // top-level name that is never captured
	SecretPatterns []string        // name patterns of untracked files to leave out: see LooksSecret
	LeavePatterns  []string        // patterns of further untracked files to leave out: see IsLeft
	IncludeIgnored bool            // capture ignored files too
	ForcedPaths    []string        // paths that are captured even if they are ignored or look like secrets
	UpperDir       string          // directory that git in a sandbox writes to, where its operation in progress is: upper directory over the git directory, or git directory of a clone
	Message        string          // commit message, if a commit is needed
	Author         object.Identity // author of that commit
	CheckRules     bool            // refuse all files of rules that must not be committed: see fsck.CheckRuleFiles
	TrustConfig    bool            // only the user can have written the repository's configuration: its filters run

	// IndexCache makes Dir a plain directory that is no worktree: git has no entry for it, so that there is no HEAD,
	// no branch, no index and no operation in progress, and every file is untracked. It is the path of a cache file
	// of ours, which need not exist: an index of the files last read, by which unchanged files are recognised. See
	// snapshot.CaptureState.
	IndexCache string

	ChangingDirs []string // directories in which names come and go, to watch with inotify while scanning

	PendingIndex func() (IndexContents, error) // waits for the index that is read in the background; nil when none is

	KeptSubmodules map[string]string // names of the submodules whose checkouts hold nothing that is not kept elsewhere, by path
	ModulesDir     string            // directory of the repositories of submodules, if not that in git's entry

	InUse bool // the worktree stays in use: not even unreadable files in it are made readable
}

// MountedTree is an overlay that is mounted in other namespaces, whose files this process and its gits can use.
type MountedTree struct {
	Path string   // where it is mounted there; here, another directory is at this path
	Dir  *os.File // its top directory

	// Clone returns a copy of the mount, which git mounts for itself: its path must be a real one.
	Clone func(context.Context) (*os.File, error)
}

// LiveDir returns the directory in which the files of the worktree can be read and changed by this process, but not by others:
// Dir, or the mounted overlay.
func (s WorktreeSpec) LiveDir() string {
	if s.Mounted != nil {
		return "/proc/self/fd/" + strconv.Itoa(int(s.Mounted.Dir.Fd()))
	}
	return s.Dir
}

// WriteDir returns the directory that receives the writes to the worktree: Dir, or the upper directory of its overlay.
func (s WorktreeSpec) WriteDir() string {
	if s.Overlay != nil {
		return s.Overlay.Upper
	}
	return s.Dir
}

// IsLeft reports whether an untracked file, or a directory that it is in, matches LeavePatterns, as LooksSecret matches.
func (s WorktreeSpec) IsLeft(name string) bool {
	patterns := WorktreeSpec{SecretPatterns: s.LeavePatterns}
	for ; len(s.LeavePatterns) > 0 && name != "."; name = path.Dir(name) {
		if patterns.LooksSecret(name) {
			return true
		}
	}
	return false
}

// LooksSecret reports whether the name of an untracked file matches the patterns of credentials. The last match wins;
// a leading "!" negates. A pattern with a slash is matched against the whole path.
func (s WorktreeSpec) LooksSecret(name string) bool {
	is := false
	for _, pattern := range s.SecretPatterns {
		pattern, not := strings.CutPrefix(pattern, "!")
		subject := path.Base(name)
		if strings.Contains(pattern, "/") {
			pattern, subject = strings.TrimPrefix(pattern, "/"), name
		}
		if ok, err := path.Match(strings.ToLower(pattern), strings.ToLower(subject)); err == nil && ok {
			is = !not
		}
	}
	return is
}
