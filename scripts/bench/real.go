package main

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// realComparisons measures start with real source code: the source and tests of Go, and this project. Their history is
// packed by git gc or by a clone, with deltas, as it is in repositories of users.
func (b *bench) realComparisons(ctx context.Context) (contests []comparison, sound bool, err error) {
	goSource, files, err := b.newGoRepo(ctx)
	if err != nil {
		return nil, false, err
	}
	if goSource == nil {
		printRow("start, source of Go", "raw git", "-", "git-agency", "-", "", "promise: ≤ 0.50 ×", "SKIPPED: 'go env GOROOT' names no source code")
	} else {
		contests = append(contests, comparison{
			title: "start, source of Go", rounds: 4, promise: promise{ratio: 0.5}, base: goSource.addWorktree, tool: goSource.startSandbox,
			check: goSource.checkSandbox, note: func() string { return groupThousands(files) + " files" },
		})
		overlay := goSource.withChangeset(overlayChangeset)
		contests = append(contests, comparison{
			title: "overlay, source of Go", rounds: 4, base: overlay.addWorktree, tool: overlay.startSandbox, check: overlay.checkSandbox,
		})
	}
	project := filepath.Join(b.root, "project")
	if _, _, err := b.git(ctx, ".", "clone", "--quiet", "--no-local", ".", project); err != nil {
		printRow("start, this project", "raw git", "-", "git-agency", "-", "", "", "SKIPPED: the current directory is not a clone of it")
		return contests, true, nil
	}
	r, err := b.openRepository(ctx, project)
	if err != nil {
		return nil, false, err
	}
	listed, _, err := b.git(ctx, project, "ls-files")
	if err != nil {
		return nil, false, err
	}
	overlay := r.withChangeset(overlayChangeset)
	return append(contests, comparison{
		title: "start, this project", rounds: 10, base: r.addWorktree, tool: r.startSandbox, check: r.checkSandbox,
		note: func() string { return groupThousands(strings.Count(listed, "\n")) + " files" },
	}, comparison{
		title: "overlay, this project", rounds: 10, base: overlay.addWorktree, tool: overlay.startSandbox, check: overlay.checkSandbox,
	}), true, nil
}

// newGoRepo creates a repository of the source and tests of Go, with a history, and returns the number of files. The
// repository is nil where Go's source code is not installed.
func (b *bench) newGoRepo(ctx context.Context) (_ *repository, files int, err error) {
	root, _, err := b.run(ctx, command{argv: []string{"go", "env", "GOROOT"}})
	if err != nil {
		return nil, 0, nil // a program that was built elsewhere can be measured without Go
	}
	source, err := listSource(trimLine(root), "src", "test")
	if err != nil || len(source) == 0 {
		return nil, 0, err
	}
	r, err := b.importRepository(ctx, "go", func(w *bufio.Writer) error { return writeHistory(w, trimLine(root), source) })
	if err != nil {
		return nil, 0, err
	}
	_, _, err = b.git(ctx, r.dir, "gc", "--quiet")
	return r, len(source), err
}

// listSource lists the regular files below directories of root, relative to it, sorted.
func listSource(root string, dirs ...string) (files []string, err error) {
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(root, dir)); err != nil {
			continue
		}
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			path, err = filepath.Rel(root, path)
			files = append(files, path)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(files)
	return files, nil
}

// writeHistory writes a git fast-import stream of 20 commits. Each adds a part of the files and appends a line to every
// twentieth of those that exist.
func writeHistory(w *bufio.Writer, root string, files []string) error {
	const commits, changedPart = 20, 20
	appended := map[string]string{}
	for n := range commits {
		fmt.Fprintf(w, "commit refs/heads/main\ncommitter bench <bench@localhost> %d +0000\ndata 6\nbench\n\n", 1_700_000_000+n*3600)
		begin, end := len(files)*n/commits, len(files)*(n+1)/commits
		for i, file := range files[:end] {
			if i < begin && i%changedPart != n {
				continue
			}
			if i < begin {
				appended[file] += fmt.Sprintf("// commit %d\n", n)
			}
			text, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "M 100644 inline %s\ndata %d\n", file, len(text)+len(appended[file]))
			_, _ = w.Write(text) // the writer keeps its first error for Flush
			fmt.Fprintf(w, "%s\n", appended[file])
		}
	}
	return nil
}
