package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"
)

// schemaValidator is a running process of scripts/schema, which validates JSON documents. The comment there says why it is
// a separate program.
type schemaValidator struct {
	requests *json.Encoder
	replies  *json.Decoder
	stderr   bytes.Buffer
}

// startSchemaValidator builds and starts scripts/schema, until the end of the test.
func startSchemaValidator(tb testing.TB) *schemaValidator {
	tb.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		tb.Skipf("the go command is needed to build the validator: %v", err)
	}
	program := filepath.Join(tb.TempDir(), "schema")
	build := exec.CommandContext(tb.Context(), "go", "build", "-o", program, "./scripts/schema")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("%v\n%s", err, out)
	}
	s := &schemaValidator{}
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), program) // it exits when stdin is closed
	cmd.Stderr = &s.stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait() // a failure of the program shows in a reply
	})
	s.requests, s.replies = json.NewEncoder(stdin), json.NewDecoder(stdout)
	return s
}

// validate returns the error of a document against a schema, or an empty string if the document is valid.
func (s *schemaValidator) validate(tb testing.TB, schema, document string) string {
	tb.Helper()
	var problem string
	err := s.requests.Encode(map[string]string{"schema": filepath.Join("schema", schema), "document": document})
	if err == nil {
		err = s.replies.Decode(&problem)
	}
	if err != nil {
		tb.Fatalf("%s: %v\n%s", schema, err, s.stderr.String())
	}
	return problem
}
