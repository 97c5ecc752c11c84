package format

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// WriteJSON writes v as indented JSON. Characters that control a terminal are escaped wherever the output goes: the
// output of a pipe ends on a terminal, too.
func WriteJSON(w io.Writer, v any) error {
	encoded, err := encodeIndented(v)
	if err != nil {
		return err
	}
	_, err = w.Write(quote.JSON(encoded))
	return err
}

// WriteLargeJSON is WriteJSON for a flat struct with very long strings. It streams them, which avoids further copies
// of them in memory, escaped and indented.
func WriteLargeJSON(w *bufio.Writer, v any) error {
	object, kind := reflect.ValueOf(v), reflect.TypeOf(v)
	before := "{\n"
	for i := range kind.NumField() {
		name, option, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ",")
		if option == "omitempty" && object.Field(i).IsZero() {
			continue
		}
		fmt.Fprintf(w, "%s  %q: ", before, name)
		before = ",\n"
		if text, ok := object.Field(i).Interface().(string); ok {
			if err := writeJSONString(w, text); err != nil {
				return err
			}
			continue
		}
		data, err := json.Marshal(object.Field(i).Interface())
		if err != nil {
			return err
		}
		if _, err := w.Write(quote.JSON(data)); err != nil {
			return err
		}
	}
	_, err := w.WriteString("\n}\n")
	return err
}

// writeJSONString writes a JSON string in pieces, cut between characters.
func writeJSONString(w *bufio.Writer, text string) error {
	const piece = 32 << 10
	if err := w.WriteByte('"'); err != nil {
		return err
	}
	for len(text) > 0 {
		end := min(len(text), piece)
		for back := 0; end < len(text) && back < utf8.UTFMax && !utf8.RuneStart(text[end]); back++ {
			end--
		}
		var quoted bytes.Buffer
		enc := json.NewEncoder(&quoted)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(text[:end]); err != nil {
			return err
		}
		if _, err := w.Write(quote.JSON(quoted.Bytes()[1 : quoted.Len()-2])); err != nil { // without quotes and newline
			return err
		}
		text = text[end:]
	}
	return w.WriteByte('"')
}

// Base64UnlessText encodes text that is not valid UTF-8, which JSON cannot hold.
func Base64UnlessText(s string) string {
	if utf8.ValidString(s) {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(s))
}

// Conflicts returns the conflicts that err is about, for JSON: never nil.
func Conflicts(err error) []gitagency.Conflict {
	var conflicts *gitagency.ConflictsError
	if errors.As(err, &conflicts) {
		return conflicts.Conflicts
	}
	return []gitagency.Conflict{}
}

// ErrorText returns the message of an error for JSON, empty without one.
func ErrorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
