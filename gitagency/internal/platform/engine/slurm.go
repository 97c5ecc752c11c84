package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Slurm runs jobs by the commands of Slurm: sbatch, squeue, sacct, scancel, srun, scontrol and sinfo.
//
// The id of a job is the number that sbatch printed, with ";" and the cluster if the site has several.
type Slurm struct {
	Channel
	Partition, Account string   // empty: what the site gives
	Args               []string // arguments of sbatch that a site wants, after ours; a later option wins

	poller
}

var _ Driver = Slurm{}

const slurmName = "Slurm"

// submitVariables are the variables that sbatch gets, and with --export=ALL the job too. slurmctld keeps the environment of a job,
// and shows it to administrators: no other variable may reach sbatch, because keys of services are kept in variables.
//
// A list in --export, or NONE, would make Slurm load the environment of the user's login shell on the node at each start: one that
// takes longer than BatchStartTimeout, 10 s by default, makes Slurm give up the start as NODE_FAIL.
var submitVariables = []string{
	// What programs on a node need to find themselves and their files. LD_LIBRARY_PATH belongs to PATH: environment modules set both.
	"HOME", "USER", "LOGNAME", "SHELL", "PATH", "LD_LIBRARY_PATH", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "TZ",
	"LANG", "LANGUAGE", "LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME",

	// What leads sbatch to the controller and proves who the user is.
	"SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_CONF_SERVER", "KRB5CCNAME",

	// Defaults of the user for the resources of jobs. Options of ours win over them.
	"SBATCH_ACCOUNT", "SBATCH_CLUSTERS", "SBATCH_CONSTRAINT", "SBATCH_CORE_SPEC", "SBATCH_DELAY_BOOT", "SBATCH_EXCLUSIVE", "SBATCH_GPUS",
	"SBATCH_GPUS_PER_NODE", "SBATCH_GPUS_PER_TASK", "SBATCH_GRES", "SBATCH_GRES_FLAGS", "SBATCH_HINT", "SBATCH_MEM_PER_CPU",
	"SBATCH_MEM_PER_GPU", "SBATCH_MEM_PER_NODE", "SBATCH_NETWORK", "SBATCH_PARTITION", "SBATCH_QOS", "SBATCH_RESERVATION",
	"SBATCH_THREADS_PER_CORE", "SBATCH_TIMELIMIT", "SBATCH_WCKEY",
}

// Submit queues a job by sbatch. An error that is not a *RejectedError leaves open whether Slurm has the job: List finds it
// by its name.
func (s Slurm) Submit(ctx context.Context, job Job) (string, error) {
	if err := job.check(); err != nil {
		return "", err
	}
	marker := ""
	if job.LogDir != "" {
		// The job finds this file if the directory is the same on its node.
		marker = markerFile(job.LogDir, job.Name)
		if err := os.WriteFile(marker, nil, 0o600); err != nil {
			return "", fmt.Errorf("make a directory for output known to job %s: %w", job.Name, err)
		}
	}
	channel := s.Channel
	channel.Only = submitVariables
	a, err := channel.ask(ctx, slurmName, s.submitArgs(job), script(job))
	if err != nil {
		return "", err
	}
	if a.exit != 0 {
		if err := a.unreachable(); err != nil {
			return "", err
		}
		if marker != "" {
			_ = os.Remove(marker) // an empty file, which Reap would remove too
		}
		return "", &RejectedError{Engine: slurmName, Detail: a.detail()}
	}
	id, ok := parseSubmitted(a.stdout)
	if !ok {
		return "", fmt.Errorf("sbatch printed no job id but %q", oneLine(a.stdout))
	}
	return id, nil
}

// submitArgs returns the command line of sbatch. The output of the script goes nowhere: Slurm does not start a job whose
// output file it cannot open, so the script opens its files itself.
func (s Slurm) submitArgs(job Job) []string {
	args := []string{
		"sbatch", "--parsable", "--job-name=" + job.Name, "--export=ALL", "--chdir=/",
		"--input=/dev/null", "--output=/dev/null", "--error=/dev/null",
	}
	if job.Requeue {
		args = append(args, "--requeue")
	} else {
		args = append(args, "--no-requeue")
	}
	if job.TimeLimit > 0 {
		args = append(args, "--time="+strconv.FormatInt(int64((job.TimeLimit+time.Minute-1)/time.Minute), 10))
	}
	if job.Memory > 0 {
		args = append(args, "--mem="+strconv.FormatInt((job.Memory-1)>>20+1, 10)+"M")
	}
	if s.Partition != "" {
		args = append(args, "--partition="+s.Partition)
	}
	if s.Account != "" {
		args = append(args, "--account="+s.Account)
	}
	return append(args, s.Args...)
}

// Cancel ends a job by scancel, which signals all processes of the job.
func (s Slurm) Cancel(ctx context.Context, job Ref) error {
	id, err := s.find(ctx, job)
	if id.number == "" || err != nil {
		return err
	}
	a, err := s.ask(ctx, append(id.client("scancel"), id.number), "")
	if err != nil || a.exit == 0 || a.isUnknownJob() {
		return err
	}
	return a.failed()
}

// find returns the id of a job, and the zero value if the engine does not know the job. A job whose id is not known is looked
// up first: scancel --name would end jobs of other users for an administrator.
func (s Slurm) find(ctx context.Context, job Ref) (slurmID, error) {
	if job.ID == "" {
		known, err := s.List(ctx, []Ref{job})
		if len(known) == 0 || err != nil {
			return slurmID{}, err
		}
		job.ID = known[0].ID
	}
	return parseID(job.ID)
}

// Reap removes the files of a job from its LogDir. Slurm forgets the job by itself, and the job has removed what it kept on
// its node.
func (s Slurm) Reap(_ context.Context, job Ref) error {
	if job.Dir == "" {
		return nil
	}
	var errs []error
	for _, path := range []string{logFile(job.Dir, job.Name, Stdout), logFile(job.Dir, job.Name, Stderr), markerFile(job.Dir, job.Name)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// logFile returns the file of a stream in a LogDir. The job creates it.
func logFile(dir, name string, stream Stream) string {
	return filepath.Join(dir, name+"."+string(stream))
}

// markerFile returns the file by which a job recognises its LogDir on a node.
func markerFile(dir, name string) string { return filepath.Join(dir, name+".job") }

// ask runs a command of Slurm that is not sbatch.
func (s Slurm) ask(ctx context.Context, argv []string, stdin string) (answer, error) {
	return s.channel().ask(ctx, slurmName, argv, stdin)
}

// channel returns the channel with an environment for the commands of Slurm but sbatch. ssh keeps all of its own, and sends none of it.
func (s Slurm) channel() Channel {
	c := s.Channel
	if c.SSH == "" {
		c.Env = slices.DeleteFunc(slices.Clone(c.Env), func(entry string) bool {
			name, _, _ := strings.Cut(entry, "=")
			return !isForSlurm(name)
		})
	}
	return c
}

// isForSlurm reports whether the commands of Slurm but sbatch get a variable of the user.
//
// SQUEUE_*, SACCT_*, SCANCEL_*, SINFO_* and SRUN_* would change which jobs are shown or cancelled, and how. In a job of Slurm,
// SLURM_* and SPANK_* describe that job: only those that lead to the controller stay.
func isForSlurm(name string) bool {
	switch name {
	case "SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_CONF_SERVER":
		return true
	}
	for _, prefix := range []string{"SLURM_", "SPANK_", "_SLURM_SPANK_", "SQUEUE_", "SACCT_", "SCANCEL_", "SINFO_", "SRUN_"} {
		if strings.HasPrefix(name, prefix) {
			return false
		}
	}
	return true
}

// unreachable returns an *UnreachableError if a command of Slurm could not talk to the controller, by its words: it has no
// exit codes for that.
func (a answer) unreachable() error {
	words := strings.ToLower(a.stderr)
	for _, w := range []string{
		"unable to contact slurm controller", "timed out", "connection refused", "connection reset", "no route to host", "zero bytes were transmitted",
		"configuration source", "configuration file", "fetch_config", "communication connection failure", "communications connection failure",
		"controller in standby", "munge", "authentication", "network is unreachable", "not responding",
	} {
		if strings.Contains(words, w) {
			return a.failed()
		}
	}
	return nil
}

// failed returns an *UnreachableError for an answer that is none.
func (a answer) failed() error {
	return &UnreachableError{Engine: slurmName, Argv: a.argv, Detail: a.detail()}
}

// isUnknownJob reports whether a command refused because the job is not known or has ended.
func (a answer) isUnknownJob() bool {
	words := strings.ToLower(a.stderr)
	return strings.Contains(words, "invalid job id") || strings.Contains(words, "already complet") || strings.Contains(words, "expired")
}

// hasProgram reports whether a command of Slurm is installed here. On a login node it may be.
func (s Slurm) hasProgram(name string) bool {
	if s.SSH != "" {
		return true
	}
	return hasProgram(s.Env, name)
}
