package format

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// The output is that of the standard library, byte for byte.
func TestEncodeIndentedEqualsStandardLibrary(t *testing.T) {
	t.Parallel()
	type record struct {
		Name  string          `json:"name"`
		Raw   json.RawMessage `json:"raw,omitempty"`
		Items []any           `json:"items"`
		More  map[string]any  `json:"more,omitempty"`
	}
	some := record{
		Name: "quote \" backslash \\ both \\\" braces {[,:]} <&> \u2028 \x7f é \xff\n", Raw: json.RawMessage(` { "a" : [ ] , "b" : "c, d" } `),
		Items: []any{1, -2.5e30, true, nil, "", "\\", []any{}, map[string]any{}, []any{[]any{map[string]any{"x": []any{}}}}},
		More:  map[string]any{"a:b": "c", `"`: `"`},
	}
	list := func(n int) []record {
		all := make([]record, n)
		for i := range all {
			all[i] = some
			all[i].Name += strings.Repeat("x", i)
		}
		return all
	}
	for _, v := range []any{
		nil, 7, "text", true,
		[]any{},
		map[string]any{},
		[]record(nil),
		record{},
		some, &some, list(1), list(minParallel - 1), list(minParallel), list(1000),
		bytes.Repeat([]byte("x"), minParallel), make([]any, 2*minParallel), make([][]int, minParallel),
		[100]int{},
		map[string]any{"list": list(minParallel)},
	} {
		var want bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if err := enc.Encode(v); err != nil {
			t.Fatal(err)
		}
		got, err := encodeIndented(v)
		if err != nil || !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%T: got %.2000s and %v, want %.2000s", v, got, err, want.Bytes())
		}
	}
	if _, err := encodeIndented(append(make([]any, minParallel), func() {})); err == nil {
		t.Error("no error for a list with an element that cannot be encoded")
	}
	if _, err := encodeIndented(func() {}); err == nil {
		t.Error("no error for a value that cannot be encoded")
	}
}
