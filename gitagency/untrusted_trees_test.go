package gitagency

import (
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A path below the tree of a sandbox, or below the upper directory of its git directory, may lead elsewhere by the time it
// is opened: an agent can rename files and create symlinks at any moment. So only package beneath, and guard for writing,
// open such paths, from the descriptor of the tree. The table lists all other calls with a path that is named like one of
// these directories, and every git that gets a work tree, with the reason why they are safe.
//
// The key is the directory of the file below gitagency/internal, and the call.
var namedTreePaths = map[string]string{
	// Git with a work tree.
	`git/worktree: WorkTree: w.Tree`:                  "checks out a new sandbox before any agent is in it",
	`git/checkout: WorkTree: req.Worktree.Tree`:       "checks out a new sandbox or a layer before any agent is in it",
	`git/layer: WorkTree: req.Dir`:                    "a new directory, before any agent is in it",
	`git/merge: WorkTree: dir`:                        "a temporary directory of ours",
	`git/merge: WorkTree: filepath.Join(dir, "tree")`: "a temporary directory of ours",
	`git/snapshot: WorkTree: c.Dir`:                   "a new directory, for a checkout of a snapshot",
	`git/snapshot: WorkTree: dir`:                     "a temporary directory of ours",
	`git/snapshot: WorkTree: x.spec.Dir`:              "rollback: git writes files that are compared before and after, in a sandbox without a running command",
	`git/status: WorkTree: reader.WorkTree`:           "the directory with copies of files",
	`provision: WorkTree: req.Tree`:                   "the integration worktree, which no agent can write",
	`preflight: WorkTree: wt.TreePath`:                "the integration worktree, which no agent can write",
	`creation: WorkTree: wt.TreePath`:                 "the integration worktree, which no agent can write",
	`git/update: WorkTree: tree`:                      "the integration worktree, which no agent can write",
	`git/update: WorkTree: u.Worktree`:                "the integration worktree, which no agent can write",

	// Creation and removal of the whole directory, whose parent no agent can write.
	`changeset: durable.RemoveTree(s.Tree)`:                                                                                    "removal by handles",
	`changeset: os.Mkdir(s.Tree, 0o755)`:                                                                                       "creation",
	`core: durable.Sync(filepath.Join(c.Spec.Tree, guard.AgencyDir))`:                                                          "creation, before any agent is in it",
	`changeset: os.Mkdir(filepath.Join(upper, guard.AgencyDir), 0o755)`:                                                        "creation, before any agent is in it",
	`changeset: durable.Sync(append(files, admin, filepath.Dir(admin), upper, s.OverlayDir, s.Tree, filepath.Dir(s.Tree))...)`: "creation, before any agent is in it",
	`creation: durable.Remove(guard.Sandbox.Path(r.Store.SandboxTreePath(r.ID, id)))`:                                          "undo of a creation, before any agent is in it",
	`core: durable.Mkdir(tree, 0o755)`:                                                                                         "the directory itself, in the place of a missing one",
	`core: os.Rename(s.Dir, aside)`:                                                                                            "the directory itself",
	`doctor: os.Rename(aside, tree)`:                                                                                           "the directory itself",
	`discard: os.Rename(tree, store.WithdrawnPath(tree))`:                                                                      "the directory itself",
	`discard: durable.RemoveTree(store.RemovablePath(tree))`:                                                                   "removal by handles",
	`discard: durable.RemoveTree(spec.Tree)`:                                                                                   "removal by handles",
	`snapshots: os.Mkdir(tree, 0o777)`:                                                                                         "a new directory, for a checkout of a snapshot",
	`store: durable.RemoveTree(s.SandboxTreePath(repoID, invocationID))`:                                                       "removal by handles",
	`handoff: os.MkdirAll(filepath.Dir(l.Upper), 0o700)`:                                                                       "creation of the upper directory",
	`handoff: os.Rename(fresh, l.Upper)`:                                                                                       "creation of the upper directory",
	`confine: os.MkdirAll(l.Upper, 0o700)`:                                                                                     "a new directory for a trial, in which no command runs",
	`pathset: durable.RestoreOwnerPermissions(UpperDir(r, id, p.Path))`:                                                        "by handles; only the upper directory itself is named, beside which no command can write",
	`git/overlay: os.ReadDir(upper)`:                                                                                           "lists names, for whiteouts that replace nothing",
	`git/overlay: durable.ReadFile(omittedRecord(upper), maxOmittedRecord)`:                                                    "beside the upper directory, where no command can write",
	`git/overlay: durable.WriteFile(omittedRecord(upper), text, 0o600)`:                                                        "beside the upper directory, where no command can write",
	`git/overlay: durable.RemoveIfExists(filepath.Join(upper, name))`:                                                          "an entry of the upper directory itself, without following a symlink",

	`git/overlay: filepath.WalkDir(upper, `: "creation, before any agent is in it",

	`git/worktree: os.ReadDir(w.Tree)`:                                    "creation, before any agent is in it",
	`git/worktree: durable.RemoveIfExists(filepath.Join(w.Tree, ".git"))`: "undo of a creation, before any agent is in it",
	`git/worktree: os.Symlink(w.Tree, w.Link)`:                            "creation of a link to the directory, before any agent is in it",
	`git/repair: durable.WriteFile(filepath.Join(r.AdminDir(name), "gitdir"), []byte(filepath.Join(tree, ".git")+"\n"), 0o644)`: "writes the path into a file of ours",

	`git/submodule: os.WriteFile(filepath.Join(tree, ".git"), []byte("gitdir: "+link+"\n"), 0o666)`: "creation, in a directory that was empty, before any agent is in it",

	// Metadata only: nothing is opened, and an answer that is no longer true has no effect outside.
	`core: filepath.WalkDir(tree, `:                                         "lists names and timestamps, to find out whether a removed tree is still in use",
	`doctor: filepath.EvalSymlinks(s.tree)`:                                 "the directory itself",
	`git: filepath.EvalSymlinks(tree)`:                                      "the worktree that the caller is in",
	`git: os.Lstat(filepath.Join(tree, dir))`:                               "asks whether a parent is a directory",
	`git/repair: durable.ListTemps(tree)`:                                   "lists names, of which one with a certain content is removed, not what a link names",
	`git/snapshot: filepath.WalkDir(filepath.Join(w.spec.LiveDir(), dir), `: "rollback: lists names that would be overwritten",
	`git/snapshot: os.Lstat(filepath.Join(w.spec.LiveDir(), at))`:           "rollback: asks what would be overwritten",
	`git/snapshot: os.Lstat(filepath.Join(w.spec.LiveDir(), dir, ".git"))`:  "rollback: asks whether a directory is a repository",
	`git/snapshot: os.Lstat(filepath.Join(x.spec.LiveDir(), name))`:         "rollback: asks whether a file exists",
	`git/snapshot: os.Lstat(filepath.Join(x.spec.LiveDir(), next))`:         "rollback: asks whether a parent is a directory",
	`git/snapshot: os.Lstat(filepath.Join(x.spec.LiveDir(), path))`:         "rollback: asks whether a file exists",
	`git/status: os.Lstat(s.Dir)`:                                           "the directory itself",
	`guard: os.Lstat(filepath.Join(tree, name))`:                            "asks whether a marker exists",
	`snapshots: os.Lstat(filepath.Join(tree, name))`:                        "a new directory, for a checkout of a snapshot",

	// Beneath a handle, or replaced as a whole.
	`git/worktree: durable.WriteFile(filepath.Join(admin, "gitdir"), []byte(filepath.Join(w.Tree, ".git")+"\n"), 0o644)`: "writes the path into a file of ours",
	`git/snapshot: os.OpenRoot(x.spec.LiveDir())`: "rollback: changes permissions below a handle",
	`git/snapshot: os.OpenRoot(x.spec.UpperDir)`:  "rollback: writes below a handle",
	`guard: os.OpenRoot(tree)`:                    "writes the marker below a handle",

	`copies: os.OpenRoot(s.Dir)`:  "writes copies of files below a handle",
	`handoff: os.OpenRoot(upper)`: "writes the configuration without secrets below a handle",

	// The upper directory is mounted behind the walls only while a command runs, and its parents are ours.
	`git: filepath.WalkDir(filepath.Join(s.UpperDir, top), `:                         "reads ids in refs and reflogs, which it only compares",
	`handoff: os.Lstat(filepath.Join(upper, overlay.EntryIn(upper, id), "modules"))`: "asks whether a directory was copied, before any command has run",
	`handoff: os.ReadDir(e.upper)`:                                                   "lists names",
}

// openers matches the functions that take a path.
var openers = regexp.MustCompile(`^(os\.(Open|OpenFile|ReadFile|ReadDir|Lstat|Stat|Readlink|Chmod|Chtimes|Remove|RemoveAll|Rename|WriteFile|Create|MkdirAll|Mkdir|Symlink|Link|OpenRoot)|filepath\.(WalkDir|Walk|Glob|EvalSymlinks)|unix\.(Lstat|Open|Stat|Access|Openat)|durable\.\w+|git\.OpenRegular|OpenRegular)$`)

// treeNames matches expressions for the tree of a sandbox, or its upper directory.
var treeNames = regexp.MustCompile(`\.Tree\b|[sS]pec\.(Dir|LiveDir)\b|\bs\.Dir\b|subject\.Dir\b|SandboxTreePath|SandboxPath|[uU]pper\b|UpperDir|\btree\b`)

func TestUntrustedTreesAreOpenedByHandle(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	walkProduction(t, func(name string, data []byte) error {
		dir, internal := strings.CutPrefix(path.Dir(name), "gitagency/internal/")
		if !internal || dir == "beneath" || testOnlyPackages[dir] != "" || dir == "git/gittest" {
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, data, 0)
		if err != nil {
			return err
		}
		text := func(n ast.Node) string {
			var b strings.Builder
			if err := printer.Fprint(&b, set, n); err != nil {
				t.Fatal(err)
			}
			return b.String()
		}
		ast.Inspect(file, func(n ast.Node) bool {
			key := ""
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				if text(n.Key) == "WorkTree" {
					key = text(n)
				}
			case *ast.CallExpr:
				if !openers.MatchString(text(n.Fun)) {
					return true
				}
				if key = text(n); strings.Contains(key, "func(") {
					key, _, _ = strings.Cut(key, "func(")
				}
				if !treeNames.MatchString(key) {
					return true
				}
			}
			if key == "" {
				return true
			}
			if key = dir + ": " + key; namedTreePaths[key] == "" {
				t.Errorf("%s: %s\nopen it with package beneath, or add the call to the table with the reason why it is safe", set.Position(n.Pos()), key)
			}
			used[key] = true
			return true
		})
		return nil
	})
	for _, key := range slices.Sorted(maps.Keys(namedTreePaths)) {
		if !used[key] {
			t.Errorf("the table has %q, which no code does", key)
		}
	}
}
