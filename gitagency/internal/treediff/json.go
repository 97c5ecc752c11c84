package treediff

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// What a difference is in JSON. There are no bytes in JSON, only text: what is not UTF-8 has U+FFFD in the places
// where it is not, and stands beside it once more, in base64.
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

// MarshalJSON has all three lists, also those with nothing in them.
func (d Diff) MarshalJSON() ([]byte, error) {
	return marshal(jsonDiff{each(d.Added, jsonOfFile), each(d.Removed, jsonOfFile), each(d.Changed, jsonOfFile)})
}

// MarshalJSON has the same fields for every file, besides those that only some kinds need.
func (f File) MarshalJSON() ([]byte, error) { return marshal(jsonOfFile(f)) }

// MarshalJSON is a hunk as in a file.
func (h Hunk) MarshalJSON() ([]byte, error) { return marshal(jsonOfHunk(h)) }

func jsonOfFile(f File) jsonFile {
	j := jsonFile{
		Path: f.Path, PathBytes: asBytes(f.Path), OldPath: f.OldPath, OldPathBytes: asBytes(f.OldPath),
		Before: f.Before, After: f.After, OldMode: f.OldMode, NewMode: f.NewMode,
		Binary: f.IsBinary(), Insertions: f.Insertions, Deletions: f.Deletions, Hunks: each(f.AllHunks(), jsonOfHunk),
	}
	if j.Binary {
		j.OldSize, j.NewSize = &f.OldSize, &f.NewSize
	}
	return j
}

func jsonOfHunk(h Hunk) jsonHunk {
	return jsonHunk{h.OldStart, h.OldLines, h.NewStart, h.NewLines, h.Section, each(h.Lines, jsonOfLine)}
}

func jsonOfLine(l Line) jsonLine {
	j := jsonLine{Op: string(rune(l.Op)), Text: l.Text, Bytes: asBytes(l.Text), NoNewline: l.NoNewline}
	for _, s := range l.Spans {
		j.Spans = append(j.Spans, jsonSpan{s.Text, asBytes(s.Text), s.Changed})
	}
	return j
}

// each is never nil, which would not be a list in JSON.
func each[A, B any](all []A, one func(A) B) []B {
	made := make([]B, len(all))
	for i, a := range all {
		made[i] = one(a)
	}
	return made
}

// asBytes is what JSON cannot hold as text; nil when it can.
func asBytes(text string) []byte {
	if utf8.ValidString(text) {
		return nil
	}
	return []byte(text)
}

// marshal leaves <, > and & alone, of which code is full; whoever wants them escaped still can.
func marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return out.Bytes(), err
}
