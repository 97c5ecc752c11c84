package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// Underway is what git had begun in a worktree and not ended: a merge, a rebase, a bisection, conflicts that nobody
// has resolved. A frozen state holds it as a commit, State.Held, in whose tree is
//
//	git/<file>                 the small files of the worktree's entry that say so, as they were
//	conflicts/<1|2|3>/<path>   what is not merged in the index
//	conflicts/0                everything else that was staged, where something is not merged
//	outside/<file>             the same of the real entry, where there are walls, behind which git has another
//	inside/HEAD, inside/branch what HEAD and the worktree's branch were behind walls, where that is something else
//	auto-merge                 the tree that git's AUTO_MERGE names
//
// Its parents are the commits that those files name and HEAD does not lead to.
type Underway struct {
	Files     map[string][]byte // of the worktree's entry, by their names in it
	Outside   map[string][]byte // of the real one, where there is another behind walls
	Conflicts []Conflict
	Rest      string            // the tree of conflicts/0; empty when nothing is in conflict
	Inside    map[string]string // "HEAD" and "branch"
}

// Conflict is an entry of the index that is not merged.
type Conflict struct {
	Mode, OID string
	Stage     string // 1, 2 or 3
	Path      string
}

// The files of a worktree's entry that say what is under way.
var (
	underwayFiles = []string{
		"MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "MERGE_RR", "MERGE_AUTOSTASH", "AUTO_MERGE", "SQUASH_MSG",
		"CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD",
		"BISECT_ANCESTORS_OK", "BISECT_EXPECTED_REV", "BISECT_FIRST_PARENT", "BISECT_LOG", "BISECT_NAMES", "BISECT_RUN", "BISECT_START", "BISECT_TERMS",
	}
	underwayDirs = []string{"rebase-merge", "rebase-apply", "sequencer", "refs/bisect", "refs/rewritten"}
)

// How much may be under way; more is not what git writes there.
const (
	mostUnderwayFiles = 20_000
	mostUnderwayBytes = 64 << 20
)

// holdUnderway writes what is under way as a commit; empty when nothing is. The same is the same commit, whenever it
// is written. now is the rest of the state: without an index there may be conflicts.
func (r *Repo) holdUnderway(ctx context.Context, s Subject, now State) (_ string, err error) {
	head, branch, staged := now.Head, now.Tip, now.Index
	files, err := readUnderway(r.entryOf(s))
	if err != nil {
		return "", fmt.Errorf("what git has under way: %w", err)
	}
	var outside map[string][]byte
	if LayeredEntry(s.Layer, s.Name) != "" {
		if outside, err = readUnderway(r.AdminDir(s.Name)); err != nil {
			return "", fmt.Errorf("what git has under way: %w", err)
		}
	}
	inside := r.readInside(s, branch)
	if len(files) == 0 && len(inside) == 0 && len(outside) == 0 && staged != "" {
		return "", nil
	}
	dir := filepath.Join(r.ownDir(), capturePrefix+s.Name+"-held")
	if err := durable.RemoveTree(dir); err != nil { // of one that was killed
		return "", err
	}
	defer func() { err = errors.Join(err, durable.RemoveTree(dir)) }()
	env, err := r.fillScratch(s, head, dir)
	if err := errors.Join(err, r.copyIndex(s.Name, dir)); err != nil {
		return "", err
	}
	p := place{gitDir: dir, tree: dir, env: env, config: []string{"-c", "core.splitIndex=false", "-c", "index.sparse=false"}}
	var conflicts []Conflict
	rest := ""
	if staged == "" {
		if conflicts, rest, err = r.splitConflicts(ctx, p); err != nil {
			return "", err
		}
	}
	held := make(map[string][]byte, len(files)+len(inside))
	for name, data := range files {
		held["git/"+name] = data
	}
	for name, data := range outside {
		held["outside/"+name] = data
	}
	for name, data := range inside {
		held["inside/"+name] = []byte(data + "\n")
	}
	if len(held) == 0 && len(conflicts) == 0 {
		return "", nil
	}
	entries, err := r.writeBlobs(ctx, dir, held)
	if err != nil {
		return "", err
	}
	for _, c := range conflicts {
		entries += fmt.Sprintf("%s %s\tconflicts/%s/%s\x00", c.Mode, c.OID, c.Stage, c.Path)
	}
	p.env = append(slices.Clone(env), "GIT_INDEX_FILE="+filepath.Join(dir, "held"))
	add := p
	add.stdin = entries
	if _, err := r.change(ctx, add, "update-index", "-z", "--index-info"); err != nil {
		return "", err
	}
	trees := map[string]string{"conflicts/0/": rest}
	auto := strings.TrimSpace(string(files["AUTO_MERGE"]))
	if isOID(auto) {
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
		if _, err := r.change(ctx, p, "read-tree", "--prefix="+prefix, tree); err != nil {
			return "", err
		}
	}
	tree, err := r.writeTree(ctx, p)
	if err != nil {
		return "", err
	}
	var parents []string
	if head != "" {
		with, err := r.independent(ctx, []string{head}, named40(held))
		if err != nil {
			return "", err
		}
		parents = with[1:]
	}
	args := []string{"commit-tree", tree}
	for _, parent := range parents {
		args = append(args, "-p", parent)
	}
	const when = "@0 +0000" // of no moment: it is told from another by what is in it
	out, err := r.change(ctx, place{stdin: "what git had under way\n", env: []string{
		"GIT_AUTHOR_NAME=" + s.Author.Name, "GIT_AUTHOR_EMAIL=" + s.Author.Email, "GIT_AUTHOR_DATE=" + when,
		"GIT_COMMITTER_NAME=" + s.Author.Name, "GIT_COMMITTER_EMAIL=" + s.Author.Email, "GIT_COMMITTER_DATE=" + when,
	}}, args...)
	return strings.TrimSpace(string(out)), err
}

// named40 lists what looks like the name of an object in files.
func named40(files map[string][]byte) []string {
	const most = 500 // they become arguments
	seen := map[string]bool{}
	for _, data := range files {
		for _, word := range strings.Fields(string(data)) {
			if isOID(word) && strings.Trim(word, "0") != "" {
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

// splitConflicts takes what is not merged out of an index and writes the rest as a tree.
func (r *Repo) splitConflicts(ctx context.Context, p place) (conflicts []Conflict, rest string, err error) {
	out, err := r.read(ctx, p, "ls-files", "-u", "-z")
	if err != nil || len(out) == 0 {
		if exitedWith(err, 128) {
			err = nil // an index that git cannot read has nothing to say
		}
		return nil, "", err
	}
	away := p
	for line := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		info, name, ok := strings.Cut(line, "\t")
		fields := strings.Fields(info) // "<mode> <oid> <stage>"
		if !ok || len(fields) != 3 {
			return nil, "", fmt.Errorf("git ls-files answered %q", line)
		}
		conflicts = append(conflicts, Conflict{Mode: fields[0], OID: fields[1], Stage: fields[2], Path: name})
		away.stdin += name + "\x00"
	}
	if _, err := r.change(ctx, away, "update-index", "--force-remove", "-z", "--stdin"); err != nil {
		return nil, "", err
	}
	rest, err = r.writeTree(ctx, p)
	return conflicts, rest, err
}

// writeBlobs writes files as objects and returns them as lines for an index.
func (r *Repo) writeBlobs(ctx context.Context, dir string, files map[string][]byte) (string, error) {
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	var paths strings.Builder
	for i, name := range names {
		at := filepath.Join(dir, fmt.Sprintf("file-%d", i)) // git quotes no name of ours
		if err := os.WriteFile(at, files[name], 0o600); err != nil {
			return "", err
		}
		fmt.Fprintf(&paths, "%s\n", filepath.Base(at))
	}
	if len(names) == 0 {
		return "", nil
	}
	p := place{stdin: paths.String(), tree: dir}
	out, err := r.change(ctx, p, "hash-object", "-w", "--no-filters", "--stdin-paths")
	if err != nil {
		return "", err
	}
	oids := strings.Fields(string(out))
	if len(oids) != len(names) {
		return "", fmt.Errorf("git hash-object named %d objects of %d", len(oids), len(names))
	}
	entries := ""
	for i, name := range names {
		entries += fmt.Sprintf("100644 %s\t%s\x00", oids[i], name)
	}
	return entries, nil
}

// entryOf is the directory that a git which works in the tree has for the worktree's entry: that of a layer, if the
// layer has one of its own.
func (r *Repo) entryOf(s Subject) string {
	if own := LayeredEntry(s.Layer, s.Name); own != "" {
		return own
	}
	return r.AdminDir(s.Name)
}

// readInside says where HEAD and the branch of a worktree are behind walls, where that is not what they are outside.
func (r *Repo) readInside(s Subject, branch string) map[string]string {
	if LayeredEntry(s.Layer, s.Name) == "" {
		return nil
	}
	inside := map[string]string{}
	outside, _ := readSmall(r.AdminDir(s.Name), "HEAD")
	head, err := LayerFile(s.Layer, filepath.Join("worktrees", s.Name, "HEAD"), 1<<12)
	if text := strings.TrimSpace(string(head.Data)); err == nil && head.Found && text != strings.TrimSpace(string(outside)) {
		inside["HEAD"] = text
	}
	tip, err := LayerFile(s.Layer, s.Branch, 1<<12)
	if oid := strings.TrimSpace(string(tip.Data)); err == nil && tip.Found && isOID(oid) && oid != branch {
		inside["branch"] = oid
	}
	return inside
}

// readUnderway reads what is under way in a worktree's entry, of which anybody could have written anything: as data,
// through no link that leads out of it, and waiting for nothing.
func readUnderway(entry string) (map[string][]byte, error) {
	root, err := os.OpenRoot(entry)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	files, left := map[string][]byte{}, mostUnderwayBytes
	add := func(name string) error {
		fi, err := root.Lstat(name)
		if err != nil || !fi.Mode().IsRegular() {
			return nil // a pipe, a link, or nothing any more: git wrote none of that
		}
		f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		data, err := io.ReadAll(io.LimitReader(f, int64(left)+1))
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		if left -= len(data); left < 0 || len(files) >= mostUnderwayFiles {
			return errTooMuch
		}
		files[name] = data
		return nil
	}
	for _, name := range underwayFiles {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	for _, dir := range underwayDirs {
		err := fs.WalkDir(root.FS(), dir, func(name string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
				return nil
			case err != nil:
				return err
			case d.IsDir() || strings.HasSuffix(name, ".lock"):
				return nil
			}
			return add(name)
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// ReadUnderway reads what a state held of what git had under way.
func (r *Repo) ReadUnderway(ctx context.Context, state State) (Underway, error) {
	u := Underway{Files: map[string][]byte{}, Outside: map[string][]byte{}, Inside: map[string]string{}}
	if state.Held == "" {
		return u, nil
	}
	found, err := r.Lookup(ctx, state.Held+":conflicts/0")
	if err != nil {
		return u, err
	}
	u.Rest = found[0].OID
	out, err := r.read(ctx, place{}, "ls-tree", "-r", "-z", state.Held, "--", "git", "outside", "inside", "conflicts/1", "conflicts/2", "conflicts/3")
	if err != nil {
		return u, err
	}
	var names, oids []string
	for line := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		info, name, ok := strings.Cut(line, "\t")
		fields := strings.Fields(info) // "<mode> <type> <oid>"
		if line == "" || !ok || len(fields) != 3 {
			continue
		}
		if rest, is := strings.CutPrefix(name, "conflicts/"); is {
			stage, file, _ := strings.Cut(rest, "/")
			u.Conflicts = append(u.Conflicts, Conflict{Mode: fields[0], OID: fields[2], Stage: stage, Path: file})
			continue
		}
		names, oids = append(names, name), append(oids, fields[2])
	}
	contents, err := r.blobs(ctx, oids)
	if err != nil {
		return u, err
	}
	for i, name := range names {
		if inside, is := strings.CutPrefix(name, "inside/"); is {
			u.Inside[inside] = strings.TrimSpace(string(contents[i]))
		} else if file, is := strings.CutPrefix(name, "outside/"); is && isUnderway(file) {
			u.Outside[file] = contents[i]
		} else if file := strings.TrimPrefix(name, "git/"); isUnderway(file) {
			u.Files[file] = contents[i]
		}
	}
	return u, nil
}

// isUnderway reports whether a name is that of a file which says what is under way: a state could have been made by
// anybody, and nothing else of an entry is ever written from one.
func isUnderway(name string) bool {
	if slices.Contains(underwayFiles, name) {
		return true
	}
	return path.Clean(name) == name && slices.ContainsFunc(underwayDirs, func(dir string) bool { return strings.HasPrefix(name, dir+"/") })
}

// blobs reads several objects in one git.
func (r *Repo) blobs(ctx context.Context, oids []string) ([][]byte, error) {
	if len(oids) == 0 {
		return nil, nil
	}
	out, err := r.read(ctx, place{stdin: strings.Join(oids, "\n") + "\n"}, "cat-file", "--batch=%(objectsize)")
	if err != nil {
		return nil, err
	}
	contents := make([][]byte, 0, len(oids))
	for range oids {
		head, rest, ok := strings.Cut(string(out), "\n")
		var size int
		if _, err := fmt.Sscan(head, &size); !ok || err != nil || size < 0 || len(rest) < size+1 {
			return nil, fmt.Errorf("git cat-file answered %q", head)
		}
		contents = append(contents, []byte(rest[:size]))
		out = out[len(head)+1+size+1:]
	}
	return contents, nil
}

// writeUnderway lets the entry of a worktree say that this is under way, and nothing else. Nobody works there.
func writeUnderway(entry string, files map[string][]byte) error {
	root, err := os.OpenRoot(entry)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range slices.Concat(underwayFiles, underwayDirs) {
		if err := root.RemoveAll(name); err != nil && !errors.Is(err, syscall.ENOTDIR) {
			return err
		}
	}
	for name, data := range files {
		if err := root.MkdirAll(path.Dir(name), 0o777); err != nil {
			return err
		}
		if err := root.WriteFile(name, data, 0o666); err != nil {
			return err
		}
	}
	return nil
}
