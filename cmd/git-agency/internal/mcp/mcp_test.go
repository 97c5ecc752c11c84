package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// testServer has a tool that repeats its arguments, one that fails, and one that ends when its call is cancelled.
func testServer(ended chan<- struct{}) Server {
	schema := json.RawMessage(`{"type":"object"}`)
	return Server{Name: "test", Version: "1", Instructions: "use it", Tools: []Tool{
		{Name: "repeat", InputSchema: schema, Call: func(_ context.Context, args json.RawMessage) (string, error) { return string(args), nil }},
		{Name: "fail", InputSchema: schema, Call: func(context.Context, json.RawMessage) (string, error) { return "", errors.New("no") }},
		{Name: "wait", InputSchema: schema, Call: func(ctx context.Context, _ json.RawMessage) (string, error) {
			<-ctx.Done()
			close(ended)
			return "", ctx.Err()
		}},
	}}
}

func TestServeAnswersMessages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ ask, want string }{
		{
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`,
			`{"jsonrpc":"2.0","id":1,"result":{"capabilities":{"tools":{}},"instructions":"use it","protocolVersion":"2025-03-26","serverInfo":{"name":"test","version":"1"}}}`,
		},
		{`{"id":"a","method":"initialize"}`, `{"jsonrpc":"2.0","id":"a","result":{"capabilities":{"tools":{}},"instructions":"use it","protocolVersion":"2025-11-25","serverInfo":{"name":"test","version":"1"}}}`},
		{`{"jsonrpc":"2.0","method":"notifications/initialized"}`, ""},
		{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}`, ""},
		{`{"jsonrpc":"2.0","id":2,"result":{}}`, ""},
		{`{"id":3,"method":"ping"}`, `{"jsonrpc":"2.0","id":3,"result":{}}`},
		{`{"id":4,"method":"resources/list"}`, `{"jsonrpc":"2.0","id":4,"error":{"code":-32601,"message":"there is no method \"resources/list\""}}`},
		{`{"id":5,"method":"tools/call","params":{"name":"repeat","arguments":{"a":1}}}`, `{"jsonrpc":"2.0","id":5,"result":{"content":[{"text":"{\"a\":1}","type":"text"}],"isError":false}}`},
		{`{"id":6,"method":"tools/call","params":{"name":"repeat"}}`, `{"jsonrpc":"2.0","id":6,"result":{"content":[{"text":"{}","type":"text"}],"isError":false}}`},
		{`{"id":7,"method":"tools/call","params":{"name":"fail"}}`, `{"jsonrpc":"2.0","id":7,"result":{"content":[{"text":"no","type":"text"}],"isError":true}}`},
		{`{"id":8,"method":"tools/call","params":{"name":"none"}}`, `{"jsonrpc":"2.0","id":8,"error":{"code":-32602,"message":"there is no tool \"none\""}}`},
		{`{"id":9,"method":"tools/call","params":[]}`, `{"jsonrpc":"2.0","id":9,"error":{"code":-32602,"message":"json: cannot unmarshal array into Go value of type mcp.toolCall"}}`},
		{`{}`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"the message has no method"}}`},
		{`{`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"unexpected end of JSON input"}}`},
	} {
		var out strings.Builder
		if err := testServer(nil).Serve(t.Context(), strings.NewReader("\n"+c.ask+"\n"), &out); err != nil {
			t.Errorf("%s: %v", c.ask, err)
		}
		if got := strings.TrimSpace(out.String()); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.ask, got, c.want)
		}
	}
	var out strings.Builder
	if err := testServer(nil).Serve(t.Context(), strings.NewReader(`{"id":1,"method":"tools/list"}`), &out); err != nil || strings.Count(out.String(), `"inputSchema":{"type":"object"}`) != 3 {
		t.Errorf("got %s, %v", out.String(), err)
	}
}

// TestServeCancelsCall checks that a call which waits does not keep others waiting, and ends when the client cancels it.
func TestServeCancelsCall(t *testing.T) {
	t.Parallel()
	in, client := io.Pipe()
	answers, out := io.Pipe()
	ended, served := make(chan struct{}), make(chan error, 1)
	go func() { served <- testServer(ended).Serve(t.Context(), in, out) }()
	send := func(line string) {
		if _, err := io.WriteString(client, line+"\n"); err != nil {
			t.Error(err)
		}
	}
	send(`{"id":1,"method":"tools/call","params":{"name":"wait"}}`)
	send(`{"id":2,"method":"ping"}`)
	if line, err := bufio.NewReader(answers).ReadString('\n'); err != nil || line != `{"jsonrpc":"2.0","id":2,"result":{}}`+"\n" {
		t.Errorf("got %q, %v", line, err)
	}
	send(`{"method":"notifications/cancelled","params":{"requestId":1}}`)
	<-ended
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// TestServeEndsWithInput checks that a call which waits for a person ends with the input, and that others are answered.
func TestServeEndsWithInput(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan struct{})
	server := testServer(ended)
	server.Tools[2].Waits = true
	var out strings.Builder
	err := server.Serve(ctx, strings.NewReader(`{"id":1,"method":"tools/call","params":{"name":"wait"}}`+"\n"+`{"id":2,"method":"tools/call","params":{"name":"repeat"}}`+"\n"), &out)
	if err != nil || ctx.Err() != nil {
		t.Errorf("got %v", err)
	}
	if got, want := out.String(), `{"jsonrpc":"2.0","id":2,"result":{"content":[{"text":"{}","type":"text"}],"isError":false}}`+"\n"; got != want {
		t.Errorf("got %s", got)
	}
	<-ended
}

func TestServeEndsWithContext(t *testing.T) {
	t.Parallel()
	in, client := io.Pipe()
	defer client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended, served := make(chan struct{}), make(chan error, 1)
	go func() { served <- testServer(ended).Serve(ctx, in, io.Discard) }()
	if _, err := io.WriteString(client, `{"id":1,"method":"tools/call","params":{"name":"wait"}}`+"\n"); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-served; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestServeRefusesLongMessage(t *testing.T) {
	t.Parallel()
	err := testServer(nil).Serve(t.Context(), strings.NewReader(`{"id":1,"method":"`+strings.Repeat("x", maxMessage)+`"}`), io.Discard)
	if !errors.Is(err, bufio.ErrTooLong) {
		t.Errorf("got %v", err)
	}
}
