// Package inside has the commands for agents that run in a sandbox: they tell or ask the person outside something, and are
// of no use elsewhere.
package inside

import (
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

// Commands builds the commands of this package for one run of git-agency.
type Commands struct{ *program.Program }

// Open returns the sandbox that this process runs in. query must be empty or name it.
func Open(p *program.Program, query string) (*gitagency.Inside, error) {
	opts := p.Options
	opts.Warn = p.Warn
	sandbox, err := gitagency.OpenInside(opts)
	if err != nil {
		return nil, err
	}
	return sandbox, sandbox.Check(query)
}
