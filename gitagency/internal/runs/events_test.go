package runs

import (
	"encoding/json"
	"strings"
	"testing"
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
