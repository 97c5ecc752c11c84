package runner

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// mergeJSON changes an object in a file of JSON, which may have comments and trailing commas as some agents permit. The
// result has neither.
func mergeJSON(name string, existing []byte, change func(map[string]any)) ([]byte, error) {
	config := map[string]any{}
	if text := plainJSON(existing); len(bytes.TrimSpace(text)) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber() // large numbers stay as they are
		if err := decoder.Decode(&config); err != nil {
			return nil, fmt.Errorf("parse %s: %w", name, err)
		}
	}
	if config == nil { // null
		config = map[string]any{}
	}
	change(config)
	text, err := json.MarshalIndent(config, "", "  ")
	return append(text, '\n'), err
}

// objectAt returns the object at a key, created if there is none.
func objectAt(config map[string]any, key string) map[string]any {
	inner, ok := config[key].(map[string]any)
	if !ok {
		inner = map[string]any{}
		config[key] = inner
	}
	return inner
}

// plainJSON replaces comments and trailing commas outside of strings by spaces.
func plainJSON(text []byte) []byte {
	plain := bytes.Clone(text)
	comma := -1 // of which only space and comments follow so far
	for i := 0; i < len(plain); i++ {
		switch c := plain[i]; {
		case c == '"':
			comma = -1
			for i++; i < len(plain) && plain[i] != '"'; i++ {
				if plain[i] == '\\' {
					i++
				}
			}
		case bytes.HasPrefix(plain[i:], []byte("//")):
			i = blank(plain, i, "\n")
		case bytes.HasPrefix(plain[i:], []byte("/*")):
			i = blank(plain, i, "*/")
		case c == ',':
			comma = i
		case c == '}' || c == ']':
			if comma >= 0 {
				plain[comma] = ' '
			}
			comma = -1
		case c != ' ' && c != '\t' && c != '\n' && c != '\r':
			comma = -1
		}
	}
	return plain
}

// blank overwrites a comment from start to its end, and returns the index of its last byte.
func blank(text []byte, start int, end string) int {
	stop := len(text)
	if n := bytes.Index(text[start+2:], []byte(end)); n >= 0 {
		stop = start + 2 + n + len(end)
	}
	for i := start; i < stop; i++ {
		if text[i] != '\n' {
			text[i] = ' '
		}
	}
	return stop - 1
}

func mustJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // only strings, and maps and slices of them, are passed
	}
	return text
}
