package upload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"sync"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// stageAll writes the batch to the stage. One goroutine creates the directories; as many workers as CPUs, at least
// two, write the files.
func (p *putOp) stageAll(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	jobs := make(chan stageJob)
	var workers sync.WaitGroup
	var mu sync.Mutex
	so := Progress{Total: p.batch.fileCount}
	report := func(files int, bytes int64) {
		if p.progress == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		so.Files, so.Bytes = so.Files+files, so.Bytes+bytes
		p.progress(so)
	}
	for range max(2, runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			buffer := make([]byte, 128<<10)
			for j := range jobs {
				for _, n := range j.nodes {
					if ctx.Err() != nil {
						break
					}
					if err := stageFile(ctx, j.dir, n, buffer, func(written int64) { report(0, written) }); err != nil {
						cancel(err)
						break
					}
					report(1, 0)
				}
				if err := j.dir.Close(); err != nil {
					cancel(err)
				}
			}
		})
	}
	if err := p.stageDirs(ctx, func(in *guard.DirHandle, nodes []*node) { jobs <- stageJob{in, nodes} }); err != nil {
		cancel(err)
	}
	close(jobs)
	workers.Wait()
	return context.Cause(ctx)
}

// stageJob is a list of files to write in one directory. The worker closes the handle.
type stageJob struct {
	dir   *guard.DirHandle
	nodes []*node
}

// stageDirs creates the directories of the batch and submits their files. It keeps one directory open at a time, at
// any depth.
func (p *putOp) stageDirs(ctx context.Context, submit func(*guard.DirHandle, []*node)) (err error) {
	c := cursor{top: p.newDir, openPath: (*guard.DirHandle).OpenPath}
	defer func() { err = errors.Join(err, c.close()) }()
	for n := range p.batch.root.subtree {
		if !n.isDir {
			continue
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		in, err := c.open(n.path)
		if err == nil {
			err = stageDir(n, in, submit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stageDir creates the subdirectories of a directory and submits its files. A subdirectory gets its final permissions
// now, unless these would keep us from writing in it.
func stageDir(n *node, in *guard.DirHandle, submit func(*guard.DirHandle, []*node)) error {
	const most = 100 // files per job
	var files []*node
	for i, name := range n.sortedNames {
		child := n.children[name]
		if child.isDir {
			if err := stageSubdir(child, in); err != nil {
				return err
			}
		} else {
			files = append(files, child)
		}
		if len(files) == most || len(files) > 0 && i == len(n.sortedNames)-1 {
			own, err := in.OpenPath(".")
			if err != nil {
				return err
			}
			submit(own, files)
			files = nil
		}
	}
	return nil
}

func stageSubdir(n *node, in *guard.DirHandle) (err error) {
	dir, err := in.Mkdir(n.name)
	if err != nil {
		return withPath("put", n.path, err)
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	if !n.ownerRestricted() {
		if err := dir.Chmod(n.perm()); err != nil {
			return err
		}
	}
	fi, err := dir.Stat()
	n.identity = identify(fi)
	return err
}

// stageFile writes one file or symlink.
func stageFile(ctx context.Context, in *guard.DirHandle, n *node, buffer []byte, written func(int64)) (err error) {
	if n.file.Mode.Type() == fs.ModeSymlink {
		if err := in.Symlink(string(n.file.Content), n.name); err != nil {
			return withPath("put", n.path, err)
		}
		fi, err := in.Lstat(n.name)
		n.identity = identify(fi)
		return err
	}
	from := io.NopCloser(bytes.NewReader(n.file.Content))
	if n.file.Open != nil {
		if from, err = n.file.Open(); err != nil {
			return fmt.Errorf("put %s: %w", n.path, err)
		}
		// Close the source when ctx ends, so that a blocked read ends too.
		stop := context.AfterFunc(ctx, func() { _ = from.Close() })
		defer func() {
			if stop() {
				err = errors.Join(err, from.Close())
			}
		}()
	}
	to, err := in.CreateFile(n.name, n.perm())
	if err != nil {
		return withPath("put", n.path, err)
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	if err := copyContext(ctx, to, from, buffer, written); err != nil {
		return fmt.Errorf("put %s: %w", n.path, err)
	}
	fi, err := guard.Fstat(to) // fstat: another file may have taken the name
	if err == nil && fi.Mode.Perm() != n.perm() {
		err = to.Chmod(n.perm())
	}
	n.identity = identify(fi)
	return err
}

// copyContext copies until EOF, or until ctx ends.
func copyContext(ctx context.Context, to io.Writer, from io.Reader, buffer []byte, written func(int64)) error {
	for {
		n, err := from.Read(buffer)
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return err
			}
			written(int64(n))
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
