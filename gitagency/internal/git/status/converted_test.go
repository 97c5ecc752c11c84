package status

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

// Blobs of a git that reads data of an agent must have the id that the index names, whether they are read into memory or
// copied to the repository.
func TestConvertedBlobsAreChecked(t *testing.T) {
	t.Parallel()
	loose := object.ZlibStored([]byte("blob 2\x00x\n"))
	oid := object.HexOID(object.HashObject(object.SHA1, "blob", []byte("x\n")))
	other := object.ZlibStored([]byte("blob 2\x00y\n"))
	for name, c := range map[string]struct {
		content []byte
		oid     string
		link    bool
		ok      bool
	}{
		"the blob":            {content: loose, oid: oid, ok: true},
		"another blob":        {content: other, oid: oid},
		"a tree":              {content: object.ZlibStored([]byte("tree 2\x00x\n")), oid: object.HexOID(object.HashObject(object.SHA1, "tree", []byte("x\n")))},
		"a wrong size":        {content: object.ZlibStored([]byte("blob 1\x00x\n")), oid: oid},
		"a truncated file":    {content: loose[:len(loose)-3], oid: oid},
		"no loose object":     {content: []byte("x\n"), oid: oid},
		"a symlink":           {content: loose, oid: oid, link: true},
		"nothing, as git had": {oid: oid, ok: true},
	} {
		for _, inMemory := range []bool{true, false} {
			l := gittest.New(t)
			repo, dir := repotest.OpenRepo(l), gittest.TempDir(t)
			file := filepath.Join(dir, c.oid[:2], c.oid[2:])
			l.Must(os.Mkdir(filepath.Dir(file), 0o700))
			switch {
			case c.link:
				l.Must(errors.Join(os.WriteFile(filepath.Join(dir, "target"), c.content, 0o600), os.Symlink("../target", file)))
			case c.content != nil:
				l.Must(os.WriteFile(file, c.content, 0o600))
			}
			objects, err := beneath.Open(dir)
			l.Must(err)
			defer objects.Close()
			h := fileHasher{worktreeScan: &worktreeScan{repo: repo, format: object.SHA1}, inMemory: inMemory}
			if err := h.takeBlob(objects, c.oid); (err == nil) != c.ok {
				t.Errorf("%s, in memory %t: %v", name, inMemory, err)
			}
			_, statErr := os.Lstat(repo.LoosePath(c.oid))
			if stored := statErr == nil; stored != (c.ok && c.content != nil && !inMemory) {
				t.Errorf("%s, in memory %t: stored %t", name, inMemory, stored)
			}
			if kept := len(h.blobs) == 1; kept != (c.ok && c.content != nil && inMemory) {
				t.Errorf("%s, in memory %t: kept %t", name, inMemory, kept)
			}
			if temps, _ := filepath.Glob(filepath.Join(filepath.Dir(repo.LoosePath(c.oid)), "tmp_obj_*")); len(temps) > 0 {
				t.Errorf("%s, in memory %t: left %q", name, inMemory, temps)
			}
		}
	}
}

// Data behind the end of a loose object would make git call it damaged.
func TestStoreLooseRefusesGarbageAtItsEnd(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo, path := repotest.OpenRepo(l), filepath.Join(gittest.TempDir(t), "object")
	l.Must(os.WriteFile(path, append(object.ZlibStored([]byte("blob 2\x00x\n")), "garbage"...), 0o600))
	file, err := os.Open(path)
	l.Must(err)
	defer file.Close()
	oid := object.HexOID(object.HashObject(object.SHA1, "blob", []byte("x\n")))
	if err := storeLoose(repo, file, object.SHA1, oid); !errors.Is(err, errWrongID) {
		t.Error(err)
	}
}

func TestStoreLooseKeepsPermissionsOfSharedRepository(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	l.Git("config", "core.sharedRepository", "group")
	repo, dir := repotest.OpenRepo(l), filepath.Join(gittest.TempDir(t), "ab")
	l.Must(errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, os.ModeSetgid|0o770)))
	path := filepath.Join(dir, "object")
	l.Must(errors.Join(os.WriteFile(path, object.ZlibStored([]byte("blob 2\x00x\n")), 0o600), os.Chmod(path, 0o440)))
	file, err := os.Open(path)
	l.Must(err)
	defer file.Close()
	oid := object.HexOID(object.HashObject(object.SHA1, "blob", []byte("x\n")))
	l.Must(storeLoose(repo, file, object.SHA1, oid))
	for path, want := range map[string]os.FileMode{repo.LoosePath(oid): 0o440, filepath.Dir(repo.LoosePath(oid)): os.ModeDir | os.ModeSetgid | 0o770} {
		if fi, err := os.Stat(path); err != nil || fi.Mode() != want {
			t.Errorf("%s: %v %v", path, fi.Mode(), err)
		}
	}
}
