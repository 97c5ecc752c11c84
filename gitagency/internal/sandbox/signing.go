package sandbox

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/settings"
)

// warnSigningOff warns once per sandbox that settings.WithGitSettings has switched off what the user has switched on.
func (s *Sandbox) warnSigningOff(env []string) {
	if !s.Repo.Git.ConfigBool("commit.gpgsign", false) || !slices.ContainsFunc(env, func(kv string) bool { return strings.HasSuffix(kv, "="+settings.CommitSigningKey) }) {
		return
	}
	warned := false
	err := s.Repo.Store.ReadEvents(s.Repo.ID, s.ID, func(line []byte) {
		warned = warned || bytes.Contains(line, []byte(`"event":"`+signingOffEvent+`"`))
	})
	if err != nil || warned {
		return
	}
	s.Repo.Warn("sandbox %s: commits made there are not signed, since the keys are hidden (commit.gpgSign)", s.ID)
	s.Repo.AppendEvent(s.ID, struct {
		Time  time.Time `json:"time"`
		Event string    `json:"event"`
	}{s.Repo.EventTime(), signingOffEvent})
}

const signingOffEvent = "signing-off"
