// Command schema says whether JSON is what a schema describes. Tests ask it, one question after the other: the library that
// does the work takes longer to get ready than git-agency takes to run, and in the tests that is one program.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// question is a line of standard input; the answer is a line with what is wrong, or an empty string, as JSON.
type question struct {
	Schema   string `json:"schema"` // a file
	Document string `json:"document"`
}

func main() {
	if err := answer(json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)); err != nil {
		fmt.Fprintln(os.Stderr, "schema:", err)
		os.Exit(1)
	}
}

func answer(questions *json.Decoder, answers *json.Encoder) error {
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	for {
		var q question
		err := questions.Decode(&q)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		schema, err := compiler.Compile(q.Schema)
		if err != nil {
			return err
		}
		said := ""
		document, err := jsonschema.UnmarshalJSON(strings.NewReader(q.Document))
		if err == nil {
			err = schema.Validate(document)
		}
		if err != nil {
			said = err.Error()
		}
		if err := answers.Encode(said); err != nil {
			return err
		}
	}
}
