package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) landCommand() *cli.Command {
	return &cli.Command{
		Name:  "land",
		Usage: "move the work of sandboxes into the integration branch",
		UsageText: "git agency land <id>... [--strategy merge|squash|rebase] [[--commit-all] -m <message>] [--require-base]\n" +
			"                       [--verify <command> | --no-verify] [--push [--remote <remote>]] [-n | --dry-run]\n" +
			"   or: git agency land --all-ready [<wt>] [--strategy merge|squash|rebase] [--require-base]\n" +
			"                       [--verify <command> | --no-verify] [--push [--remote <remote>]] [-n | --dry-run]",
		Description: `Merges what was committed in a sandbox into the branch of its integration worktree, and into the files
of whoever has that branch checked out: all of it or nothing. Then the sandbox goes; its own commits
are kept as refs/agency/trash/<id> until they are pruned. Several are landed in order, up to the first
that fails; those before it stand.

The merge is made in memory. Nothing is touched when it conflicts, when a file of yours that you have
changed, staged, not added or ignored is in the way, when git is in the middle of something there, or
when work in the sandbox is not committed. A landing that is killed is finished or undone by the next
command.

With -m the commit that a merge or squash makes says that, and whose work it is. A rebase keeps the
messages that there are. With --commit-all it is what the commit of the rest says.

With --push the integration branch is pushed afterwards, never by force: to <remote>, else to the one
called local, else to origin. What others have pushed meanwhile is merged first, as a landing is, and
with --verify verified. Where it cannot be pushed what has landed stands; the same command tries again.

With --verify a shell runs the command on exactly the files that would land, in a sandbox of its own
with the walls and limits of the one that the work is from, and nothing lands unless it succeeds.
Meanwhile nobody has to wait; if something else would land by then, it runs again. What it writes is
shown, and kept in verify.log beside the record.

Exit status: 0 landed, or it had landed before; 1 failed, or refused because of uncommitted work, of
what is in the way, of what runs in the sandbox, or because the command of --verify failed; or landed,
but not pushed; 2 it conflicts: nothing changed but what the ids before it have landed, which the message
names, and standard output lists kinds and paths; 3 no such invocation; 4 broken; 5 refused for safety; 75 locked; 129 usage; 130 or 143 interrupted, undone first.`,
		Flags: changing(jsonFlag(
			&cli.StringFlag{Name: "strategy", Usage: "how it looks in history: `HOW` is " + strings.Join(gitagency.Strategies(), ", "), DefaultText: "agency.land.strategy, else merge"},
			&cli.BoolFlag{Name: "all-ready", Usage: "everything that was submitted in <wt>, in that order, past what conflicts"},
			&cli.BoolFlag{Name: "commit-all", Usage: "commit what is not committed first, but for what looks like a secret"},
			&cli.StringFlag{Name: "message", Aliases: []string{"m"}, Usage: "the `MESSAGE` of the landing; with --commit-all, of that commit"},
			&cli.BoolFlag{Name: "require-base", Usage: "only if the sandbox has everything that is on the integration branch"},
			&cli.StringFlag{Name: "verify", Usage: "only if a shell finds that `COMMAND` succeeds on what would land", DefaultText: "agency.verify"},
			&cli.BoolFlag{Name: "no-verify", Usage: "agency.verify does not count"},
			&cli.BoolFlag{Name: "push", Usage: "push the integration branch afterwards; what others have pushed is merged first"},
			&cli.StringFlag{Name: "remote", Usage: "with --push, the `REMOTE` to push to", DefaultText: "local if there is one, else origin"},
			&cli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "say what would happen and change nothing"},
		)...),
		Action: func(c *cli.Context) error {
			if c.Bool("commit-all") && !c.IsSet("message") {
				return asUsage(c, errors.New("--commit-all needs --message, for the commit that it makes"))
			}
			if c.IsSet("message") && !c.Bool("commit-all") && (c.Bool("all-ready") || c.NArg() > 1) {
				return asUsage(c, errors.New("--message is what one landing is called; land several one by one"))
			}
			if c.IsSet("remote") && !c.Bool("push") {
				return asUsage(c, errors.New("--remote goes with --push"))
			}
			if c.IsSet("verify") && c.Bool("no-verify") {
				return asUsage(c, errors.New("--verify and --no-verify contradict each other"))
			}
			if c.Bool("all-ready") && c.Bool("commit-all") {
				return asUsage(c, errors.New("--all-ready lands what was submitted; --commit-all adds to that"))
			}
			if c.Bool("all-ready") {
				return t.landReady(c)
			}
			t.opts.Swift = true // it is what everybody waits for who lands after us
			repo, named, err := t.openForEach(c)
			if err != nil {
				return err
			}
			worktrees := []string{}
			for _, inv := range named {
				worktrees = append(worktrees, inv.WorktreeID)
			}
			plans, err := t.planPush(c, repo, worktrees...)
			var archived *gitagency.ArchivedError
			if errors.As(err, &archived) {
				if at := slices.Index(worktrees, archived.ID); at >= 0 {
					archived.Invocation = named[at].ID
				}
			}
			if err != nil {
				return err
			}
			later, err := repo.TidiesLater()
			if err != nil {
				return err
			}
			ctx, stop := withParent(c.Context)
			defer stop()
			results := []landing{}
			var stand []string
			var failed error // those before it stand
			for _, inv := range named {
				req := t.landRequest(c)
				req.ID, req.Later, req.Stand = inv.ID, later, stand
				landed, err := repo.Land(ctx, req)
				if landed.Commit != "" {
					t.tellLanded(landed)
				}
				if landed.New() {
					stand = append(stand, inv.ID)
				}
				landed.DryRun = req.DryRun
				results = append(results, landingOf(inv.ID, inv.WorktreeID, landed, err))
				if err == nil && !c.Bool("json") {
					err = t.printLine(landed.Commit)
				}
				if failed = err; err != nil {
					break
				}
			}
			t.tidyLater(repo, results)
			t.tellAlone(c, results)
			if failed == nil { // what was asked for is to be pushed, and not some of it
				failed = t.push(c, repo, plans, results)
			} else {
				t.tellUnpushed(c, plans, results)
			}
			if c.Bool("json") {
				return errors.Join(failed, t.printJSON(results))
			}
			return errors.Join(failed, t.printConflicts(failed))
		},
	}
}

// landRequest is how to land, by the flags.
func (t *tool) landRequest(c *cli.Context) gitagency.LandRequest {
	return gitagency.LandRequest{
		Strategy: c.String("strategy"), CommitAll: c.Bool("commit-all"), Message: c.String("message"),
		RequireBase: c.Bool("require-base"), DryRun: c.Bool("dry-run"),
		Verify: c.String("verify"), NoVerify: c.Bool("no-verify"), Output: t.messages, Hurry: t.hurry,
	}
}

// tidyLater has another process remove what is left of the sandboxes that have landed: to say so again is to tidy up.
func (t *tool) tidyLater(repo *gitagency.Repository, landings []landing) {
	if repo.Stranded() {
		t.warn("the directory that you are in has gone with its sandbox; go to another")
	}
	argv := []string{t.args[0], "land"}
	for _, l := range landings {
		if l.Aside { // which it never is the second time
			argv = append(argv, l.Invocation)
		}
	}
	if len(argv) < 3 {
		return
	}
	if err := repo.TidyLater(argv); err != nil {
		t.warn("what is left of the sandboxes stays until 'git agency prune': " + err.Error())
	}
}

// landReady lands what was submitted, and reports on all of it.
func (t *tool) landReady(c *cli.Context) error {
	args, err := arguments(c, 0, 1)
	if err != nil {
		return err
	}
	repo, err := t.open(c)
	if err != nil {
		return err
	}
	wt, err := readyWorktree(c, repo, strings.Join(args, ""))
	if err != nil {
		return err
	}
	plans, err := t.planPush(c, repo, wt.ID)
	if err != nil {
		return err
	}
	req := t.landRequest(c)
	if req.Later, err = repo.TidiesLater(); err != nil {
		return err
	}
	ctx, stop := withParent(c.Context)
	defer stop()
	arrivals, err := repo.LandReady(ctx, wt.ID, req)
	if err != nil && arrivals == nil {
		return err
	}
	if len(arrivals) == 0 && err == nil && !c.Bool("json") {
		fmt.Fprintln(t.stderr, "nothing is submitted")
	}
	results := make([]landing, 0, len(arrivals))
	rows := make([][]string, 0, len(arrivals))
	queue := &queueError{}
	for _, a := range arrivals {
		result := "landed"
		switch {
		case is[*gitagency.ConflictsError](a.Err):
			result, queue.conflicting = "conflicts", append(queue.conflicting, a.Invocation)
		case a.Err != nil:
			result, queue.failed = "failed", queue.failed+1
		case a.DryRun:
			result = "would land"
		}
		if a.Err == nil {
			queue.landed++
		}
		var unproven *gitagency.VerifyError
		if errors.As(a.Err, &unproven) {
			queue.walls = hints(t.typed(unproven))
		}
		results = append(results, landingOf(a.Invocation, wt.ID, a.Landed, a.Err))
		rows = append(rows, []string{a.Invocation, a.Name, result, a.Commit, why(a.Err)})
	}
	t.tidyLater(repo, results)
	t.tellAlone(c, results)
	if err == nil { // also where nothing has landed now: what landed before may not have been pushed
		err = t.push(c, repo, plans, results)
	} else {
		t.tellUnpushed(c, plans, results)
	}
	switch {
	case c.Bool("json"):
		err = errors.Join(err, t.printJSON(results))
	case len(arrivals) == 0:
	default:
		err = errors.Join(err, t.printTable([]string{"ID", "NAME", "RESULT", "COMMIT", "WHY"}, rows))
	}
	if queue.landed < len(arrivals) && (err == nil || is[*gitagency.NotPushedError](err)) {
		err = errors.Join(err, queue)
	}
	return err
}

// readyWorktree is the one whose queue is meant. An id of an invocation is none.
func readyWorktree(c *cli.Context, repo *gitagency.Repository, query string) (gitagency.Worktree, error) {
	wt, err := repo.Worktree(query)
	if is[*gitagency.NotFoundError](err) {
		if _, noneSuch := repo.Invocation(query); noneSuch == nil {
			return wt, asUsage(c, errors.New("--all-ready lands all that was submitted in a worktree; it takes no ids of invocations"))
		}
		all, listErr := repo.Worktrees(true)
		if listErr != nil {
			return wt, listErr
		}
		for _, w := range all { // by its name, which no other has now
			if w.Name == query && w.State == "archived" {
				wt, err = w, nil
			}
		}
	}
	if err == nil && wt.State == "archived" {
		err = &gitagency.ArchivedError{Name: wt.Name, ID: wt.ID, Branch: wt.Branch}
	}
	return wt, err
}

// planPush finds out where to push, if that was asked for.
func (t *tool) planPush(c *cli.Context, repo *gitagency.Repository, worktrees ...string) ([]gitagency.PushPlan, error) {
	if !c.Bool("push") {
		return nil, nil
	}
	return repo.PlanPush(c.Context, c.String("remote"), worktrees...)
}

// push pushes what has landed, and completes what is reported of it.
func (t *tool) push(c *cli.Context, repo *gitagency.Repository, plans []gitagency.PushPlan, results []landing) error {
	for i, plan := range plans {
		ids := landedIn(plan.Worktree, results)
		if c.Bool("dry-run") {
			t.tellPushed("would push", plan)
		}
		var pushed gitagency.Pushed
		var err error
		if !c.Bool("dry-run") {
			pushed, err = repo.Push(c.Context, plan, t.landRequest(c), ids...)
		}
		var failed *gitagency.NotPushedError
		if errors.As(err, &failed) {
			failed.Back = c.Command.Name == "unland"
		}
		if pushed.Merged {
			fmt.Fprintln(t.stderr, printable(fmt.Sprintf("merged %s/%s, to which others have pushed, into %s", plan.Remote, plan.As, plan.Branch)))
		}
		for i := range results {
			if l := &results[i]; slices.Contains(ids, l.Invocation) {
				l.Pushed, l.Remote, l.PushTries, l.IntegrationCommit = err == nil && !c.Bool("dry-run"), plan.Remote, pushed.Tries, pushed.Commit
				if err != nil {
					l.Error = err.Error()
				}
			}
		}
		if err != nil {
			t.tellUnpushed(c, plans[i+1:], results)
			return &unpushedError{err, t.pushAgain(c, plan, ids)}
		}
		switch {
		case c.Bool("dry-run"):
		case pushed.Had:
			fmt.Fprintln(t.stderr, printable(fmt.Sprintf("%s has all of %s", plan.Remote, plan.Branch)))
		default:
			t.tellPushed("pushed", plan)
		}
	}
	return nil
}

// tellAlone says of several that would land that they may not all.
func (t *tool) tellAlone(c *cli.Context, results []landing) {
	n := 0
	for _, l := range results {
		if l.Commit != "" && !l.Already {
			n++
		}
	}
	if c.Bool("dry-run") && n > 1 {
		fmt.Fprintln(t.stderr, "each was tried alone, on the branch as it is now; together some of them may conflict")
	}
}

// landedIn are those that have landed in a worktree.
func landedIn(worktree string, results []landing) []string {
	ids := []string{}
	for _, l := range results {
		if l.worktree == worktree && l.Commit != "" {
			ids = append(ids, l.Invocation)
		}
	}
	return ids
}

// tellUnpushed names what has landed and was to be pushed, and is not because of something else.
func (t *tool) tellUnpushed(c *cli.Context, plans []gitagency.PushPlan, results []landing) {
	for _, plan := range plans {
		if ids := landedIn(plan.Worktree, results); len(ids) > 0 && !c.Bool("dry-run") {
			what := "what has landed on"
			if c.Command.Name == "unland" {
				what = "that it was taken back from"
			}
			t.warn(fmt.Sprintf("%s %s is not pushed to %s", what, plan.Branch, plan.Remote))
			t.hint("this pushes it" + t.pushAgain(c, plan, ids))
		}
	}
}

// pushAgain is what to type to have pushed what has landed. What -c said may be a secret, and is not repeated.
func (t *tool) pushAgain(c *cli.Context, plan gitagency.PushPlan, ids []string) string {
	what := "--all-ready " + plan.Worktree
	if len(ids) > 0 {
		what = ids[len(ids)-1]
	}
	words := c.Command.Name + " " + what + " --push --remote " + gitagency.ShellWord(plan.Remote)
	switch {
	case c.IsSet("verify"): // which what others push has to stand up to
		words += " --verify " + gitagency.ShellWord(c.String("verify"))
	case c.Bool("no-verify"):
		words += " --no-verify"
	}
	if t.getenv("GIT_CONFIG_PARAMETERS") != "" {
		return ", with the settings that -c gave: git -c … agency " + words
	}
	return ": git agency " + words
}

// unpushedError is a push that failed, and what to type to try again.
type unpushedError struct {
	error
	again string
}

func (e *unpushedError) Unwrap() error { return e.error }

func (t *tool) tellPushed(did string, plan gitagency.PushPlan) {
	as := ""
	if plan.As != plan.Branch {
		as = " as " + plan.As
	}
	fmt.Fprintln(t.stderr, printable(fmt.Sprintf("%s %s to %s%s", did, plan.Branch, plan.Remote, as)))
}

// why is a few words on what kept a changeset from landing.
func why(err error) string {
	paths := []string{}
	for _, c := range conflictsOf(err) {
		paths = append(paths, printable(c.Path))
	}
	if len(paths) > 0 {
		return strings.Join(paths, " ")
	}
	first, _, _ := strings.Cut(messageOf(err), "\n")
	return printable(first)
}

// queueError is a queue of which not everything has landed. What became of each is in the report.
type queueError struct {
	landed, failed int
	conflicting    []string // their ids
	walls          []string // what may have kept the last from being verified
}

func (e *queueError) Error() string {
	var parts []string
	for _, p := range []struct {
		n         int
		one, many string
	}{{e.landed, "does", "do"}, {len(e.conflicting), "conflicts", "conflict"}, {e.failed, "fails for another reason", "fail for another reason"}} {
		if p.n > 0 {
			parts = append(parts, counted(p.n, p.one, p.many))
		}
	}
	return "not everything that was submitted lands: " + strings.Join(parts, ", ")
}

func (e *queueError) hints() []string {
	switch len(e.conflicting) {
	case 0:
		return e.walls
	case 1:
		return append(e.walls, "'git agency sync "+e.conflicting[0]+"' brings what it conflicts with into the sandbox, to be resolved there")
	}
	return append(e.walls, "'git agency sync <id>' brings what one conflicts with into its sandbox, to be resolved there")
}

// landing is what came of one, also when that is nothing.
type landing struct {
	gitagency.Landed
	Conflicts []gitagency.Conflict `json:"conflicts"`
	Error     string               `json:"error"`
	pushing

	worktree string
}

// pushing is what came of a push, also when there was none.
type pushing struct {
	Pushed            bool   `json:"pushed"`
	Remote            string `json:"remote"`             // where to
	PushTries         int    `json:"push_tries"`         // how often it was sent there
	IntegrationCommit string `json:"integration_commit"` // where the branch was then: what others had pushed may have been merged
}

func landingOf(query, worktree string, landed gitagency.Landed, err error) landing {
	l := landing{Landed: landed, Conflicts: conflictsOf(err), Error: messageOf(err), worktree: worktree}
	if l.Invocation == "" {
		l.Invocation, l.LeftOut = query, []gitagency.LeftOut{}
	}
	var unverified *gitagency.VerifyError
	if errors.As(err, &unverified) {
		l.VerifyLog = unverified.Log
	}
	return l
}

func conflictsOf(err error) []gitagency.Conflict {
	var conflicts *gitagency.ConflictsError
	if errors.As(err, &conflicts) {
		return conflicts.Conflicts
	}
	return []gitagency.Conflict{}
}

func messageOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// printConflicts lists the conflicts of an error, if it is about such.
func (t *tool) printConflicts(err error) error {
	var conflicts *gitagency.ConflictsError
	if !errors.As(err, &conflicts) {
		return nil
	}
	for _, c := range conflicts.Conflicts {
		if err := t.printLine(strings.Join(c.Kinds, ",") + "\t" + gitagency.QuotedPath(c.Path)); err != nil {
			return err
		}
	}
	return nil
}

// tellLanded says what came of a landing.
func (t *tool) tellLanded(l gitagency.Landed) {
	for _, o := range l.LeftOut {
		t.warn("left out " + o.Path + ": " + whyLeftOut[o.Why])
	}
	kept := slices.IndexFunc(l.LeftOut, func(o gitagency.LeftOut) bool { return o.Why == gitagency.LeftSecret })
	if kept >= 0 && l.TrashRef != "" {
		t.hint("what looks like a credential is kept until it is pruned: git show " + gitagency.ShellWord(l.TrashRef+":"+l.LeftOut[kept].Path))
	}
	would := ""
	if l.DryRun {
		would = "would have "
	}
	switch {
	case l.Already:
		fmt.Fprintf(t.stderr, "%s had landed before: %s has all of it\n", l.Invocation, l.Branch)
	default:
		fmt.Fprintf(t.stderr, "%slanded %s of %s on %s\n", would, counted(l.Commits, "commit", "commits"), l.Invocation, l.Branch)
	}
}
