package outlet

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestRelayFailuresAreShared writes failures as a relay process does, and reads them as a command does.
func TestRelayFailuresAreShared(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "failures")
	old, err := CreateRelayFailures(path, RelayFailures{NotListening: map[string]string{"127.0.0.1:9": "of earlier namespaces"}})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	written, err := CreateRelayFailures(path, RelayFailures{NotListening: map[string]string{"127.0.0.1:1": "in use"}})
	if err != nil {
		t.Fatal(err)
	}
	defer written.Close()
	read, err := OpenRelayFailures(path)
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	log := newFailureLog(written)
	log.add("127.0.0.1:2,[::1]:2", errors.New(strings.Repeat("long ", 100)))
	log.add("[::1]:2,127.0.0.1:2", errors.New("two\nlines"))
	log.add("127.0.0.1:2,[::1]:2", errors.New("refused"))
	got, err := ReadRelayFailures(read)
	want := RelayFailures{
		NotListening: map[string]string{"127.0.0.1:1": "in use"},
		Connections:  map[string]FailedConnections{"127.0.0.1:2": {2, "refused"}, "[::1]:2": {1, "two; lines"}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := os.Truncate(path, 5); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadRelayFailures(read); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a damaged file: %v", err)
	}
}
