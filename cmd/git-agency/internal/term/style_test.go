package term

import "testing"

func TestPaintColumns(t *testing.T) {
	t.Parallel()
	l := Style{Color: true, Links: true, Host: "box"}
	for _, tt := range []struct{ column, value, want string }{
		{"ID", "20260128120500-b7c9", "\x1b[2m20260128120500-b7c9\x1b[m"},
		{"invocation", "20260128120500-b7c9", "\x1b[33m20260128120500-b7c9\x1b[m"},
		{"STATE", "broken: missing-tree", "\x1b[31mbroken: missing-tree\x1b[m"},
		{"broken", "missing-tree", "\x1b[31mmissing-tree\x1b[m"},
		{"STATE", "running 3m", "\x1b[32mrunning 3m\x1b[m"},
		{"STATE", "review", "\x1b[36mreview\x1b[m"},
		{"landing", "rejected", "\x1b[35mrejected\x1b[m"},
		{"STATE", "discarded", "\x1b[2mdiscarded\x1b[m"},
		{"STATE", "present", "\x1b[32mpresent\x1b[m"},
		{"STATE", "archived", "\x1b[2marchived\x1b[m"},
		{"STATE", "idle", "idle"},
		{"STATE", "exited 1", "\x1b[31mexited 1\x1b[m"},
		{"NAME", "broken", "\x1b[1mbroken\x1b[m"},
		{"WORKTREE", "broken", "broken"},
		{"ID", "", ""},
		{"PATH", "", ""},
		{"PATH", "/a b/%", "\x1b]8;;file://box/a%20b/%25\x1b\\/a b/%\x1b]8;;\x1b\\"},
	} {
		if got := l.Paint(tt.column, tt.value, tt.value); got != tt.want {
			t.Errorf("%s %q: got %q, want %q", tt.column, tt.value, got, tt.want)
		}
		if got := (Style{}).Paint(tt.column, tt.value, tt.value); got != tt.value {
			t.Errorf("without color, %s %q: got %q", tt.column, tt.value, got)
		}
	}
}

func TestFileURLEscapesNonPrintable(t *testing.T) {
	t.Parallel()
	got := fileURL("box", "/tmp/new\nline\x1b]8;;é 日本/\"?#")
	for _, c := range []byte(got) {
		if c <= ' ' || c > '~' {
			t.Errorf("%q contains the unescaped byte %q", got, c)
		}
	}
	if want := "file://box/tmp/new%0Aline%1B%5D8;;%C3%A9%20%E6%97%A5%E6%9C%AC/%22%3F%23"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
