package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// No update is lost when several processes change a record at the same time: a command that ends records its exit code
// without the repository lock.
func TestConcurrentUpdatesKeepAllChanges(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	add(t, s, invID)
	const writers, each = 8, 25
	var all sync.WaitGroup
	errs := make([]error, writers)
	for n := range writers {
		all.Go(func() {
			for range each {
				errs[n] = errors.Join(errs[n], s.UpdateInvocationMeta(repoID, invID, func(m *InvocationMeta) { m.ReviewNote += "x" }))
			}
		})
	}
	all.Wait()
	must(t, errors.Join(errs...))
	if got := len(s.Invocation(repoID, invID, nil).Record.ReviewNote); got != writers*each {
		t.Errorf("%d of %d updates are in the record", got, writers*each)
	}
}

// A file that an update is writing is not listed as a leftover of a killed process, and is not removed as one.
func TestLeftoversExcludeRunningUpdates(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	add(t, s, invID)
	dir := s.InvocationDir(repoID, invID)
	inUpdate, mayEnd := make(chan struct{}), make(chan struct{})
	updated := make(chan error, 1)
	temp := filepath.Join(dir, durable.TempPrefix+"meta.json-1")
	go func() {
		updated <- s.UpdateInvocationMeta(repoID, invID, func(m *InvocationMeta) {
			must(t, os.WriteFile(temp, nil, 0o600)) // what durable.WriteFile has there for a moment
			close(inUpdate)
			<-mayEnd
			must(t, os.Remove(temp))
		})
	}()
	<-inUpdate
	type listing struct {
		left []string
		err  error
	}
	listed, removed := make(chan listing, 1), make(chan error, 1)
	go func() {
		left, err := ListLeftovers(dir)
		listed <- listing{left, err}
	}()
	go func() { removed <- RemoveLeftovers(dir) }()
	select {
	case <-time.After(20 * time.Millisecond): // both wait for the update
	case got := <-listed:
		t.Errorf("listed during an update: %q", got.left)
		listed <- got
	case err := <-removed:
		t.Errorf("removed during an update: %v", err)
		removed <- err
	}
	close(mayEnd)
	must(t, <-updated)
	must(t, <-removed)
	if got := <-listed; got.err != nil || len(got.left) > 0 {
		t.Errorf("listed after the update: %q, %v", got.left, got.err)
	}
}

func TestRecordExecSetsExitCode(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	add(t, s, invID)
	must(t, s.RecordExec(repoID, invID, 3, at(9)))
	m := s.Invocation(repoID, invID, nil).Record
	if m.ExitCode != "3" || m.FinishedAt == nil || !m.FinishedAt.Equal(at(9)) || m.Status != "starting" {
		t.Errorf("got exit code %q, finished at %v, status %q", m.ExitCode, m.FinishedAt, m.Status)
	}
	must(t, s.RecordExec(repoID, invID, 0, at(10)))
	if m = s.Invocation(repoID, invID, nil).Record; m.ExitCode != "0" {
		t.Errorf("exit code 0 is recorded as %q", m.ExitCode)
	}
}

// The end date of an ended invocation decides when it is pruned: a command that ends later does not change it.
func TestRecordExecLeavesEndedInvocations(t *testing.T) {
	t.Parallel()
	for _, landing := range []string{Landed, Discarded} {
		s, ended := newStore(t), at(5)
		add(t, s, invID, func(m *InvocationMeta) { m.Landing, m.FinishedAt = landing, &ended })
		before, err := os.ReadFile(s.InvocationMetaPath(repoID, invID))
		must(t, err)
		must(t, s.RecordExec(repoID, invID, 143, at(9)))
		if after, err := os.ReadFile(s.InvocationMetaPath(repoID, invID)); err != nil || string(after) != string(before) {
			t.Errorf("%s: %s became %s, %v", landing, before, after, err)
		}
	}
	if err := newStore(t).RecordExec(repoID, invID, 0, at(1)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing record: %v", err)
	}
}

// A record of another version may have any number as its exit code.
func TestExitCodeOfOtherVersions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"1": "1", "null": "none", "1e400": "none", "2.5": "none", "-1": "-1"} {
		var m InvocationMeta
		must(t, json.Unmarshal([]byte(`{"exit_code":`+text+`}`), &m))
		got := "none"
		if code := m.LastExitCode(); code != nil {
			got = fmt.Sprint(*code)
		}
		if got != want {
			t.Errorf("exit_code %s: got %s, want %s", text, got, want)
		}
	}
}

func TestUpdateRemovesFilesOfKilledUpdates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	record, killed, other := metaPath(dir), filepath.Join(dir, durable.TempPrefix+"meta.json-1"), filepath.Join(dir, durable.TempPrefix+"intent.json-1")
	for path, content := range map[string]string{record: "{}", killed: "{", other: "{"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := updateJSON(record, func(m *InvocationMeta) { m.Status = "x" }); err != nil {
		t.Fatal(err)
	}
	if left, err := durable.ListTemps(dir); err != nil || !slices.Equal(left, []string{other}) {
		t.Errorf("after an update there are %q, %v; want only %s", left, err, other)
	}
}
