package fakemodel

import (
	"encoding/json"
	"strings"
)

// responses is the responses API of OpenAI.
var responses = api{
	name: "responses",
	parse: func(body []byte) (users []string, answers int, tools []string, err error) {
		var request struct {
			Input []struct {
				Type, Role string
				Content    json.RawMessage
			}
			Tools []struct {
				Type, Name string
				Tools      []struct{ Name string } // of a namespace
			}
		}
		if err := json.Unmarshal(body, &request); err != nil {
			return nil, 0, nil, err
		}
		for _, item := range request.Input {
			switch {
			case item.Type == "function_call" || item.Role == "assistant":
				answers++
			case item.Role == "user":
				users = append(users, contentTexts(item.Content)...)
			}
		}
		for _, t := range request.Tools {
			if t.Type != "namespace" {
				tools = append(tools, t.Name)
			}
			for _, inner := range t.Tools {
				tools = append(tools, t.Name+namespaceMark+inner.Name)
			}
		}
		return users, answers, tools, nil
	},
	say: func(id, text string) []event {
		return response(id, object{
			"type": "message", "role": "assistant", "id": "msg_" + id,
			"content": []object{{"type": "output_text", "text": text}},
		})
	},
	call: func(id, tool string, args map[string]any) []event {
		item := object{"type": "function_call", "id": "fc_" + id, "call_id": "call_" + id, "name": tool, "arguments": string(mustJSON(args))}
		if space, name, ok := strings.Cut(tool, namespaceMark); ok {
			item["namespace"], item["name"] = space, name
		}
		return response(id, item)
	},
	fail:   openAIError,
	single: func(events []event) any { return events[len(events)-1].data },
}

// namespaceMark stands between a namespace and a tool of it. No name contains it.
const namespaceMark = "\x00"

func response(id string, item object) []event {
	usage := object{
		"input_tokens": 10, "input_tokens_details": object{"cached_tokens": 0}, "output_tokens": 5,
		"output_tokens_details": object{"reasoning_tokens": 0}, "total_tokens": 15,
	}
	return []event{
		{"response.created", object{"type": "response.created", "response": object{"id": "resp_" + id}}},
		{"response.output_item.done", object{"type": "response.output_item.done", "output_index": 0, "item": item}},
		{"response.completed", object{"type": "response.completed", "response": object{"id": "resp_" + id, "usage": usage, "output": []any{item}}}},
	}
}

// chat is the chat completions API of OpenAI.
var chat = api{
	name: "chat",
	parse: func(body []byte) (users []string, answers int, tools []string, err error) {
		var request struct {
			Messages []struct {
				Role    string
				Content json.RawMessage
			}
			Tools []struct{ Function struct{ Name string } }
		}
		if err := json.Unmarshal(body, &request); err != nil {
			return nil, 0, nil, err
		}
		for _, m := range request.Messages {
			switch m.Role {
			case "assistant":
				answers++
			case "user":
				users = append(users, contentTexts(m.Content)...)
			}
		}
		for _, t := range request.Tools {
			tools = append(tools, t.Function.Name)
		}
		return users, answers, tools, nil
	},
	say: func(id, text string) []event { return completion(id, object{"content": text}, "stop") },
	call: func(id, tool string, args map[string]any) []event {
		call := object{"index": 0, "id": "call_" + id, "type": "function", "function": object{"name": tool, "arguments": string(mustJSON(args))}}
		return completion(id, object{"tool_calls": []object{call}}, "tool_calls")
	},
	fail: openAIError,
	single: func([]event) any {
		return object{"id": "chatcmpl-fake", "object": "chat.completion", "model": "fake", "choices": []object{
			{"index": 0, "message": object{"role": "assistant", "content": "ok"}, "finish_reason": "stop"},
		}}
	},
}

func completion(id string, delta object, finish string) []event {
	delta["role"] = "assistant"
	chunk := func(delta object, finish any) object {
		return object{
			"id": "chatcmpl-" + id, "object": "chat.completion.chunk", "created": 1, "model": "fake",
			"choices": []object{{"index": 0, "delta": delta, "finish_reason": finish}},
		}
	}
	last := chunk(object{}, finish)
	last["usage"] = object{"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
	return []event{{"", chunk(delta, nil)}, {"", last}, {"", "[DONE]"}}
}

func openAIError(status int) any {
	return object{"error": object{"type": errorType(status), "code": "fake", "message": "scripted error"}}
}
