package fakeslurm

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// squeue prints jobs in columns.
func squeue(c *cluster, args []string, out io.Writer) error {
	o, rest, err := parseOptions("squeue", args, "--noheader", "--states=", "--jobs=", "--me", "--name=", "--Format=")
	switch {
	case err != nil:
		return err
	case len(rest) > 0 || !o.has("--noheader") || o["--states"] != "all" || o.has("--name") != o.has("--me"):
		return errors.New("squeue: the simulated Slurm needs --noheader, --states=all and --me with --name")
	}
	return c.ask("slurm_load_jobs error", func(s *state) error {
		ids := strings.Split(o["--jobs"], ",")
		if o.has("--jobs") && len(ids) == 1 && s.find(ids[0]) == nil {
			return errors.New("slurm_load_jobs error: Invalid job id specified")
		}
		for _, j := range s.Jobs {
			if o.has("--jobs") && !slices.Contains(ids, strconv.Itoa(j.ID)) || o.has("--name") && !slices.Contains(strings.Split(o["--name"], ","), j.Name) {
				continue
			}
			line, err := j.columns(o["--Format"])
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintln(out, line); err != nil {
				return err
			}
		}
		return nil
	})
}

// columns formats a job as squeue -O does: values are cut to the width of their column and filled with spaces.
func (j *job) columns(format string) (string, error) {
	var b strings.Builder
	for field := range strings.SplitSeq(format, ",") {
		name, size, _ := strings.Cut(field, ":")
		width, err := strconv.Atoi(size)
		if err != nil {
			return "", fmt.Errorf("squeue: the field %s has no width", field)
		}
		values := map[string]string{
			"JobID": strconv.Itoa(j.ID), "State": j.State, "RestartCnt": strconv.Itoa(j.Restarts), "exit_code": strconv.Itoa(j.Wait), "BatchHost": j.Node,
			"Reason": j.Reason, "Name": j.Name,
		}
		value, ok := values[name]
		if !ok {
			return "", fmt.Errorf("squeue: the simulated Slurm does not know the field %s", name)
		}
		fmt.Fprintf(&b, "%-*.*s", width, width, value)
	}
	return b.String(), nil
}

// sacct prints what the accounting knows, if there is one.
func sacct(c *cluster, args []string, out io.Writer) error {
	o, rest, err := parseOptions("sacct", args, "--noheader", "--allocations", "--parsable2", "--duplicates", "--jobs=", "--name=", "--starttime=", "--format=")
	switch {
	case err != nil:
		return err
	case len(rest) > 0 || !o.has("--noheader") || !o.has("--allocations") || !o.has("--parsable2") || !o.has("--duplicates"):
		return errors.New("sacct: the simulated Slurm needs --noheader, --allocations, --parsable2 and --duplicates")
	}
	return c.update(func(s *state) error {
		if !s.Accounting {
			return refuse("Slurm accounting storage is disabled")
		}
		for _, r := range s.Records {
			if o.has("--jobs") && !slices.Contains(strings.Split(o["--jobs"], ","), strconv.Itoa(r.ID)) ||
				o.has("--name") && !slices.Contains(strings.Split(o["--name"], ","), r.Name) {
				continue
			}
			values := map[string]string{
				"JobID": strconv.Itoa(r.ID), "State": r.State, "ExitCode": fmt.Sprintf("%d:%d", r.Wait>>8, r.Wait&0x7f), "NodeList": r.Node, "JobName": r.Name,
			}
			var line []string
			for field := range strings.SplitSeq(o["--format"], ",") {
				value, ok := values[field]
				if !ok {
					return fmt.Errorf("sacct: error: Invalid field requested: %q", field)
				}
				line = append(line, value)
			}
			if _, err := fmt.Fprintln(out, strings.Join(line, "|")); err != nil {
				return err
			}
		}
		return nil
	})
}

// scontrol prints the configuration, or releases a job that is held.
func scontrol(c *cluster, args []string, out io.Writer) error {
	return c.ask("slurm_load_ctl_conf error", func(s *state) error {
		switch {
		case slices.Equal(args, []string{"show", "config"}):
			storage := "accounting_storage/none"
			if s.Accounting {
				storage = "accounting_storage/slurmdbd"
			}
			_, err := fmt.Fprintf(out, "Configuration data as of 2026-01-01T00:00:00\nAccountingStorageType   = %s\nJobRequeue              = 1\n"+
				"KillWait                = %d sec\nMinJobAge               = 300 sec\nPreemptMode             = REQUEUE\n"+
				"PreemptType             = preempt/partition_prio\nSLURM_VERSION           = 22.05.8\nSlurmdTimeout           = 10 sec\n", storage, c.killWait())
			return err
		case len(args) == 2 && args[0] == "release":
			j, err := s.mustFind(args[1])
			if err != nil {
				return err
			}
			if j.State != "PENDING" {
				return nil
			}
			return c.start(s, j)
		}
		return fmt.Errorf("scontrol: the simulated Slurm does not know %q", args)
	})
}

// sinfo prints the partitions.
func sinfo(c *cluster, args []string, out io.Writer) error {
	o, rest, err := parseOptions("sinfo", args, "--noheader", "--format=")
	if err != nil {
		return err
	}
	if len(rest) > 0 || !o.has("--noheader") || o["--format"] != "%P|%a|%D|%T" {
		return fmt.Errorf("sinfo: the simulated Slurm does not know %q", args)
	}
	return c.ask("slurm_load_partitions", func(*state) error {
		_, err := fmt.Fprint(out, "normal*|up|3|idle\nhigh|up|3|idle\n")
		return err
	})
}
