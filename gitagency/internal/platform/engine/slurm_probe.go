package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Probe asks scontrol for the configuration of the site, and sinfo whether nodes can take jobs.
func (s Slurm) Probe(ctx context.Context) (Capabilities, error) {
	a, err := s.ask(ctx, []string{"scontrol", "show", "config"}, "")
	if err != nil {
		return Capabilities{}, err
	}
	config := parseConfig(a.stdout)
	if a.exit != 0 || config["SLURM_VERSION"] == "" {
		return Capabilities{}, a.failed()
	}
	caps := capabilities(config)
	a, err = s.ask(ctx, []string{"sinfo", "--noheader", "--format=%P|%a|%D|%T"}, "")
	if err != nil {
		return Capabilities{}, err
	}
	if a.exit != 0 {
		return Capabilities{}, a.failed()
	}
	partitions := parsePartitions(a.stdout)
	if caps.Problem = s.partitionProblem(partitions); caps.Problem == "" {
		if note := s.partitionNote(partitions); note != "" {
			caps.Notes = append(caps.Notes, note)
		}
	}
	return caps, nil
}

// enoughKillWait is a time in which an agent is ended that ignores SIGTERM, and its work is pushed.
const enoughKillWait = 15 * time.Second

// capabilities returns what a configuration says.
func capabilities(config map[string]string) Capabilities {
	caps := Capabilities{Version: config["SLURM_VERSION"]}
	storage := config["AccountingStorageType"]
	caps.Accounting = storage != "" && storage != "(null)" && !strings.HasSuffix(storage, "/none")
	caps.KillWait, _ = parseSeconds(config["KillWait"])
	caps.Memory, _ = parseSeconds(config["MinJobAge"])
	note := func(format string, a ...any) { caps.Notes = append(caps.Notes, fmt.Sprintf(format, a...)) }
	if !caps.Accounting {
		note("the site has no accounting, so Slurm forgets a job %s after its end", caps.Memory)
	}
	if lost, ok := parseSeconds(config["SlurmdTimeout"]); ok && lost > 0 {
		note("a node that does not answer is given up after %s", lost)
	}
	if caps.KillWait > 0 && caps.KillWait < enoughKillWait {
		note("Slurm kills a job %s after SIGTERM (KillWait), which can be too soon for the work of an agent that does not end by itself", caps.KillWait)
	}
	switch mode := strings.ToUpper(config["PreemptMode"]); {
	case config["PreemptType"] == "" || strings.HasSuffix(config["PreemptType"], "/none") || mode == "OFF":
	case strings.Contains(mode, "REQUEUE"):
		note("jobs can be preempted by others; those that may be requeued begin again")
	case strings.Contains(mode, "CANCEL"):
		note("jobs can be preempted by others, which cancels them")
	case strings.Contains(mode, "SUSPEND"):
		note("jobs can be preempted by others, which suspends them")
	}
	if config["JobRequeue"] == "0" {
		note("the site requeues only jobs that ask for it, as jobs here do")
	}
	return caps
}

// partitionProblem tells why a job will be refused; it is empty if none is known.
func (s Slurm) partitionProblem(all []partition) string {
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.name
	}
	has := ""
	if len(names) > 0 {
		has = ": there are " + strings.Join(names, ", ")
	}
	switch {
	case s.partitionIn(all) >= 0:
		return ""
	case s.Partition == "":
		return "the site has no default partition, so one has to be configured" + has
	}
	return "there is no partition " + oneLine(s.Partition) + has
}

// partitionIn returns the index of the partition of jobs; negative if there is none.
func (s Slurm) partitionIn(all []partition) int {
	return slices.IndexFunc(all, func(p partition) bool { return p.name == s.Partition || s.Partition == "" && p.isDefault })
}

// partitionNote tells why no node will take a job; it is empty if one will.
func (s Slurm) partitionNote(all []partition) string {
	at := s.partitionIn(all)
	switch {
	case at < 0: // partitionProblem tells
	case !all[at].up:
		return "partition " + all[at].name + " is not up"
	case all[at].nodes == 0:
		return "no node of partition " + all[at].name + " can be reached"
	}
	return ""
}
