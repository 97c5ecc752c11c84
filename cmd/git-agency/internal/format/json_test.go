package format

import (
	"bufio"
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode"
)

// flatRecord is a record that both WriteJSON and WriteLargeJSON accept.
type flatRecord struct {
	Text  string            `json:"text"`
	List  []string          `json:"list"`
	Named map[string]string `json:"named"`
}

// hostileText has characters that control a terminal, reorder its text or are invisible. A piece of writeJSONString ends
// in it.
var hostileText = strings.Repeat("x", 32<<10-7) + "\x1b]0;t\x07\x7f\u0085\u009b31m\u202e\u2066\u200b\ufeff\u2028\u3164\U000e0041é"

// TestJSONOutputHasNoUnprintableCharacters checks both JSON writers: the value is the same, and no character of the
// output controls a terminal.
func TestJSONOutputHasNoUnprintableCharacters(t *testing.T) {
	t.Parallel()
	record := flatRecord{Text: hostileText, List: []string{hostileText}, Named: map[string]string{hostileText: hostileText}}
	for name, write := range map[string]func(*bufio.Writer) error{
		"WriteJSON":      func(w *bufio.Writer) error { return WriteJSON(w, record) },
		"WriteLargeJSON": func(w *bufio.Writer) error { return WriteLargeJSON(w, record) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			buffered := bufio.NewWriter(&out)
			if err := write(buffered); err != nil {
				t.Fatal(err)
			}
			if err := buffered.Flush(); err != nil {
				t.Fatal(err)
			}
			for _, c := range strings.ReplaceAll(out.String(), "\n", "") {
				if !unicode.IsPrint(c) || c == '\u3164' {
					t.Errorf("the output has the character %U", c)
				}
			}
			var got flatRecord
			if err := json.Unmarshal(out.Bytes(), &got); err != nil || !reflect.DeepEqual(got, record) {
				t.Errorf("decodes to %q, %v", got, err)
			}
		})
	}
}
