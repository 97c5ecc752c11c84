package gitagency

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// page starts a pager whose output ends up in the file that is returned.
func page(t *testing.T, ctx context.Context, command string, env ...string) (*Pager, string) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	p, err := StartPager(ctx, PagerRequest{Command: command, Env: append(env, "PATH="+os.Getenv("PATH")), Stdout: out, Stderr: out})
	if err != nil {
		t.Fatal(err)
	}
	return p, out.Name()
}

func TestAPagerIsAShellCommandLine(t *testing.T) {
	t.Parallel()
	p, out := page(t, t.Context(), `sed "s/^/> /" | sed 's/$/ </'; exit 3`)
	if _, err := p.Write([]byte("one\ntwo\n")); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("how a pager ends is its own affair, but: %v", err)
	}
	if got, err := os.ReadFile(out); err != nil || string(got) != "> one <\n> two <\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestAPagerIsToldWhatGitTellsIt(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		env  []string
		want string
	}{
		{nil, "FRX -c\n"},
		{[]string{"LESS=S"}, "S -c\n"},
		{[]string{"LESS=", "LV=x"}, " x\n"},
	} {
		p, out := page(t, t.Context(), `echo "$LESS $LV"`, tt.env...)
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(out); err != nil || string(got) != tt.want {
			t.Errorf("with %q: got %q, %v", tt.env, got, err)
		}
	}
}

func TestAMissingPagerIsNoticed(t *testing.T) {
	t.Parallel()
	var missing *PagerMissingError
	if _, err := StartPager(t.Context(), PagerRequest{Command: "no-such-pager-anywhere"}); !errors.As(err, &missing) {
		t.Errorf("alone: got %v", err)
	}
	p, _ := page(t, t.Context(), "no-such-pager-anywhere -R")
	if err := p.Close(); !errors.As(err, &missing) || !strings.Contains(err.Error(), "no-such-pager-anywhere -R") {
		t.Errorf("with a flag: got %v", err)
	}
}

func TestAPagerThatIsLeftEarlyIsNoFailureOfOurs(t *testing.T) {
	t.Parallel()
	p, _ := page(t, t.Context(), "true")
	var err error
	for err == nil {
		_, err = p.Write([]byte(strings.Repeat("x", 1<<16)))
	}
	if !errors.Is(err, ErrPagerQuit) {
		t.Errorf("got %v", err)
	}
	if err := p.Close(); !errors.Is(err, ErrPagerQuit) {
		t.Errorf("got %v", err)
	}
}

func TestACancelledPagerGetsNoMoreButIsWaitedFor(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	p, out := page(t, ctx, "cat; echo left")
	if _, err := p.Write([]byte("shown\n")); err != nil {
		t.Fatal(err)
	}
	cancel()
	var err error
	for err == nil {
		_, err = p.Write([]byte(strings.Repeat("x", 1<<10) + "\n"))
	}
	if !errors.Is(err, ErrPagerQuit) {
		t.Errorf("got %v", err)
	}
	if err := p.Close(); !errors.Is(err, ErrPagerQuit) {
		t.Errorf("got %v", err)
	}
	got, err := os.ReadFile(out)
	if err != nil || !strings.HasPrefix(string(got), "shown\n") || !strings.HasSuffix(string(got), "left\n") {
		t.Errorf("got %.40q, %v", got, err)
	}
}
