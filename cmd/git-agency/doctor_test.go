package main

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency"
)

// findings is what doctor says, which must end as it promises to.
func (l *lab) findings() []gitagency.Finding {
	l.t.Helper()
	o := l.try(nil, "git-agency", "doctor", "--json")
	var d gitagency.Diagnosis
	if err := json.Unmarshal([]byte(o.stdout), &d); err != nil {
		l.t.Fatalf("%v\n%s%s", err, o.stdout, o.stderr)
	}
	want := 0
	if len(d.Findings) > 0 {
		want = 4
	}
	if o.code != want {
		l.t.Fatalf("doctor ended with %d for %+v\n%s", o.code, d.Findings, o.stderr)
	}
	return d.Findings
}

// cure mends whatever doctor names, id by id, and looks that it then names nothing any more. It returns
// the codes that it saw.
func (l *lab) cure(point string) []string {
	l.t.Helper()
	var codes, tried []string
	for {
		found := l.findings()
		if len(found) == 0 {
			return codes
		}
		f := found[0]
		if slices.Contains(tried, f.ID) {
			l.t.Fatalf("%s: after --fix %s there is still %+v", point, f.ID, found)
		}
		tried, codes = append(tried, f.ID), append(codes, f.Code)
		if o := l.try(nil, "git-agency", "doctor", "--fix", f.ID); o.code != 0 {
			l.t.Fatalf("%s: --fix %s ended with %d\n%s", point, f.ID, o.code, o.stderr)
		}
	}
}

// checkMended is what must hold after a creation was killed: the listings end well, doctor names what is
// left by its id, mending that one id leaves no trace, and then there is nothing left to name.
func (l *lab) checkMended(s sweep, point, before string) {
	l.t.Helper()
	for _, argv := range [][]string{{"ls"}, {"ls", "--all"}, {"worktree", "ls", "--all"}} {
		l.agency(argv...)
	}
	state, found := l.state(s), l.findings()
	if state == "incomplete" || state == "missing-meta" {
		if !slices.ContainsFunc(found, func(f gitagency.Finding) bool { return f.ID == sweepID }) {
			l.t.Fatalf("%s (%s): doctor does not name it: %+v", point, state, found)
		}
		if o := l.try(nil, "git-agency", "doctor", "--fix", sweepID); o.code != 0 {
			l.t.Fatalf("%s (%s): --fix ended with %d\n%s", point, state, o.code, o.stderr)
		}
		if left := l.findings(); len(left) > 0 {
			l.t.Fatalf("%s (%s): after --fix there is still %+v", point, state, left)
		}
	}
	l.cure(point)
	if state == "whole" {
		l.checkWhole(s, point)
		return
	}
	if d := diff(before, l.world()); d != "" {
		l.t.Fatalf("%s (%q): traces are left:\n%s", point, strings.TrimSpace(state), d)
	}
}
