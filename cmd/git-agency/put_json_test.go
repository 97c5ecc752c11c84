package main

import (
	"encoding/json"
	"io/fs"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/sources"
)

const putSchema = "put.json"

// putInputs are inputs of put --json with the text that the error for each must contain; empty if the input is valid.
var putInputs = []struct{ text, problem string }{
	{`[]`, ""},
	{` [ {"path":"a","content":""} ] ` + "\n", ""},
	{`[{"path":"a","content":"é\u00e9\ud83d\ude00 \\ud800","mode":"0755"},{"content_base64":"AP8=","path":"b","mode":"600"}]`, ""},
	{``, "array"},
	{`{}`, "array"},
	{` {"path":"a","content":""}`, "wrap the object in [ ]"},
	{`null`, "array"},
	{`"x"`, "array"},
	{`[`, "unexpected end"},
	{`[1]`, "item 1"},
	{`[{"path":"a","content":""},null]`, "item 2"},
	{`[{"path":"a","content":""} {"path":"b","content":""}]`, "item 2"},
	{`[{"path":"a","content":""},]`, "item 2"},
	{`[{"path":"a","content":""}]x`, "after the array"},
	{`[{"path":"a","content":""}][]`, "after the array"},
	{`[{"content":""}]`, "path"},
	{`[{"path":"a"}]`, "content_base64"},
	{`[{"path":"a","content":"x","content_base64":""}]`, "exclude"},
	{`[{"path":"a","content_base64":"?"}]`, "content_base64"},
	{`[{"path":"a","content_base64":"AP9="}]`, "content_base64"},
	{`[{"path":"a","content":7}]`, "content"},
	{`[{"path":"a","content":null}]`, "content"},
	{`[{"path":["a"],"content":""}]`, "path"},
	{`[{"path":"a","content":"","contents":""}]`, "contents"},
	{`[{"Path":"a","content":""}]`, "Path"},
	{`[{"path":"a","path":"b","content":""}]`, "twice"},
	{`[{"path":"a","content":"","mode":"755x"}]`, "mode"},
	{`[{"path":"a","content":"","mode":755}]`, "mode"},
	{`[{"path":"a","content":"","mode":"4755"}]`, "0777"},
	{`[{"path":"a","content":"","mode":"01755"}]`, "0777"},
	{`[{"path":"a","content":"","mode":"0000"}]`, "0777"},
	{`[{"path":"a","content":"","mode":"-644"}]`, "mode"},
	{`[{"path":"a","content":"","mode":""}]`, "mode"},
	{"[{\"path\":\"a\",\"content\":\"\xff\"}]", "UTF-8"},
	{`[{"path":"a","content":"\ud800"}]`, "unpaired surrogate"},
	{`[{"path":"a","content":"\ud800\u0041"}]`, "unpaired surrogate"},
	{`[{"path":"a","content":"x\udc00"}]`, "unpaired surrogate"},
	{"[{\"path\":\"a\",\"content\":\"\"},{\"path\":\"b\xffc\",\"content\":\"\"}]", `item 2: path confinement: "b\xffc" is not valid UTF-8`},
	{"[{\"content\":\"\xff\",\"path\":\"\xc3\\ud83d\\ude00\"}]", `item 1: path confinement: "\xc3😀" is not valid UTF-8`},
	{`[{"path":"\\\ud83d\ude00\ud800","content":""}]`, `item 1: path confinement: "\\😀\xed\xa0\x80" is not valid UTF-8`},
	{"[{\"path\":\"\xff\",\"content\":\"\"}", "UTF-8"},
}

func TestParseJSONFiles(t *testing.T) {
	t.Parallel()
	for _, c := range putInputs {
		files, err := sources.ParseJSON([]byte(c.text))
		switch {
		case c.problem == "" && err != nil:
			t.Errorf("%s: %v", c.text, err)
		case c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)):
			t.Errorf("%s: %v, %v", c.text, files, err)
		}
	}
	files, err := sources.ParseJSON([]byte(putInputs[2].text))
	if err != nil {
		t.Fatal(err)
	}
	if a := files[0]; a.Path != "a" || string(a.Content) != `éé😀 \ud800` || a.Mode != 0o755 {
		t.Errorf("%+v", a)
	}
	if b := files[1]; b.Path != "b" || string(b.Content) != "\x00\xff" || b.Mode != fs.FileMode(0o600) {
		t.Errorf("%+v", b)
	}
}

// TestParseJSONFilesMatchesSchema checks that parser and schema accept the same inputs, except for errors that a JSON schema
// cannot express.
func TestParseJSONFilesMatchesSchema(t *testing.T) {
	t.Parallel()
	validator := startSchemaValidator(t)
	for _, c := range putInputs {
		var items []json.RawMessage
		valid := json.Unmarshal([]byte(c.text), &items) == nil && items != nil
		for _, item := range items {
			valid = valid && validator.validate(t, putSchema, string(item)) == ""
		}
		inexpressible := strings.Contains("after the array twice content_base64 unpaired surrogate UTF-8", c.problem) || strings.Contains(c.problem, "confinement") || strings.Contains(c.text, "0000")
		if valid != (c.problem == "") && !(valid && inexpressible) {
			t.Errorf("%s: valid by the schema: %v", c.text, valid)
		}
	}
}

// FuzzPutJSON checks that every input the parser accepts is valid by the schema and is read unchanged.
func FuzzPutJSON(f *testing.F) {
	validator := startSchemaValidator(f)
	for _, c := range putInputs {
		f.Add(c.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		files, err := sources.ParseJSON([]byte(text))
		if err != nil {
			return
		}
		var items []json.RawMessage
		if err := json.Unmarshal([]byte(text), &items); err != nil || len(items) != len(files) {
			t.Fatalf("%q: %v", text, err)
		}
		for i, item := range items {
			if wrong := validator.validate(t, putSchema, string(item)); wrong != "" {
				t.Errorf("%q: %s", text, wrong)
			}
			var object map[string]any
			if err := json.Unmarshal(item, &object); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			if content, plain := object["content"]; object["path"] != files[i].Path || plain && content != string(files[i].Content) {
				t.Errorf("%q was read as %+v", text, files[i])
			}
		}
	})
}
