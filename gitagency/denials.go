package gitagency

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/outlet"
)

// Denial is something that the walls of a sandbox refused, however often it was tried.
type Denial struct {
	Time   time.Time `json:"time"` // when it was last told
	Kind   string    `json:"kind"` // how it was tried: "http", "connect" or "socks"
	Target string    `json:"target"`
	Reason string    `json:"reason"`
	Count  int       `json:"count"` // how often
	Entry  string    `json:"entry"` // what would have to be among the outputs; empty when nothing would help
	Allow  string    `json:"allow"` // what to type for a sandbox in which it is allowed; empty likewise
}

// Denials lists what the walls of a sandbox refused, the latest last. An invocation whose sandbox is gone
// still tells, and so does a broken one, which is then an error too.
func (r *Repository) Denials(query string) ([]Denial, error) {
	inv, err := r.Invocation(query)
	if err != nil {
		return nil, err
	}
	told := tellings{denials: []Denial{}, at: map[denialKey]int{}}
	if err := r.store.Events(r.ID, inv.ID, told.add); err != nil {
		return nil, err
	}
	for i := range told.denials {
		told.denials[i].Allow = inv.allowing(told.denials[i].Entry)
	}
	slices.SortStableFunc(told.denials, func(a, b Denial) int { return a.Time.Compare(b.Time) })
	return told.denials, inv.Err()
}

// tellings are denials as they are found in a history, equal ones taken together.
type tellings struct {
	denials []Denial
	at      map[denialKey]int
}

type denialKey struct{ kind, target, reason string }

// add takes in one line of a history. Whatever is no denial is somebody else's, or torn.
func (t *tellings) add(line []byte) {
	var e denialEvent
	if json.Unmarshal(line, &e) != nil || e.Event != deniedEvent {
		return
	}
	key := denialKey{e.Kind, e.Target, e.Reason}
	at, known := t.at[key]
	if !known {
		at = len(t.denials)
		t.at[key] = at
		t.denials = append(t.denials, Denial{Kind: e.Kind, Target: e.Target, Reason: e.Reason})
	}
	d := &t.denials[at]
	d.Count += untold(e.Count)
	if !e.Time.Before(d.Time) {
		d.Time, d.Entry = e.Time, e.Allow
	}
}

// untold is how many denials one that is told stands for: those since the one that was told before. Of equal
// ones, each proxy tells the first, the tenth, the hundredth and so on, and the last.
func untold(count int) int {
	before := 0
	for next := 1; next < count && next > 0; next *= 10 {
		before = next
	}
	return max(count, 1) - before
}

// allowing is the line that starts a sandbox like this one in which something more is allowed.
func (i Invocation) allowing(entry string) string {
	hosts, some := strings.CutPrefix(i.Primitives.Outputs, hostsPrefix)
	if entry == "" || !some {
		return ""
	}
	rules, err := outlet.ParseRules(hosts + "," + entry)
	if err != nil {
		return "" // it is what a file says
	}
	words := []string{"git", "agency", "start"}
	if wt := cmp.Or(i.Worktree, i.WorktreeID); wt != "" {
		words = append(words, wt)
	}
	if i.Primitives.Isolation != DefaultPrimitives().Isolation {
		words = append(words, "--isolation", i.Primitives.Isolation)
	}
	words = append(words, "--outputs", hostsPrefix+rules.String())
	for n, word := range words {
		words[n] = ShellWord(word)
	}
	return strings.Join(words, " ")
}
