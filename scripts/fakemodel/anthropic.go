package fakemodel

import "encoding/json"

type object = map[string]any

// anthropic is the messages API of Anthropic.
var anthropic = api{
	name: "anthropic",
	parse: func(body []byte) (users []string, answers int, tools []string, err error) {
		var request struct {
			Messages []struct {
				Role    string
				Content json.RawMessage
			}
			Tools []struct{ Name string }
		}
		if err := json.Unmarshal(body, &request); err != nil {
			return nil, 0, nil, err
		}
		for _, m := range request.Messages {
			if m.Role == "assistant" {
				answers++
			} else {
				users = append(users, contentTexts(m.Content)...)
			}
		}
		for _, t := range request.Tools {
			tools = append(tools, t.Name)
		}
		return users, answers, tools, nil
	},
	say: func(id, text string) []event {
		return anthropicMessage(id, object{"type": "text", "text": ""}, object{"type": "text_delta", "text": text}, "end_turn")
	},
	call: func(id, tool string, args map[string]any) []event {
		return anthropicMessage(id, object{"type": "tool_use", "id": "toolu_" + id, "name": tool, "input": object{}},
			object{"type": "input_json_delta", "partial_json": string(mustJSON(args))}, "tool_use")
	},
	fail: func(status int) any {
		return object{"type": "error", "error": object{"type": errorType(status), "message": "scripted error"}}
	},
	single: func([]event) any {
		return object{
			"id": "msg_fake", "type": "message", "role": "assistant", "model": "fake", "stop_reason": "end_turn",
			"content": []object{{"type": "text", "text": "ok"}}, "usage": object{"input_tokens": 10, "output_tokens": 5},
		}
	},
}

func anthropicMessage(id string, block, delta object, stop string) []event {
	return []event{
		{"message_start", object{"type": "message_start", "message": object{
			"id": "msg_" + id, "type": "message", "role": "assistant", "model": "fake", "content": []any{},
			"stop_reason": nil, "usage": object{"input_tokens": 10, "output_tokens": 1},
		}}},
		{"content_block_start", object{"type": "content_block_start", "index": 0, "content_block": block}},
		{"content_block_delta", object{"type": "content_block_delta", "index": 0, "delta": delta}},
		{"content_block_stop", object{"type": "content_block_stop", "index": 0}},
		{"message_delta", object{
			"type": "message_delta", "delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": object{"output_tokens": 5},
		}},
		{"message_stop", object{"type": "message_stop"}},
	}
}

func errorType(status int) string {
	if status == 401 {
		return "authentication_error"
	}
	return "invalid_request_error"
}

// contentTexts returns the texts of a content, which is a string or a list of blocks.
func contentTexts(content json.RawMessage) []string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return []string{text}
	}
	var blocks []struct{ Text string }
	if json.Unmarshal(content, &blocks) != nil {
		return nil
	}
	var texts []string
	for _, b := range blocks {
		if b.Text != "" {
			texts = append(texts, b.Text)
		}
	}
	return texts
}
