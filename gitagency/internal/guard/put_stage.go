package guard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// stageAll writes the batch into the stage. Directories are made by one; their files are written by as many
// as there are processors.
func (p *putting) stageAll(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	jobs := make(chan stageJob)
	var workers sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for range max(2, runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			buffer := make([]byte, 128<<10)
			for j := range jobs {
				for _, n := range j.nodes {
					if ctx.Err() != nil {
						break
					}
					if err := stageFile(ctx, j.in, n, buffer); err != nil {
						cancel(err)
						break
					}
					mu.Lock()
					done++
					if p.progress != nil {
						p.progress(done, p.batch.nodes)
					}
					mu.Unlock()
				}
				if err := j.in.close(); err != nil {
					cancel(err)
				}
			}
		})
	}
	err := p.stageDir(ctx, p.batch.top, p.fresh, func(in *folder, nodes []*node) { jobs <- stageJob{in, nodes} })
	if err != nil {
		cancel(err)
	}
	close(jobs)
	workers.Wait()
	return context.Cause(ctx)
}

// stageJob is some files to write in one directory, whose handle is the job's to close.
type stageJob struct {
	in    *folder
	nodes []*node
}

// stageDir makes the directories below a node, each with the permissions it will have, unless even we could
// not write there then, and submits the files.
func (p *putting) stageDir(ctx context.Context, n *node, at *folder, submit func(*folder, []*node)) error {
	const most = 100 // files for one job
	if err := context.Cause(ctx); err != nil {
		return err
	}
	var files []*node
	for i, name := range n.names {
		child := n.children[name]
		if child.dir {
			if err := p.stageChild(ctx, child, at, submit); err != nil {
				return err
			}
		} else {
			files = append(files, child)
		}
		if len(files) == most || len(files) > 0 && i == len(n.names)-1 {
			again, err := openFolder(at.root, ".", at.path)
			if err != nil {
				return err
			}
			submit(again, files)
			files = nil
		}
	}
	return nil
}

func (p *putting) stageChild(ctx context.Context, n *node, at *folder, submit func(*folder, []*node)) (err error) {
	in, err := at.make(n.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.close()) }()
	if !n.narrow() {
		if err := in.dir.Chmod(n.perm()); err != nil {
			return err
		}
	}
	if n.identity, err = identify(in.dir.Stat()); err != nil {
		return err
	}
	return p.stageDir(ctx, n, in, submit)
}

// stageFile writes one file or link.
func stageFile(ctx context.Context, in *folder, n *node, buffer []byte) (err error) {
	if n.file.Mode.Type() == fs.ModeSymlink {
		if err := in.root.Symlink(string(n.file.Content), n.name); err != nil {
			return plainly("put", n.path, err)
		}
		n.identity, err = identify(in.root.Lstat(n.name))
		return err
	}
	from := io.NopCloser(bytes.NewReader(n.file.Content))
	if n.file.Open != nil {
		if from, err = n.file.Open(); err != nil {
			return fmt.Errorf("put %s: %w", n.path, err)
		}
		// Whatever it reads from, it does not wait for that for ever.
		stop := context.AfterFunc(ctx, func() { _ = from.Close() })
		defer func() {
			if stop() {
				err = errors.Join(err, from.Close())
			}
		}()
	}
	// That it must not block means nothing to a regular file, and keeps the runtime from trying it out.
	to, err := in.root.OpenFile(n.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW|unix.O_NONBLOCK, n.perm())
	if err != nil {
		return plainly("put", n.path, err)
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	if err := transfer(ctx, to, from, buffer); err != nil {
		return fmt.Errorf("put %s: %w", n.path, err)
	}
	fi, err := to.Stat()
	if err == nil && fi.Mode().Perm() != n.perm() {
		err = to.Chmod(n.perm())
	}
	n.identity, err = identify(fi, err)
	return err
}

// transfer copies until the end, or until ctx ends.
func transfer(ctx context.Context, to io.Writer, from io.Reader, buffer []byte) error {
	for {
		n, err := from.Read(buffer)
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
