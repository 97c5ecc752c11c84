//go:build realagents

package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/scripts/fakemodel"
)

// The conflicts of a landing go to another agent, which commits the conflict markers: everything is as after an ordinary
// conflict. Then they go to the agent of the invocation, in its session, and its resolution lands.
func TestRealAgentResolvesConflicts(t *testing.T) {
	t.Parallel()
	forEachRealAgent(t, []fakemodel.Step{
		{Shell: "echo agent >readme && git commit -qam agent"},
		{Say: "Done."},
	}, func(l *agentLab) {
		l.require(l.run(scriptedTask, "--timeout", "3m"), 0)
		record := l.record()
		rival := l.agency("start", "--name", "rival", "--isolation", "os")
		l.agency("exec", rival, "--", "sh", "-c", "echo rival >readme && git commit -qam rival")
		l.agency("land", rival)
		state := func() string {
			return l.agency("exec", record.ID, "--", "sh", "-c", "git status --porcelain=v2 --branch && git log --format=%H%s && cat readme") +
				l.agency("diff", record.ID) + l.agency("questions") + l.git("log", "--format=%H%s") + l.git("status", "--porcelain")
		}
		before := state()

		other := realAgents[(slices.Index(realAgents, l.agent)+1)%len(realAgents)]
		l.server.SetScript(scriptedTask, []fakemodel.Step{
			{Shell: "git add readme && git commit -q --no-edit"},
			{Say: "I committed the merge."},
		})
		o := l.agencyWithInput("", "land", record.ID, "--resolve="+other)
		l.require(o, 2)
		if o.stdout != "contents\treadme\n" || !strings.Contains(o.stderr, other+" did not resolve them: it left conflict markers in:") {
			l.t.Errorf("%+v", o)
		}
		if after := state(); after != before {
			l.t.Errorf("the state changed:\n%s\nfrom\n%s", after, before)
		}
		if got := l.record(); got.State != "finished" || got.SessionID != record.SessionID || got.PID != 0 {
			l.t.Errorf("%+v, before %+v", got, record)
		}

		// The agent that lost its session would say so, and resolve nothing.
		lost := fakemodel.Step{Say: "The session is lost."}
		l.server.SetScript(scriptedTask, []fakemodel.Step{
			lost, lost,
			{Shell: "git status --porcelain && sed -i '/^[<=>|]/d' readme && git add readme && git commit -q --no-edit"},
			{Say: "Resolved."},
		})
		o = l.agencyWithInput("", "land", record.ID, "--resolve")
		l.require(o, 0)
		if !strings.Contains(o.stderr, l.agent+" resolved the conflicts of "+record.ID) {
			l.t.Errorf("%+v", o)
		}
		if got := l.read(filepath.Join(l.repo, "readme")); got != "agent\nrival\n" {
			l.t.Errorf("readme is %q", got)
		}
		if l.steps() != "0 1 0 1 2 3" {
			l.t.Errorf("steps %s", l.steps())
		}
		for _, text := range []string{"Resolve the conflicts of a merge in this git repository.", "  contents: readme\n", "\n> " + scriptedTask + "\n", rival + " (rival), landed as "} {
			if !l.received(text) {
				l.t.Errorf("%q did not arrive", text)
			}
		}
	})
}
