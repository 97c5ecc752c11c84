package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/mcp"
)

// connectSDK serves tools to the client of the protocol's own SDK.
func connectSDK(t *testing.T, server mcp.Server) *sdk.ClientSession {
	t.Helper()
	requests, toServer := io.Pipe()
	replies, toClient := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- server.Serve(context.Background(), requests, toClient) }() // until the client closes its end
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &sdk.IOTransport{Reader: replies, Writer: toServer}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(session.Close(), <-served); err != nil {
			t.Error(err)
		}
	})
	return session
}

// TestClientOfSDK checks the server with the client of the protocol's own SDK: handshake, list, calls, errors and a call
// that is cancelled.
func TestClientOfSDK(t *testing.T) {
	t.Parallel()
	waiting, ended := make(chan struct{}), make(chan struct{})
	schema := json.RawMessage(`{"type":"object","required":["text"],"properties":{"text":{"type":"string"}}}`)
	session := connectSDK(t, mcp.Server{Name: "agency", Version: "1.2", Instructions: "use it", Tools: []mcp.Tool{
		{Name: "repeat", Description: "Repeats.", InputSchema: schema, Call: func(_ context.Context, args json.RawMessage) (string, error) {
			var asked struct{ Text string }
			err := json.Unmarshal(args, &asked)
			return asked.Text, err
		}},
		{Name: "fail", InputSchema: json.RawMessage(`{"type":"object"}`), Call: func(context.Context, json.RawMessage) (string, error) { return "", errors.New("no") }},
		{Name: "wait", InputSchema: json.RawMessage(`{"type":"object"}`), Call: func(ctx context.Context, _ json.RawMessage) (string, error) {
			close(waiting)
			<-ctx.Done()
			close(ended)
			return "", ctx.Err()
		}},
	}})
	ctx := t.Context()
	if got := session.InitializeResult(); got.ServerInfo.Name != "agency" || got.ServerInfo.Version != "1.2" || got.Instructions != "use it" || got.Capabilities.Tools == nil {
		t.Errorf("initialize: %+v", got)
	}
	if err := session.Ping(ctx, nil); err != nil {
		t.Error(err)
	}
	listed, err := session.ListTools(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range listed.Tools {
		names = append(names, tool.Name)
	}
	if !slices.Equal(names, []string{"repeat", "fail", "wait"}) || listed.Tools[0].Description != "Repeats." {
		t.Errorf("tools: %q", names)
	}
	for _, c := range []struct {
		tool, text, want string
		isError          bool
	}{
		{"repeat", "a \"b\"\n\u2028\x00c", "a \"b\"\n\u2028\x00c", false},
		{"fail", "", "no", true},
	} {
		res, err := session.CallTool(ctx, &sdk.CallToolParams{Name: c.tool, Arguments: map[string]any{"text": c.text}})
		if err != nil || res.IsError != c.isError || len(res.Content) != 1 {
			t.Errorf("%s: %+v, %v", c.tool, res, err)
			continue
		}
		if text, ok := res.Content[0].(*sdk.TextContent); !ok || text.Text != c.want {
			t.Errorf("%s: %+v", c.tool, res.Content[0])
		}
	}
	if res, err := session.CallTool(ctx, &sdk.CallToolParams{Name: "none"}); err == nil {
		t.Errorf("an unknown tool: %+v", res)
	}
	calling, cancel := context.WithCancel(ctx)
	go func() {
		<-waiting
		cancel()
	}()
	if _, err := session.CallTool(calling, &sdk.CallToolParams{Name: "wait"}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled call: %v", err)
	}
	<-ended
	if err := session.Ping(ctx, nil); err != nil {
		t.Errorf("after a cancelled call: %v", err)
	}
}
