package treediff

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// The JSON form of a diff. JSON strings are Unicode, so text that is not valid UTF-8 has U+FFFD in place of invalid
// bytes, and is repeated in base64 in a second field.
type (
	jsonDiff struct {
		Added   []jsonFile `json:"added"`
		Removed []jsonFile `json:"removed"`
		Changed []jsonFile `json:"changed"`
	}
	jsonFile struct {
		Path         string     `json:"path"`
		PathBytes    []byte     `json:"path_base64,omitempty"`
		OldPath      string     `json:"old_path"`
		OldPathBytes []byte     `json:"old_path_base64,omitempty"`
		Before       string     `json:"before"`
		After        string     `json:"after"`
		OldMode      string     `json:"old_mode"`
		NewMode      string     `json:"new_mode"`
		Binary       bool       `json:"binary"`
		OldSize      *int64     `json:"old_size,omitempty"`
		NewSize      *int64     `json:"new_size,omitempty"`
		Insertions   int        `json:"insertions"`
		Deletions    int        `json:"deletions"`
		Hunks        []jsonHunk `json:"hunks"`
	}
	jsonHunk struct {
		OldStart int        `json:"old_start"`
		OldLines int        `json:"old_lines"`
		NewStart int        `json:"new_start"`
		NewLines int        `json:"new_lines"`
		Section  string     `json:"section"`
		Lines    []jsonLine `json:"lines"`
	}
	jsonLine struct {
		Op        string     `json:"op"`
		Text      string     `json:"text"`
		Bytes     []byte     `json:"base64,omitempty"`
		NoNewline bool       `json:"no_newline,omitempty"`
		Spans     []jsonSpan `json:"spans,omitempty"`
	}
	jsonSpan struct {
		Text    string `json:"text"`
		Bytes   []byte `json:"base64,omitempty"`
		Changed bool   `json:"changed"`
	}
)

// MarshalJSON writes all three lists, including empty ones.
func (d Diff) MarshalJSON() ([]byte, error) {
	return marshalUnescaped(jsonDiff{mapSlice(d.Added, toJSONFile), mapSlice(d.Removed, toJSONFile), mapSlice(d.Changed, toJSONFile)})
}

// MarshalJSON writes the same fields for every file, and the sizes for binary files only.
func (f File) MarshalJSON() ([]byte, error) { return marshalUnescaped(toJSONFile(f)) }

// MarshalJSON writes a hunk in the same form as inside of a file.
func (h Hunk) MarshalJSON() ([]byte, error) { return marshalUnescaped(toJSONHunk(h)) }

func toJSONFile(f File) jsonFile {
	j := jsonFile{
		Path: f.Path, PathBytes: nonUTF8Bytes(f.Path), OldPath: f.OldPath, OldPathBytes: nonUTF8Bytes(f.OldPath),
		Before: f.OldID, After: f.NewID, OldMode: f.OldMode, NewMode: f.NewMode,
		Binary: f.IsBinary(), Insertions: f.Insertions, Deletions: f.Deletions, Hunks: mapSlice(f.AllHunks(), toJSONHunk),
	}
	if j.Binary {
		j.OldSize, j.NewSize = &f.OldSize, &f.NewSize
	}
	return j
}

func toJSONHunk(h Hunk) jsonHunk {
	return jsonHunk{h.OldStart, h.OldLines, h.NewStart, h.NewLines, h.Section, mapSlice(h.Lines, toJSONLine)}
}

func toJSONLine(l Line) jsonLine {
	j := jsonLine{Op: string(rune(l.Op)), Text: l.Text, Bytes: nonUTF8Bytes(l.Text), NoNewline: l.NoNewline}
	for _, s := range l.Spans {
		j.Spans = append(j.Spans, jsonSpan{s.Text, nonUTF8Bytes(s.Text), s.Changed})
	}
	return j
}

// mapSlice maps a slice. The result is never nil, which JSON would encode as null.
func mapSlice[A, B any](all []A, one func(A) B) []B {
	made := make([]B, len(all))
	for i, a := range all {
		made[i] = one(a)
	}
	return made
}

// nonUTF8Bytes returns the bytes of text that is not valid UTF-8, and nil for valid text.
func nonUTF8Bytes(text string) []byte {
	if utf8.ValidString(text) {
		return nil
	}
	return []byte(text)
}

// marshalUnescaped encodes without escaping <, > and &, which are frequent in code. An outer encoder may still escape
// them.
func marshalUnescaped(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return out.Bytes(), err
}
