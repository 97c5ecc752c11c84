package main

import (
	"embed"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) completionCommand() *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print the completion script for a shell",
		UsageText: "git agency completion (bash|zsh|fish)",
		Description: `The script completes 'git agency' and 'git-agency': commands, options, worktrees, invocations and snapshots.
Its first lines say where it belongs. Pressing TAB never runs a command and never changes anything.

Exit status: 0 printed; 129 usage.`,
		Action: func(c *cli.Context) error {
			args, err := positionalArgs(c, 1, 1)
			if err != nil {
				return err
			}
			script, ok := completionScript(args[0])
			if !ok {
				return newUsageError(c, fmt.Errorf("there is no completion for %q, only for bash, zsh and fish", args[0]))
			}
			_, err = t.stdout.Write(script)
			return err
		},
	}
}

// The scripts do not know our commands; they call __complete of this program, see complete.go.
//
//go:embed completion/git-agency.bash completion/git-agency.zsh completion/git-agency.fish
var completionScripts embed.FS

var completionShells = []string{"bash", "zsh", "fish"}

// completionScript returns the script for a shell.
func completionScript(shell string) ([]byte, bool) {
	script, err := completionScripts.ReadFile("completion/git-agency." + shell)
	return script, err == nil
}

// argumentListers holds, for each command, how to complete its arguments, in order; repeatLast means that the last one
// may be repeated. After a "--", only the entry for the name of the command and "--" counts.
var argumentListers = map[string][]lister{
	"worktree create":   {freeText},
	"worktree adopt":    {shellDirectories},
	"worktree adopt --": {shellDirectories},
	"worktree ls":       {},
	"worktree show":     {presentOrBrokenWorktrees},
	"worktree path":     {presentOrBrokenWorktrees},
	"worktree rm":       {presentOrBrokenWorktrees},
	"start":             {presentWorktrees},
	"ls":                {},
	"show":              {allInvocations},
	"path":              {allInvocations},
	"exec":              {invocationsWithSandbox},
	"exec --":           {invocationsWithSandbox, shellCommands, shellFiles, repeatLast},
	"ports":             {invocationsWithSandbox, freeText, repeatLast},
	"denials":           {allInvocations},
	"put":               {invocationsWithSandbox, shellFiles, repeatLast},
	"put --":            {invocationsWithSandbox, shellFiles, repeatLast},
	"snapshot create":   {invocationsWithSandbox},
	"snapshot ls":       {allInvocations},
	"snapshot verify":   {snapshotNames},
	"snapshot checkout": {snapshotNames, shellDirectories},
	"diff":              {allInvocations},
	"diff --":           {allInvocations, sandboxDirectories, repeatLast},
	"radar":             {presentWorktrees},
	"snapshot rollback": {invocationsWithSandbox, snapshotNames},
	"submit":            {submittableInvocations, repeatLast},
	"reject":            {invocationsInReview},
	"sync":              {invocationsWithSandbox},
	"land":              {landableInvocations, repeatLast},
	"unland":            {allInvocations},
	"discard":           {discardableInvocations, repeatLast},
	"doctor":            {},
	"prune":             {},
	"config":            {},
	"setup":             {},
	"completion":        {oneOf(completionShells...)},
	"help":              {commandNames, commandNames},
	"version":           {},
}

// flagListers holds how to complete the value of every flag that takes one. A flag that means something else to one
// command has a second entry, "<command> --<flag>".
var flagListers = map[string]lister{
	"--changeset":     primitiveValues("changeset"),
	"--color":         oneOf("always", "auto", "never"),
	"--cwd":           sandboxDirectories,
	"--env":           variableNames,
	"--expire":        freeText,
	"--file-size":     freeText,
	"--fix":           brokenRecords,
	"--format":        freeText,
	"--from":          shellCommits,
	"--from-snapshot": snapshotNames,
	"--grace":         freeText,
	"--isolation":     primitiveValues("isolation"),
	"--lock-timeout":  freeText,
	"--remote":        freeText,
	"--strategy":      oneOf(gitagency.Strategies()...),
	"--memory":        freeText,
	"--message":       freeText,
	"--verify":        freeText,
	"--mode":          oneOf("headed", "headless"),
	"--name":          freeText,
	"--nice":          freeText,
	"--outputs":       primitiveValues("outputs"),
	"--platform":      primitiveValues("platform"),
	"--prefix":        shellDirectories,
	"--processes":     freeText,
	"--profile":       profileNames,
	"--runner":        freeText,
	"--software":      primitiveValues("software"),
	"--timeout":       freeText,
	"--worktree":      presentWorktrees,
	"--to":            diffStates,
	"diff --from":     diffStates,
	"put --json":      shellFiles,
}
