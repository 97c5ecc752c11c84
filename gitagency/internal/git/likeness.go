package git

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A likeness is what a worktree looked like when its state was written as a tree: every directory and every file that was
// looked at, and when each of them last changed. As long as it still looks like that, its state is that tree, and nothing
// has to be read to know it.
//
// Times tell, because nobody can set the one that counts, and because there is a likeness only of what was all older than
// the look: whoever changes something later leaves a later time. It lies in a file that somebody without walls may have
// written, so only what could be true is believed, and only for telling people something.

// WorkTreeLike is WorkTree that also says what the worktree looked like, for Recognise; nothing where that would not tell
// when something changes, as while somebody is at it. The ground is from Repo.Ground, and head from Whereabouts.
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

// Recognise is the tree of a worktree that still looks as it did: nothing in it has changed, nor what is staged, nor what
// says how files are to be understood. It is empty when something has, or what was read is no likeness.
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

// still reports whether a worktree looks like that. Whatever a path may lead through now, directories are looked at too.
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

// rulings are called what says of other files what they are.
var rulings = []string{".gitignore", ".gitattributes"}

func ruling(name string) bool { return slices.Contains(rulings, path.Base(name)) }

// likeness is what was looked at, all of it in one state; nothing when not everything was older than the look.
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
	for _, f := range v.first.loose { // also one that is ignored says what is
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
		if l.Why == Repository { // for as long as there is a .git in it
			seen = append(seen, found{l.Path, v.stampNow(l.Path)})
		}
	}
	if slices.ContainsFunc(seen, func(f found) bool { return f.stamp.ctime >= v.began }) {
		return nil
	}
	return encodeLikeness(ground, g.work.oid, seen)
}
