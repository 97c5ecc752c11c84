package git

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
)

// Persist writes all objects made so far to the repository: from then on refs can point to them. A kill meanwhile leaves
// unreferenced objects.
func (m *Merger) Persist(ctx context.Context) error {
	objects := filepath.Join(m.dir, "objects")
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
			if !isOID(name) { // temporary file of a git that was killed
				continue
			}
			o, err := readLooseObject(filepath.Join(dir, f.Name()))
			if err != nil {
				return fmt.Errorf("keep %s: %w", name, err)
			}
			o.oid = rawID(name)
			loose = append(loose, o)
		}
	}
	put, err := m.realRepo.writeObjectsWithPaths(ctx, m.format, loose)
	if err != nil {
		return err
	}
	m.persistedPaths = append(m.persistedPaths, put...)
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
		at, err := m.realRepo.storePack(ctx, pack, "index-pack", "--stdin")
		if err := errors.Join(err, pack.Close()); err != nil {
			return err
		}
		m.persistedPaths = append(m.persistedPaths, at)
	}
	return durable.SyncDir(filepath.Join(m.realRepo.CommonDir, "objects", "pack"))
}

// rewritePersisted writes all objects made so far to the merger's own object directory, where git finds them even if a gc
// has deleted them from the repository.
func (m *Merger) rewritePersisted(ctx context.Context) error {
	return errors.Join(m.addObjects(ctx, m.persisted...), m.flush(ctx))
}

// packCommits packs all objects that commits reach and known does not, from the merger and the repository, into a pack of
// the repository. With a reason the pack gets a .keep file with that text, and gc does not delete it.
func (m *Merger) packCommits(ctx context.Context, known string, commits []string, reason string) (err error) {
	if err := m.rewritePersisted(ctx); err != nil {
		return err
	}
	f, err := os.CreateTemp(m.dir, "pack-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	repo, p := m.repo, m.gitOptions()
	args := []string{"pack-objects", "-q", "--revs", "--non-empty", "--delta-base-offset", "--window=0", "--stdout"}
	if m.realRepo.isPartialClone() { // objects of the promisor remote may be missing
		repo, p, args = m.repoWithObjects(), runOptions{}, append(args, "--exclude-promisor-objects")
	}
	p.stdin, p.stdout = strings.Join(commits, "\n")+"\n--not\n"+known+"\n", f
	p.config = []string{"-c", "core.attributesFile=/dev/null"}
	if _, err := repo.runRead(ctx, p, args...); err != nil {
		return err
	}
	if size, err := f.Seek(0, io.SeekCurrent); err != nil || size == 0 {
		return err // nothing to pack
	}
	into := []string{"index-pack", "--stdin"}
	if reason != "" {
		into = append(into, "--keep="+reason)
	}
	if _, err := m.realRepo.storePack(ctx, f, into...); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Join(m.realRepo.CommonDir, "objects", "pack"))
}

// storePack writes a pack to the repository with git index-pack and returns its path. It retries a failure: a concurrent
// gc with --prune=now deletes temporary packs too.
func (r *Repo) storePack(ctx context.Context, pack io.ReadSeeker, args ...string) (string, error) {
	const tries = 5
	for n := 1; ; n++ {
		if _, err := pack.Seek(0, io.SeekStart); err != nil {
			return "", err
		}
		p := runOptions{stdinReader: pack}
		if r.dryRunDir == "" {
			p.config = []string{"-c", "core.fsync=committed,reference,pack-metadata"}
		}
		out, err := r.runWrite(ctx, p, args...)
		if err != nil && (n == tries || !exitedWith(err, 128)) {
			return "", err
		}
		if err == nil {
			_, name, _ := strings.Cut(strings.TrimSpace(string(out)), "\t") // "pack" or "keep" TAB <id>
			return filepath.Join(r.CommonDir, "objects", "pack", "pack-"+name+".pack"), nil
		}
	}
}

// repoWithObjects returns the repository with the merger's object directory as an alternate.
func (m *Merger) repoWithObjects() *Repo {
	seeing := *m.realRepo
	seeing.env = append(slices.Clone(m.realRepo.env), "GIT_ALTERNATE_OBJECT_DIRECTORIES="+quoteAlternate(filepath.Join(m.dir, "objects")))
	return &seeing
}

// hasLostObjects reports whether a persisted file was deleted from the repository.
func (m *Merger) hasLostObjects() bool {
	return slices.ContainsFunc(m.persistedPaths, func(path string) bool { _, err := os.Lstat(path); return errors.Is(err, fs.ErrNotExist) })
}
