package fakemodel

import "encoding/json"

// gemini is the API of Gemini.
var gemini = api{
	name: "gemini",
	parse: func(body []byte) (users []string, answers int, tools []string, err error) {
		var request struct {
			Contents []struct {
				Role  string
				Parts json.RawMessage
			}
			Tools []struct {
				FunctionDeclarations []struct{ Name string }
			}
		}
		if err := json.Unmarshal(body, &request); err != nil {
			return nil, 0, nil, err
		}
		for _, c := range request.Contents {
			if c.Role == "model" {
				answers++
			} else {
				users = append(users, contentTexts(c.Parts)...)
			}
		}
		for _, t := range request.Tools {
			for _, f := range t.FunctionDeclarations {
				tools = append(tools, f.Name)
			}
		}
		return users, answers, tools, nil
	},
	say: func(_, text string) []event { return []event{{"", candidate(object{"text": text})}} },
	call: func(_, tool string, args map[string]any) []event {
		return []event{{"", candidate(object{"functionCall": object{"name": tool, "args": args}})}}
	},
	fail: func(status int) any {
		return object{"error": object{"code": status, "message": "scripted error", "status": "INVALID_ARGUMENT"}}
	},
	// Requests without streaming ask for a choice of a model.
	single: func([]event) any {
		return candidate(object{"text": `{"reasoning":"fake","model_choice":"flash","complexity_reasoning":"fake","complexity_score":1}`})
	},
}

func candidate(part object) object {
	return object{
		"candidates":    []object{{"index": 0, "content": object{"role": "model", "parts": []object{part}}, "finishReason": "STOP"}},
		"usageMetadata": object{"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
		"modelVersion":  "fake",
	}
}
