package git

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// stagingPrefix begins the name of a staging directory, which holds the new files of an Update and later the replaced ones.
// It must not be deleted like a temporary directory: it may hold the only copy of the user's files.
const advancePrefix = "advance-"

// stagingDir is a staging directory:
//
//	tree/    the new files, by path as git checked them out, or by number; after an exchange the replaced file
//	old/<n>  removed files, by their number in the plan
//	plan     the moves; if it exists, files may have been moved
//	begun    empty file whose mtime is the start of the update
//	index    git's index of the new files
//	git/     temporary git directory, used if the repository's config is not trusted
//	objects/ tree objects of just the files to check out
type stage struct {
	repo *Repo
	a    Advance
	dir  string
	plan plan

	entries map[string]stagedEntry // index entries of the new files, by path
	numbers map[string]string      // names in tree/ of new files that are stored by number, by path
	sparse  bool                   // the worktree is a sparse checkout
	theirs  map[string]string      // paths that undo must not touch
	torn    bool                   // the machine may have crashed: not all that was written need be on disk
	noSwap  bool                   // for tests: behave as on a file system without RENAME_EXCHANGE
	late    func(path string)      // for tests: called between inspecting and moving a file
}

// plan lists the moves of an update. Paths are []byte because they need not be UTF-8, which JSON strings have to be.
type plan struct {
	Advance Advance `json:"advance"`
	Moves   []move  `json:"moves"`          // sorted by path
	Gone    []dir   `json:"gone,omitempty"` // directories to remove if they are empty, deepest first
	Made    []dir   `json:"made,omitempty"` // directories to make, deepest last
}

// fileMove is a file that is added, removed or replaced.
type move struct {
	Path []byte `json:"path"`
	Was  *seal  `json:"was,omitempty"`  // old file; nil: none
	Is   *seal  `json:"is,omitempty"`   // new file; nil: none
	From string `json:"from,omitempty"` // name of the new file in tree/; empty: Path
}

// stagedPath returns the directory and name of the new file in tree/.
func (m move) staged() (dir, name string) {
	from := cmp.Or(m.From, string(m.Path))
	return path.Dir(from), path.Base(from)
}

// fileIdentity identifies a file on its file system wherever it is moved, until its content or mode changes. ctime is not
// part of it: a rename changes it.
type seal struct {
	Mode  uint32 `json:"mode"`
	Size  int64  `json:"size"`
	Mtime int64  `json:"mtime"`
	Ino   uint64 `json:"ino"`
}

func (s stamp) seal() *seal {
	return &seal{Mode: s.mode, Size: s.size, Mtime: s.mtime, Ino: s.ino}
}

func sealOf(st *unix.Stat_t) seal { return *stampOf(st).seal() }

// stagingDirs returns the two possible staging directories of an update: in the common git directory or, if that is on
// another file system than the worktree, in the worktree's .agency directory, which git ignores.
func (r *Repo) stageDirs(u Advance) []string {
	name := advancePrefix + u.New[:16]
	return []string{filepath.Join(r.ownDir(), name), filepath.Join(u.Tree, ".agency", name)}
}

// checkoutRunOptions returns the options for a git that reads or writes a worktree's files. If the update is trusted, git
// runs with the repository's config; else in a temporary git directory in scratch, with the settings that name no program.
func (r *Repo) workshop(u Advance, scratch, tree string) (place, error) {
	p := place{
		gitDir: u.GitDir, tree: tree, env: []string{"GIT_NO_REPLACE_OBJECTS=1"}, lightly: true,
		config: []string{
			"-c", "core.safecrlf=false", "-c", "core.untrackedCache=false", "-c", "core.splitIndex=false", "-c", "index.sparse=false",
			"-c", "core.ignoreStat=false", "-c", "core.sparseCheckout=false",
		},
	}
	if u.Trusted {
		return p, nil
	}
	p.gitDir = filepath.Join(scratch, "git")
	env, err := r.fillScratch(Subject{}, u.New, p.gitDir)
	p.env = env
	return p, err
}

// newStagingDir makes a staging directory, writes the new files into it, directly or with git, and makes the plan.
func (co *seat) newStage(ctx context.Context) (_ *stage, err error) {
	g := &stage{repo: co.repo, a: co.a, entries: map[string]stagedEntry{}}
	if g.dir, err = co.stageDir(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.remove())
		}
	}()
	if err := g.fill(); err != nil {
		return nil, err
	}
	coming := co.coming()
	done, err := co.writeOurselves(ctx, g, coming)
	if err == nil && !done && len(coming) > 0 {
		err = co.checkOut(ctx, g, coming)
	}
	if err != nil {
		return nil, err
	}
	return g, co.draw(g)
}

func (sd *stage) fill() error {
	for _, name := range []string{"tree", "old"} {
		if err := os.MkdirAll(filepath.Join(sd.dir, name), 0o777); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(sd.dir, "begun"), nil, 0o600)
}

// makeStagingDir makes an empty staging directory. It removes one of an update that was killed before it moved files, and
// refuses if one has a plan: that update must be recovered first.
func (co *seat) stageDir() (string, error) {
	dirs := co.repo.stageDirs(co.a)
	for _, dir := range dirs {
		if _, err := os.Lstat(filepath.Join(dir, "plan")); err == nil {
			return "", fmt.Errorf("%s has not been finished", dir)
		}
		if err := durable.RemoveTree(dir); err != nil {
			return "", err
		}
	}
	if err := os.MkdirAll(co.repo.ownDir(), 0o777); err != nil {
		return "", err
	}
	dir := dirs[0]
	if device, ok := deviceOf(co.repo.ownDir()); !ok || uint64(device) != co.dev {
		dir = dirs[1]
		if err := os.MkdirAll(filepath.Dir(dir), 0o777); err != nil {
			return "", err
		}
	}
	return dir, os.Mkdir(dir, 0o700)
}

// checkOutFiles lets git write the new files into the empty tree/ directory. It reads a tree of nothing but these files and
// the .gitattributes files that apply to them.
func (co *seat) checkOut(ctx context.Context, sd *stage, coming []stagedEntry) error {
	p, err := co.repo.workshop(co.a, sd.dir, filepath.Join(sd.dir, "tree"))
	if err != nil {
		return err
	}
	if err := co.untrackedRules(sd); err != nil {
		return err
	}
	sparse, err := co.sparse(ctx, sd)
	if err != nil {
		return err
	}
	sd.sparse = len(sparse) > 0
	all := slices.Concat(coming, co.attributes(coming))
	slices.SortFunc(all, func(a, b stagedEntry) int { return strings.Compare(string(a.name), string(b.name)) })
	elsewhere := co.repo.rehearsedIn(sd.dir)
	top := plant(all, co.format)
	var objects []object
	if err := top.novel(nil, nil, func(_ string, dir *node, _ item) {
		if dir != nil {
			objects = append(objects, object{kind: "tree", oid: dir.oid, content: dir.content})
		}
	}); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(sd.dir, "objects"), 0o777); err != nil {
		return err
	}
	if err := elsewhere.store(ctx, co.format, objects); err != nil {
		return err
	}
	index := filepath.Join(sd.dir, "index")
	p.env = append(slices.DeleteFunc(p.env, func(kv string) bool { return strings.HasPrefix(kv, "GIT_OBJECT_DIRECTORY=") }), "GIT_INDEX_FILE="+index)
	p.config = slices.Concat(p.config, co.repo.workers(), co.repo.insist(), sparse)
	if _, err := elsewhere.change(ctx, p, "read-tree", "-m", "-u", "--no-recurse-submodules", top.name()); err != nil {
		return err
	}
	data, err := os.ReadFile(index)
	if err != nil {
		return err
	}
	x, err := parseHeld(data, co.format)
	if err != nil {
		return err
	}
	for e := range x.all() {
		if t := co.by[string(e.name)]; t != nil && len(sparse) == 0 && t.entry.skipped {
			e.skipped = true // keep skip-worktree that the user has set on this file
		}
		sd.entries[string(e.name)] = e
	}
	return nil
}

// requireFilters returns config that makes every smudge filter required. Git would otherwise write the unfiltered content
// when a filter fails.
func (r *Repo) insist() []string {
	var names []string
	for key := range r.Config {
		name, is := strings.CutPrefix(key, "filter.")
		end := strings.LastIndexByte(name, '.')
		if is && end >= 0 && slices.Contains(smudges, name[end+1:]) && r.Config.Value(key) != "" && !strings.ContainsAny(name, "=\n") {
			names = append(names, name[:end])
		}
	}
	slices.Sort(names)
	var config []string
	for _, name := range slices.Compact(names) {
		config = append(config, "-c", "filter."+name+".required=true")
	}
	return config
}

// copyUntrackedAttributes copies untracked .gitattributes files that apply to the changed paths into tree/, where git
// reads them.
func (co *seat) untrackedRules(sd *stage) error {
	for at := range co.around() {
		name := path.Join(at, ".gitattributes")
		if _, there := co.index.find(name); there || co.by[name] != nil {
			continue
		}
		to := filepath.Join(sd.dir, "tree", name)
		if fi, err := os.Lstat(filepath.Join(co.a.Tree, name)); err != nil || !fi.Mode().IsRegular() {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
			return err
		}
		if err := copyRules(filepath.Join(co.a.Tree, name), to); err != nil {
			return err
		}
	}
	return nil
}

// sparseConfig returns the config for a sparse checkout, if the worktree has one. For an untrusted update it copies the
// sparse-checkout file into the temporary git directory.
func (co *seat) sparse(ctx context.Context, sd *stage) ([]string, error) {
	rules := filepath.Join(co.a.GitDir, "info", "sparse-checkout")
	if _, err := os.Lstat(rules); err != nil {
		return nil, nil
	}
	var config []string
	for _, key := range []string{"core.sparseCheckout", "core.sparseCheckoutCone"} {
		out, err := co.repo.read(ctx, place{gitDir: co.a.GitDir}, "config", "--type=bool", "--get", key)
		if err != nil && !exitedWith(err, 1) {
			return nil, err
		}
		if value := strings.TrimSpace(string(out)); value != "" {
			config = append(config, "-c", key+"="+value)
		}
	}
	if co.a.Trusted || len(config) == 0 {
		return config, nil
	}
	return config, copyRules(rules, filepath.Join(sd.dir, "git", "info", "sparse-checkout"))
}

// makePlan makes the plan from the changes and the staged files.
func (co *seat) draw(sd *stage) error {
	sd.plan = plan{Advance: co.a}
	w, err := openWalker(filepath.Join(sd.dir, "tree"))
	if err != nil {
		return err
	}
	defer w.close()
	needed := map[string]bool{}
	for _, t := range co.touched {
		m := move{Path: []byte(t.path), From: sd.numbers[t.path]}
		if t.was == aFile && t.seen.mode != 0 {
			m.Was = t.seen.seal()
		}
		if e, staged := sd.entries[t.path]; t.is == aFile {
			if !staged || string(e.oid) != string(mustHex(t.newOID)) {
				return fmt.Errorf("git did not check out %s", t.path)
			}
			if !e.skipped || t.entry.skipped && m.Was != nil && !sd.sparse {
				dir, name := m.staged()
				fd, err := w.open(dir)
				if err != nil {
					return err
				}
				var st unix.Stat_t
				if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
					return &fs.PathError{Op: "stat", Path: t.path, Err: err}
				}
				is := sealOf(&st)
				m.Is = &is
			}
		}
		if m.Is != nil || t.is == aModule && t.was != aModule {
			for at := path.Dir(t.path); at != "." && !needed[at]; at = path.Dir(at) {
				needed[at] = true
			}
		}
		if t.is == aModule && t.was != aModule {
			needed[t.path] = true
		}
		if m.Was != nil || m.Is != nil {
			sd.plan.Moves = append(sd.plan.Moves, m)
		}
	}
	for name, d := range co.gone {
		if d.must || !needed[name] {
			sd.plan.Gone = append(sd.plan.Gone, d)
		}
	}
	for name := range needed {
		fi, err := os.Lstat(filepath.Join(co.a.Tree, name))
		if err == nil && fi.IsDir() {
			continue
		}
		sd.plan.Made = append(sd.plan.Made, dir{Path: []byte(name)})
	}
	slices.SortFunc(sd.plan.Gone, func(a, b dir) int { return strings.Compare(string(b.Path), string(a.Path)) })
	slices.SortFunc(sd.plan.Made, func(a, b dir) int { return strings.Compare(string(a.Path), string(b.Path)) })
	return nil
}

// writePlan writes the plan durably, after the staged files. From here on files may be moved.
func (sd *stage) writePlan() error {
	if err := sd.writeOut(); err != nil {
		return err
	}
	data, err := json.Marshal(sd.plan)
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(sd.dir, "plan"), data, 0o600) // its fsync makes the staged files durable too
}

// syncFiles makes the kernel write the staged files to disk, several at the same time. The fsync of the plan makes them
// durable.
func (sd *stage) writeOut() error {
	var names []string
	for _, m := range sd.plan.Moves {
		if m.Is != nil && m.Is.Mode&unix.S_IFMT == unix.S_IFREG {
			dir, name := m.staged()
			names = append(names, filepath.Join(sd.dir, "tree", dir, name))
		}
	}
	if len(names) > mostOneByOne { // syncing the whole file system is faster
		if err := syncAround(sd.dir); !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	const atOnce = 16
	failed, slots := make(chan error, len(names)), make(chan struct{}, atOnce)
	for _, name := range names {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			f, err := os.Open(name)
			if err == nil {
				err = errors.Join(durable.WriteOut(f), f.Close())
			}
			failed <- err
		}()
	}
	var err error
	for range names {
		err = errors.Join(err, <-failed)
	}
	return err
}

// remove removes the staging directory. The caller must have committed or undone the update: old files in it are deleted.
func (sd *stage) remove() error {
	if err := removeIfThere(filepath.Join(sd.dir, "plan")); err != nil { // first: without a plan Recover ignores the files
		return err
	}
	err := durable.RemoveTree(sd.dir)
	if filepath.Dir(sd.dir) != sd.repo.ownDir() {
		_ = unix.Rmdir(filepath.Dir(sd.dir)) // .agency in the worktree, if nothing else is in it
	}
	return err
}
