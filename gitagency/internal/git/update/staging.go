package update

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// stagingPrefix begins the name of a staging directory, which holds the new files of an Update and later the replaced ones.
// It must not be deleted like a temporary directory: it may hold the only copy of the user's files.
const stagingPrefix = "advance-"

// stagingDir is a staging directory:
//
//	tree/    the new files, by path as git checked them out, or by number; after an exchange the replaced file
//	old/<n>  removed files, by their number in the plan
//	plan     the moves; if it exists, files may have been moved
//	begun    empty file whose mtime is the start of the update
//	index    git's index of the new files
//	git/     temporary git directory, used if the repository's config is not trusted
//	objects/ tree objects of just the files to check out
type stagingDir struct {
	repo *git.Repo
	spec Update
	dir  string
	plan plan

	entries       map[string]index.Entry // index entries of the new files, by path
	numberedNames map[string]string      // names in tree/ of new files that are stored by number, by path
	sparse        bool                   // the worktree is a sparse checkout
	leaveAsIs     map[string]string      // paths that undo must not touch
	mayBeTorn     bool                   // the machine may have crashed: not all that was written need be on disk
	noExchange    bool                   // for tests: behave as on a file system without RENAME_EXCHANGE
	beforeMove    func(path string)      // for tests: called between inspecting and moving a file
}

// stagingDirs returns the two possible staging directories of an update: in the common git directory or, if that is on
// another file system than the worktree, in the worktree's .agency directory, which git ignores.
func stagingDirs(r *git.Repo, u Update) []string {
	name := stagingPrefix + u.New[:16]
	return []string{filepath.Join(r.AgencyDir(), name), filepath.Join(u.Worktree, ".agency", name)}
}

// checkoutRunOptions returns the options for a git that reads or writes a worktree's files. If the update is trusted, git
// runs with the repository's config; else in a temporary git directory in scratch, with the settings that name no program.
func checkoutRunOptions(r *git.Repo, u Update, scratch, tree string) (git.RunOptions, error) {
	p := git.RunOptions{
		GitDir: u.GitDir, WorkTree: tree, Env: []string{"GIT_NO_REPLACE_OBJECTS=1"}, NoFsync: true,
		Config: []string{
			"-c", "core.safecrlf=false", "-c", "core.untrackedCache=false", "-c", "core.splitIndex=false", "-c", "index.sparse=false",
			"-c", "core.ignoreStat=false", "-c", "core.sparseCheckout=false",
		},
		Reading: r.CheckoutReading("the checkout of " + u.New),
	}
	if u.Trusted {
		return p, nil
	}
	p.GitDir = filepath.Join(scratch, "git")
	env, err := r.FillScratchGitDir(git.WorktreeSpec{}, u.New, p.GitDir)
	p.Env = env
	return p, err
}

// newStagingDir makes a staging directory, writes the new files into it, directly or with git, and makes the plan.
func (co *checkout) newStagingDir(ctx context.Context) (_ *stagingDir, err error) {
	g := &stagingDir{repo: co.repo, spec: co.spec, entries: map[string]index.Entry{}}
	if g.dir, err = co.makeStagingDir(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.remove())
		}
	}()
	if err := g.createLayout(); err != nil {
		return nil, err
	}
	coming := co.newEntries()
	done, err := co.writeFilesDirectly(ctx, g, coming)
	if err == nil && !done && len(coming) > 0 {
		err = co.checkOutFiles(ctx, g, coming)
	}
	if err != nil {
		return nil, err
	}
	return g, co.makePlan(g)
}

func (sd *stagingDir) createLayout() error {
	for _, name := range []string{"tree", "old"} {
		if err := os.MkdirAll(filepath.Join(sd.dir, name), 0o777); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(sd.dir, "begun"), nil, 0o600)
}

// makeStagingDir makes an empty staging directory. It removes one of an update that was killed before it moved files, and
// refuses if one has a plan: that update must be recovered first.
func (co *checkout) makeStagingDir() (string, error) {
	dirs := stagingDirs(co.repo, co.spec)
	for _, dir := range dirs {
		if _, err := os.Lstat(filepath.Join(dir, "plan")); err == nil {
			return "", fmt.Errorf("%s belongs to an update that was not finished", dir)
		}
		if err := durable.RemoveTree(dir); err != nil {
			return "", err
		}
	}
	if err := os.MkdirAll(co.repo.AgencyDir(), 0o777); err != nil {
		return "", err
	}
	dir := dirs[0]
	if device, ok := git.DeviceOf(co.repo.AgencyDir()); !ok || uint64(device) != co.dev {
		dir = dirs[1]
		if err := os.MkdirAll(filepath.Dir(dir), 0o777); err != nil {
			return "", err
		}
	}
	return dir, os.Mkdir(dir, 0o700)
}

// checkOutFiles lets git write the new files into the empty tree/ directory. It reads a tree of nothing but these files and
// the .gitattributes files that apply to them.
func (co *checkout) checkOutFiles(ctx context.Context, sd *stagingDir, coming []index.Entry) error {
	p, err := checkoutRunOptions(co.repo, co.spec, sd.dir, filepath.Join(sd.dir, "tree"))
	if err != nil {
		return err
	}
	if err := co.copyUntrackedAttributes(sd); err != nil {
		return err
	}
	sparse, err := co.sparseConfig(ctx, sd)
	if err != nil {
		return err
	}
	sd.sparse = len(sparse) > 0
	all := slices.Concat(coming, co.attributeEntries(coming))
	sort.Slice(all, func(i, j int) bool { return string(all[i].Name) < string(all[j].Name) })
	elsewhere := co.repo.DryRunRepo(sd.dir)
	top := index.BuildTree(all, co.format)
	var objects []object.Raw
	if err := git.VisitNewEntries(top, nil, nil, func(_ string, dir *object.BuiltTree, _ object.TreeEntry) {
		if dir != nil {
			objects = append(objects, object.Raw{Kind: "tree", OID: dir.OID, Content: dir.Content})
		}
	}); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(sd.dir, "objects"), 0o777); err != nil {
		return err
	}
	if err := elsewhere.WriteObjects(ctx, co.format, objects); err != nil {
		return err
	}
	idx := filepath.Join(sd.dir, "index")
	p.Env = append(slices.DeleteFunc(p.Env, func(kv string) bool { return strings.HasPrefix(kv, "GIT_OBJECT_DIRECTORY=") }), "GIT_INDEX_FILE="+idx)
	p.Config = slices.Concat(p.Config, co.repo.CheckoutWorkersConfig(), requireFilters(co.repo), sparse)
	if _, err := elsewhere.RunWrite(ctx, p, "read-tree", "-m", "-u", "--no-recurse-submodules", top.HexOID()); err != nil {
		return err
	}
	data, err := os.ReadFile(idx)
	if err != nil {
		return err
	}
	x, err := index.ParseEditable(data, co.format)
	if err != nil {
		return err
	}
	for e := range x.AllEntries() {
		if t := co.changeByPath[string(e.Name)]; t != nil && len(sparse) == 0 && t.indexEntry.SkipWorktree {
			e.SkipWorktree = true // keep skip-worktree that the user has set on this file
		}
		sd.entries[string(e.Name)] = e
	}
	return nil
}

// requireFilters returns config that makes every smudge filter required. Git would otherwise write the unfiltered content
// when a filter fails.
func requireFilters(r *git.Repo) []string {
	var names []string
	for key := range r.Config {
		name, is := strings.CutPrefix(key, "filter.")
		end := strings.LastIndexByte(name, '.')
		if is && end >= 0 && slices.Contains(git.SmudgeCommands, name[end+1:]) && r.Config.Value(key) != "" && !strings.ContainsAny(name, "=\n") {
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
func (co *checkout) copyUntrackedAttributes(sd *stagingDir) error {
	for at := range co.parentDirs() {
		name := path.Join(at, ".gitattributes")
		if _, there := co.index.Find(name); there || co.changeByPath[name] != nil {
			continue
		}
		to := filepath.Join(sd.dir, "tree", name)
		if fi, err := os.Lstat(filepath.Join(co.spec.Worktree, name)); err != nil || !fi.Mode().IsRegular() {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
			return err
		}
		if err := git.CopySmallFile(filepath.Join(co.spec.Worktree, name), to); err != nil {
			return err
		}
	}
	return nil
}

// sparseConfig returns the config for a sparse checkout, if the worktree has one. For an untrusted update it copies the
// sparse-checkout file into the temporary git directory.
func (co *checkout) sparseConfig(ctx context.Context, sd *stagingDir) ([]string, error) {
	rules := filepath.Join(co.spec.GitDir, "info", "sparse-checkout")
	if _, err := os.Lstat(rules); err != nil {
		return nil, nil
	}
	var config []string
	for _, key := range []string{"core.sparseCheckout", "core.sparseCheckoutCone"} {
		out, err := co.repo.RunRead(ctx, git.RunOptions{GitDir: co.spec.GitDir}, "config", "--type=bool", "--get", key)
		if err != nil && !git.ExitedWith(err, 1) {
			return nil, err
		}
		if value := strings.TrimSpace(string(out)); value != "" {
			config = append(config, "-c", key+"="+value)
		}
	}
	if co.spec.Trusted || len(config) == 0 {
		return config, nil
	}
	return config, git.CopySmallFile(rules, filepath.Join(sd.dir, "git", "info", "sparse-checkout"))
}

// syncFiles makes the kernel write the staged files to disk, several at the same time. The fsync of the plan makes them
// durable.
func (sd *stagingDir) syncFiles() error {
	var names []string
	for _, m := range sd.plan.Moves {
		if m.New != nil && m.New.Mode&unix.S_IFMT == unix.S_IFREG {
			dir, name := m.stagedPath()
			names = append(names, filepath.Join(sd.dir, "tree", dir, name))
		}
	}
	if len(names) > maxFilesOneByOne { // syncing the whole file system is faster
		if err := durable.SyncFileSystem(sd.dir); !errors.Is(err, errors.ErrUnsupported) {
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
				err = errors.Join(durable.WriteBack(f), f.Close())
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
func (sd *stagingDir) remove() error {
	if err := durable.RemoveIfExists(filepath.Join(sd.dir, "plan")); err != nil { // first: without a plan Recover ignores the files
		return err
	}
	err := durable.RemoveTree(sd.dir)
	if filepath.Dir(sd.dir) != sd.repo.AgencyDir() {
		_ = unix.Rmdir(filepath.Dir(sd.dir)) // .agency in the worktree, if nothing else is in it
	}
	return err
}
