package git

import (
	"bytes"
	"compress/zlib"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
	if err := m.real.store(ctx, m.format, loose); err != nil {
		return err
	}
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
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return err
		}
		p := place{stdin: string(data), config: []string{"-c", "core.fsync=committed,reference,pack-metadata"}}
		if _, err := m.real.change(ctx, p, "index-pack", "--stdin"); err != nil {
			return err
		}
	}
	return durable.SyncDir(filepath.Join(m.real.CommonDir, "objects", "pack"))
}

// readLoose reads the file of one object, which a git of ours has written.
func readLoose(path string) (object, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return object{}, err
	}
	z, err := zlib.NewReader(bytes.NewReader(data))
	if err != nil {
		return object{}, err
	}
	all, err := io.ReadAll(z)
	if err != nil {
		return object{}, err
	}
	header, content, ok := bytes.Cut(all, []byte{0})
	kind, size, _ := strings.Cut(string(header), " ")
	if !ok || size != strconv.Itoa(len(content)) {
		return object{}, fmt.Errorf("%s: %w", path, errCutOff)
	}
	return object{kind: kind, content: content}, nil
}
