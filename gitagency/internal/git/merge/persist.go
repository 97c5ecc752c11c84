package merge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// Persist writes all objects made so far to the repository: from then on refs can point to them. A kill meanwhile leaves
// unreferenced objects.
func (m *Merger) Persist(ctx context.Context) error {
	objects := filepath.Join(m.Dir, "objects")
	dirs, err := os.ReadDir(objects)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	loose := slices.Collect(maps.Values(m.pending))
	for _, d := range dirs {
		dir := filepath.Join(objects, d.Name())
		if d.Name() == "pack" {
			if err := m.persistPacks(ctx, dir); err != nil {
				return err
			}
			continue
		}
		files, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, f := range files {
			name := d.Name() + f.Name()
			if !object.IsOID(name) { // temporary file of a git that was killed
				continue
			}
			o, err := object.ReadLoose(filepath.Join(dir, f.Name()))
			if err != nil {
				return fmt.Errorf("copy object %s: %w", name, err)
			}
			o.OID = object.RawOID(name)
			loose = append(loose, o)
		}
	}
	put, err := m.realRepo.WriteObjectsWithPaths(ctx, m.format, loose)
	if err != nil {
		return err
	}
	m.PersistedPaths = append(m.PersistedPaths, put...)
	m.persisted = slices.AppendSeq(m.persisted, maps.Values(m.pending))
	clear(m.pending) // the repository has them now
	m.pendingBytes = 0
	return nil
}

// persistPacks copies the merger's packs to the repository with git index-pack, which checks every object.
func (m *Merger) persistPacks(ctx context.Context, dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), "pack-") || !strings.HasSuffix(f.Name(), ".pack") {
			continue
		}
		pack, err := os.Open(filepath.Join(dir, f.Name()))
		if err != nil {
			return err
		}
		at, err := m.realRepo.StorePack(ctx, pack, "index-pack", "--stdin")
		if err := errors.Join(err, pack.Close()); err != nil {
			return err
		}
		m.PersistedPaths = append(m.PersistedPaths, at)
	}
	return durable.SyncDir(filepath.Join(m.realRepo.CommonDir, "objects", "pack"))
}

// RewritePersisted writes all objects made so far to the merger's own object directory, where git finds them even if a gc
// has deleted them from the repository.
func (m *Merger) RewritePersisted(ctx context.Context) error {
	return errors.Join(m.AddObjects(ctx, m.persisted...), m.Flush(ctx))
}

// PackCommits packs all objects that commits reach and known does not, from the merger and the repository, into a pack of
// the repository. With a reason the pack gets a .keep file with that text, and gc does not delete it.
func (m *Merger) PackCommits(ctx context.Context, known string, commits []string, reason string) (err error) {
	if err := m.RewritePersisted(ctx); err != nil {
		return err
	}
	f, err := os.CreateTemp(m.Dir, "pack-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	repo, p := m.Repo, m.GitOptions()
	args := []string{"pack-objects", "-q", "--revs", "--non-empty", "--delta-base-offset", "--window=0", "--stdout"}
	if isPartialClone(m.realRepo) { // objects of the promisor remote may be missing
		repo, p, args = m.RepoWithObjects(), git.RunOptions{}, append(args, "--exclude-promisor-objects")
	}
	p.Stdin, p.Stdout = strings.Join(commits, "\n")+"\n--not\n"+known+"\n", f
	p.Config = []string{"-c", "core.attributesFile=/dev/null"}
	if _, err := repo.RunRead(ctx, p, args...); err != nil {
		return err
	}
	if size, err := f.Seek(0, io.SeekCurrent); err != nil || size == 0 {
		return err // nothing to pack
	}
	into := []string{"index-pack", "--stdin"}
	if reason != "" {
		into = append(into, "--keep="+reason)
	}
	if _, err := m.realRepo.StorePack(ctx, f, into...); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Join(m.realRepo.CommonDir, "objects", "pack"))
}

// RepoWithObjects returns the repository with the merger's object directory as an alternate.
func (m *Merger) RepoWithObjects() *git.Repo {
	seeing := *m.realRepo
	seeing.Env = append(slices.Clone(m.realRepo.Env), "GIT_ALTERNATE_OBJECT_DIRECTORIES="+git.QuoteAlternate(filepath.Join(m.Dir, "objects")))
	return &seeing
}

// HasLostObjects reports whether a persisted file was deleted from the repository.
func (m *Merger) HasLostObjects() bool {
	return slices.ContainsFunc(m.PersistedPaths, func(path string) bool { _, err := os.Lstat(path); return errors.Is(err, fs.ErrNotExist) })
}
