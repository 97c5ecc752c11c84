package engine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// slurmID is the parsed id of a job.
type slurmID struct {
	number  string
	cluster string // empty: the only one of the site
}

func (id slurmID) String() string {
	if id.cluster == "" {
		return id.number
	}
	return id.number + ";" + id.cluster
}

// client returns the beginning of the command line of a command that asks the cluster of the job.
func (id slurmID) client(program string) []string {
	if id.cluster == "" {
		return []string{program}
	}
	return []string{program, "--clusters=" + id.cluster}
}

// parseID parses an id that Submit returned. An id becomes an argument, so it must not be taken for an option.
func parseID(text string) (slurmID, error) {
	number, cluster, several := strings.Cut(text, ";")
	if !isNumber(number) || several && !isClusterName(cluster) {
		return slurmID{}, fmt.Errorf("%q is not the id of a job of Slurm", text)
	}
	return slurmID{number, cluster}, nil
}

func isNumber(text string) bool {
	return text != "" && len(text) <= 18 && strings.Trim(text, "0123456789") == ""
}

func isClusterName(text string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."
	return text != "" && text[0] != '-' && len(text) <= 100 && strings.Trim(text, letters) == ""
}

// parseSubmitted parses the answer of sbatch --parsable. Wrappers and plugins of a site may print other lines before.
func parseSubmitted(text string) (id string, ok bool) {
	for line := range strings.Lines(text) {
		if got, err := parseID(strings.TrimSpace(line)); err == nil {
			id, ok = got.String(), true
		}
	}
	return id, ok
}

// squeueFields are the columns that squeue is asked for: their names, and widths in bytes, to which squeue cuts values and
// fills them with spaces. The name is the last: it may hold everything.
var squeueFields = []struct {
	name  string
	width int
}{{"JobID", 24}, {"State", 24}, {"RestartCnt", 12}, {"exit_code", 12}, {"BatchHost", 100}, {"Reason", 100}, {"Name", 200}}

// squeueFormat returns the argument of squeue -O.
func squeueFormat() string {
	var fields []string
	for _, f := range squeueFields {
		fields = append(fields, f.name+":"+strconv.Itoa(f.width))
	}
	return strings.Join(fields, ",")
}

// slurmJob is a job as one of the commands of Slurm shows it.
type slurmJob struct {
	number, name string
	state        string // first word, such as "CANCELLED" of "CANCELLED by 1000"
	reason, node string
	wait         int // status as of wait(2), with the exit code in the second byte and the signal in the first
	attempt      int
}

// parseQueue parses the answer of squeue. Lines that are not about a job are skipped, such as those that name a cluster.
func parseQueue(text string) []slurmJob {
	var jobs []slurmJob
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		values := make([]string, len(squeueFields))
		for i, f := range squeueFields {
			n := min(f.width, len(line))
			values[i], line = strings.TrimSpace(line[:n]), line[n:]
		}
		restarts, err1 := strconv.Atoi(values[2])
		wait, err2 := strconv.Atoi(values[3])
		if !isNumber(values[0]) || values[1] == "" || err1 != nil || err2 != nil || restarts < 0 || restarts > 1<<30 {
			continue
		}
		jobs = append(jobs, slurmJob{
			number: values[0], state: firstWord(values[1]), attempt: restarts + 1, wait: wait,
			node: host(values[4]), reason: values[5], name: values[6],
		})
	}
	return jobs
}

// accountFields are the columns that sacct is asked for, separated by "|". The name is the last: it may hold everything.
var accountFields = []string{"JobID", "State", "ExitCode", "NodeList", "JobName"}

// parseAccounts parses the answer of sacct -P -D, which shows each start of a job, the oldest first. It returns the last start of each
// job, in the order of the first.
func parseAccounts(text string) []slurmJob {
	var jobs []slurmJob
	at := map[string]int{}
	for line := range strings.Lines(text) {
		values := strings.SplitN(strings.TrimRight(line, "\r\n"), "|", len(accountFields))
		if len(values) != len(accountFields) || !isNumber(values[0]) || firstWord(values[1]) == "" {
			continue
		}
		code, signal, ok := strings.Cut(values[2], ":")
		c, err1 := strconv.Atoi(code)
		s, err2 := strconv.Atoi(signal)
		if !ok || err1 != nil || err2 != nil || c < 0 || c > 0xff || s < 0 || s > 0x7f {
			c, s = 0, 0
		}
		job := slurmJob{number: values[0], state: firstWord(values[1]), wait: c<<8 | s, node: host(values[3]), name: values[4], attempt: 1}
		if i, seen := at[job.number]; seen {
			job.attempt += jobs[i].attempt
			jobs[i] = job
			continue
		}
		at[job.number] = len(jobs)
		jobs = append(jobs, job)
	}
	return jobs
}

func firstWord(text string) string {
	word, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	return strings.TrimSuffix(word, "+") // sacct marks a word that it cut
}

// host returns a host name that Slurm printed. Without one it prints a text with spaces or parentheses.
func host(text string) string {
	if strings.EqualFold(text, "n/a") || strings.ContainsAny(text, " ()") {
		return ""
	}
	return oneLine(text)
}

// slurmStates maps states of Slurm to ours. Reason and exit code of most ends need a look at the wait status: see ended. A
// state that is not here is taken for one that goes on, so that no job is given up for a word of a later version.
var slurmStates = map[string]State{
	"PENDING": Queued, "CONFIGURING": Queued, "REQUEUED": Queued, "REQUEUE_FED": Queued, "REQUEUE_HOLD": Queued,
	"RESV_DEL_HOLD": Queued, "SPECIAL_EXIT": Queued,

	"RUNNING": Running, "SUSPENDED": Running, "STOPPED": Running, "SIGNALING": Running, "STAGE_OUT": Running, "RESIZING": Running,
	"COMPLETING": Running, "UPDATE_DB": Running, "POWER_UP_NODE": Running,
	"REVOKED": Running, // by another cluster of the federation

	"COMPLETED": Ended, "FAILED": Ended, "TIMEOUT": Ended, "DEADLINE": Ended, "CANCELLED": Ended, "PREEMPTED": Ended, "NODE_FAIL": Ended,
	"BOOT_FAIL": Ended, "OUT_OF_MEMORY": Ended, "LAUNCH_FAILED": Ended, "RECONFIG_FAIL": Ended,
}

// status translates a job.
func (j slurmJob) status(cluster string) Status {
	s := Status{Name: j.name, ID: slurmID{j.number, cluster}.String(), State: Running, Node: j.node, Attempt: j.attempt, Detail: j.state}
	if state, known := slurmStates[j.state]; known {
		s.State = state
	}
	if j.reason != "" && j.reason != "None" {
		s.Detail += " (" + j.reason + ")"
	}
	s.Detail = oneLine(s.Detail)
	if s.State == Ended {
		s.Reason, s.Exit = j.ended()
	}
	return s
}

// ended returns why a job has ended, and its exit code. A job that Slurm ended has the exit code 0 unless its program chose
// another one, so that 0 says nothing then.
func (j slurmJob) ended() (reason string, exit *int) {
	signal, code := j.wait&0x7f, j.wait>>8&0xff
	switch j.state {
	case "COMPLETED", "FAILED":
		switch {
		case signal != 0:
			return Signaled, nil
		case j.state == "FAILED" && code == 0:
			return NotBegun, nil // a prolog failed, or the node could not start the script
		}
		return Exited, &code
	case "TIMEOUT", "DEADLINE":
		reason = TimedOut
	case "CANCELLED":
		reason = Cancelled
	case "PREEMPTED":
		reason = Preempted
	case "NODE_FAIL":
		return NodeLost, nil
	case "OUT_OF_MEMORY":
		reason = NoMemory
	default:
		return NotBegun, nil
	}
	if code == 0 || signal != 0 {
		return reason, nil
	}
	return reason, &code
}

// parseConfig parses the answer of scontrol show config. Of a key that is there twice, the first counts.
func parseConfig(text string) map[string]string {
	config := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(line, " = ")
		key = strings.TrimSpace(key)
		if _, seen := config[key]; ok && key != "" && !seen {
			config[key] = oneLine(value)
		}
	}
	return config
}

// parseSeconds parses a time of scontrol show config, such as "30 sec".
func parseSeconds(text string) (time.Duration, bool) {
	number, unit, _ := strings.Cut(text, " ")
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || n > 1<<31 || unit != "sec" {
		return 0, false
	}
	return time.Duration(n) * time.Second, true
}

// partition is a partition as sinfo shows it: how many of its nodes are in which state.
type partition struct {
	name      string
	isDefault bool
	up        bool
	nodes     int // that can take jobs, now or later
}

// parsePartitions parses lines of sinfo: partition, availability, number of nodes, state of the nodes.
func parsePartitions(text string) []partition {
	var all []partition
	for line := range strings.Lines(text) {
		values := strings.Split(strings.TrimRight(line, "\r\n"), "|")
		if len(values) != 4 || values[0] == "" {
			continue
		}
		name, isDefault := strings.CutSuffix(values[0], "*")
		nodes, err := strconv.Atoi(values[2])
		if err != nil || nodes < 0 || nodes > 1<<30 {
			continue
		}
		i := slices.IndexFunc(all, func(p partition) bool { return p.name == name })
		if i < 0 {
			i, all = len(all), append(all, partition{name: oneLine(name), isDefault: isDefault, up: values[1] == "up"})
		}
		// A "*" after the state means that the node does not answer.
		state := values[3]
		if !strings.HasSuffix(state, "*") && !strings.HasPrefix(state, "down") && !strings.HasPrefix(state, "drain") && !strings.HasPrefix(state, "fail") {
			all[i].nodes += nodes
		}
	}
	return all
}
