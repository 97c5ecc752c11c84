package layer

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
)

// Limits of deltas. A larger delta saves little, and each one adds a directory in which the kernel looks up every name.
const (
	maxBases       = 4     // number of layers that are compared
	maxDifferences = 4_000 // number of entries that may differ
	minSharedRatio = 8     // entries of the base for each one that may differ
	fewDifferences = 32    // number of differing entries at which no further layer is compared
)

// candidate is a layer that may become the base of a new one.
type candidate struct {
	name string
	used time.Time // of its last use
}

// findBase returns the layer with the same settings that differs least from the wanted one, locked shared, of those used last.
// Without one that is near enough it returns none: all files are then written.
func (m *maker) findBase(ctx context.Context) (best Layer, held *os.File, err error) {
	found, err := m.candidates()
	if err != nil {
		return Layer{}, nil, err
	}
	least := 0
	for _, c := range found[:min(len(found), maxBases)] {
		l, lockFile, count, err := m.tryBase(ctx, c.name)
		if err != nil {
			return Layer{}, nil, errors.Join(err, closeIfOpen(held))
		}
		if lockFile == nil {
			continue
		}
		if held != nil && count >= least {
			err = lockFile.Close()
		} else {
			err = closeIfOpen(held)
			best, held, least = l, lockFile, count
		}
		if err != nil {
			return Layer{}, nil, errors.Join(err, held.Close())
		}
		if least <= fewDifferences {
			break
		}
	}
	if len(best.Lowers) == maxDepth {
		return Layer{}, nil, held.Close()
	}
	return best, held, nil
}

func closeIfOpen(f *os.File) error {
	if f == nil {
		return nil
	}
	return f.Close()
}

// candidates returns all other layers with the same settings, the one that was used last first.
func (m *maker) candidates() ([]candidate, error) {
	entries, err := os.ReadDir(m.Dir)
	if err != nil {
		return nil, err
	}
	_, digest, _ := strings.Cut(m.name, "-")
	var found []candidate
	for _, e := range entries {
		if !isName(e.Name()) || !strings.HasSuffix(e.Name(), "-"+digest) || len(e.Name()) != len(m.name) {
			continue
		}
		fi, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = append(found, candidate{e.Name(), fi.ModTime()})
	}
	slices.SortFunc(found, func(a, b candidate) int { return cmp.Or(b.used.Compare(a.used), strings.Compare(a.name, b.name)) })
	return found, nil
}

// tryBase locks and compares a layer. It returns no lock where a delta over it is not worth it, or it cannot be used.
func (m *maker) tryBase(ctx context.Context, name string) (_ Layer, held *os.File, differing int, err error) {
	held, err = lock.AcquireDirShared(ctx, filepath.Join(m.Dir, name), 0)
	if err != nil {
		return Layer{}, nil, 0, context.Cause(ctx) // it is being removed
	}
	l, err := Open(m.Dir, name)
	if err == nil {
		var rec record
		var names []string
		if rec, err = readRecord(m.Dir, name); err == nil {
			names, err = l.differences(ctx, m.repo, git.RunOptions{LazyFetch: true}, m.Tree)
		}
		if few := len(names) <= min(rec.Entries/minSharedRatio, maxDifferences); err == nil && few && len(attributeDirs(names)) == 0 {
			return l, held, len(names), nil
		}
	}
	// What is wrong with a damaged layer is reported to the sandboxes that use it.
	return Layer{}, nil, 0, errors.Join(context.Cause(ctx), held.Close())
}
