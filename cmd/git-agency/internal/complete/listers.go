package complete

import (
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
)

// lister lists the candidates for an argument or a flag value.
type lister func(*commandLine) ([]candidate, error)

// repeatLast, as the last lister of a command, repeats the one before it.
var repeatLast lister

// freeText is the lister of arguments without candidates.
func freeText(*commandLine) ([]candidate, error) { return nil, nil }

// Listers of words that the shell completes itself.
var (
	shellDirectories = completedByShell("directories")
	shellFiles       = completedByShell("files")
	shellCommands    = completedByShell("commands")
	shellCommits     = completedByShell("commits")
)

func completedByShell(what string) lister {
	return func(*commandLine) ([]candidate, error) { return []candidate{{"", what}}, nil }
}

func oneOf(values ...string) lister {
	return func(*commandLine) ([]candidate, error) {
		var found []candidate
		for _, v := range values {
			found = append(found, candidate{v, ""})
		}
		return found, nil
	}
}

func primitiveValues(name string) lister { return oneOf(gitagency.PrimitiveValues(name)...) }

// variableNames lists the environment variables, except those that the shell and git set for this request.
func variableNames(cl *commandLine) ([]candidate, error) {
	var names []string
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); name != "_" && name != "GIT_CONFIG_PARAMETERS" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return oneOf(slices.Compact(names)...)(cl)
}

// diffStates lists the states that diff can compare: keywords, then snapshots. If the snapshots cannot be read, it
// still lists the keywords.
func diffStates(cl *commandLine) ([]candidate, error) {
	found, _ := oneOf(gitagency.DiffBase, gitagency.DiffHead, gitagency.DiffWork, gitagency.DiffIntegration)(cl)
	snapshots, _ := snapshotNames(cl)
	return append(found, snapshots...), nil
}

// sandboxDirectories lists the directories of the sandbox on the line, one level below the typed path.
func sandboxDirectories(cl *commandLine) ([]candidate, error) {
	if len(cl.args) == 0 {
		return nil, nil
	}
	repo, err := cl.openRepository()
	if err != nil {
		return nil, err
	}
	sandbox, err := repo.Sandbox(cl.args[0])
	if err != nil {
		return nil, err
	}
	above := cl.partialWord[:strings.LastIndex(cl.partialWord, "/")+1]
	names, err := sandbox.Directories(above)
	if err != nil {
		return nil, err
	}
	var found []candidate
	for _, name := range names {
		found = append(found, candidate{above + name + "/", ""})
	}
	return found, nil
}

// commandNames lists the commands below the one that the arguments name so far.
func commandNames(cl *commandLine) ([]candidate, error) {
	commands := cl.App.Commands
	for _, name := range cl.args {
		i := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(name) })
		if i < 0 {
			return nil, nil
		}
		commands = commands[i].Subcommands
	}
	return commandCandidates(commands), nil
}

func (cl *commandLine) openRepository() (*gitagency.Repository, error) {
	return gitagency.Open(cl.ctx, cl.Options)
}

func (cl *commandLine) now() time.Time {
	if cl.Options.Now != nil {
		return cl.Options.Now()
	}
	return time.Now()
}

func profileNames(cl *commandLine) ([]candidate, error) {
	repo, err := cl.openRepository()
	if err != nil {
		return nil, err
	}
	return oneOf(repo.Profiles()...)(cl)
}

// presentWorktrees lists the worktrees that sandboxes can start from, first by name and then by id.
func presentWorktrees(cl *commandLine) ([]candidate, error) { return listWorktrees(cl, false) }

// presentOrBrokenWorktrees lists the worktrees that can be shown or removed. A broken one is listed by its id only,
// because it cannot be found by name.
func presentOrBrokenWorktrees(cl *commandLine) ([]candidate, error) { return listWorktrees(cl, true) }

func listWorktrees(cl *commandLine, brokenToo bool) ([]candidate, error) {
	repo, err := cl.openRepository()
	if err != nil {
		return nil, err
	}
	worktrees, err := repo.Worktrees(brokenToo)
	if err != nil {
		return nil, err
	}
	var names, ids []candidate
	for _, w := range worktrees {
		switch {
		case w.Broken:
			ids = append(ids, brokenWorktreeCandidate(w))
		case w.State == "present":
			names = append(names, candidate{w.Name, w.Branch})
			ids = append(ids, candidate{w.ID, w.Name})
		}
	}
	return append(names, ids...), nil
}

// allInvocations lists all invocations, including those that have ended or are broken, since they can be shown too.
func allInvocations(cl *commandLine) ([]candidate, error) {
	return listInvocations(cl, func(gitagency.Invocation) bool { return true })
}

// invocationsWithSandbox lists the invocations whose sandbox exists.
func invocationsWithSandbox(cl *commandLine) ([]candidate, error) {
	return listInvocations(cl, func(i gitagency.Invocation) bool {
		_, err := i.Path()
		return err == nil
	})
}

// landableInvocations lists the invocations that can land and are not on the line yet.
func landableInvocations(cl *commandLine) ([]candidate, error) {
	return listInvocations(cl, func(i gitagency.Invocation) bool {
		_, err := i.Path()
		return err == nil && i.Verifies == "" && !slices.Contains(cl.args, i.ID)
	})
}

// submittableInvocations lists the invocations that can be submitted for review and are not on the line yet.
func submittableInvocations(cl *commandLine) ([]candidate, error) {
	return listInvocations(cl, func(i gitagency.Invocation) bool {
		return !i.Broken && i.Verifies == "" && (i.Landing == "" || i.Landing == "rejected") && !slices.Contains(cl.args, i.ID)
	})
}

// invocationsInReview lists the invocations that can be rejected.
func invocationsInReview(cl *commandLine) ([]candidate, error) {
	return listInvocations(cl, func(i gitagency.Invocation) bool { return !i.Broken && i.Landing == "review" })
}

// discardableInvocations lists the invocations that can be discarded and are not on the line yet.
func discardableInvocations(cl *commandLine) ([]candidate, error) {
	return listInvocations(cl, func(i gitagency.Invocation) bool {
		return (i.Broken || i.Landing != "discarded") && !slices.Contains(cl.args, i.ID)
	})
}

// endedInvocations lists the invocations that were landed or discarded.
func endedInvocations(cl *commandLine) ([]candidate, error) {
	return listInvocations(cl, func(i gitagency.Invocation) bool { return !i.Broken && i.TrashRef != "" })
}

func listInvocations(cl *commandLine, wanted func(gitagency.Invocation) bool) ([]candidate, error) {
	repo, err := cl.openRepository()
	if err != nil {
		return nil, err
	}
	all, err := repo.Invocations(cl.ctx, gitagency.ListRequest{All: true})
	if err != nil {
		return nil, err
	}
	var found []candidate
	for _, i := range all {
		if wanted(i) {
			found = append(found, candidate{i.ID, joinNonEmpty(i.Name, i.Worktree, format.State(i))})
		}
	}
	return found, nil
}

// snapshotNames lists the snapshots of all invocations by name.
func snapshotNames(cl *commandLine) ([]candidate, error) {
	repo, err := cl.openRepository()
	if err != nil {
		return nil, err
	}
	all, err := repo.Snapshots(cl.ctx, gitagency.SnapshotsRequest{SkipCounts: true})
	if err != nil {
		return nil, err
	}
	var found []candidate
	for _, s := range all {
		found = append(found, candidate{s.Name(), joinNonEmpty(s.Subject(), term.Ago(cl.now(), s.TakenAt))})
	}
	return found, nil
}

// brokenRecords lists all broken invocations and worktrees.
func brokenRecords(cl *commandLine) ([]candidate, error) {
	repo, err := cl.openRepository()
	if err != nil {
		return nil, err
	}
	invocations, err := repo.Invocations(cl.ctx, gitagency.ListRequest{All: true})
	if err != nil {
		return nil, err
	}
	worktrees, err := repo.Worktrees(true)
	if err != nil {
		return nil, err
	}
	var found []candidate
	for _, i := range invocations {
		if i.Broken {
			found = append(found, candidate{i.ID, joinNonEmpty("invocation", i.Name, format.State(i))})
		}
	}
	for _, w := range worktrees {
		if w.Broken {
			found = append(found, brokenWorktreeCandidate(w))
		}
	}
	return found, nil
}

func brokenWorktreeCandidate(w gitagency.Worktree) candidate {
	return candidate{w.ID, joinNonEmpty("worktree", w.Name, "broken: "+w.BrokenReason)}
}

// joinNonEmpty joins the parts that are not empty.
func joinNonEmpty(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), ", ")
}
