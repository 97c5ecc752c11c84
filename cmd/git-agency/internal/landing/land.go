package landing

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/argv"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/interrupt"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

// Land builds the command that merges the work of sandboxes into the integration branch.
func (t Commands) Land() *cli.Command {
	return &cli.Command{
		Name:  "land",
		Usage: "merge the work of sandboxes into the integration branch",
		UsageText: "git agency land [<id>...] [--strategy merge|squash|rebase] [--leave | [--commit-all] -m <message>]\n" +
			"                       [--require-base] [--verify <command> | --no-verify] [--resolve[=<runner>] | --no-resolve]\n" +
			"                       [--push [--remote <remote>]] [-n | --dry-run]\n" +
			"   or: git agency land --all-ready [<wt>] [--strategy merge|squash|rebase] [--leave] [--require-base]\n" +
			"                       [--verify <command> | --no-verify] [--resolve[=<runner>] | --no-resolve]\n" +
			"                       [--push [--remote <remote>]] [-n | --dry-run] [--no-abbrev]",
		Description: `Merges HEAD of a sandbox into the branch of its integration worktree, and updates the worktree that has
that branch checked out: all or nothing. Then removes the sandbox, and keeps its commits as
refs/agency/trash/<id> until they are pruned. Several ids land in order, up to the first that fails; the
earlier ones stay landed.

The merge is made in memory. Nothing changes if it conflicts, if a path that would be written is changed,
staged, untracked or ignored in the worktree, if a merge or rebase is in progress there, or if the sandbox
has uncommitted work. A killed landing is completed or undone by the next command.

-m is the message of the merge or squash commit; a rebase keeps the messages of the commits. With
--commit-all it is the message of the commit of the uncommitted work.

--leave lands what is committed and leaves uncommitted work in the trash, from which 'git agency restore'
makes a sandbox with it. Untracked files that agency.leave names are always left there.

--push pushes the integration branch afterwards, never by force. If the remote has moved, its commits are
merged first, and verified with --verify. If the push fails, the landing stands, and the same command
retries the push.

--verify runs a shell command on exactly the files that would land, in a new sandbox with the same walls
and limits; nothing lands unless it succeeds. The repository is not locked meanwhile; if the files to land
change, it runs again. The output is shown, and kept in verify.log beside the record.

--resolve has an agent resolve conflicts: the agent of the invocation, in its session, or <runner>. The
integration branch is merged into the sandbox as by 'git agency sync', the agent commits a resolution
there, and the landing is tried once more. If the agent fails, asks or leaves conflict markers, or if the
resolution does not pass --verify, the sandbox is returned to its state before, and it is a conflict.

Exit status: 0 landed, or it had landed before; 1 failed or refused, nothing changed, or landed, but not
pushed; 2 conflicts: nothing changed for this id, earlier ids stay landed and are named, and standard
output lists kinds and paths; with --all-ready some conflict and the others landed, but 1 if there was
another failure too; 3 no such invocation or worktree; 4 broken; 5 refused for safety; 75 locked; 129 usage;
130 or 143 interrupted, undone first.`,
		Flags: program.WithAbbrevFlag(program.WithRepositoryLockFlag(program.WithJSONFlag(
			&cli.StringFlag{Name: "strategy", Usage: "`HOW` it is recorded: " + strings.Join(gitagency.Strategies(), ", "), DefaultText: "agency.land.strategy, else merge"},
			&cli.BoolFlag{Name: "all-ready", Usage: "land everything submitted in <wt>, in order, and continue after failures"},
			&cli.BoolFlag{Name: "commit-all", Usage: "first commit uncommitted work, except files that look like credentials"},
			&cli.BoolFlag{Name: "leave", Usage: "leave uncommitted work in the trash instead of refusing it"},
			&cli.StringFlag{Name: "message", Aliases: []string{"m"}, Usage: "the `MESSAGE` of the landing; with --commit-all, of that commit"},
			&cli.BoolFlag{Name: "require-base", Usage: "land only if the sandbox contains the whole integration branch"},
			&cli.StringFlag{Name: "verify", Usage: "land only if the shell `COMMAND` succeeds on the files to land", DefaultText: "agency.verify"},
			&cli.BoolFlag{Name: "no-verify", Usage: "ignore agency.verify"},
			argv.AttachedValueFlag{GenericFlag: &cli.GenericFlag{Name: "resolve", Value: &argv.OptionalValue{}, Usage: "let an agent resolve conflicts: --resolve=RUNNER, or --resolve for that of the invocation", DefaultText: "agency.land.resolve"}},
			&cli.BoolFlag{Name: "no-resolve", Usage: "ignore agency.land.resolve"},
			&cli.BoolFlag{Name: "push", Usage: "push the integration branch afterwards"},
			&cli.StringFlag{Name: "remote", Usage: "with --push, the `REMOTE` to push to", DefaultText: "the source of clones; else local if there is one, else origin"},
			&cli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "say what would happen and change nothing"},
		)...)...),
		Action: func(c *cli.Context) error {
			if err := t.checkLandFlags(c); err != nil {
				return err
			}
			if c.Bool("all-ready") {
				return t.landReady(c)
			}
			return t.land(c)
		},
	}
}

// checkLandFlags refuses flags of land that contradict each other, and --commit-all without a message.
func (t Commands) checkLandFlags(c *cli.Context) error {
	if c.Bool("leave") && c.Bool("commit-all") {
		return program.NewUsageError(c, errors.New("--leave and --commit-all contradict each other"))
	}
	if c.IsSet("message") && !c.Bool("commit-all") && (c.Bool("all-ready") || c.NArg() > 1) {
		return program.NewUsageError(c, errors.New("--message is for one landing; land several ids one by one"))
	}
	if c.Bool("no-abbrev") && !c.Bool("all-ready") {
		return program.NewUsageError(c, errors.New("--no-abbrev is for the table of --all-ready"))
	}
	if c.IsSet("remote") && !c.Bool("push") {
		return program.NewUsageError(c, errors.New("--remote needs --push"))
	}
	if c.IsSet("verify") && c.Bool("no-verify") {
		return program.NewUsageError(c, errors.New("--verify and --no-verify contradict each other"))
	}
	if c.IsSet("resolve") && c.Bool("no-resolve") {
		return program.NewUsageError(c, errors.New("--resolve and --no-resolve contradict each other"))
	}
	if c.Bool("all-ready") && c.Bool("commit-all") {
		return program.NewUsageError(c, errors.New("--all-ready and --commit-all exclude each other: only submitted commits land"))
	}
	if c.Bool("commit-all") && !c.IsSet("message") {
		return &program.UsageError{
			Err: errors.New("--commit-all needs --message, for the commit that it makes"), Usage: c.Command.UsageText,
			Hint: "with a message: " + t.retryWithMessage(c),
		}
	}
	return nil
}

// retryWithMessage returns the command line with "-m <message>" after the name of the command, and so before a "--".
func (t Commands) retryWithMessage(c *cli.Context) string {
	retry := t.Retry()
	retry.Args = slices.Insert(slices.Clone(retry.Args), slices.Index(retry.Args, c.Command.Name)+1, "-m", "<message>")
	return retry.Command("")
}

// openToLand opens the repository and returns the invocations to land: the named ones; without a name, the one whose
// sandbox contains the current directory, or the only one of the integration worktree that contains it.
func (t Commands) openToLand(c *cli.Context) (*gitagency.Repository, []gitagency.Invocation, error) {
	repo, named, err := t.OpenForOptionalInvocations(c)
	if !hints.Is[*program.UsageError](err) || repo == nil {
		return repo, named, err
	}
	wt, wtErr := repo.Worktree("")
	if wtErr != nil {
		return nil, nil, err
	}
	live, listErr := repo.Invocations(c.Context, gitagency.ListRequest{Worktree: wt.ID})
	if listErr != nil {
		return nil, nil, listErr
	}
	live = slices.DeleteFunc(live, func(i gitagency.Invocation) bool { return i.Verifies != "" })
	switch len(live) {
	case 0:
		return nil, nil, &program.UsageError{
			Err: fmt.Errorf("no <id> given, and worktree %q has no sandbox", wt.Name), Usage: c.Command.UsageText,
			Hint: "'git agency start' creates one; 'git agency ls --all' lists all ids",
		}
	case 1:
		return repo, live, nil
	}
	return nil, nil, &program.UsageError{
		Err: fmt.Errorf("no <id> given, and worktree %q has %d sandboxes", wt.Name, len(live)), Usage: c.Command.UsageText,
		Hint: "'git agency ls' lists the ids; @ is the newest one, " + live[len(live)-1].ID,
	}
}

// land lands the invocations that are named, in order, up to the first that fails.
func (t Commands) land(c *cli.Context) error {
	t.Options.NoGitProbe = true // later landings wait for this one
	dir, err := t.CurrentDir()
	if err != nil {
		return err
	}
	repo, named, err := t.openToLand(c)
	if err != nil {
		return err
	}
	return t.LandInvocations(c, repo, dir, named)
}

// LandInvocations lands invocations, in order, up to the first that fails. dir is the caller's directory.
func (t Commands) LandInvocations(c *cli.Context, repo *gitagency.Repository, dir string, named []gitagency.Invocation) error {
	ids := []string{}
	for _, inv := range named {
		ids = append(ids, inv.ID)
	}
	plans, err := t.planPush(c, repo, gitagency.PushRequest{Invocations: ids})
	if err != nil {
		return err
	}
	req, err := t.landRequest(c, repo)
	if err != nil {
		return err
	}
	ctx, stop := interrupt.OnParentExit(c.Context, program.InterruptedError{Signal: syscall.SIGTERM})
	defer stop()
	results := []landOutput{}
	var alreadyLanded []string
	var cleanupLock *os.File
	var failed error // invocations that landed before the failure stay landed
	for _, inv := range named {
		req.ID, req.AlreadyLanded, req.CleanupLock = inv.ID, alreadyLanded, cleanupLock
		landed, err := repo.Land(ctx, req)
		cleanupLock = cmp.Or(cleanupLock, landed.CleanupLock)
		switch {
		case len(inv.Paths) > 0 && landed.Invocation != "":
			t.reportLandedPaths(landed, inv.Name)
		case landed.Commit != "":
			t.reportLanded(landed, inv.Name)
		}
		if landed.IsNew() && len(inv.Paths) == 0 {
			alreadyLanded = append(alreadyLanded, inv.ID)
		}
		landed.DryRun = req.DryRun
		results = append(results, newLandOutput(inv.ID, landed, err))
		if err == nil && !c.Bool("json") {
			err = t.printLanded(inv, landed)
		}
		if failed = err; err != nil {
			break
		}
	}
	t.removeLanded(repo, dir, results)
	t.noteSeparateDryRuns(c, results)
	if failed == nil { // push only if all invocations have landed
		failed = t.pushLanded(c, repo, plans, results)
	} else {
		t.warnUnpushed(c, plans, results)
	}
	if c.Bool("json") {
		return errors.Join(failed, t.PrintJSON(results))
	}
	return errors.Join(failed, t.PrintConflicts(failed))
}

// landRequest returns the landing options of the flags, and of agency.land.resolve.
func (t Commands) landRequest(c *cli.Context, repo *gitagency.Repository) (req gitagency.LandRequest, err error) {
	req = gitagency.LandRequest{
		Strategy: c.String("strategy"), CommitAll: c.Bool("commit-all"), Leave: c.Bool("leave"), Message: c.String("message"),
		RequireBase: c.Bool("require-base"), DryRun: c.Bool("dry-run"), DeferCleanup: true,
		Verify: c.String("verify"), NoVerify: c.Bool("no-verify"), Output: t.RawStderr, Force: t.SecondInterrupt,
	}
	switch resolver, _ := c.Generic("resolve").(*argv.OptionalValue); { // nil for 'review', which has no such flag
	case resolver != nil && resolver.Given:
		req.Resolve = &gitagency.ResolveRequest{Runner: resolver.Text}
	case !c.Bool("no-resolve") && !repo.IsPaths(): // no agent resolves conflicts with plain directories
		req.Resolve, err = repo.ConfiguredResolve()
	}
	if req.Resolve != nil {
		req.Resolve.OnAgent = t.reportResolve
	}
	return req, err
}

// removeLanded has the trees of landed sandboxes removed in the background. dir is the caller's directory.
func (t Commands) removeLanded(repo *gitagency.Repository, dir string, landings []landOutput) {
	ids, deferred := []string{}, []string{}
	var cleanupLock *os.File // one for all
	for _, l := range landings {
		ids = append(ids, l.Invocation)
		if l.CleanupDeferred { // never set by the second landing, so that the process starts no other
			deferred, cleanupLock = append(deferred, l.Invocation), l.CleanupLock
		}
	}
	t.RemoveInBackground(repo, dir, "land", ids, deferred, cleanupLock)
}
