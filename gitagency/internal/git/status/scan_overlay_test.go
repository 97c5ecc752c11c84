package status

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
)

// BenchmarkScanOfUnchangedOverlay scans 100,000 files of which none has changed.
func BenchmarkScanOfUnchangedOverlay(b *testing.B) {
	x := index.File{Format: object.SHA1}
	for n := range 100_000 {
		name := fmt.Sprintf("directory%03d/below%02d/file-with-a-name%04d.go", n/1000, n/100%10, n)
		stat := index.StatWithMode(object.ModeFile)
		binary.BigEndian.PutUint32(stat[5*4:], uint32(n))
		x.Append(stat, object.HashObject(x.Format, "blob", []byte(name)), []byte(name))
	}
	top := b.TempDir()
	layers := overlay.Tree{Upper: filepath.Join(top, "upper"), Lowers: []string{filepath.Join(top, "lower")}, Index: filepath.Join(top, "index")}
	for _, err := range []error{os.Mkdir(layers.Upper, 0o755), os.Mkdir(layers.Lowers[0], 0o755), os.WriteFile(layers.Index, x.Encode(), 0o644)} {
		if err != nil {
			b.Fatal(err)
		}
	}
	s := git.WorktreeSpec{Dir: top, Overlay: &layers}
	tree, err := OpenTree(s)
	if err != nil {
		b.Fatal(err)
	}
	defer tree.Close()
	entries := selectEntries(s, x, time.Now()).Entries
	for b.Loop() {
		v := &worktreeScan{tree: tree, repo: &git.Repo{}, spec: s, format: x.Format, entries: entries, lowerFiles: readLowerFiles(s, x.Format)}
		result, err := v.scanFiles(b.Context())
		if err != nil || result.statuses[len(entries)-1] != entryUnchanged {
			b.Fatal(err)
		}
	}
}
