package sandbox

import (
	"cmp"
	"encoding/json"
	"sort"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/outlet"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// Denial is a network access that the walls of a sandbox refused, with the number of attempts.
type Denial struct {
	Time   time.Time `json:"time"` // time of the last recorded attempt
	Kind   string    `json:"kind"` // protocol of the attempt: "http", "connect" or "socks"
	Target string    `json:"target"`
	Reason string    `json:"reason"`
	Count  int       `json:"count"` // number of attempts
	Entry  string    `json:"entry"` // entry of the outputs host list that would allow it; empty when none would
	Allow  string    `json:"allow"` // command line that allows it; for an ended sandbox, one that starts another; empty when there is none
}

// Denials lists what the walls of a sandbox refused, the latest last. It also works for an invocation whose sandbox
// is gone. For a broken invocation it returns the list together with an error.
func Denials(r *core.Repository, query string) ([]Denial, error) {
	inv, err := r.Invocation(query)
	if err != nil {
		return nil, err
	}
	log := denialLog{denials: []Denial{}, positions: map[denialKey]int{}}
	if err := r.Store.ReadEvents(r.ID, inv.ID, log.addLine); err != nil {
		return nil, err
	}
	for i := range log.denials {
		log.denials[i].Allow = allowCommand(inv, log.denials[i].Entry)
	}
	sort.SliceStable(log.denials, func(i, j int) bool { return log.denials[i].Time.Before(log.denials[j].Time) })
	return log.denials, inv.Err()
}

// denialLog collects the denials of an event history and merges equal ones.
type denialLog struct {
	denials   []Denial
	positions map[denialKey]int
}

type denialKey struct{ kind, target, reason string }

// addLine adds one line of an event history. It ignores lines that are not denial events or do not parse.
func (t *denialLog) addLine(line []byte) {
	var e denialEvent
	if json.Unmarshal(line, &e) != nil || e.Event != deniedEvent {
		return
	}
	key := denialKey{e.Kind, e.Target, e.Reason}
	at, known := t.positions[key]
	if !known {
		at = len(t.denials)
		t.positions[key] = at
		t.denials = append(t.denials, Denial{Kind: e.Kind, Target: e.Target, Reason: e.Reason})
	}
	d := &t.denials[at]
	d.Count += denialsSincePrevious(e.Count)
	if !e.Time.Before(d.Time) {
		d.Time, d.Entry = e.Time, e.Allow
	}
}

// denialsSincePrevious returns how many denials one recorded event stands for: those since the previous event of the
// same kind. Of equal denials, each proxy records the first, the tenth, the hundredth and so on, and the last.
func denialsSincePrevious(count int) int {
	before := 0
	for next := 1; next < count && next > 0; next *= 10 {
		before = next
	}
	return max(count, 1) - before
}

// allowCommand returns the command line that adds an entry to the outputs of a sandbox, or starts one like it with one more
// entry if this one has ended or is broken.
func allowCommand(i core.Invocation, entry string) string {
	hosts, some := strings.CutPrefix(i.Primitives.Outputs, settings.HostsPrefix)
	if entry == "" || !some {
		return ""
	}
	rules, err := outlet.ParseRules(hosts + "," + entry)
	if err != nil {
		return "" // the entry comes from a file and may be malformed
	}
	if _, err := i.Path(); err == nil {
		added, _ := outlet.ParseRules(entry) // parsed above
		return "git agency allow " + i.ID + " --outputs " + quote.Shell(settings.HostsPrefix+added.String())
	}
	words := []string{"git", "agency", "start"}
	if wt := cmp.Or(i.Worktree, i.WorktreeID); wt != "" {
		words = append(words, wt)
	}
	if i.Primitives.Isolation != settings.DefaultPrimitives().Isolation {
		words = append(words, "--isolation", i.Primitives.Isolation)
	}
	words = append(words, "--outputs", settings.HostsPrefix+rules.String())
	return quote.ShellLine(words)
}
