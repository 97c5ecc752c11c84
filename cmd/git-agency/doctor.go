package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) doctorCommand() *cli.Command {
	return &cli.Command{
		Name:      "doctor",
		Usage:     "find broken state, and repair it with --fix",
		UsageText: "git agency doctor [--fix <id>] [--platform <p> [--timeout <t>]] [--json | --porcelain [-z]]",
		Description: `Checks records, trees, refs and git's own files, and prints for each finding its place, whether work could
be lost, and the command that repairs it; then what this machine offers. Changes nothing without --fix.
Works also when git itself cannot list worktrees. With --platform, it also asks the engine of that platform
and the hub, and has a node execute git in a sandbox. Job, sandbox and refs are removed afterwards.

With --fix, repairs what was found under an id that doctor printed. Interrupted steps are completed or
undone. Removed work is kept as refs/agency/trash/<id>.

Exit status: 0 nothing is wrong, or it was repaired; 1 the repair failed, or not everything could be
checked; 3 nothing was found under that id; 4 there are findings, or one that only a person can repair;
5 a safety check prevents the examination; 75 locked; 129 usage.`,
		Flags: program.WithRepositoryLockFlag(program.WithListingFlags(
			&cli.StringFlag{Name: "fix", Usage: "repair what was found under `ID`"},
			&cli.StringFlag{Name: "platform", Usage: "check the platform `PLATFORM`, too"},
			&cli.StringFlag{Name: "timeout", Usage: "with --platform, wait at most `DURATION` for a node (0: ask none)", DefaultText: "1m"},
		)...),
		Action: func(c *cli.Context) error {
			if err := program.CheckListingArgs(c); err != nil {
				return err
			}
			if _, err := nodeTimeout(c); err != nil {
				return err
			}
			t.Options.DefaultReadLimits = true // invalid read limits and colours are findings
			t.IgnoreSettingsErrors()
			repo, err := t.OpenRepository(c)
			if err != nil {
				return err
			}
			if c.IsSet("fix") {
				return t.fixFinding(c, repo)
			}
			return t.diagnose(c, repo)
		},
	}
}

// fixFinding repairs the finding named by --fix, and prints what was done.
func (t *tool) fixFinding(c *cli.Context, repo *gitagency.Repository) error {
	fixed, fixErr := repo.Fix(c.Context, c.String("fix"))
	var err error
	switch {
	case c.Bool("json"):
		err = t.PrintJSON(map[string]any{"mended": fixed})
	case c.Bool("porcelain"):
		err = program.PrintList(t.Program, c, fixed, findingFields, nil, nil)
	case len(fixed) == 0 && fixErr == nil:
		err = t.printSuccess("nothing is wrong", " with "+term.OneLine(c.String("fix")))
	default:
		for _, f := range fixed {
			err = errors.Join(err, t.printSuccess("repaired", fmt.Sprintf(" %s of %s: %s", f.Code, term.OneLine(f.ID), term.OneLine(f.Outcome))))
		}
	}
	return errors.Join(fixErr, err)
}

// printSuccess prints a line of which the first words say what is good.
func (t *tool) printSuccess(words, rest string) error {
	_, err := fmt.Fprintln(t.Stdout, t.PaintResult(term.Success, words)+rest)
	return err
}

// diagnose prints all findings.
func (t *tool) diagnose(c *cli.Context, repo *gitagency.Repository) error {
	d, diagnoseErr := repo.Diagnose(c.Context)
	d.Capabilities = append(d.Capabilities, t.installationStatus(c.Context)...)
	unusable, probeErr := t.probePlatform(c, repo, &d)
	if d.ActiveProcess != "" {
		t.Warn(term.OneLine(d.ActiveProcess) + " is changing the repository; its unfinished changes were not checked")
	}
	t.warnRefused(d.Refusals)
	var err error
	switch {
	case c.Bool("json"):
		err = t.PrintJSON(d)
	case c.Bool("porcelain"):
		err = program.PrintList(t.Program, c, d.Findings, findingFields, nil, nil)
	default:
		err = t.printDiagnosis(d, diagnoseErr == nil)
	}
	if failed := errors.Join(diagnoseErr, probeErr); failed != nil {
		return failed
	}
	if err == nil && len(d.Findings)+unusable > 0 {
		found := &findingsError{count: len(d.Findings) + unusable}
		for _, f := range d.Findings {
			if f.Outcome != "" && !slices.Contains(found.fixable, f.ID) {
				found.fixable = append(found.fixable, f.ID)
			}
		}
		err = found
	}
	return err
}

// nodeTimeout returns the time to wait for a node of the platform of --platform.
func nodeTimeout(c *cli.Context) (time.Duration, error) {
	const usual = time.Minute
	if !c.IsSet("timeout") {
		return usual, nil
	}
	limit, err := gitagency.ParseDuration(c.String("timeout"))
	switch {
	case c.String("platform") == "":
		err = errors.New("--timeout is for --platform")
	case err == nil && limit < 0:
		err = errors.New("--timeout must not be negative")
	}
	if err != nil {
		return 0, program.NewUsageError(c, err)
	}
	return limit, nil
}

// probePlatform adds what is found out about the platform of --platform to the capabilities, and returns the number of those that are
// missing.
func (t *tool) probePlatform(c *cli.Context, repo *gitagency.Repository, d *gitagency.Diagnosis) (missing int, err error) {
	name := c.String("platform")
	if name == "" || name == gitagency.PlatformLocal { // this machine is diagnosed anyway
		return 0, nil
	}
	report, err := repo.Preflight(c.Context, gitagency.PreflightRequest{
		Start: gitagency.StartRequest{Primitives: gitagency.Primitives{Platform: name}}, Headless: true, Version: true,
	})
	if err != nil {
		return 0, err
	}
	for _, check := range report.Checks {
		found := gitagency.Capability{Name: check.Name, State: gitagency.CapabilityOK, Detail: check.Reason}
		if check.Name != "platform" && check.Name != "hub" {
			continue
		}
		if !check.OK {
			missing++
			found.State = gitagency.CapabilityMissing
			if remedy := hints.Remedy(check, t.Retry()); remedy != "" {
				found.Detail += "; " + remedy
			}
		}
		d.Capabilities = append(d.Capabilities, found)
	}
	limit, err := nodeTimeout(c)
	if err != nil || missing > 0 || limit == 0 {
		return missing, err
	}
	end := t.showWait("waiting for a node of " + name)
	node, err := repo.ProbeNode(c.Context, name, limit, t.SecondInterrupt)
	end()
	if node == (gitagency.NodeReport{}) {
		return missing, err
	}
	found := nodeCapability(node, limit)
	if found.State == gitagency.CapabilityMissing {
		missing++
	}
	d.Capabilities = append(d.Capabilities, found)
	return missing, err
}

// nodeCapability describes what a node told.
func nodeCapability(n gitagency.NodeReport, limit time.Duration) gitagency.Capability {
	const least = 2 * time.Second // difference of clocks that is mentioned
	found := gitagency.Capability{Name: "node", State: gitagency.CapabilityOK}
	clock := "its clock agrees within " + (n.Took + least).Round(time.Second).String()
	switch offset := n.ClockOffset.Round(time.Second); {
	case offset >= least:
		clock = "its clock is ahead by " + offset.String()
	case offset <= -least:
		clock = "its clock is behind by " + (-offset).String()
	}
	switch {
	case n.NoAnswer != "":
		found.State = gitagency.CapabilityUnknown
		found.Detail = fmt.Sprintf("no node has executed the probe in %s (%s); to wait longer: --timeout <t>", limit, n.NoAnswer)
	case n.Problem != "":
		found.State, found.Detail = gitagency.CapabilityMissing, n.Problem
	default:
		found.Detail = fmt.Sprintf("%s: git %s; git-agency %s; isolation %s; %s; ended after %s", n.Node, n.Git, n.Tool, n.Isolation, clock, n.Took.Round(100*time.Millisecond))
	}
	return found
}

// showWait shows on a terminal what the command waits for, and for how long it has done so.
func (t *tool) showWait(what string) (end func()) {
	report, erase := term.StartProgress(t.RawStderr, t.ProgressClock, what, func(since time.Duration) string { return since.Round(time.Second).String() })
	if report == nil {
		return erase
	}
	began, ended, shown := time.Now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(shown)
		for {
			select {
			case <-ended:
				return
			case <-time.After(500 * time.Millisecond):
				report(time.Since(began))
			}
		}
	}()
	return func() {
		close(ended)
		<-shown
		erase()
	}
}

// printDiagnosis prints for people each finding with the command to type, then the capabilities of the machine.
func (t *tool) printDiagnosis(d gitagency.Diagnosis, checkedAll bool) error {
	for _, f := range d.Findings {
		risk := "no work is at risk"
		if f.AtRisk {
			risk = "work could be lost"
		}
		text := fmt.Sprintf("%s %s: %s\n  at    %s\n  risk  %s\n  fix   %s\n", t.PaintResult("finding", f.Code), term.OneLine(f.ID), term.OneLine(f.Problem), term.OneLine(f.Path), t.PaintResult("risk", risk), term.OneLine(f.FixCommand))
		if f.Outcome != "" {
			text += "  then  " + term.OneLine(f.Outcome) + "\n"
		}
		if _, err := t.Stdout.WriteString(text); err != nil {
			return err
		}
	}
	var err error
	switch {
	case len(d.Findings) > 0 || !checkedAll:
	case d.ActiveProcess != "":
		err = t.printSuccess("nothing is wrong", " with the parts that could be checked")
	default:
		err = t.printSuccess("nothing is wrong", "")
	}
	if err != nil {
		return err
	}
	if _, err := t.Stdout.WriteString("\n"); err != nil {
		return err
	}
	rows := [][]string{} // no table: the last part must not be cut
	for _, m := range d.Capabilities {
		rows = append(rows, []string{m.Name, m.State, m.Detail})
	}
	return t.PrintRows([]string{"", "capability", ""}, rows)
}

// findingFields returns the fields of a finding for --porcelain.
func findingFields(f gitagency.Finding) []program.Field {
	risk := "no"
	if f.AtRisk {
		risk = "yes"
	}
	return []program.Field{
		{Key: "finding", Value: f.Code},
		{Key: "id", Value: f.ID},
		{Key: "path", Value: f.Path},
		{Key: "what", Value: f.Problem},
		{Key: "risk", Value: risk},
		{Key: "mend", Value: f.FixCommand},
		{Key: "then", Value: f.Outcome, Optional: true},
	}
}

// findingsError sets the exit status of doctor if there are findings, which were printed as the result.
type findingsError struct {
	count   int
	fixable []string // ids that --fix can repair
}

func (e *findingsError) Error() string {
	if e.count == 1 {
		return "one thing is wrong"
	}
	return fmt.Sprintf("%d things are wrong", e.count)
}
