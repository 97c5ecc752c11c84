package runs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/background"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

// superviseName is the name of the hidden command that executes a detached run.
const superviseName = "supervise"

// readyFD is the descriptor on which that command reports that it has taken the run over.
const readyFD = 3

// maxSubmits bounds the runs that are submitted at the same time.
const maxSubmits = 8

// detach starts a process of its own for each run, which survives the terminal and the login session, or submits it to another
// machine, and prints the ids.
func (t Commands) detach(c *cli.Context, repo *gitagency.Repository, invocations []gitagency.Invocation) error {
	errs := make([]error, len(invocations)) // the others are started whatever happens to one
	var submitted sync.WaitGroup
	slots := make(chan struct{}, maxSubmits)
	for i, inv := range invocations {
		if inv.RunsOnPlatform() { // no process has to supervise it
			submitted.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				errs[i] = t.startDetached(c.Context, repo, inv)
			})
		} else {
			errs[i] = t.startDetached(c.Context, repo, inv)
		}
	}
	submitted.Wait()
	var failed error
	for i, err := range errs {
		if id := invocations[i].ID; err != nil {
			next := "to start it: git agency resume " + id
			if now, lookErr := repo.Invocation(id); lookErr == nil && now.HasOpenJob() {
				next = "to ask again: git agency show " + id
			}
			failed = errors.Join(failed, fmt.Errorf("the agent of %s was not started: %w; %s", id, err, next))
		}
	}
	if failed != nil {
		return errors.Join(failed, t.printIDs(invocations))
	}
	if !c.Bool("json") {
		return t.printIDs(invocations)
	}
	for i, inv := range invocations {
		current, err := repo.InvocationActivity(c.Context, inv.ID)
		if err != nil {
			return err
		}
		invocations[i] = current
	}
	return t.PrintJSON(invocations)
}

// startDetached starts the run of an invocation, and returns when it goes on without this process.
func (t Commands) startDetached(ctx context.Context, repo *gitagency.Repository, inv gitagency.Invocation) error {
	if inv.RunsOnPlatform() {
		return repo.SubmitRun(ctx, inv.ID)
	}
	return t.startSupervisor(repo, inv.ID)
}

// startSupervisor starts the process of one run, and returns when that has taken it over.
func (t Commands) startSupervisor(repo *gitagency.Repository, id string) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	// The git directory always exists, unlike the caller's directory, which may be removed while the agent works.
	err = background.Start([]string{t.Args[0], superviseName, id}, repo.CommonDir, t.Options.Env, write)
	if err = errors.Join(err, write.Close()); err != nil {
		return err
	}
	report, err := bufio.NewReader(io.LimitReader(read, 64<<10)).ReadString('\n')
	switch {
	case err != nil:
		return errors.New("its process ended at once")
	case report != "\n":
		return errors.New(strings.TrimSpace(report))
	}
	return nil
}

// Supervise builds the hidden command that executes a detached run.
func (t Commands) Supervise() *cli.Command {
	return &cli.Command{
		Name:   superviseName,
		Hidden: true,
		Usage:  "execute a run that was detached",
		Action: func(c *cli.Context) error {
			args, err := program.PositionalArgs(c, 1, 1)
			if err != nil {
				return err
			}
			ready := os.NewFile(readyFD, "ready")
			err = t.supervise(c, args[0], ready)
			if err != nil { // only the process that waits for it can tell the user
				_, _ = fmt.Fprintln(ready, strings.ReplaceAll(err.Error(), "\n", " "))
			}
			return err
		},
	}
}

func (t Commands) supervise(c *cli.Context, id string, ready *os.File) error {
	repo, err := t.OpenRepository(c)
	if err != nil {
		return err
	}
	// It lives as long as the agent, mostly asleep: keep it small, and return what the start needed.
	debug.SetGCPercent(20)
	time.AfterFunc(5*time.Second, debug.FreeOSMemory)
	_, err = repo.ExecuteRun(c.Context, gitagency.ExecuteRunRequest{
		ID: id, Detached: true,
		OnBegin: func() {
			_, _ = fmt.Fprintln(ready) // an error means that the caller has gone
			_ = ready.Close()
		},
	})
	return err
}
