package snapshot

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
)

// FindOperation returns the operation in progress in a worktree, inside or outside of its walls, or "conflicts" if the
// state has no index tree because of unmerged entries.
func FindOperation(ctx context.Context, r *git.Repo, s git.WorktreeSpec, state State) (status.OngoingOperation, error) {
	b := status.DetectOperation(r, s)
	if b.Command == "" && !b.OutsideWalls {
		b = status.OngoingOperation{Command: git.OperationIn(r.AdminDir(s.Name)), OutsideWalls: s.UpperDir != ""}
	}
	if b.Command == "" && state.IndexTree == "" {
		b.Command = status.ConflictsOnly
	}
	found, err := r.Lookup(ctx, state.Head+"^{tree}")
	if err == nil {
		b.IndexUnchanged = found[0].OID == state.IndexTree
	}
	return b, err
}

// Operation is an operation in progress in a worktree: an unfinished merge, rebase or bisection, or unresolved
// conflicts. A captured state holds it as a commit, State.OperationCommit, with this tree:
//
//	git/<file>                 the state files of the operation as git in the sandbox has them, unchanged
//	conflicts/<1|2|3>/<path>   the unmerged entries of the index, by stage
//	conflicts/0                all other index entries, when some are unmerged
//	outside/<file>             those of the real git directory: the same, unless the sandbox has its own behind walls
//	inside/HEAD, inside/branch HEAD and the worktree's branch behind walls, when they differ from the real ones
//	auto-merge                 the tree that AUTO_MERGE names
//
// Its parents are the commits that these files name and that HEAD does not reach.
type Operation struct {
	Files       map[string][]byte // state files by their names in the worktree's git directory; an agent may have written them
	HostFiles   map[string][]byte // those of the real git directory; only these are ever written to one
	Conflicts   []UnmergedEntry
	MergedTree  string            // tree of conflicts/0; empty when nothing is unmerged, or everything is
	SandboxRefs map[string]string // "HEAD" and "branch" behind walls
}

// UnmergedEntry is an index entry with a stage other than 0.
type UnmergedEntry struct {
	Mode, OID string
	Stage     string // 1, 2 or 3
	Path      string
}

// The state files of operations in progress in a worktree's git directory.
var (
	operationFiles = []string{
		"MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "MERGE_RR", "MERGE_AUTOSTASH", "AUTO_MERGE", "SQUASH_MSG",
		"CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD",
		"BISECT_ANCESTORS_OK", "BISECT_EXPECTED_REV", "BISECT_FIRST_PARENT", "BISECT_LOG", "BISECT_NAMES", "BISECT_RUN", "BISECT_START", "BISECT_TERMS",
	}
	operationDirs = []string{"rebase-merge", "rebase-apply", "sequencer", "refs/bisect", "refs/rewritten"}
)

// Limits for state files; git itself writes less.
const (
	maxOperationFiles = 20_000
	maxOperationBytes = 64 << 20
)

// captureOperation writes the operation in progress as a commit; empty when there is none. The same operation gives
// the same commit, whenever it is written. now is the rest of the state; without a tree of the index there may be
// conflicts. x is the index. No git reads the index file itself: an agent may have written it, and a git that it takes over
// could write to the scratch git directory, which later gits trust.
func captureOperation(ctx context.Context, r *git.Repo, s git.WorktreeSpec, now State, x index.File) (_ string, err error) {
	head, branch, staged := now.Head, now.BranchTip, now.IndexTree
	entry := r.WorktreeAdminDir(s) // looked up once: an agent that is running may move its own away
	files, err := readOperation(entry)
	if err != nil {
		return "", fmt.Errorf("git operation in progress: %w", err)
	}
	outside := files
	if host := r.AdminDir(s.Name); host != entry {
		if outside, err = readOperation(host); err != nil {
			return "", fmt.Errorf("git operation in progress: %w", err)
		}
	}
	inside := readSandboxHeads(r, s, branch)
	if len(files) == 0 && len(inside) == 0 && len(outside) == 0 && staged != "" {
		return "", nil
	}
	dir := filepath.Join(r.AgencyDir(), git.CapturePrefix+s.Name+"-held")
	if err := durable.RemoveTree(dir); err != nil { // left by a killed process
		return "", err
	}
	defer func() { err = errors.Join(err, durable.RemoveTree(dir)) }()
	env, err := r.FillScratchGitDir(git.WorktreeSpec{}, head, dir)
	if err != nil {
		return "", err
	}
	p := git.RunOptions{GitDir: dir, WorkTree: dir, Env: env, Config: []string{"-c", "core.splitIndex=false", "-c", "index.sparse=false"}, Reading: r.ReadingOf("the git operation in progress in " + s.Dir)}
	u := Operation{Files: files, HostFiles: outside, SandboxRefs: inside}
	if staged == "" {
		var merged index.File
		if u.Conflicts, merged = splitConflicts(x); len(u.Conflicts) > 0 {
			if err := os.WriteFile(filepath.Join(dir, "index"), merged.Encode(), 0o600); err != nil {
				return "", err
			}
			if u.MergedTree, err = r.WriteTree(ctx, p); err != nil {
				return "", err
			}
		}
	}
	return WriteOperationCommit(ctx, r, p, head, s.Author, u)
}

// WriteOperationCommit writes an operation in progress as a commit; empty when there is none. It writes some files to
// the scratch git directory of p.
func WriteOperationCommit(ctx context.Context, r *git.Repo, p git.RunOptions, head string, who object.Identity, u Operation) (string, error) {
	held := make(map[string][]byte, len(u.Files)+len(u.HostFiles)+len(u.SandboxRefs))
	for name, data := range u.Files {
		held["git/"+name] = data
	}
	for name, data := range u.HostFiles {
		held["outside/"+name] = data
	}
	for name, data := range u.SandboxRefs {
		held["inside/"+name] = []byte(data + "\n")
	}
	if len(held) == 0 && len(u.Conflicts) == 0 {
		return "", nil
	}
	entries, err := writeBlobs(ctx, r, p.GitDir, held)
	if err != nil {
		return "", err
	}
	for _, c := range u.Conflicts {
		entries += fmt.Sprintf("%s %s\tconflicts/%s/%s\x00", c.Mode, c.OID, c.Stage, c.Path)
	}
	p.Env = append(slices.Clone(p.Env), "GIT_INDEX_FILE="+filepath.Join(p.GitDir, "held"))
	add := p
	add.Stdin = entries
	if _, err := r.RunWrite(ctx, add, "update-index", "-z", "--index-info"); err != nil {
		return "", err
	}
	trees := map[string]string{"conflicts/0/": u.MergedTree}
	if auto := strings.TrimSpace(string(u.Files["AUTO_MERGE"])); object.IsOID(auto) {
		trees["auto-merge/"] = auto
	}
	for prefix, tree := range trees {
		found, err := r.Lookup(ctx, tree+"^{tree}")
		if err != nil {
			return "", err
		}
		if tree == "" || found[0].Missing() {
			continue
		}
		if _, err := r.RunWrite(ctx, p, "read-tree", "--prefix="+prefix, tree); err != nil {
			return "", err
		}
	}
	tree, err := r.WriteTree(ctx, p)
	if err != nil {
		return "", err
	}
	var parents []string
	if head != "" {
		with, err := r.AddIndependent(ctx, []string{head}, objectNamesIn(held))
		if err != nil {
			return "", err
		}
		parents = with[1:]
	}
	args := []string{"commit-tree", tree}
	for _, parent := range parents {
		args = append(args, "-p", parent)
	}
	const when = "@0 +0000" // a fixed date: the same content gives the same commit
	out, err := r.RunWrite(ctx, git.RunOptions{Stdin: "what git had under way\n", Env: []string{
		"GIT_AUTHOR_NAME=" + who.Name, "GIT_AUTHOR_EMAIL=" + who.Email, "GIT_AUTHOR_DATE=" + when,
		"GIT_COMMITTER_NAME=" + who.Name, "GIT_COMMITTER_EMAIL=" + who.Email, "GIT_COMMITTER_DATE=" + when,
	}}, args...)
	return strings.TrimSpace(string(out)), err
}

// objectNamesIn lists the words in files that look like object names.
func objectNamesIn(files map[string][]byte) []string {
	const most = 500 // they become arguments
	seen := map[string]bool{}
	for _, data := range files {
		for _, word := range strings.Fields(string(data)) {
			if object.IsOID(word) && strings.Trim(word, "0") != "" {
				seen[word] = true
			}
		}
	}
	names := make([]string, 0, len(seen))
	for name := range seen {
		names = append(names, name)
	}
	slices.Sort(names)
	return names[:min(len(names), most)]
}

// splitConflicts returns the unmerged entries of an index, and an index of those entries that git would write as a tree.
func splitConflicts(x index.File) (conflicts []UnmergedEntry, merged index.File) {
	merged.Format = x.Format
	for e := range x.AllEntries() {
		switch {
		case e.Stage != 0:
			conflicts = append(conflicts, UnmergedEntry{
				Mode: fmt.Sprintf("%06o", e.Mode), OID: hex.EncodeToString(e.OID), Stage: strconv.Itoa(e.Stage), Path: string(e.Name),
			})
		case !e.IntentToAdd:
			merged.Append(index.StatWithMode(e.Mode), e.OID, e.Name)
		}
	}
	return conflicts, merged
}

// writeBlobs writes files as blobs, and returns them as input for update-index --index-info.
func writeBlobs(ctx context.Context, r *git.Repo, dir string, files map[string][]byte) (string, error) {
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	var paths strings.Builder
	for i, name := range names {
		at := filepath.Join(dir, fmt.Sprintf("file-%d", i)) // a name that git does not unquote
		if err := os.WriteFile(at, files[name], 0o600); err != nil {
			return "", err
		}
		fmt.Fprintf(&paths, "%s\n", filepath.Base(at))
	}
	if len(names) == 0 {
		return "", nil
	}
	p := git.RunOptions{Stdin: paths.String(), WorkTree: dir}
	out, err := r.RunWrite(ctx, p, "hash-object", "-w", "--no-filters", "--stdin-paths")
	if err != nil {
		return "", err
	}
	oids := strings.Fields(string(out))
	if len(oids) != len(names) {
		return "", fmt.Errorf("git hash-object returned %d of %d objects", len(oids), len(names))
	}
	entries := ""
	for i, name := range names {
		entries += fmt.Sprintf("100644 %s\t%s\x00", oids[i], name)
	}
	return entries, nil
}
