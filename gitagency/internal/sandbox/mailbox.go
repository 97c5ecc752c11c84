package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/mailbox"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// MailboxDir returns the directory on the host in which the commands of the sandbox leave questions and requests: behind
// walls one of the sandbox's own, which they see at .agency in the tree; else that directory of the tree. Its content is
// untrusted, and it may be missing.
func (s *Sandbox) MailboxDir(prims store.Primitives) string {
	if prims.Isolation == settings.IsolationOS {
		return s.Repo.Store.MailboxDir(s.Repo.ID, s.ID)
	}
	return filepath.Join(s.Tree, guard.AgencyDir)
}

// serveMailbox calls ExecOptions.Serve for a command behind walls.
func (s *Sandbox) serveMailbox(opts ExecOptions, prims store.Primitives) (stop func()) {
	if opts.Serve == nil || prims.Isolation != settings.IsolationOS {
		return func() {}
	}
	return opts.Serve(s.MailboxDir(prims))
}

// Variables identify the sandbox of a process that runs in one.
type Variables struct {
	ID         string
	Tree       string
	TaskFile   string // empty if there is no task
	AnswerFile string // empty if no question was answered
	AskTimeout string // duration that an agent that asks waits for the answer; empty if it does not wait
}

// VariablesOf returns the variables of an environment that Exec made; a *fault.NotInsideError for any other.
func VariablesOf(env []string) (Variables, error) {
	v := Variables{proc.Getenv(env, core.InvocationVariable), proc.Getenv(env, sandboxVariable), proc.Getenv(env, taskVariable), proc.Getenv(env, answerVariable), proc.Getenv(env, AskTimeoutVariable)}
	if v.ID == "" || !filepath.IsAbs(v.Tree) {
		return v, &fault.NotInsideError{}
	}
	return v, nil
}

// AskTimeoutVariable is set for the agent of a run that can be given answers while it runs.
const AskTimeoutVariable = "AGENCY_ASK_TIMEOUT"

// AgentStateDir returns the sandbox's own directory for the state of its agent, such as sessions and a copy of its login.
// It is kept between commands, writable behind walls, and exists from the first command behind walls on.
func (s *Sandbox) AgentStateDir() string {
	return filepath.Join(s.Repo.Store.WallsDir(s.Repo.ID, s.ID), "agent-state")
}

// recordFiles returns the files of the record that commands may read: the task and the answer.
func (s *Sandbox) recordFiles() []string {
	return []string{s.Repo.Store.TaskPath(s.Repo.ID, s.ID), s.Repo.Store.AnswerPath(s.Repo.ID, s.ID)}
}

// createOwnDirs creates the directories that the walls show to the commands of this sandbox alone.
func (s *Sandbox) createOwnDirs() error {
	dir := s.Repo.Store.MailboxDir(s.Repo.ID, s.ID)
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		err = os.Chmod(dir, 0o700) // a command of the sandbox may have changed it
	}
	return errors.Join(err, os.MkdirAll(s.cachesDir(), 0o700), os.MkdirAll(s.AgentStateDir(), 0o700))
}

// mailboxVariables returns the variables that name the files through which an agent and the host communicate.
func (s *Sandbox) mailboxVariables() []string {
	env := []string{questionVariable + "=" + filepath.Join(s.Tree, guard.AgencyDir, mailbox.QuestionFile)}
	for i, name := range []string{taskVariable, answerVariable} {
		if path, exists := store.FirstExisting(s.recordFiles()[i]); exists {
			env = append(env, name+"="+path)
		}
	}
	return env
}
