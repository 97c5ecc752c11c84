// Command schema validates JSON documents against JSON schemas. The tests start it once and send it one request after
// the other, because loading the schema library takes longer than running git-agency.
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

// request is one line of standard input. The reply is one line, a JSON string: the validation error, or "" if valid.
type request struct {
	Schema   string `json:"schema"` // path of a schema file
	Document string `json:"document"`
}

func main() {
	if err := validateAll(json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)); err != nil {
		fmt.Fprintln(os.Stderr, "schema:", err)
		os.Exit(1)
	}
}

func validateAll(questions *json.Decoder, answers *json.Encoder) error {
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	for {
		var q request
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
