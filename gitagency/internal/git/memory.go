package git

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// memory is what was read of a directory that is no worktree: an index, with what the kernel said of every file when
// git read it. It is never a list of what is tracked. Whether a file belongs to a state is asked anew each time, since
// what is ignored and what looks like a secret may have changed, and who took the last one may have wanted all of it.
type memory struct {
	index Index
	at    time.Time // what is as young as that may have changed since it was read
}

// recall puts what was last read where git will find it. What cannot be made sense of is forgotten: git then reads all
// files again.
func (v *view) recall(index string) error {
	data, at, err := readMemory(v.s.Memory)
	if err == nil {
		_, err = ReadIndex(data, SHA1)
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return err
	case err != nil:
		return nil
	}
	if err := os.WriteFile(index, data, 0o600); err != nil {
		return err
	}
	return os.Chtimes(index, at, at) // by which git tells which entries it has to doubt
}

func readMemory(path string) (data []byte, at time.Time, err error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return nil, at, err
	}
	data, err = durable.ReadFile(path, mostIndex)
	return data, fi.ModTime(), err
}

// note takes down what git has just read: of the names that were asked for, and of no other that it remembered.
func (v *view) note(x Index, index string, names []string) error {
	fi, err := os.Lstat(index)
	if err != nil {
		return err
	}
	asked := make(map[string]bool, len(names))
	for _, name := range names {
		asked[name] = true
	}
	v.known = memory{index: Index{format: x.format, extended: x.extended}, at: fi.ModTime()}
	for left := x.body; len(left) > 0; {
		e, rest := nextStaged(left, x.format.size())
		if asked[string(e.name)] {
			v.known.index.body = append(v.known.index.body, left[:len(left)-len(rest)]...)
			v.known.index.count++
		}
		left = rest
	}
	return nil
}

// remember keeps it for the next time.
func (v *view) remember() error {
	if v.known.at.IsZero() { // there was nothing to read
		return durable.Remove(v.s.Memory)
	}
	if data, at, err := readMemory(v.s.Memory); err == nil && at.Equal(v.known.at) && len(data) == len(v.known.index.Encode()) {
		return nil // git had nothing to add
	}
	f, err := durable.Create(v.s.Memory, v.known.index.Encode(), 0o600, func(f *os.File) error {
		return os.Chtimes(f.Name(), v.known.at, v.known.at)
	})
	if err != nil {
		return err
	}
	return f.Close()
}
