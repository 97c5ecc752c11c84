package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// jobVersion is the version of the format of jobs and results. A node refuses a job of another one.
const jobVersion = 1

// Job is what one run of an invocation is given. It contains no secret: a hub may be shared.
type Job struct {
	Version    int    `json:"version"`
	Invocation string `json:"invocation_id"`
	Name       string `json:"invocation_name,omitempty"`
	Base       string `json:"base_commit"`
	State      string `json:"state_commit,omitempty"` // snapshot that the run starts from; empty: the base
	Changed    bool   `json:"changed,omitempty"`      // the sandbox was started with uncommitted work, which is not that of the agent
	Platform   string `json:"platform"`
	Probe      bool   `json:"probe,omitempty"` // a probe of doctor; the node does not keep its base for later fetches

	Runner     string           `json:"runner,omitempty"`
	Mode       string           `json:"mode"`
	Primitives store.Primitives `json:"primitives"`
	Limits     store.Limits     `json:"limits,omitzero"`
	Run        store.RunFields  `json:"run"` // of the record before this run
	Number     int              `json:"number"`
	TimeoutMS  int64            `json:"timeout_ms"` // of the run; negative for none
	Settings   []Setting        `json:"settings,omitempty"`
	Submitted  time.Time        `json:"submitted_at"`

	Task   []byte `json:"-"` // nil for none
	Answer []byte `json:"-"` // nil for none
}

// Setting is a setting of git config that a run needs.
type Setting struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Names of the files in the tree of a job.
const (
	jobFile    = "job.json"
	taskFile   = "task"
	answerFile = "answer"
)

// Write writes the commit of a job, to which nothing refers yet.
func (j Job) Write(ctx context.Context, repo *git.Repo, who object.Identity) (string, error) {
	j.Version = jobVersion
	text, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return "", err
	}
	files := map[string][]byte{jobFile: append(text, '\n')}
	if j.Task != nil {
		files[taskFile] = j.Task
	}
	if j.Answer != nil {
		files[answerFile] = j.Answer
	}
	parents := []string{j.Base}
	if j.State != "" {
		parents = append(parents, j.State)
	}
	message := fmt.Sprintf("agency: run %d of %s\n\n%s: %s\n", j.Number, j.Invocation, invocationTrailer, j.Invocation)
	return writeCommit(ctx, repo, object.FormatOf(j.Base), files, parents, message, who)
}

// ReadJob reads the job of a commit.
func ReadJob(ctx context.Context, repo *git.Repo, commit string) (Job, error) {
	files, err := readFiles(ctx, repo, commit, maxTask, jobFile, taskFile, answerFile)
	if err != nil {
		return Job{}, err
	}
	var j Job
	if err := json.Unmarshal(files[jobFile], &j); err != nil {
		return j, fmt.Errorf("job %s: %w", commit, err)
	}
	if j.Version != jobVersion {
		return j, fmt.Errorf("job %s has version %d of its format, and this git-agency knows version %d; the same release is needed on both sides", commit, j.Version, jobVersion)
	}
	j.Task, j.Answer = files[taskFile], files[answerFile]
	return j, nil
}

// maxTask bounds each file of a job.
const maxTask = 32 << 20
