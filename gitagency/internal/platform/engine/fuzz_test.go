package engine

import (
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/quote"
)

// requirePrintable checks what a status may hold, whatever an engine printed.
func requirePrintable(t *testing.T, s Status) {
	t.Helper()
	if _, err := parseID(s.ID); err != nil {
		t.Error(err)
	}
	for _, text := range []string{s.Detail, s.Node} {
		if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !quote.IsPrintable(r) }) {
			t.Errorf("%q cannot be printed", text)
		}
	}
	switch s.State {
	case Queued, Running:
		if s.Reason != "" || s.Exit != nil {
			t.Errorf("%+v", s)
		}
	case Ended:
		if s.Reason == "" || s.Exit != nil && (*s.Exit < 0 || *s.Exit > 255) {
			t.Errorf("%+v", s)
		}
	default:
		t.Errorf("%+v", s)
	}
	if s.Attempt < 1 {
		t.Errorf("%+v", s)
	}
}

func FuzzParseQueue(f *testing.F) {
	f.Add(readRecorded(f, "squeue.txt"))
	f.Add("CLUSTER: lab\n" + readRecorded(f, "squeue-clusters.txt"))
	f.Fuzz(func(t *testing.T, text string) {
		for _, j := range parseQueue(text) {
			requirePrintable(t, j.status(""))
		}
	})
}

func FuzzParseAccounts(f *testing.F) {
	f.Add(readRecorded(f, "sacct.txt"))
	f.Add("1|CANCELLED by 0|300:1|n1|a|b\n1|RUNNING|0:0|n[1-2]|\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, j := range parseAccounts(text) {
			requirePrintable(t, j.status("c"))
		}
	})
}

func FuzzParseSubmitted(f *testing.F) {
	f.Add("231\n")
	f.Add("hello\n23;lab\n")
	f.Fuzz(func(t *testing.T, text string) {
		id, ok := parseSubmitted(text)
		if _, err := parseID(id); ok != (err == nil) || strings.HasPrefix(id, "-") {
			t.Errorf("%q, %t", id, ok)
		}
	})
}

func FuzzParseConfig(f *testing.F) {
	f.Add(readRecorded(f, "scontrol-show-config.txt"))
	f.Fuzz(func(t *testing.T, text string) {
		caps := capabilities(parseConfig(text))
		for _, text := range append(caps.Notes, caps.Version) {
			if strings.ContainsFunc(text, func(r rune) bool { return !quote.IsPrintable(r) }) {
				t.Errorf("%q cannot be printed", text)
			}
		}
		if caps.KillWait < 0 || caps.Memory < 0 {
			t.Errorf("%+v", caps)
		}
	})
}

func FuzzParsePartitions(f *testing.F) {
	f.Add(readRecorded(f, "sinfo.txt"))
	f.Fuzz(func(t *testing.T, text string) {
		for _, p := range parsePartitions(text) {
			if note := (Slurm{Partition: p.name}).partitionNote([]partition{p}); strings.ContainsFunc(note, func(r rune) bool { return !quote.IsPrintable(r) }) {
				t.Errorf("%q cannot be printed", note)
			}
		}
	})
}

// FuzzShellWord has a shell read a word back.
func FuzzShellWord(f *testing.F) {
	for _, word := range []string{"", "it's", "a\nb", `\`, "$(x) `y` \"z\"", "\xff", "-n"} {
		f.Add(word)
	}
	f.Fuzz(func(t *testing.T, word string) {
		if strings.Contains(word, "\x00") {
			return
		}
		out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", "printf %s. "+shellWord(word)).Output()
		if err != nil || string(out) != word+"." {
			t.Errorf("%q was read as %q, %v", word, out, err)
		}
	})
}
