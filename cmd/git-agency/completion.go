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
		Usage:     "print the script that makes TAB work in a shell",
		UsageText: "git agency completion (bash|zsh|fish)",
		Description: `The script completes 'git agency' and 'git-agency': commands, options, worktrees, invocations and snapshots.
Its first lines say where it belongs. Pressing TAB never runs a command and never changes anything.

Exit status: 0 printed; 129 usage.`,
		Action: func(c *cli.Context) error {
			args, err := arguments(c, 1, 1)
			if err != nil {
				return err
			}
			script, ok := completionScript(args[0])
			if !ok {
				return asUsage(c, fmt.Errorf("there is no completion for %q, only for bash, zsh and fish", args[0]))
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
var argumentKinds = map[string][]kind{
	"worktree create":   {text},
	"worktree adopt":    {directories},
	"worktree adopt --": {directories},
	"worktree ls":       {},
	"worktree show":     {presentOrBrokenWorktrees},
	"worktree path":     {presentOrBrokenWorktrees},
	"worktree rm":       {presentOrBrokenWorktrees},
	"start":             {presentWorktrees},
	"ls":                {},
	"show":              {invocations},
	"path":              {invocations},
	"exec":              {withSandbox},
	"exec --":           {withSandbox, programs, files, more},
	"ports":             {withSandbox, text, more},
	"denials":           {invocations},
	"put":               {withSandbox, files, more},
	"put --":            {withSandbox, files, more},
	"snapshot create":   {withSandbox},
	"snapshot ls":       {invocations},
	"snapshot verify":   {snapshotNames},
	"snapshot checkout": {snapshotNames, directories},
	"diff":              {invocations},
	"diff --":           {invocations, sandboxDirectories, more},
	"radar":             {presentWorktrees},
	"snapshot rollback": {withSandbox, snapshotNames},
	"submit":            {submittable, more},
	"reject":            {inReview},
	"sync":              {withSandbox},
	"land":              {landable, more},
	"unland":            {invocations},
	"discard":           {undiscarded, more},
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
var flagKinds = map[string]kind{
	"--changeset":     primitive("changeset"),
	"--color":         oneOf("always", "auto", "never"),
	"--cwd":           sandboxDirectories,
	"--env":           variableNames,
	"--expire":        text,
	"--file-size":     text,
	"--fix":           broken,
	"--format":        text,
	"--from":          commits,
	"--from-snapshot": snapshotNames,
	"--grace":         text,
	"--isolation":     primitive("isolation"),
	"--lock-timeout":  text,
	"--remote":        text,
	"--strategy":      oneOf(gitagency.Strategies()...),
	"--memory":        text,
	"--message":       text,
	"--verify":        text,
	"--mode":          oneOf("headed", "headless"),
	"--name":          text,
	"--nice":          text,
	"--outputs":       primitive("outputs"),
	"--platform":      primitive("platform"),
	"--prefix":        directories,
	"--processes":     text,
	"--profile":       profiles,
	"--runner":        text,
	"--software":      primitive("software"),
	"--timeout":       text,
	"--worktree":      presentWorktrees,
	"--to":            states,
	"diff --from":     states,
	"put --json":      files,
}
