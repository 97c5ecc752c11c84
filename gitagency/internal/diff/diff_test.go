package diff

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
)

// OfSandbox and Write work without the command: words, counts, JSON and the errors for bad requests.
func TestDiffSnapshots(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{})
	repo, id := l.Repo, l.Sandbox.ID
	l.WriteFile("new", "one\n")
	if _, err := l.Sandbox.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.WriteFile("new", "one, two and three\n")

	d, err := OfSandbox(t.Context(), repo, Request{Invocation: id, From: id + "/1", Words: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Changed) != 1 || d.Changed[0].Path != "new" || d.Changed[0].Insertions != 1 || d.Changed[0].Hunks[0].Lines[1].Spans == nil {
		t.Errorf("got %+v", d)
	}
	const patch = "diff --git a/new b/new\nindex 5626abf0f7..6cdf3cfdaf 100644\n--- a/new\n+++ b/new\n@@ -1 +1 @@\n-one\n+one, two and three\n"
	if got := formatDiff(d, Format{}); got != patch {
		t.Errorf("got %q", got)
	}
	if got := formatDiff(d, Format{Summary: true}); got != " 1 file changed, 1 insertion(+), 1 deletion(-)\n\n"+patch {
		t.Errorf("got %q", got)
	}
	data, err := json.Marshal(d)
	if err != nil || !bytes.HasPrefix(data, []byte(`{"added":[],"removed":[],"changed":[{"path":"new","old_path":"","before":"5626abf0f7`)) {
		t.Errorf("%v: %s", err, data)
	}
	if got := formatDiff(Diff{}, Format{Summary: true}); got != "" {
		t.Errorf("summary of an empty diff: %q", got)
	}
	if d, err := OfSandbox(t.Context(), repo, Request{Invocation: id, To: id + "/1", Form: Stat}); err != nil || len(d.Added) != 1 || d.Added[0].Insertions != 1 || d.Added[0].Hunks != nil {
		t.Errorf("%v: %+v", err, d)
	}
	for _, bad := range []Request{{From: "x"}, {To: "HEAD"}, {Paths: []string{"/x"}}, {Paths: []string{""}}, {Paths: []string{"a/../.."}}} {
		bad.Invocation = id
		if _, err := OfSandbox(t.Context(), repo, bad); !fault.Is[*fault.InvalidError](err) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// Promise: a diff of a sandbox whose files change all the time fails with an StillChangingError or shows the files that stay.
func TestOfSandboxWhileFilesChange(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{})
	l.WriteFile("steady", "x\n")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
				_ = os.WriteFile(filepath.Join(l.Sandbox.WorkDir(), "log"), bytes.Repeat([]byte{'0' + byte(n%10)}, 1+n%5000), 0o644)
			}
		}
	}()
	for range 20 {
		d, err := OfSandbox(t.Context(), l.Repo, Request{Invocation: l.Sandbox.ID})
		if err != nil && !fault.Is[*fault.StillChangingError](err) {
			t.Error(err)
			break
		}
		if err == nil && !strings.Contains(formatDiff(d, Format{Form: NameStatus}), "A\tsteady\n") {
			t.Errorf("got %+v", d)
		}
	}
	close(stop)
	<-done
}

// Promise: concurrent diffs of one sandbox do not interfere.
func TestOfSandboxConcurrently(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{})
	l.WriteFile("new", "x\n")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			d, err := OfSandbox(t.Context(), l.Repo, Request{Invocation: l.Sandbox.ID})
			if err != nil || len(d.Added) != 1 {
				t.Errorf("%v: %+v", err, d)
			}
		})
	}
	all.Wait()
}

// formatDiff returns a diff as text; it is empty when nothing differs.
func formatDiff(d Diff, format Format) string {
	var b strings.Builder
	_ = Write(&b, d, format) // a strings.Builder never fails
	return b.String()
}
