package status

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"golang.org/x/sys/unix"
)

// A stat cache holds the stat data of every directory and file of a worktree from when its state was written as a
// tree. As long as all of them still match, the state is that tree, and no file has to be read.
//
// Stat data are enough, because programs cannot set ctime, and because a cache is written only when everything in it
// is older than the scan: any later change leaves a later ctime. An agent without walls may have written the cache
// file, so it is validated, and used only for what is shown to users.

// DiskTreeWithStatCache is DiskTree that also returns a stat cache for TreeFromStatCache, but not the files left out.
// The cache is nil where it could not reveal a later change, as while files are changing, and for an overlay, whose scan
// looks at changed files only. The digest is that of ReadConfigDigest, and head is the commit of HEAD.
func DiskTreeWithStatCache(ctx context.Context, m *git.Mirror, s git.WorktreeSpec, head string, digest ConfigDigest) (tree string, cache []byte, err error) {
	index := indexFileStat(m.Repo, s)
	tree, _, err = stableDiskTree(ctx, m, s, head, func(g WorktreeContents) {
		sum, ok := digestWorktree(m.Repo, digest, s, index)
		if cache = nil; ok && index != (git.FileStat{}) && indexFileStat(m.Repo, s) == index {
			cache = g.newStatCache(sum)
		}
	})
	return tree, cache, err
}

// TreeFromStatCache returns the tree of a worktree whose files, index and configuration still match a stat cache. It
// returns "" when something has changed, or data is no valid cache.
func TreeFromStatCache(r *git.Repo, s git.WorktreeSpec, digest ConfigDigest, data []byte) (tree string) {
	if len(data) == 0 || s.Overlay != nil {
		return ""
	}
	index := indexFileStat(r, s)
	sum, ok := digestWorktree(r, digest, s, index)
	if !ok || index == (git.FileStat{}) {
		return ""
	}
	l := parseStatCache(data, sum)
	if l == nil || !l.matches(s.Dir) {
		return ""
	}
	return l.tree
}

// matches reports whether a worktree has the cached stat data. The cache also holds every directory, so a path that
// now leads through a symlink does not match.
func (l *statCache) matches(worktree string) bool {
	const flags = unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	top, err := unix.Open(worktree, flags|unix.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer unix.Close(top)
	var st unix.Stat_t
	i := 0
	for _, g := range l.groups {
		at := top
		if g.dir != "." {
			if at, err = unix.Openat(top, g.dir, flags|openPathOnly, 0); err != nil {
				return false
			}
		}
		same := true
		for end := i + g.count; i < end && same; i++ {
			name, was := l.entry(i)
			same = fstatatNoFollow(at, name, &st) && git.FileStatOf(&st) == was
		}
		if at != top {
			_ = unix.Close(at)
		}
		if !same {
			return false
		}
	}
	return true
}

// ruleFileNames are the names of files with rules for other files.
var ruleFileNames = []string{".gitignore", ".gitattributes"}

func isRuleFile(name string) bool { return slices.Contains(ruleFileNames, path.Base(name)) }

// newStatCache encodes the stat data of the scanned paths, all of one state. It returns nil when not all of them are
// older than the scan.
func (g WorktreeContents) newStatCache(digest worktreeDigest) []byte {
	v := g.scan
	if v == nil || v.spec.Overlay != nil || v.startedAt == 0 || len(v.spec.ForcedPaths) > 0 || !v.result.consistent || !v.isUntouched() {
		return nil
	}
	seen := slices.Clone(v.untrackedFiles)
	var descend func(*scannedDir)
	descend = func(d *scannedDir) {
		seen = append(seen, pathStat{cmp.Or(strings.TrimSuffix(d.path, "/"), "."), d.stat})
		for _, below := range d.children {
			descend(below)
		}
	}
	descend(v.result.root)
	for i, f := range v.result.statuses {
		if f == entryUnchanged || f == entryModified {
			seen = append(seen, pathStat{string(v.entries[i].Name), v.result.stats[i]})
		}
	}
	for _, f := range v.result.untracked { // an ignored .gitignore has effect too
		if isRuleFile(f.name) {
			seen = append(seen, f)
		}
	}
	for dir, s := range v.untrackedDirStats {
		seen = append(seen, pathStat{dir, s})
		for _, name := range ruleFileNames {
			if s := v.statNow(path.Join(dir, name)); s != (git.FileStat{}) {
				seen = append(seen, pathStat{path.Join(dir, name), s})
			}
		}
	}
	for _, l := range v.leftOut {
		if l.Reason == OmitRepository { // it is left out only while it has a .git
			seen = append(seen, pathStat{l.Path, v.statNow(l.Path)})
		}
	}
	if slices.ContainsFunc(seen, func(f pathStat) bool { return f.stat.Ctime >= v.startedAt }) {
		return nil
	}
	return encodeStatCache(digest, g.Worktree.OID, seen)
}
