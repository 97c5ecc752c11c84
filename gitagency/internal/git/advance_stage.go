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

// advancePrefix begins the name of a directory in which the files of an Advance are, while it is under way: those that
// come, and later those that went. It is no scrap: what a person had may be in there.
const advancePrefix = "advance-"

// stage is that directory:
//
//	tree/    the new files: by their paths, as git checked them out, or by numbers. Where one has changed places, the old one
//	old/<n>  files that went, by their number in the plan
//	plan     what is to be moved; while it is there, something may have been
//	begun    an empty file, as old as all of it
//	index    git's, of the new files
//	git/     a git directory of our own, unless everything that is set can be trusted
//	objects/ trees of just what is to be checked out
type stage struct {
	repo *Repo
	a    Advance
	dir  string
	plan plan

	entries map[string]stagedEntry // of the new files, as git has them in its index
	numbers map[string]string      // what those are called in tree/ that have numbers, by their paths
	sparse  bool                   // not everything is checked out
	theirs  map[string]string      // paths that are not to be undone
	torn    bool                   // the machine may have stopped half-way, and not all that was written may be there
	noSwap  bool                   // as where the file system cannot do it
	late    func(path string)      // for tests: a file was looked at, and has not been moved yet
}

// plan says what is to be moved. It holds names of any bytes.
type plan struct {
	Advance Advance `json:"advance"`
	Moves   []move  `json:"moves"`
	Gone    []dir   `json:"gone,omitempty"` // directories that may go, the deepest first
	Made    []dir   `json:"made,omitempty"` // directories that have to be made, the deepest last
}

// move is a file that comes, goes, or does both.
type move struct {
	Path []byte `json:"path"`
	Was  *seal  `json:"was,omitempty"` // nothing where there was none
	Is   *seal  `json:"is,omitempty"`
	From string `json:"from,omitempty"` // what the new file is called in tree/, where that is not its path
}

// staged is where the new file is in tree/.
func (m move) staged() (dir, name string) {
	from := cmp.Or(m.From, string(m.Path))
	return path.Dir(from), path.Base(from)
}

// seal tells a file from every other, wherever it is moved to, for as long as nobody writes to it.
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

// stageDirs are where the files may be: beside the repository, or, where files cannot be moved from there to the tree, in
// the tree, in a directory that git was told to ignore.
func (r *Repo) stageDirs(a Advance) []string {
	name := advancePrefix + a.New[:16]
	return []string{filepath.Join(r.ownDir(), name), filepath.Join(a.Tree, ".agency", name)}
}

// workshop is where git reads and writes the files of a worktree, or such as belong there: with all that is set in the
// repository, or only with what names no program.
func (r *Repo) workshop(a Advance, scratch, tree string) (place, error) {
	p := place{
		gitDir: a.GitDir, tree: tree, env: []string{"GIT_NO_REPLACE_OBJECTS=1"}, lightly: true,
		config: []string{
			"-c", "core.safecrlf=false", "-c", "core.untrackedCache=false", "-c", "core.splitIndex=false", "-c", "index.sparse=false",
			"-c", "core.ignoreStat=false", "-c", "core.sparseCheckout=false",
		},
	}
	if a.Trusted {
		return p, nil
	}
	p.gitDir = filepath.Join(scratch, "git")
	env, err := r.fillScratch(Subject{}, a.New, p.gitDir)
	p.env = env
	return p, err
}

// newStage writes the new files where nobody looks, or has git do so.
func (s *seat) newStage(ctx context.Context) (_ *stage, err error) {
	g := &stage{repo: s.repo, a: s.a, entries: map[string]stagedEntry{}}
	if g.dir, err = s.stageDir(); err != nil {
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
	coming := s.coming()
	done, err := s.writeOurselves(ctx, g, coming)
	if err == nil && !done && len(coming) > 0 {
		err = s.checkOut(ctx, g, coming)
	}
	if err != nil {
		return nil, err
	}
	return g, s.draw(g)
}

func (g *stage) fill() error {
	for _, name := range []string{"tree", "old"} {
		if err := os.MkdirAll(filepath.Join(g.dir, name), 0o777); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(g.dir, "begun"), nil, 0o600)
}

// stageDir makes the directory. One that is left is of one that was killed before anything was moved, or of one that
// somebody has yet to finish.
func (s *seat) stageDir() (string, error) {
	dirs := s.repo.stageDirs(s.a)
	for _, dir := range dirs {
		if _, err := os.Lstat(filepath.Join(dir, "plan")); err == nil {
			return "", fmt.Errorf("%s has not been finished", dir)
		}
		if err := durable.RemoveTree(dir); err != nil {
			return "", err
		}
	}
	if err := os.MkdirAll(s.repo.ownDir(), 0o777); err != nil {
		return "", err
	}
	dir := dirs[0]
	if device, ok := deviceOf(s.repo.ownDir()); !ok || uint64(device) != s.dev {
		dir = dirs[1]
		if err := os.MkdirAll(filepath.Dir(dir), 0o777); err != nil {
			return "", err
		}
	}
	return dir, os.Mkdir(dir, 0o700)
}

// checkOut is git's: from an index of nothing but the new files, and what says how they are to be written, into an empty
// directory.
func (s *seat) checkOut(ctx context.Context, g *stage, coming []stagedEntry) error {
	p, err := s.repo.workshop(s.a, g.dir, filepath.Join(g.dir, "tree"))
	if err != nil {
		return err
	}
	if err := s.untrackedRules(g); err != nil {
		return err
	}
	sparse, err := s.sparse(ctx, g)
	if err != nil {
		return err
	}
	g.sparse = len(sparse) > 0
	all := slices.Concat(coming, s.attributes(coming))
	slices.SortFunc(all, func(a, b stagedEntry) int { return strings.Compare(string(a.name), string(b.name)) })
	elsewhere := s.repo.rehearsedIn(g.dir)
	top := plant(all, s.format)
	var objects []object
	if err := top.novel(nil, nil, func(_ string, dir *node, _ item) {
		if dir != nil {
			objects = append(objects, object{kind: "tree", oid: dir.oid, content: dir.content})
		}
	}); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(g.dir, "objects"), 0o777); err != nil {
		return err
	}
	if err := elsewhere.store(ctx, s.format, objects); err != nil {
		return err
	}
	index := filepath.Join(g.dir, "index")
	p.env = append(slices.DeleteFunc(p.env, func(kv string) bool { return strings.HasPrefix(kv, "GIT_OBJECT_DIRECTORY=") }), "GIT_INDEX_FILE="+index)
	p.config = slices.Concat(p.config, s.repo.workers(), s.repo.insist(), sparse)
	if _, err := elsewhere.change(ctx, p, "read-tree", "-m", "-u", "--no-recurse-submodules", top.name()); err != nil {
		return err
	}
	data, err := os.ReadFile(index)
	if err != nil {
		return err
	}
	x, err := parseHeld(data, s.format)
	if err != nil {
		return err
	}
	for e := range x.all() {
		if t := s.by[string(e.name)]; t != nil && len(sparse) == 0 && t.entry.skipped {
			e.skipped = true // as somebody has said of this one
		}
		g.entries[string(e.name)] = e
	}
	return nil
}

// insist makes a filter that fails a failure: what git would write instead is not what the person would have.
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

// untrackedRules puts what says how files are to be written, and is not tracked, where git looks for it.
func (s *seat) untrackedRules(g *stage) error {
	for at := range s.around() {
		name := path.Join(at, ".gitattributes")
		if _, there := s.index.find(name); there || s.by[name] != nil {
			continue
		}
		to := filepath.Join(g.dir, "tree", name)
		if fi, err := os.Lstat(filepath.Join(s.a.Tree, name)); err != nil || !fi.Mode().IsRegular() {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
			return err
		}
		if err := copyRules(filepath.Join(s.a.Tree, name), to); err != nil {
			return err
		}
	}
	return nil
}

// sparse are the settings by which git does not check everything out, if that is so in the worktree.
func (s *seat) sparse(ctx context.Context, g *stage) ([]string, error) {
	rules := filepath.Join(s.a.GitDir, "info", "sparse-checkout")
	if _, err := os.Lstat(rules); err != nil {
		return nil, nil
	}
	var config []string
	for _, key := range []string{"core.sparseCheckout", "core.sparseCheckoutCone"} {
		out, err := s.repo.read(ctx, place{gitDir: s.a.GitDir}, "config", "--type=bool", "--get", key)
		if err != nil && !exitedWith(err, 1) {
			return nil, err
		}
		if value := strings.TrimSpace(string(out)); value != "" {
			config = append(config, "-c", key+"="+value)
		}
	}
	if s.a.Trusted || len(config) == 0 {
		return config, nil
	}
	return config, copyRules(rules, filepath.Join(g.dir, "git", "info", "sparse-checkout"))
}

// draw makes the plan.
func (s *seat) draw(g *stage) error {
	g.plan = plan{Advance: s.a}
	w, err := openWalker(filepath.Join(g.dir, "tree"))
	if err != nil {
		return err
	}
	defer w.close()
	needed := map[string]bool{}
	for _, t := range s.touched {
		m := move{Path: []byte(t.path), From: g.numbers[t.path]}
		if t.was == aFile && t.seen.mode != 0 {
			m.Was = t.seen.seal()
		}
		if e, staged := g.entries[t.path]; t.is == aFile {
			if !staged || string(e.oid) != string(mustHex(t.newOID)) {
				return fmt.Errorf("git did not check out %s", t.path)
			}
			if !e.skipped || t.entry.skipped && m.Was != nil && !g.sparse {
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
			g.plan.Moves = append(g.plan.Moves, m)
		}
	}
	for name, d := range s.gone {
		if d.must || !needed[name] {
			g.plan.Gone = append(g.plan.Gone, d)
		}
	}
	for name := range needed {
		fi, err := os.Lstat(filepath.Join(s.a.Tree, name))
		if err == nil && fi.IsDir() {
			continue
		}
		g.plan.Made = append(g.plan.Made, dir{Path: []byte(name)})
	}
	slices.SortFunc(g.plan.Gone, func(a, b dir) int { return strings.Compare(string(b.Path), string(a.Path)) })
	slices.SortFunc(g.plan.Made, func(a, b dir) int { return strings.Compare(string(a.Path), string(b.Path)) })
	return nil
}

// writePlan makes the plan last, and what is to be moved: from here on something may be.
func (g *stage) writePlan() error {
	if err := g.writeOut(); err != nil {
		return err
	}
	data, err := json.Marshal(g.plan)
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(g.dir, "plan"), data, 0o600) // whose sync is that of all the others
}

// writeOut has the kernel write the new files to the disk, all at the same time.
func (g *stage) writeOut() error {
	var names []string
	for _, m := range g.plan.Moves {
		if m.Is != nil && m.Is.Mode&unix.S_IFMT == unix.S_IFREG {
			dir, name := m.staged()
			names = append(names, filepath.Join(g.dir, "tree", dir, name))
		}
	}
	if len(names) > mostOneByOne { // of which it takes less to write out all that anybody has written
		if err := syncAround(g.dir); !errors.Is(err, errors.ErrUnsupported) {
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

// remove takes the directory away. Of what went nothing is needed any more, or all of it is back.
func (g *stage) remove() error {
	if err := removeIfThere(filepath.Join(g.dir, "plan")); err != nil { // first: without it nothing is looked at
		return err
	}
	err := durable.RemoveTree(g.dir)
	if filepath.Dir(g.dir) != g.repo.ownDir() {
		_ = unix.Rmdir(filepath.Dir(g.dir)) // if it was not there before
	}
	return err
}
