package complete

import (
	"cmp"
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

// softwareRoots lists the names of root file systems; the shell completes directories.
func softwareRoots(*commandLine) ([]candidate, error) {
	var found []candidate
	for _, v := range gitagency.PrimitiveValues("software") {
		found = append(found, candidate{v, ""})
	}
	return append(found, candidate{"", "directories"}), nil
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

// helpTopics lists the commands and the sections of the manual. The sections are in lower case if the word has such letters.
func helpTopics(cl *commandLine) ([]candidate, error) {
	found, err := commandNames(cl)
	for _, section := range cl.Sections() {
		if cl.partialWord != strings.ToUpper(cl.partialWord) {
			section = strings.ToLower(section)
		}
		found = append(found, candidate{section, "section of the manual"})
	}
	return found, err
}

// openRepository opens the repository, once.
func (cl *commandLine) openRepository() (*gitagency.Repository, error) {
	var err error
	if cl.repo == nil {
		opts := cl.Options
		opts.AsRecorded = true // TAB waits for no engine
		cl.repo, err = gitagency.Open(cl.ctx, opts)
		if err != nil { // sandboxes over plain directories need no repository
			if paths, other := gitagency.OpenPaths(cl.ctx, cl.Options); other == nil {
				cl.repo, err = paths, nil
			}
		}
	}
	return cl.repo, err
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

// runnerNames lists the agents for --runner.
func runnerNames(cl *commandLine) ([]candidate, error) {
	repo, err := cl.openRepository()
	if err != nil {
		return nil, err
	}
	return oneOf(repo.Runners()...)(cl)
}

// presentWorktrees lists the worktrees that sandboxes can start from, first by name and then by id.
func presentWorktrees(cl *commandLine) ([]candidate, error) {
	return listWorktrees(cl, func(w gitagency.Worktree) bool { return !w.Broken })
}

// finishableWorktrees lists the worktrees that have a parent branch to be merged into.
func finishableWorktrees(cl *commandLine) ([]candidate, error) {
	return listWorktrees(cl, func(w gitagency.Worktree) bool { return !w.Broken && w.ParentBranch != "" })
}

// presentOrBrokenWorktrees lists the worktrees that can be shown or removed. A broken one is listed by its id only,
// because it cannot be found by name.
func presentOrBrokenWorktrees(cl *commandLine) ([]candidate, error) {
	return listWorktrees(cl, func(gitagency.Worktree) bool { return true })
}

// listWorktrees lists the wanted worktrees among those that are present or broken.
func listWorktrees(cl *commandLine, wanted func(gitagency.Worktree) bool) ([]candidate, error) {
	repo, err := cl.openRepository()
	if err != nil {
		return nil, err
	}
	worktrees, err := repo.Worktrees(true)
	if err != nil {
		return nil, err
	}
	var names, ids []candidate
	for _, w := range worktrees {
		switch {
		case !wanted(w):
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

// invocationsWithRuns lists the invocations in which an agent was run and that are not on the line yet.
func invocationsWithRuns(cl *commandLine) ([]candidate, error) {
	return listOtherInvocations(cl, func(i gitagency.Invocation) bool { return !i.Broken && i.SessionID != "" })
}

// landableInvocations lists the invocations that can land and are not on the line yet.
func landableInvocations(cl *commandLine) ([]candidate, error) {
	return listOtherInvocations(cl, func(i gitagency.Invocation) bool {
		_, err := i.Path()
		return err == nil && i.Verifies == ""
	})
}

// submittableInvocations lists the invocations that can be submitted for review and are not on the line yet.
func submittableInvocations(cl *commandLine) ([]candidate, error) {
	return listOtherInvocations(cl, func(i gitagency.Invocation) bool {
		return !i.Broken && i.Verifies == "" && (i.Landing == "" || i.Landing == gitagency.StateRejected)
	})
}

// invocationsInReview lists the invocations that can be rejected.
func invocationsInReview(cl *commandLine) ([]candidate, error) {
	return listInvocations(cl, func(i gitagency.Invocation) bool { return !i.Broken && i.Landing == gitagency.StateReview })
}

// discardableInvocations lists the invocations that can be discarded and are not on the line yet.
func discardableInvocations(cl *commandLine) ([]candidate, error) {
	return listOtherInvocations(cl, func(i gitagency.Invocation) bool {
		_, err := i.Path()
		return i.Broken || err == nil
	})
}

// landedInvocations lists the invocations whose landing can be reverted. A reverted one is listed too, since unland --push
// retries its push.
func landedInvocations(cl *commandLine) ([]candidate, error) {
	return listInvocations(cl, func(i gitagency.Invocation) bool { return !i.Broken && i.Landing == gitagency.StateLanded })
}

// endedInvocations lists the invocations that were landed or discarded.
func endedInvocations(cl *commandLine) ([]candidate, error) {
	return listInvocations(cl, func(i gitagency.Invocation) bool { return !i.Broken && i.TrashRef != "" })
}

// listOtherInvocations lists the wanted invocations that are not on the line yet, in whatever way they are named there.
func listOtherInvocations(cl *commandLine, wanted func(gitagency.Invocation) bool) ([]candidate, error) {
	repo, err := cl.openRepository()
	if err != nil {
		return nil, err
	}
	var given []string
	for _, query := range cl.args {
		if i, err := repo.Invocation(query); err == nil { // the command itself reports a word that names none
			given = append(given, i.ID)
		}
	}
	return listInvocations(cl, func(i gitagency.Invocation) bool { return wanted(i) && !slices.Contains(given, i.ID) })
}

// listInvocations lists the wanted invocations by id, and turns a name at the cursor into the id. For a word that begins
// with @ it lists the newest ones instead.
func listInvocations(cl *commandLine, wanted func(gitagency.Invocation) bool) ([]candidate, error) {
	repo, err := cl.openRepository()
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(cl.partialWord, "@") {
		return newestInvocations(cl, repo, wanted), nil
	}
	all, err := repo.Invocations(cl.ctx, gitagency.ListRequest{All: true})
	if err != nil {
		return nil, err
	}
	var found []namedCandidate
	for _, i := range all {
		if wanted(i) {
			found = append(found, namedCandidate{candidate{i.ID, cl.describe(i)}, i.Name})
		}
	}
	return replaceName(cl.partialWord, found), nil
}

// describe returns the description of an invocation.
func (cl *commandLine) describe(i gitagency.Invocation) string {
	return joinNonEmpty(cmp.Or(i.Name, i.Task), i.Worktree, format.State(i, cl.now()))
}

// snapshotNames lists the snapshots of all invocations by name, and turns the name of an invocation at the cursor into
// those of its snapshots.
func snapshotNames(cl *commandLine) ([]candidate, error) {
	repo, err := cl.openRepository()
	if err != nil {
		return nil, err
	}
	all, err := repo.Snapshots(cl.ctx, gitagency.SnapshotsRequest{SkipCounts: true})
	if err != nil {
		return nil, err
	}
	names, err := invocationNames(cl, repo)
	if err != nil {
		return nil, err
	}
	var found []namedCandidate
	for _, s := range all {
		name := names[s.Invocation]
		found = append(found, namedCandidate{candidate{s.Name(), joinNonEmpty(name, s.Subject(), term.Ago(cl.now(), s.TakenAt))}, name})
	}
	return replaceName(cl.partialWord, found), nil
}

// invocationNames returns the names of all invocations by id.
func invocationNames(cl *commandLine, repo *gitagency.Repository) (map[string]string, error) {
	all, err := repo.Invocations(cl.ctx, gitagency.ListRequest{All: true})
	names := map[string]string{}
	for _, i := range all {
		names[i.ID] = i.Name
	}
	return names, err
}

// brokenRecords lists all broken invocations and worktrees by id, and turns a name at the cursor into the id.
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
	var found []namedCandidate
	for _, i := range invocations {
		if i.Broken {
			found = append(found, namedCandidate{candidate{i.ID, joinNonEmpty("invocation", i.Name, format.State(i, cl.now()))}, i.Name})
		}
	}
	for _, w := range worktrees {
		if w.Broken {
			found = append(found, namedCandidate{brokenWorktreeCandidate(w), w.Name})
		}
	}
	return replaceName(cl.partialWord, found), nil
}

func brokenWorktreeCandidate(w gitagency.Worktree) candidate {
	return candidate{w.ID, joinNonEmpty("worktree", w.Name, "broken: "+w.BrokenReason)}
}

// joinNonEmpty joins the parts that are not empty.
func joinNonEmpty(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), ", ")
}
