package archive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// Options are the options of Write.
type Options struct {
	Limit int64 // largest size of the archive in bytes
	Force bool  // leave out what cannot be read, and what would exceed the limit, instead of failing

	BeforeChange func() error // called before the archive changes; may be nil
}

// Result describes an archive that was written.
type Result struct {
	Size int64  // bytes
	New  bool   // it was written; otherwise an existing archive held everything already
	Lost []Loss // files that it does not hold; only with Force
}

// Write writes sections to the archive at a path, durably, or leaves the file as it was. An existing archive keeps its
// entries; files that it holds already are not added again. The error is a *TooLargeError or an *UnreadableError for
// what Force would leave out.
func Write(ctx context.Context, path string, sections []Section, o Options) (Result, error) {
	w := &writer{ctx: ctx, Options: o, result: Result{Size: trailer}}
	old, err := openExisting(ctx, path)
	if err != nil {
		return Result{}, err
	}
	if old != nil {
		defer old.file.Close()
		w.result.Size = old.end + trailer
	}
	if err := w.plan(sections, old); err != nil {
		return Result{}, err
	}
	if len(w.entries) == 0 {
		return w.result, nil
	}
	w.result.New = true
	if o.BeforeChange != nil {
		if err := o.BeforeChange(); err != nil {
			return Result{}, err
		}
	}
	f, err := durable.Create(path, nil, 0o600, func(f *os.File) error {
		w.out = bufio.NewWriterSize(f, 1<<18)
		if old != nil {
			if _, err := io.Copy(w.out, io.NewSectionReader(old.file, 0, old.end)); err != nil {
				return err
			}
		}
		return w.write()
	})
	if err != nil {
		return Result{}, err
	}
	return w.result, f.Close()
}

// Check returns the error that Write would return because of the limit. It writes nothing.
func Check(sections []Section, o Options) error {
	return (&writer{ctx: context.Background(), Options: o, result: Result{Size: trailer}}).plan(sections, nil)
}

type writer struct {
	ctx context.Context
	Options
	result  Result
	entries []entry
	out     *bufio.Writer
}

// entry is an entry to write.
type entry struct {
	File
	name   string // with the section
	linkTo string // name of the entry that it is a hard link to
	in     *guard.DirHandle
}

func (e entry) size() int64 {
	n := int64(len(header(e.name, e.File, e.linkTo)))
	if e.linkTo == "" {
		stored := e.storedBytes()
		n += stored + padding(stored)
	}
	return n
}

// inode identifies the file that all hard links to it name.
func (e entry) inode() [2]uint64 { return [2]uint64{e.Info.Device, e.Info.Inode} }

// forgetFirstName makes the next hard link to a lost file its first name, which has its content.
func forgetFirstName(seen map[[2]uint64]string, lost entry) {
	if seen[lost.inode()] == lost.name {
		delete(seen, lost.inode())
	}
}

// plan chooses the entries to write, and adds up their size. With Force, entries that exceed the limit are lost.
func (w *writer) plan(sections []Section, old *existing) error {
	var unreadable []Loss
	var largest Loss
	for _, s := range sections {
		seen := map[[2]uint64]string{} // first names of hard links
		if s.Whole && (old == nil || !old.whole[s.Name]) {
			e := entry{name: s.Name, File: File{Path: ".", Info: guard.Info{Mode: fs.ModeDir | 0o755}}}
			w.entries, w.result.Size = append(w.entries, e), w.result.Size+e.size()
		}
		for _, f := range s.Files {
			e := entry{File: f, name: path.Join(s.Name, f.Path), in: s.Top}
			if f.why != "" {
				unreadable = append(unreadable, Loss{Path: e.name, Why: f.why})
				continue
			}
			if f.Info.Links > 1 && f.Info.Mode.IsRegular() {
				if e.linkTo = seen[e.inode()]; e.linkTo == "" {
					seen[e.inode()] = e.name
				}
			}
			if held, err := old.holds(e); err != nil {
				forgetFirstName(seen, e)
				unreadable = append(unreadable, Loss{Path: e.name, Why: reasonOf(err)})
				continue
			} else if held {
				continue
			}
			size := e.size()
			if size > largest.Size {
				largest = Loss{Path: e.name, Size: size}
			}
			if w.Force && w.result.Size+size > w.Limit {
				w.result.Lost = append(w.result.Lost, Loss{e.name, fmt.Sprintf("it needs %s, and %s of the limit of %s are left", FormatSize(size), FormatSize(w.Limit-w.result.Size), FormatSize(w.Limit)), size})
				forgetFirstName(seen, e)
				continue
			}
			w.result.Size += size
			w.entries = append(w.entries, e)
		}
	}
	switch {
	case w.Force:
		w.result.Lost = append(w.result.Lost, unreadable...)
	case len(unreadable) > 0:
		return &UnreadableError{unreadable}
	case w.result.Size > w.Limit:
		return &TooLargeError{Size: w.result.Size, Limit: w.Limit, Largest: largest, Files: len(w.entries)}
	}
	return nil
}

// write writes the planned entries and the trailer.
func (w *writer) write() error {
	var unreadable []Loss
	renamed := map[string]string{} // first names that were lost; the next names of the same files, or empty
	var tree cursor
	defer func() { _ = tree.close() }()
	for _, e := range w.entries {
		if err := context.Cause(w.ctx); err != nil {
			return err
		}
		if e.in != tree.top {
			if err := tree.close(); err != nil {
				return err
			}
			tree = cursor{top: e.in, open: (*guard.DirHandle).OpenDirForce}
		}
		planned, target := e.size(), e.linkTo
		next, lostTarget := renamed[target]
		if lostTarget {
			e.linkTo = next
		}
		err := w.writeEntry(&tree, e)
		var lost *lostError
		switch {
		case errors.As(err, &lost):
			unreadable = append(unreadable, Loss{Path: e.name, Why: reasonOf(lost.err)})
			w.result.Size -= planned
			if target == "" {
				renamed[e.name] = ""
			}
			continue
		case err != nil:
			return err
		}
		w.result.Size += e.size() - planned
		if lostTarget && next == "" {
			renamed[target] = e.name
		}
	}
	if len(unreadable) > 0 && !w.Force {
		return &UnreadableError{unreadable}
	}
	w.result.Lost = append(w.result.Lost, unreadable...)
	if _, err := w.out.Write(make([]byte, trailer)); err != nil {
		return err
	}
	return w.out.Flush()
}

// lostError reports a file that could not be opened; nothing of it was written.
type lostError struct{ err error }

func (e *lostError) Error() string { return e.err.Error() }

func (w *writer) writeEntry(tree *cursor, e entry) error {
	var content io.Reader
	if e.Info.Mode.IsRegular() && e.linkTo == "" && e.storedBytes() > 0 {
		dir, err := tree.dir(path.Dir(e.Path))
		if err != nil {
			return &lostError{err}
		}
		file, err := dir.OpenFileForce(path.Base(e.Path))
		if err != nil {
			return &lostError{err}
		}
		defer file.Close()
		content = e.content(file)
	}
	if _, err := w.out.Write(header(e.name, e.File, e.linkTo)); err != nil {
		return err
	}
	if content == nil {
		return nil
	}
	stored := e.storedBytes()
	n, err := io.Copy(w.out, contextReader{w.ctx, content})
	if err != nil {
		return err
	}
	// A file that became shorter ends with zeros; the caller sees that it changed and adds it again.
	_, err = io.CopyN(w.out, zeros{}, stored-n+padding(stored))
	return err
}

// zeros reads zero bytes.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// contextReader fails when its context ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := context.Cause(c.ctx); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
