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

// Keep gives the repository all that was made so far, for good: from then on a ref can name it. Who is killed meanwhile
// leaves objects that nothing refers to.
func (m *Merger) Keep(ctx context.Context) error {
	objects := filepath.Join(m.dir, "objects")
	dirs, err := os.ReadDir(objects)
	if err != nil {
		return err
	}
	m.talking.Lock()
	defer m.talking.Unlock()
	loose := slices.Collect(maps.Values(m.pending))
	for _, d := range dirs {
		dir := filepath.Join(objects, d.Name())
		if d.Name() == "pack" {
			if err := m.keepPacks(ctx, dir); err != nil {
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
			if !isOID(name) { // of a git that was killed
				continue
			}
			o, err := readLoose(filepath.Join(dir, f.Name()))
			if err != nil {
				return fmt.Errorf("keep %s: %w", name, err)
			}
			o.oid = rawID(name)
			loose = append(loose, o)
		}
	}
	put, err := m.real.storeAt(ctx, m.format, loose)
	if err != nil {
		return err
	}
	m.put = append(m.put, put...)
	m.made = slices.AppendSeq(m.made, maps.Values(m.pending))
	clear(m.pending) // they are all there now
	m.waiting = 0
	return nil
}

// keepPacks brings packs over, of which every object is whole.
func (m *Merger) keepPacks(ctx context.Context, dir string) error {
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
		at, err := m.real.storePack(ctx, pack, "index-pack", "--stdin")
		if err := errors.Join(err, pack.Close()); err != nil {
			return err
		}
		m.put = append(m.put, at)
	}
	return durable.SyncDir(filepath.Join(m.real.CommonDir, "objects", "pack"))
}

// haveAll puts all that was made where a git sees it that looks here too, whoever takes it out of the repository.
func (m *Merger) haveAll(ctx context.Context) error {
	return errors.Join(m.add(ctx, m.made...), m.flush(ctx))
}

// pack puts what some commits lead to, and another does not, into a pack of the repository, whether the merger has it or
// the repository. With a reason nobody takes that pack away until the reason is gone.
func (m *Merger) pack(ctx context.Context, known string, commits []string, reason string) (err error) {
	if err := m.haveAll(ctx); err != nil {
		return err
	}
	f, err := os.CreateTemp(m.dir, "pack-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	repo, p := m.repo, m.place()
	args := []string{"pack-objects", "-q", "--revs", "--non-empty", "--delta-base-offset", "--window=0", "--stdout"}
	if m.real.promised() { // what a remote has need not be here
		repo, p, args = m.seeing(), place{}, append(args, "--exclude-promisor-objects")
	}
	p.stdin, p.stdout = strings.Join(commits, "\n")+"\n--not\n"+known+"\n", f
	p.config = []string{"-c", "core.attributesFile=/dev/null"}
	if _, err := repo.read(ctx, p, args...); err != nil {
		return err
	}
	if size, err := f.Seek(0, io.SeekCurrent); err != nil || size == 0 {
		return err // all of it is there
	}
	into := []string{"index-pack", "--stdin"}
	if reason != "" {
		into = append(into, "--keep="+reason)
	}
	if _, err := m.real.storePack(ctx, f, into...); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Join(m.real.CommonDir, "objects", "pack"))
}

// storePack brings a pack into the repository, and says where it is. Who tidies up at once takes away what it is not yet
// done with, too: then it begins again.
func (r *Repo) storePack(ctx context.Context, pack io.ReadSeeker, args ...string) (string, error) {
	const tries = 5
	for n := 1; ; n++ {
		if _, err := pack.Seek(0, io.SeekStart); err != nil {
			return "", err
		}
		p := place{input: pack}
		if r.rehearsal == "" {
			p.config = []string{"-c", "core.fsync=committed,reference,pack-metadata"}
		}
		out, err := r.change(ctx, p, args...)
		if err != nil && (n == tries || !exitedWith(err, 128)) {
			return "", err
		}
		if err == nil {
			_, name, _ := strings.Cut(strings.TrimSpace(string(out)), "\t") // "pack" or "keep" TAB <id>
			return filepath.Join(r.CommonDir, "objects", "pack", "pack-"+name+".pack"), nil
		}
	}
}

// seeing is the repository with all that the merger has made.
func (m *Merger) seeing() *Repo {
	seeing := *m.real
	seeing.env = append(slices.Clone(m.real.env), "GIT_ALTERNATE_OBJECT_DIRECTORIES="+inList(filepath.Join(m.dir, "objects")))
	return &seeing
}

// lost reports whether something that was kept is not where it was put.
func (m *Merger) lost() bool {
	return slices.ContainsFunc(m.put, func(path string) bool { _, err := os.Lstat(path); return errors.Is(err, fs.ErrNotExist) })
}
