package update

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// plan lists the moves of an update. Paths are []byte because they need not be UTF-8, which JSON strings have to be.
type plan struct {
	Update     Update      `json:"advance"`
	Moves      []fileMove  `json:"moves"`          // sorted by path
	RemoveDirs []dirRecord `json:"gone,omitempty"` // directories to remove if they are empty, deepest first
	MakeDirs   []dirRecord `json:"made,omitempty"` // directories to make, deepest last
}

// fileMove is a file that is added, removed or replaced.
type fileMove struct {
	Path       []byte        `json:"path"`
	Old        *fileIdentity `json:"was,omitempty"`  // old file; nil: none
	New        *fileIdentity `json:"is,omitempty"`   // new file; nil: none
	StagedName string        `json:"from,omitempty"` // name of the new file in tree/; empty: Path
}

// stagedPath returns the directory and name of the new file in tree/.
func (m fileMove) stagedPath() (dir, name string) {
	from := cmp.Or(m.StagedName, string(m.Path))
	return path.Dir(from), path.Base(from)
}

// fileIdentity identifies a file on its file system wherever it is moved, until its content or mode changes. ctime is not
// part of it: a rename changes it.
type fileIdentity struct {
	Mode  uint32 `json:"mode"`
	Size  int64  `json:"size"`
	Mtime int64  `json:"mtime"`
	Ino   uint64 `json:"ino"`
}

func newFileIdentity(s git.FileStat) *fileIdentity {
	return &fileIdentity{Mode: s.Mode, Size: s.Size, Mtime: s.Mtime, Ino: s.Ino}
}

func fileIdentityOf(st *unix.Stat_t) fileIdentity { return *newFileIdentity(git.FileStatOf(st)) }

// makePlan makes the plan from the changes and the staged files.
func (co *checkout) makePlan(sd *stagingDir) error {
	sd.plan = plan{Update: co.spec}
	w, err := openDirWalker(filepath.Join(sd.dir, "tree"))
	if err != nil {
		return err
	}
	defer w.close()
	needed := map[string]bool{}
	for _, t := range co.changes {
		m := fileMove{Path: []byte(t.Path), StagedName: sd.numberedNames[t.Path]}
		if t.oldKind == kindFile && t.diskStat.Mode != 0 {
			m.Old = newFileIdentity(t.diskStat)
		}
		if e, staged := sd.entries[t.Path]; t.newKind == kindFile {
			if !staged || string(e.OID) != string(object.MustHex(t.NewOID)) {
				return fmt.Errorf("git did not check out %s", t.Path)
			}
			if !e.SkipWorktree || t.indexEntry.SkipWorktree && m.Old != nil && !sd.sparse {
				dir, name := m.stagedPath()
				fd, err := w.open(dir)
				if err != nil {
					return err
				}
				var st unix.Stat_t
				if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
					return &fs.PathError{Op: "stat", Path: t.Path, Err: err}
				}
				is := fileIdentityOf(&st)
				m.New = &is
			}
		}
		if m.New != nil || t.newKind == kindSubmodule && t.oldKind != kindSubmodule {
			for at := path.Dir(t.Path); at != "." && !needed[at]; at = path.Dir(at) {
				needed[at] = true
			}
		}
		if t.newKind == kindSubmodule && t.oldKind != kindSubmodule {
			needed[t.Path] = true
		}
		if m.Old != nil || m.New != nil {
			sd.plan.Moves = append(sd.plan.Moves, m)
		}
	}
	for name, d := range co.removableDirs {
		if d.replaced || !needed[name] {
			sd.plan.RemoveDirs = append(sd.plan.RemoveDirs, d)
		}
	}
	for name := range needed {
		fi, err := os.Lstat(filepath.Join(co.spec.Worktree, name))
		if err == nil && fi.IsDir() {
			continue
		}
		sd.plan.MakeDirs = append(sd.plan.MakeDirs, dirRecord{Path: []byte(name)})
	}
	removed, made := sd.plan.RemoveDirs, sd.plan.MakeDirs
	sort.Slice(removed, func(i, j int) bool { return string(removed[i].Path) > string(removed[j].Path) })
	sort.Slice(made, func(i, j int) bool { return string(made[i].Path) < string(made[j].Path) })
	return nil
}

// writePlan writes the plan durably, after the staged files. From here on files may be moved.
func (sd *stagingDir) writePlan() error {
	if err := sd.syncFiles(); err != nil {
		return err
	}
	data, err := json.Marshal(sd.plan)
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(sd.dir, "plan"), data, 0o600) // its fsync makes the staged files durable too
}
