package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCommandLogIsTruncated(t *testing.T) {
	t.Parallel()
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	log := CommandLog{output: &shown, file: file, remaining: 10, warn: func(format string, args ...any) { t.Errorf(format, args...) }}
	for _, text := range []string{"12345678", "9abcdef", "more"} {
		if n, err := log.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("got %d, %v", n, err)
		}
	}
	kept, err := os.ReadFile(file.Name())
	if err != nil || string(kept) != "123456789a\n# truncated: the output is larger than the log may be\n" || shown.String() != "123456789abcdefmore" {
		t.Errorf("kept %q, shown %q, %v", kept, shown.String(), err)
	}
	_ = file.Close()
	log.remaining, log.warn = 10, func(string, ...any) { shown.WriteString("!") }
	if n, err := log.Write([]byte("x")); n != 1 || err != nil || !strings.HasSuffix(shown.String(), "!x") {
		t.Errorf("got %d, %v, %q", n, err, shown.String())
	}
}
