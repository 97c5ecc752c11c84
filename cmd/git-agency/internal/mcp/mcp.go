// Package mcp is a server of the Model Context Protocol on standard input and output, with tools and nothing else: one JSON
// message per line, as the stdio transport of the protocol defines it. It knows no tool.
package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
)

// Server describes a server.
type Server struct {
	Name, Version string
	Instructions  string // for the model
	Tools         []Tool
}

// Tool is a function that a model can call.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"` // JSON schema of an object

	// Waits says that a call may wait for a person: it is cancelled when the input of the server ends.
	Waits bool `json:"-"`

	// Call returns the text for the model. An error is told to the model, too.
	Call func(ctx context.Context, arguments json.RawMessage) (string, error) `json:"-"`
}

// versions are the versions of the protocol that the server speaks, the newest last. What it uses is the same in all.
var versions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}

// maxMessage bounds a message in bytes.
const maxMessage = 4 << 20

// message is a request or notification of the client.
type message struct {
	ID     json.RawMessage `json:"id"` // absent in a notification
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

type response struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   *protocolError  `json:"error,omitempty"`
}

// protocolError is an error of JSON-RPC.
type protocolError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *protocolError) Error() string { return e.Message }

// Codes of JSON-RPC.
const (
	parseError     = -32700
	invalidRequest = -32600
	unknownMethod  = -32601
	invalidParams  = -32602
)

// Serve answers the messages of a client until its input ends, and then waits for the calls of tools, which run at the same
// time, but for those that wait for a person; or until ctx ends, which cancels all of them.
func (s Server) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	c := &connection{server: s, out: out, calls: map[string]context.CancelFunc{}}
	defer c.running.Wait()
	var endWaiting context.CancelFunc
	c.connected, endWaiting = context.WithCancel(ctx)
	defer endWaiting()
	lines, ended := make(chan []byte), make(chan error, 1)
	go func() { ended <- readLines(ctx, in, lines) }()
	for {
		select {
		case line := <-lines:
			c.receive(ctx, line)
		case err := <-ended:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := c.failed(); err != nil {
			return err
		}
	}
}

// readLines passes on the lines of a stream that are not empty.
func readLines(ctx context.Context, in io.Reader, lines chan<- []byte) error {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, maxMessage)
	for scanner.Scan() {
		line := bytes.TrimSpace(scanner.Bytes())
		if len(line) == 0 {
			continue
		}
		select {
		case lines <- bytes.Clone(line):
		case <-ctx.Done():
			return nil
		}
	}
	return scanner.Err()
}

// connection is the state of one client.
type connection struct {
	server  Server
	running sync.WaitGroup

	connected context.Context // ends with the input of the client

	mu    sync.Mutex
	out   io.Writer
	err   error                         // of writing
	calls map[string]context.CancelFunc // running calls by the ids of their requests
}

// receive handles one message.
func (c *connection) receive(ctx context.Context, line []byte) {
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		c.reply(nil, nil, &protocolError{parseError, err.Error()})
		return
	}
	switch {
	case m.Method == "" && m.ID != nil: // a response, though the server asks nothing
	case m.Method == "":
		c.reply(nil, nil, &protocolError{invalidRequest, "the message has no method"})
	case m.Method == "notifications/cancelled":
		c.cancelCall(m.Params)
	case m.ID == nil: // other notifications
	case m.Method == "tools/call":
		c.callTool(ctx, m)
	default:
		result, err := c.server.answer(m)
		c.reply(m.ID, result, err)
	}
}

// answer answers a request that takes no time.
func (s Server) answer(m message) (any, error) {
	switch m.Method {
	case "initialize":
		return s.initialize(m.Params), nil
	case "ping":
		return struct{}{}, nil
	case "tools/list":
		return map[string]any{"tools": s.Tools}, nil
	}
	return nil, &protocolError{unknownMethod, fmt.Sprintf("there is no method %q", m.Method)}
}

func (s Server) initialize(params json.RawMessage) any {
	var asked struct {
		Version string `json:"protocolVersion"`
	}
	_ = json.Unmarshal(params, &asked) // without a version it gets the newest
	version := versions[len(versions)-1]
	if slices.Contains(versions, asked.Version) {
		version = asked.Version
	}
	return map[string]any{
		"protocolVersion": version,
		"capabilities":    map[string]any{"tools": struct{}{}},
		"serverInfo":      map[string]string{"name": s.Name, "version": s.Version},
		"instructions":    s.Instructions,
	}
}

// toolCall are the parameters of a call.
type toolCall struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// callTool starts the call of a tool, which replies when it has ended.
func (c *connection) callTool(ctx context.Context, m message) {
	var asked toolCall
	if err := json.Unmarshal(m.Params, &asked); err != nil {
		c.reply(m.ID, nil, &protocolError{invalidParams, err.Error()})
		return
	}
	i := slices.IndexFunc(c.server.Tools, func(t Tool) bool { return t.Name == asked.Name })
	if i < 0 {
		c.reply(m.ID, nil, &protocolError{invalidParams, fmt.Sprintf("there is no tool %q", asked.Name)})
		return
	}
	if asked.Arguments == nil {
		asked.Arguments = json.RawMessage("{}")
	}
	if c.server.Tools[i].Waits {
		ctx = c.connected
	}
	ctx, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	c.calls[string(m.ID)] = cancel
	c.mu.Unlock()
	c.running.Go(func() {
		text, err := c.server.Tools[i].Call(ctx, asked.Arguments)
		if err != nil {
			text = err.Error()
		}
		c.mu.Lock()
		delete(c.calls, string(m.ID))
		c.mu.Unlock()
		if ctx.Err() == nil { // nothing waits for the reply to a call that was cancelled
			c.reply(m.ID, map[string]any{"content": []map[string]string{{"type": "text", "text": text}}, "isError": err != nil}, nil)
		}
		cancel()
	})
}

// cancelCall cancels the call of a tool.
func (c *connection) cancelCall(params json.RawMessage) {
	var asked struct {
		ID json.RawMessage `json:"requestId"`
	}
	if json.Unmarshal(params, &asked) != nil {
		return
	}
	c.mu.Lock()
	cancel := c.calls[string(asked.ID)]
	c.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// reply writes a response.
func (c *connection) reply(id json.RawMessage, result any, err error) {
	r := response{Version: "2.0", ID: id, Result: result}
	if err != nil && !errors.As(err, &r.Error) {
		r.Error = &protocolError{invalidRequest, err.Error()}
	}
	if r.ID == nil {
		r.ID = json.RawMessage("null")
	}
	data, err := json.Marshal(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		_, err = c.out.Write(append(data, '\n'))
	}
	c.err = errors.Join(c.err, err)
}

func (c *connection) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
