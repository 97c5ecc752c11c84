package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
)

// List asks squeue, and sacct for jobs that squeue does not know any more. Of several jobs of one name, the newest counts.
func (s Slurm) List(ctx context.Context, jobs []Ref) ([]Status, error) {
	byCluster := map[string][]Ref{}
	for _, job := range jobs {
		cluster := ""
		if job.ID != "" {
			id, err := parseID(job.ID)
			if err != nil {
				return nil, err
			}
			cluster = id.cluster
		}
		byCluster[cluster] = append(byCluster[cluster], job)
	}
	var all []Status
	for _, cluster := range slices.Sorted(maps.Keys(byCluster)) { // one query for almost every site
		some, err := s.listCluster(ctx, cluster, byCluster[cluster])
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

func (s Slurm) listCluster(ctx context.Context, cluster string, jobs []Ref) ([]Status, error) {
	a, err := s.ask(ctx, queueArgs(cluster, jobs), "")
	switch {
	case err != nil:
		return nil, err
	case a.exit != 0 && !a.isUnknownJob(): // squeue refuses a single id that it does not know
		return nil, a.failed()
	}
	found, missing := match(cluster, jobs, parseQueue(a.stdout))
	if len(missing) == 0 || !s.hasProgram("sacct") {
		return found, nil
	}
	a, err = s.ask(ctx, accountArgs(cluster, missing), "")
	var unreachable *UnreachableError
	switch {
	case errors.As(err, &unreachable):
		return found, nil // the login node has no sacct
	case err != nil:
		return nil, err
	}
	// A site without accounting makes sacct fail, so its exit code says nothing.
	old, _ := match(cluster, missing, parseAccounts(a.stdout))
	return append(found, old...), nil
}

// queueArgs returns the command line of squeue. Without all ids it asks by name, for jobs of the user: others may use the
// same names.
func queueArgs(cluster string, jobs []Ref) []string {
	args := append(slurmID{cluster: cluster}.client("squeue"), "--noheader", "--states=all")
	if ids := idList(jobs); ids != "" {
		args = append(args, "--jobs="+ids)
	} else {
		args = append(args, "--me", "--name="+nameList(jobs))
	}
	return append(args, "--Format="+squeueFormat())
}

// accountArgs returns the command line of sacct. Without ids it shows only jobs since a date.
func accountArgs(cluster string, jobs []Ref) []string {
	args := append(slurmID{cluster: cluster}.client("sacct"), "--noheader", "--allocations", "--parsable2", "--duplicates")
	if ids := idList(jobs); ids != "" {
		args = append(args, "--jobs="+ids)
	} else {
		args = append(args, "--starttime=now-30days", "--name="+nameList(jobs))
	}
	return append(args, "--format="+strings.Join(accountFields, ","))
}

// idList joins the numbers of jobs; it is empty if one is not known.
func idList(jobs []Ref) string {
	var numbers []string
	for _, job := range jobs {
		id, err := parseID(job.ID)
		if err != nil {
			return ""
		}
		numbers = append(numbers, id.number)
	}
	return strings.Join(numbers, ",")
}

func nameList(jobs []Ref) string {
	var names []string
	for _, job := range jobs {
		names = append(names, job.Name)
	}
	return strings.Join(names, ",")
}

// match returns the states of jobs that an answer tells, and the jobs that it does not tell about. Names have to match as
// well as ids: numbers are used again when a controller lost its state.
func match(cluster string, jobs []Ref, told []slurmJob) (found []Status, missing []Ref) {
	newest := map[string]slurmJob{}
	for _, j := range told {
		for _, key := range []string{j.name, j.name + "\x00" + slurmID{j.number, cluster}.String()} {
			if old, seen := newest[key]; !seen || len(j.number) > len(old.number) || len(j.number) == len(old.number) && j.number >= old.number {
				newest[key] = j
			}
		}
	}
	for _, job := range jobs {
		key := job.Name
		if job.ID != "" {
			key += "\x00" + job.ID
		}
		if j, ok := newest[key]; ok {
			found = append(found, j.status(cluster))
		} else {
			missing = append(missing, job)
		}
	}
	return found, missing
}

// Watch asks List in pauses that grow while nothing changes. It calls changed with the states of all jobs that the engine knows.
func (s Slurm) Watch(ctx context.Context, jobs []Ref, changed func([]Status) bool, failed func(error)) error {
	return s.watch(ctx, func() ([]Status, error) { return s.List(ctx, jobs) }, changed, failed)
}
