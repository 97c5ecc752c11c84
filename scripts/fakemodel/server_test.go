package fakemodel

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// post sends a request and returns the status and the body of the answer.
func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func start(t *testing.T, steps ...Step) *Server {
	t.Helper()
	s, err := Start(map[string][]Step{"Do it": steps})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// The step follows from the history in the request, in the form of each API.
func TestServerAnswersWithTheStepOfTheHistory(t *testing.T) {
	t.Parallel()
	s := start(t, Step{Shell: "ls"}, Step{Tool: "ask", Args: map[string]any{"question": "Why?"}}, Step{Say: "Done."})
	for _, c := range []struct {
		path, format string // with the history as %
		histories    []string
		want         []string
	}{
		{
			"/v1/messages?beta=true", `{"stream":true,"messages":[{"role":"user","content":[{"type":"text","text":"Do it"}]}%],"tools":[{"name":"Bash"},{"name":"mcp__agency__ask"}]}`,
			[]string{"", `,{"role":"assistant","content":[]}`, `,{"role":"assistant","content":"a"},{"role":"assistant","content":"b"}`},
			[]string{`"name":"Bash"`, `"name":"mcp__agency__ask"`, `"text":"Done."`},
		},
		{
			"/v1/responses", `{"stream":true,"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Do it"}]}%],"tools":[{"type":"function","name":"exec_command"},{"type":"namespace","name":"mcp__agency","tools":[{"name":"ask"}]}]}`,
			[]string{"", `,{"type":"function_call"}`, `,{"type":"function_call"},{"type":"message","role":"assistant"}`},
			[]string{`"name":"exec_command"`, `"namespace":"mcp__agency"`, `"text":"Done."`},
		},
		{
			"/v1/chat/completions", `{"stream":true,"messages":[{"role":"user","content":"Do it"}%],"tools":[{"function":{"name":"bash"}},{"function":{"name":"agency_ask"}}]}`,
			[]string{"", `,{"role":"assistant"}`, `,{"role":"assistant"},{"role":"tool","content":"x"},{"role":"assistant"}`},
			[]string{`"name":"bash"`, `"name":"agency_ask"`, `"content":"Done."`},
		},
		{
			"/v1beta/models/any:streamGenerateContent?alt=sse", `{"contents":[{"role":"user","parts":[{"text":"Do it"}]}%],"tools":[{"functionDeclarations":[{"name":"run_shell_command"},{"name":"mcp_agency_ask"}]}]}`,
			[]string{"", `,{"role":"model","parts":[]}`, `,{"role":"model","parts":[]},{"role":"model","parts":[]}`},
			[]string{`"name":"run_shell_command"`, `"name":"mcp_agency_ask"`, `"text":"Done."`},
		},
	} {
		for i, history := range c.histories {
			status, text := post(t, s.URL+c.path, strings.Replace(c.format, "%", history, 1))
			if status != http.StatusOK || !strings.Contains(text, c.want[i]) {
				t.Errorf("%s, step %d: %d %s", c.path, i, status, text)
			}
		}
	}
	if got := s.Requests(); len(got) != 12 || got[11].Step != 2 || got[11].Script != "Do it" {
		t.Errorf("%d requests, the last %+v", len(got), got[len(got)-1])
	}
}

func TestServerFailsAndHangs(t *testing.T) {
	t.Parallel()
	s := start(t, Step{Status: 429}, Step{Hang: true})
	const body = `{"stream":true,"messages":[{"role":"user","content":"Do it"}%],"tools":[{"name":"Bash"}]}`
	if status, _ := post(t, s.URL+"/v1/messages", strings.Replace(body, "%", "", 1)); status != 429 {
		t.Errorf("status %d", status)
	}
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/v1/messages", strings.NewReader(strings.Replace(body, "%", `,{"role":"assistant"}`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		ended <- err
	}()
	select {
	case <-s.Hanging:
	case <-time.After(time.Minute):
		t.Fatal("the request does not hang")
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("the request that hangs was answered")
	}
}

func TestListenRefusesOtherInterfaces(t *testing.T) {
	t.Parallel()
	if s, err := Listen("0.0.0.0:0", nil); err == nil {
		_ = s.Close()
		t.Error("it listens on all interfaces")
	}
}
