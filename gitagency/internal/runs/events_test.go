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
		`{"time":"2026-01-28T12:00:00Z","event":"exec","argv":["a"],"exit_code":0}` + "\n":  `{"time":"2026-01-28T12:00:00.000Z","invocation_id":"i","event":"exec","argv":["a"],"exit_code":0}`,
		`{"event":"x","invocation_id":"other","time":"2026-01-28T12:00:00Z","z":{}}` + "\n": `{"time":"2026-01-28T12:00:00.000Z","invocation_id":"i","event":"x","z":{}}`,
		`{"event":"x","time":"2026-01-28T12:00:00.1Z"}` + "\n":                              `{"time":"2026-01-28T12:00:00.100Z","invocation_id":"i","event":"x"}`,
		`{"event":"x","time":"2026-01-28T12:00:00.12+01:00"}` + "\n":                        `{"time":"2026-01-28T12:00:00.120+01:00","invocation_id":"i","event":"x"}`,
		`{"event":"x","time":"later"}` + "\n":                                               `{"time":"later","invocation_id":"i","event":"x"}`,
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

// Events of several logs come in the order of their times, with and without a fraction of a second; those of one log stay in
// the order in which they were written, also if the clock was set back or a time is not valid.
func TestEventsOfSeveralLogsAreOrdered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var logs []*eventLog
	write := func(id string, times ...string) {
		var lines strings.Builder
		for _, at := range times {
			lines.WriteString(`{"time":"2026-01-28T` + at + `","event":"` + id + at + "\"}\n")
		}
		log := &eventLog{id: id, path: filepath.Join(dir, id)}
		if err := os.WriteFile(log.path, []byte(lines.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		logs = append(logs, log)
	}
	write("a", "12:00:00Z", "12:00:00.2Z", "12:00:00.15Z", "12:00:01Z", "no time", "12:00:01.9Z")
	write("b", "12:00:00.1Z", "12:00:00.199Z", "12:00:00.3Z", "13:00:01.5+01:00")
	found, err := readNewOf(logs)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range found {
		got = append(got, e.name)
	}
	want := []string{
		"a12:00:00Z", "b12:00:00.1Z", "b12:00:00.199Z", "a12:00:00.2Z", "a12:00:00.15Z", "b12:00:00.3Z", "a12:00:01Z", "ano time",
		"b13:00:01.5+01:00", "a12:00:01.9Z",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
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
