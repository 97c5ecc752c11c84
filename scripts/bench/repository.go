package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// worktreeName is the name of the integration worktree of every repository.
const worktreeName = "bench"

// repository is a temporary repository with an integration worktree, and the worktrees and sandboxes created in it so
// far.
type repository struct {
	b    *bench
	dir  string
	base string // commit of every branch

	changeset string // of its sandboxes; empty for the default

	mu           sync.Mutex // guards the fields below: some worktrees are created in parallel
	made         int
	failedAdds   int // of the plain git worktrees
	rawWorktrees []rawWorktree
	sandboxes    []string // invocation ids
}

// rawWorktree is a worktree created by plain git.
type rawWorktree struct{ path, branch string }

// newRepository creates a repository with this many files. Large trees get tiny files: there the number of files matters.
func (b *bench) newRepository(ctx context.Context, name string, files int) (*repository, error) {
	size := 10_000
	if files > 10_000 {
		size = tinyFile
	}
	return b.newRepositoryOf(ctx, name, files, size)
}

// newRepositoryOf creates a repository with this many files of this average size.
func (b *bench) newRepositoryOf(ctx context.Context, name string, files, size int) (*repository, error) {
	return b.importRepository(ctx, name, func(w *bufio.Writer) error { return writeFakeCommit(w, files, size) })
}

// importRepository creates a repository from a git fast-import stream that creates the branch main.
func (b *bench) importRepository(ctx context.Context, name string, write func(*bufio.Writer) error) (*repository, error) {
	dir := filepath.Join(b.root, name)
	if _, _, err := b.git(ctx, b.root, "init", "--quiet", "--template=", "--initial-branch=main", dir); err != nil {
		return nil, err
	}
	stream, end := io.Pipe()
	go func() {
		buffered := bufio.NewWriterSize(end, 1<<20)
		end.CloseWithError(errors.Join(write(buffered), buffered.Flush()))
	}()
	// Undeltified objects in one pack are the cheapest for git to check out. fast-import's own deltas are worse than
	// those of a clone and would flatter git-agency.
	imports := command{argv: []string{"git", "fast-import", "--quiet", "--depth=0"}, dir: dir, stdin: stream}
	_, _, err := b.run(ctx, imports)
	_ = stream.Close() // ends the writer if git has failed
	if err != nil {
		return nil, err
	}
	if _, _, err := b.git(ctx, dir, "reset", "--quiet", "--hard", "main"); err != nil {
		return nil, err
	}
	return b.openRepository(ctx, dir)
}

// openRepository creates the integration worktree of an existing repository, and writes all of it to the disk, as that of a
// repository in use is: start caches only hashes of files that are on the disk.
func (b *bench) openRepository(ctx context.Context, dir string) (*repository, error) {
	head, _, err := b.git(ctx, dir, "rev-parse", "HEAD")
	if err != nil {
		return nil, err
	}
	if _, _, err = b.agency(ctx, dir, "worktree", "create", worktreeName); err == nil {
		_, _, err = b.run(ctx, command{argv: []string{"sync"}, dir: dir})
	}
	return &repository{b: b, dir: dir, base: strings.TrimSpace(head)}, err
}

// addWorktree creates a worktree with git.
func (r *repository) addWorktree(ctx context.Context) (time.Duration, error) {
	r.mu.Lock()
	r.made++
	branch := fmt.Sprintf("raw/tree-%d%s", r.made, r.changeset)
	tree := rawWorktree{path: r.dir + "-" + filepath.Base(branch), branch: branch}
	r.rawWorktrees = append(r.rawWorktrees, tree)
	r.mu.Unlock()
	_, took, err := r.b.git(ctx, r.dir, "worktree", "add", "-b", tree.branch, tree.path)
	return took, err
}

// tryAddWorktree is addWorktree for parallel calls. Git takes no lock for it: one call may read files that another
// has only half written, and die. Such failures are counted.
func (r *repository) tryAddWorktree(ctx context.Context) (time.Duration, error) {
	took, err := r.addWorktree(ctx)
	var exit *exec.ExitError
	if ctx.Err() == nil && errors.As(err, &exit) && exit.ExitCode() == 128 {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.failedAdds++
		return 0, nil
	}
	return took, err
}

func (r *repository) describeFailures() string {
	return fmt.Sprintf("raw git failed %d of %d times", r.failedAdds, r.made)
}

// withChangeset returns the repository for sandboxes of another changeset, with lists of trees of its own.
func (r *repository) withChangeset(changeset string) *repository {
	return &repository{b: r.b, dir: r.dir, base: r.base, changeset: changeset}
}

// startSandbox starts a sandbox with git-agency.
func (r *repository) startSandbox(ctx context.Context) (time.Duration, error) {
	if r.changeset == "" {
		return r.startWith(ctx)
	}
	return r.startWith(ctx, "--changeset", r.changeset)
}

// startWith is startSandbox with options.
func (r *repository) startWith(ctx context.Context, options ...string) (time.Duration, error) {
	id, took, err := r.b.agency(ctx, r.dir, append([]string{"start", worktreeName}, options...)...)
	if err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sandboxes = append(r.sandboxes, strings.TrimSpace(id))
	return took, nil
}

// removeWorktree removes a worktree and its branch with git.
func (r *repository) removeWorktree(ctx context.Context) (time.Duration, error) {
	if len(r.rawWorktrees) == 0 {
		if _, err := r.addWorktree(ctx); err != nil {
			return 0, err
		}
	}
	tree := r.rawWorktrees[0]
	r.rawWorktrees = r.rawWorktrees[1:]
	_, removed, err := r.b.git(ctx, r.dir, "worktree", "remove", "--force", tree.path)
	if err != nil {
		return 0, err
	}
	_, deleted, err := r.b.git(ctx, r.dir, "branch", "-D", tree.branch)
	return removed + deleted, err
}

// discardSandbox discards a sandbox with git-agency. It does not measure the removal of the files, which a process in the
// background does, but waits for it: otherwise the removal would slow down the next measurement.
func (r *repository) discardSandbox(ctx context.Context) (time.Duration, error) {
	took, _, err := r.discardAndRemove(ctx)
	return took, err
}

// removeSandbox is discardSandbox that measures the removal of the files, too.
func (r *repository) removeSandbox(ctx context.Context) (time.Duration, error) {
	took, removed, err := r.discardAndRemove(ctx)
	return took + removed, err
}

// discardInForeground is discardSandbox with a process that removes the files before it ends.
func (r *repository) discardInForeground(ctx context.Context) (time.Duration, error) {
	took, _, err := r.discardAndRemove(ctx, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=agency.autoDetach", "GIT_CONFIG_VALUE_0=false")
	return took, err
}

func (r *repository) discardAndRemove(ctx context.Context, env ...string) (discarded, removed time.Duration, err error) {
	if len(r.sandboxes) == 0 {
		if _, err := r.startSandbox(ctx); err != nil {
			return 0, 0, err
		}
	}
	id := r.sandboxes[0]
	r.sandboxes = r.sandboxes[1:]
	tree, err := r.sandboxPath(ctx, id)
	if err != nil {
		return 0, 0, err
	}
	if _, discarded, err = r.b.run(ctx, command{argv: []string{r.b.tool, "discard", id}, dir: r.dir, env: env}); err != nil {
		return 0, 0, err
	}
	start := time.Now()
	err = waitRemoved(ctx, filepath.Dir(tree))
	return discarded, time.Since(start), err
}

// waitRemoved waits until a directory is removed.
func waitRemoved(ctx context.Context, dir string) error {
	for {
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}

// checkSandbox makes sure that the last sandbox is a clean checkout.
func (r *repository) checkSandbox(ctx context.Context) error {
	id := r.sandboxes[len(r.sandboxes)-1]
	head, err := r.gitInSandbox(ctx, id, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	status, err := r.gitInSandbox(ctx, id, "status", "--porcelain")
	if err != nil {
		return err
	}
	if strings.TrimSpace(head) != r.base || status != "" {
		return fmt.Errorf("sandbox %s is not a clean checkout of %s", id, r.base)
	}
	return nil
}

// gitInSandbox runs git in a sandbox; behind its walls if it is an overlay, which exists only there.
func (r *repository) gitInSandbox(ctx context.Context, id string, args ...string) (output string, err error) {
	if r.changeset == overlayChangeset {
		output, _, err = r.b.agency(ctx, r.dir, append([]string{"exec", id, "--", "git"}, args...)...)
		return output, err
	}
	tree, err := r.sandboxPath(ctx, id)
	if err != nil {
		return "", err
	}
	output, _, err = r.b.git(ctx, tree, args...)
	return output, err
}

func (r *repository) sandboxPath(ctx context.Context, id string) (string, error) {
	tree, _, err := r.b.agency(ctx, r.dir, "path", id)
	return strings.TrimSpace(tree), err
}

// tinyFile is the average size of files whose number matters, and not their content.
const tinyFile = 100

// writeFakeCommit writes a git fast-import stream of one commit with this many files, five to a directory. It is the
// same every time.
func writeFakeCommit(w *bufio.Writer, files, size int) error {
	random := rand.New(rand.NewPCG(1, 1))
	least := 2 * size / 5
	fmt.Fprint(w, "commit refs/heads/main\ncommitter bench <bench@localhost> 1700000000 +0000\ndata 6\nbench\n\n")
	for i := range files {
		text := fakeSource(random, least+random.IntN(3*least))
		dir := i / 5
		fmt.Fprintf(w, "M 100644 inline src/group%02d/part%02d/file%d.go\ndata %d\n%s\n", dir/40, dir%40, i%5, len(text), text)
	}
	return nil // the writer keeps its first error for Flush
}

var (
	sourceWords = strings.Fields(`account address append batch block branch buffer build cache call cancel channel check
		client close cluster collect command commit config connect content context copy count create current cursor
		data decode default delete depth detail encode entry error event expect field file filter find flag format
		frame group handle hash header host index input insert item job key label last layer length level limit line
		list load local lock log map mark match merge message mode name next node number object offset open option
		order output owner packet page parse part path peer plan point pool port prefix process queue range read ready
		record ref remote remove render replace reply report request reset resolve result retry root route row rule
		scan schema scope search send server session set shard size slot sort source stack start state status step
		store stream string sum sync table tag target task text time token trace track tree trim type update user
		value verify version view wait walk window work write zone`)

	// In each line, $ stands for a name.
	sourceLines = []string{
		"", "}", "\t}", "\t\t}", "\treturn nil", "\t\treturn err", "\t\tcontinue",
		"// $ says whether the $ of a $ is at its $.",
		"func ($ *$) $(ctx context.Context, $ string) error {",
		"func $($ int, $ []byte) ($, error) {",
		"\tif err := $.$($); err != nil {",
		"\t$, err := $($, $)",
		"\tfor _, $ := range $.$ {",
		"\t\t$.$ = append($.$, $)",
		"\t\treturn fmt.Errorf(\"$ $: %w\", err)",
		"\t$ := &${$: $, $: len($)}",
		"\tcase $.$ == $:",
		"\tdefer $.$()",
	}
)

// fakeSource returns text that compresses about as well as source code: each file uses a few names over and over.
func fakeSource(random *rand.Rand, size int) []byte {
	names := make([]string, 60)
	for i := range names {
		second := sourceWords[random.IntN(len(sourceWords))]
		names[i] = sourceWords[random.IntN(len(sourceWords))] + strings.ToUpper(second[:1]) + second[1:]
	}
	text := make([]byte, 0, size+200)
	for len(text) < size {
		for _, c := range []byte(sourceLines[random.IntN(len(sourceLines))]) {
			if c == '$' {
				text = append(text, names[random.IntN(len(names))]...)
			} else {
				text = append(text, c)
			}
		}
		text = append(text, '\n')
	}
	return text
}
