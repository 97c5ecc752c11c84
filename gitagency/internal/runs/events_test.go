package runs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/store"
)

func TestParseEventAddsInvocation(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`{"time":"2026-01-28T12:00:00Z","event":"exec","argv":["a"],"exit_code":0}` + "\n":  `{"time":"2026-01-28T12:00:00Z","invocation_id":"i","event":"exec","argv":["a"],"exit_code":0}`,
		`{"event":"x","invocation_id":"other","time":"2026-01-28T12:00:00Z","z":{}}` + "\n": `{"time":"2026-01-28T12:00:00Z","invocation_id":"i","event":"x","z":{}}`,
		`{"event":"x","time":"2026-01-28T12:00:00Z"}`:                                       "", // it is being written
		`{"event":"x"}` + "\n":          "",
		`{"time":"t"}` + "\n":           "",
		"[]\n":                          "",
		"null\n":                        "",
		"\n":                            "",
		`{"time":1,"event":"x"}` + "\n": "",
	} {
		e, ok := parseEvent("i", []byte(line))
		if string(e.line) != want && ok || ok != (want != "") {
			t.Errorf("%q: got %q, %v", line, e.line, ok)
		}
	}
}

func TestEventLogGoesOnAfterRotations(t *testing.T) {
	t.Parallel()
	log := &eventLog{id: "i", path: filepath.Join(t.TempDir(), "events.jsonl")}
	write := func(names ...string) {
		f, err := os.OpenFile(log.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		for _, name := range names {
			if err == nil {
				_, err = f.WriteString(`{"time":"2026-01-28T12:00:00Z","event":"` + name + "\"}\n")
			}
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	rotate := func() {
		if err := os.Rename(log.path, store.RotatedPath(log.path)); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want ...string) {
		t.Helper()
		var got []string
		if err := log.readNew(func(e event) { got = append(got, e.name) }); err != nil || !slices.Equal(got, want) {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	write("a", "b")
	expect("a", "b")
	expect()
	write("c")
	rotate()
	write("d")
	expect("c", "d")
	rotate()
	write("e", "f")
	rotate()
	write("g")
	expect("e", "f", "g")
}

func FuzzParseEvent(f *testing.F) {
	f.Add([]byte(`{"time":"2026-01-28T12:00:00Z","event":"exec","argv":["a"]}` + "\n"))
	f.Add([]byte("{\"time\":\"\",\"event\":\"e\",\"\\u0000\":null}\n"))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, ok := parseEvent("20260128120500-b7c9", line)
		if !ok {
			return
		}
		var fields struct {
			ID    string `json:"invocation_id"`
			Event string `json:"event"`
		}
		if err := json.Unmarshal(e.line, &fields); err != nil || fields.ID != "20260128120500-b7c9" || fields.Event == "" {
			t.Errorf("%q became %q: %v", line, e.line, err)
		}
		if strings.Contains(string(e.line), "\n") && !strings.Contains(strings.TrimSuffix(string(line), "\n"), "\n") {
			t.Errorf("%q became several lines: %q", line, e.line)
		}
	})
}
