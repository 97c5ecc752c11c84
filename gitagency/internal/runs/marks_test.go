package runs

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Runs are separated in logs that were rotated: also a run that begins in the older part, or that is not kept any more.
func TestLogsSeparateRunsOverRotations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		most int64 // size of a log
		want string
	}{
		{1000, "1a 1b 1c[2]2a 2b 2c[3]3a 3b 3c[4]4a 4b 4c"},
		{24, "1a 1b 1c[2]2a 2b 2c[3]3a 3b 3c[4]4a 4b 4c"},
		{15, "[dropped][2]2c[3]3a 3b 3c[4]4a 4b 4c"},
		{12, "[dropped][2]2b 2c[3]3a 3b 3c[4]4a 4b 4c"},
		{9, "[dropped][2][3]3a 3b 3c[4]4a 4b 4c"},
		{3, "[dropped][2][3][4]4b 4c"},
	} {
		r := &core.Repository{ID: "repo", Store: store.Store{Root: t.TempDir()}, Opts: core.Options{Now: time.Now}}
		id := "20260128120500-b7c9"
		if err := os.MkdirAll(r.Store.InvocationDir(r.ID, id), 0o700); err != nil {
			t.Fatal(err)
		}
		for run := range 4 {
			a := &attempt{repo: r, sandbox: &sandbox.Sandbox{ID: id}, record: store.InvocationMeta{RunFields: store.RunFields{Runs: run}}}
			a.markRun()
			log, err := a.openLog("stdout", c.most)
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range []string{"a", "b", "c"} {
				if _, err := fmt.Fprintf(log, "%d%s\n", run+1, line); err != nil {
					t.Fatal(err)
				}
			}
			if err := log.file.Close(); err != nil {
				t.Fatal(err)
			}
		}
		var got bytes.Buffer
		p := newLogPrinter(r, id, nil, LogsRequest{Stdout: &got, Stderr: &got, OnNote: func(note LogNote) {
			if note.Kind == NoteRun {
				fmt.Fprintf(&got, "[%d]", note.Run)
			} else {
				fmt.Fprintf(&got, "[%s]", note.Kind)
			}
		}})
		if err := p.copyEarlierRuns(r, id); err != nil {
			t.Fatal(err)
		}
		if err := p.copyNew(); err != nil {
			t.Fatal(err)
		}
		if err := p.end(); err != nil {
			t.Fatal(err)
		}
		text := strings.NewReplacer("\n[", "[", "\n", " ").Replace(strings.TrimSuffix(got.String(), "\n"))
		if text != c.want {
			t.Errorf("logs of %d bytes: got %q, want %q", c.most, text, c.want)
		}
	}
}
