package sandbox

import (
	"fmt"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// A proxy writes an event for the first, tenth, hundredth (and so on) denial of a target, and for the last one. The
// denialLog adds these up to the total, also if several proxies have written to the same history.
func TestDenialLogSumsRecordedEvents(t *testing.T) {
	t.Parallel()
	for _, counts := range [][]int{{1}, {7}, {10}, {11}, {99}, {100}, {1234, 56}, {1, 1, 1}, {10, 100, 1000}} {
		told, want := denialLog{positions: map[denialKey]int{}}, 0
		var lines []string
		for _, count := range counts {
			want += count
			last := 0
			for n := 1; n <= count; n *= 10 {
				lines, last = append(lines, denialLine(n)), n
			}
			if last != count {
				lines = append(lines, denialLine(count))
			}
		}
		for _, line := range lines {
			told.addLine([]byte(line))
		}
		if len(told.denials) != 1 || told.denials[0].Count != want {
			t.Errorf("counts %v: got %+v", counts, told.denials)
		}
	}
}

func denialLine(count int) string {
	return fmt.Sprintf(`{"time":"2026-01-28T12:00:00Z","event":"denied","kind":"http","target":"a.example:80","reason":"no","count":%d}`, count)
}

func TestAllowCommand(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ isolation, outputs, entry, want string }{ // of a sandbox that was discarded
		{"os", "hosts:a.example", "b.example:8443", "git agency start wt --outputs hosts:a.example,b.example:8443"},
		{"os", "hosts:*.a.example", "b.example", "git agency start wt --outputs 'hosts:*.a.example,b.example'"},
		{"none", "hosts:a.example", "b.example", "git agency start wt --isolation none --outputs hosts:a.example,b.example"},
		{"os", "hosts:a.example", "", ""},
		{"os", "none", "b.example", ""},
		{"os", "hosts:a.example", "b.example; rm -rf ~", ""},
		{"os", "hosts:", "b.example", ""},
	} {
		inv := core.Invocation{Worktree: "wt", Primitives: store.Primitives{Isolation: tt.isolation, Outputs: tt.outputs}}
		inv.Landing = store.Discarded
		if tt.isolation == "os" && settings.DefaultPrimitives().Isolation != "os" {
			continue // --isolation os is not the default on this system, so the command would name it
		}
		if got := allowCommand(inv, tt.entry); got != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
	}
	live := core.Invocation{ID: "20260128120500-b7c9", Primitives: store.Primitives{Isolation: "os", Outputs: "hosts:a.example"}}
	if got := allowCommand(live, "b.example"); got != "git agency allow 20260128120500-b7c9 --outputs hosts:b.example" {
		t.Errorf("%q", got)
	}
}

func TestParsePort(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Port{"80": {80, 80}, "80:8080": {80, 8080}, "65535:0": {65535, 0}, "080": {80, 80}} {
		if got, err := ParsePort(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", ":", "0", "80:", ":80", "65536", "80:65536", "-1", "+1", "1:+1", " 80", "80 ", "a", "80:80:80", "8_0", "0x50"} {
		if got, err := ParsePort(text); !fault.Is[*fault.InvalidError](err) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
