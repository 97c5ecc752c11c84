package git

import (
	"bytes"
	"compress/zlib"
	"context"
	"errors"
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

// adopt makes the merger have itself what a tree has and others do not have at the same path. Git does not write what is in
// the repository already, also where nothing leads to it: then only we would know that it is needed.
func (m *Merger) adopt(ctx context.Context, tree string, known ...string) error {
	var tops [][]byte
	for _, name := range append([]string{tree}, known...) {
		oid, err := m.treeOf(ctx, name)
		if err != nil {
			return err
		}
		tops = append(tops, rawID(oid))
	}
	return m.adoptTree(ctx, tops[0], tops[1:])
}

func (m *Merger) adoptTree(ctx context.Context, oid []byte, known [][]byte) error {
	if slices.ContainsFunc(known, func(k []byte) bool { return bytes.Equal(k, oid) }) {
		return nil
	}
	dir, err := m.twig(ctx, oid)
	if err != nil {
		return err
	}
	if err := m.adoptOne(ctx, oid); err != nil {
		return err
	}
	var like []*twig
	for _, k := range known {
		t, err := m.twig(ctx, k)
		if err != nil {
			return err
		}
		like = append(like, t)
	}
	for _, it := range dir.items {
		var below [][]byte
		there := false
		for _, t := range like {
			had, has := t.find(string(it.name))
			if there = there || has && had.is(it); has && had.mode == modeTree {
				below = append(below, had.oid)
			}
		}
		switch {
		case there || it.mode == modeGitlink:
		case it.mode == modeTree:
			err = m.adoptTree(ctx, it.oid, below)
		default:
			err = m.adoptOne(ctx, it.oid)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// adoptOne makes the merger have an object itself. One that is large it only watches.
func (m *Merger) adoptOne(ctx context.Context, raw []byte) error {
	const most = 1 << 17 // in its file, which may be a thousand times as much
	oid := hexID(raw)
	m.talking.Lock()
	_, is := m.pending[string(raw)]
	m.talking.Unlock()
	if _, err := os.Lstat(m.repo.loosePath(oid)); is || err == nil {
		return nil
	}
	fi, err := os.Lstat(m.real.loosePath(oid))
	if err == nil && fi.Size() > most {
		m.talking.Lock()
		defer m.talking.Unlock()
		m.put = append(m.put, m.real.loosePath(oid))
		return nil
	}
	if err != nil { // it is in a pack, of the repository or our own
		return nil
	}
	m.talking.Lock()
	o, data, err := m.askForAny(ctx, oid)
	m.talking.Unlock()
	if err != nil || o.Missing() {
		return err // who needs it will say so
	}
	return m.add(ctx, object{kind: o.Type, oid: raw, content: data})
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
