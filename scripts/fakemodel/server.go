// Package fakemodel is a model server for tests of real agents. It speaks the APIs of Anthropic (messages), OpenAI
// (responses and chat completions) and Gemini (streamGenerateContent) on the loopback interface, and answers with the
// steps of a script. It never connects to another server.
package fakemodel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Step is one answer of the model. Exactly one of Say, Shell, Tool, Status and Hang is set.
type Step struct {
	Say    string         `json:"say,omitempty"`    // text
	Shell  string         `json:"shell,omitempty"`  // command line for the shell tool of the agent
	Tool   string         `json:"tool,omitempty"`   // tool with this name, also behind the name of an MCP server
	Args   map[string]any `json:"args,omitempty"`   // arguments of Tool
	Status int            `json:"status,omitempty"` // HTTP status of an error
	Hang   bool           `json:"hang,omitempty"`   // send no answer until the client or the server closes the connection
}

// Request is a request for an answer to a conversation.
type Request struct {
	API    string // anthropic, responses, chat or gemini
	Script string // name of the script that answered; empty if none matched
	Step   int    // index of the step: number of answers in the history that the agent sent
	Users  []string
	Tools  []string
	Body   []byte
}

// Server is a running model server.
type Server struct {
	Addr string // 127.0.0.1:port
	URL  string // http://Addr

	// Hanging receives the name of a script whenever a request has reached a step that hangs.
	Hanging <-chan string

	http    *http.Server
	hanging chan string
	closed  chan struct{}

	mutex    sync.Mutex
	scripts  map[string][]Step
	requests []Request
	unknown  []string
}

// Start starts a server on a free port of 127.0.0.1. scripts maps names to steps. A conversation uses the script whose
// name occurs in a text of its user. The step is the number of answers in the history that the agent sends, so an agent
// that lost its session begins at the first step again.
func Start(scripts map[string][]Step) (*Server, error) {
	return Listen("127.0.0.1:0", scripts)
}

// Listen is Start on a given port of the loopback interface.
func Listen(addr string, scripts map[string][]Step) (*Server, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	if ip := listener.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() {
		return nil, fmt.Errorf("%s is not an address of the loopback interface", addr)
	}
	s := &Server{
		Addr:    listener.Addr().String(),
		URL:     "http://" + listener.Addr().String(),
		hanging: make(chan string, 64),
		closed:  make(chan struct{}),
		scripts: maps.Clone(scripts),
	}
	s.Hanging = s.hanging
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages", s.answer(anthropic))
	mux.HandleFunc("POST /v1/messages/count_tokens", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"input_tokens":10}`)
	})
	mux.HandleFunc("POST /v1/responses", s.answer(responses))
	mux.HandleFunc("POST /v1/chat/completions", s.answer(chat))
	mux.HandleFunc("POST /v1beta/models/{call}", s.answer(gemini))
	mux.HandleFunc("HEAD /{$}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		s.unknown = append(s.unknown, r.Method+" "+r.URL.String())
		http.NotFound(w, r)
	})
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: 30 * time.Second}
	go s.http.Serve(listener)
	return s, nil
}

// Close ends the server and all requests that hang.
func (s *Server) Close() error {
	close(s.closed)
	return s.http.Close()
}

// SetScript replaces the steps of a script.
func (s *Server) SetScript(name string, steps []Step) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.scripts[name] = steps
}

// Requests returns the requests so far.
func (s *Server) Requests() []Request {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return slices.Clone(s.requests)
}

// Unknown returns the requests so far that are no call of an API, as "METHOD url".
func (s *Server) Unknown() []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return slices.Clone(s.unknown)
}

// api is one API of a model.
type api struct {
	name string
	// parse reads a conversation from the body of a request: texts of the user, number of answers in it, tools.
	parse func(body []byte) (users []string, answers int, tools []string, err error)
	// say and call return the events of an answer. Agents take answers with the same id for one.
	say  func(id, text string) []event
	call func(id, tool string, args map[string]any) []event
	// fail returns the body of an error.
	fail func(status int) any
	// single converts the events to the answer to a request without streaming.
	single func([]event) any
}

// event is a server-sent event. The name is left out of the stream if it is empty.
type event struct {
	name string
	data any // a string is sent as it is, all else as JSON
}

func (s *Server) answer(a api) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		users, answers, tools, err := a.parse(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		script, step := s.next(users, answers, len(tools) > 0)
		s.mutex.Lock()
		s.requests = append(s.requests, Request{API: a.name, Script: script, Step: answers, Users: users, Tools: tools, Body: body})
		id := fmt.Sprintf("fake%d", len(s.requests))
		s.mutex.Unlock()

		var events []event
		switch {
		case step.Hang:
			s.hanging <- script
			select {
			case <-r.Context().Done():
			case <-s.closed:
			}
			return
		case step.Status != 0:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(step.Status)
			json.NewEncoder(w).Encode(a.fail(step.Status))
			return
		case step.Shell != "":
			tool, args := shellTool(tools, step.Shell)
			events = a.call(id, tool, args)
		case step.Tool != "":
			events = a.call(id, findTool(tools, step.Tool), step.Args)
		default:
			events = a.say(id, step.Say)
		}
		streams := bytes.Contains(body, []byte(`"stream":true`)) || strings.Contains(r.URL.Path, ":stream")
		if !streams {
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(a.single(events))
			return
		}
		writeEvents(w, events)
	}
}

// next returns the name of the script of a conversation, and the step to answer with. A request without tools is one
// that agents make besides the task, for a title or a choice of a model, and is answered with a word.
func (s *Server) next(users []string, answers int, hasTools bool) (string, Step) {
	if !hasTools {
		return "", Step{Say: "ok"}
	}
	text := strings.Join(users, "\n")
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for name, steps := range s.scripts {
		if !strings.Contains(text, name) {
			continue
		}
		if answers < len(steps) {
			return name, steps[answers]
		}
		return name, Step{Say: "The script has no further step."}
	}
	return "", Step{Say: "No script has a name that occurs in the task."}
}

// shellTool returns the shell tool among the tools of an agent, and its arguments for a command line.
func shellTool(tools []string, command string) (string, map[string]any) {
	for _, known := range []struct{ tool, argument string }{
		{"Bash", "command"}, {"exec_command", "cmd"}, {"shell_command", "command"}, {"run_shell_command", "command"}, {"bash", "command"},
	} {
		if slices.Contains(tools, known.tool) {
			return known.tool, map[string]any{known.argument: command, "description": "run a command"}
		}
	}
	return "no-shell-tool", nil
}

// findTool returns the first tool whose name ends in suffix: agents put the name of the MCP server before that of its
// tool, each in its own way.
func findTool(tools []string, suffix string) string {
	for _, tool := range tools {
		if server, found := strings.CutSuffix(tool, suffix); found && (server == "" || strings.ContainsAny(server[len(server)-1:], "_\x00.-")) {
			return tool
		}
	}
	return suffix
}

func writeEvents(w http.ResponseWriter, events []event) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		if e.name != "" {
			fmt.Fprintf(w, "event: %s\n", e.name)
		}
		data, isText := e.data.(string)
		if !isText {
			data = string(mustJSON(e.data))
		}
		fmt.Fprintf(w, "data: %s\n\n", data)
	}
}

func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // only values of this package are encoded
	}
	return data
}
