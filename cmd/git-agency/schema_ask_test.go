package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"
)

// schemas is a program that knows whether JSON is what a schema says; see there why it is one of its own.
type schemas struct {
	questions *json.Encoder
	answers   *json.Decoder
	stderr    bytes.Buffer
}

func askSchemas(tb testing.TB) *schemas {
	tb.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		tb.Skipf("there is no go to read schemas with: %v", err)
	}
	program := filepath.Join(tb.TempDir(), "schema")
	build := exec.CommandContext(tb.Context(), "go", "build", "-o", program, "./scripts/schema")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("%v\n%s", err, out)
	}
	s := &schemas{}
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), program) // it ends when nobody asks any more
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
		_ = cmd.Wait() // what was wrong with it an answer has said
	})
	s.questions, s.answers = json.NewEncoder(stdin), json.NewDecoder(stdout)
	return s
}

// wrong is what is wrong with a document; empty when a schema allows it.
func (s *schemas) wrong(tb testing.TB, schema, document string) string {
	tb.Helper()
	var said string
	err := s.questions.Encode(map[string]string{"schema": filepath.Join("schema", schema), "document": document})
	if err == nil {
		err = s.answers.Decode(&said)
	}
	if err != nil {
		tb.Fatalf("%s: %v\n%s", schema, err, s.stderr.String())
	}
	return said
}
