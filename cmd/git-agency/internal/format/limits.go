package format

import (
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency"
)

// Limit is the JSON of a limit and how it was enforced.
type Limit struct {
	Value  int64  `json:"value"`
	By     string `json:"by"`
	Detail string `json:"detail,omitempty"`
}

// Limits returns the JSON of limits by key. A timeout is in milliseconds, rounded up.
func Limits(limits []gitagency.EnforcedLimit) map[string]Limit {
	out := map[string]Limit{}
	for _, l := range limits {
		value := l.Value
		if l.Limit == gitagency.TimeoutLimit {
			value = int64((time.Duration(value) + time.Millisecond - 1) / time.Millisecond)
		}
		out[limitKey(l.Limit)] = Limit{Value: value, By: string(l.By), Detail: l.Detail}
	}
	return out
}

// limitKey returns the key of a limit in JSON.
func limitKey(k gitagency.LimitKind) string {
	if k == gitagency.TimeoutLimit {
		return "timeout_ms"
	}
	return strings.ReplaceAll(k.String(), "-", "_")
}
