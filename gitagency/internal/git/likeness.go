package git

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A stat cache holds the stat data of every directory and file of a worktree from when its state was written as a
// tree. As long as all of them still match, the state is that tree, and no file has to be read.
//
// Stat data are enough, because programs cannot set ctime, and because a cache is written only when everything in it
// is older than the scan: any later change leaves a later ctime. An agent without walls may have written the cache
// file, so it is validated, and used only for what is shown to users.

// WorkTreeWithStatCache is WorkTree that also returns a stat cache for TreeFromStatCache. The cache is nil where it
// could not reveal a later change, as while files are changing. The digest is from Repo.ReadConfigDigest, and head is
// the commit of HEAD.
func (m *Mirror) WorkTreeLike(ctx context.Context, s Subject, head string, ground Ground) (tree string, likeness []byte, err error) {
	index := m.repo.indexStamp(s)
	tree, _, err = m.settledTree(ctx, s, head, func(g gathered) {
		sum, ok := m.repo.groundOf(ground, s, index)
		if likeness = nil; ok && index != (stamp{}) && m.repo.indexStamp(s) == index {
			likeness = g.likeness(sum)
		}
	})
	return tree, likeness, err
}

// TreeFromStatCache returns the tree of a worktree whose files, index and configuration still match a stat cache. It
// returns "" when something has changed, or data is no valid cache.
func (r *Repo) Recognise(s Subject, ground Ground, data []byte) (tree string) {
	if len(data) == 0 {
		return ""
	}
	index := r.indexStamp(s)
	sum, ok := r.groundOf(ground, s, index)
	if !ok || index == (stamp{}) {
		return ""
	}
	l := parseLikeness(data, sum)
	if l == nil || !l.still(s.Tree) {
		return ""
	}
	return l.tree
}

// matches reports whether a worktree has the cached stat data. The cache also holds every directory, so a path that
// now leads through a symlink does not match.
func (l *likeness) still(worktree string) bool {
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
			if at, err = unix.Openat(top, g.dir, flags|pathOnly, 0); err != nil {
				return false
			}
		}
		same := true
		for end := i + g.count; i < end && same; i++ {
			name, was := l.at(i)
			same = statNamed(at, name, &st) && stampOf(&st) == was
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
var rulings = []string{".gitignore", ".gitattributes"}

func ruling(name string) bool { return slices.Contains(rulings, path.Base(name)) }

// newStatCache encodes the stat data of the scanned paths, all of one state. It returns nil when not all of them are
// older than the scan.
func (g gathered) likeness(ground groundSum) []byte {
	v := g.view
	if v == nil || v.began == 0 || len(v.s.Also) > 0 || !v.first.whole || !v.untouched() {
		return nil
	}
	seen := slices.Clone(v.stray)
	var descend func(*visit)
	descend = func(d *visit) {
		seen = append(seen, found{cmp.Or(strings.TrimSuffix(d.path, "/"), "."), d.stamp})
		for _, below := range d.below {
			descend(below)
		}
	}
	descend(v.first.top)
	for i, f := range v.first.fates {
		if f == same || f == changed {
			seen = append(seen, found{string(v.entries[i].name), v.first.stamps[i]})
		}
	}
	for _, f := range v.first.loose { // an ignored .gitignore has effect too
		if ruling(f.name) {
			seen = append(seen, f)
		}
	}
	for dir, s := range v.around {
		seen = append(seen, found{dir, s})
		for _, name := range rulings {
			if s := v.stampNow(path.Join(dir, name)); s != (stamp{}) {
				seen = append(seen, found{path.Join(dir, name), s})
			}
		}
	}
	for _, l := range v.leftOut {
		if l.Why == Repository { // it is left out only while it has a .git
			seen = append(seen, found{l.Path, v.stampNow(l.Path)})
		}
	}
	if slices.ContainsFunc(seen, func(f found) bool { return f.stamp.ctime >= v.began }) {
		return nil
	}
	return encodeLikeness(ground, g.work.oid, seen)
}
