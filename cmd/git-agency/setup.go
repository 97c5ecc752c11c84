package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) setupCommand() *cli.Command {
	return &cli.Command{
		Name:      "setup",
		Usage:     "install the manual and the completions beside the program",
		UsageText: "git agency setup [--prefix <dir>] [--undo] [-n | --dry-run] [--json]",
		Description: `Installs the manual and the completions for bash, zsh and fish into 'share' beside the 'bin' directory of
the program; in a home directory, those for bash and fish go where these shells look for user files. All
files are installed, or none. Other files are neither overwritten nor removed. Prints what is left to do.

Exit status: 0 done, or nothing to do; 1 failed: nothing was installed, or not all could be undone; 129
usage.`,
		Flags: withJSONFlag(
			&cli.StringFlag{Name: "prefix", Usage: "install below `DIR` and nowhere else", DefaultText: "beside the program"},
			&cli.BoolFlag{Name: "undo", Usage: "remove the installed files"},
			&cli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "say what would happen and change nothing"},
		),
		Action: func(c *cli.Context) error {
			if _, err := positionalArgs(c, 0, 0); err != nil {
				return err
			}
			if c.IsSet("prefix") && c.String("prefix") == "" {
				return newUsageError(c, errors.New("--prefix needs a value"))
			}
			req, err := t.installRequest(c.String("prefix"))
			if err != nil {
				return err
			}
			req.Undo, req.DryRun = c.Bool("undo"), c.Bool("dry-run")
			installed, err := gitagency.Install(c.Context, req)
			if err != nil {
				err = &installError{err}
			}
			if err != nil && len(installed.Files) == 0 {
				return err
			}
			hints := []startupHint{}
			if !req.Undo {
				hints = startupHints(installed, os.Getenv)
			}
			if c.Bool("json") {
				return errors.Join(err, t.printJSON(struct {
					gitagency.InstallResult
					Hints []startupHint `json:"hints"`
				}{installed, hints}))
			}
			t.printInstalled(installed)
			if flushErr := t.stdout.Flush(); flushErr != nil { // print hints after the results
				return errors.Join(err, &outputError{flushErr})
			}
			for _, h := range hints {
				t.printHint(h.What + "; put this line into " + h.File + ":")
				t.printHint("  " + h.Line)
			}
			return err
		},
	}
}

// installRequest returns the request to install the manual and the completions below prefix, or below the prefix of
// this program if that is empty.
func (t *tool) installRequest(prefix string) (req gitagency.InstallRequest, err error) {
	req = gitagency.InstallRequest{Files: map[string][]byte{"manual": manualPage}, Env: t.opts.Env, Fault: t.opts.Fault}
	for _, shell := range completionShells {
		if script, ok := completionScript(shell); ok {
			req.Files[shell] = script
		}
	}
	if prefix != "" {
		req.Staged = true
		req.Prefix, err = filepath.Abs(prefix)
	} else {
		req.Prefix, err = programPrefix(t.args[0], os.Getenv("PATH"))
	}
	return req, err
}

// installationStatus reports whether the manual and each completion are installed, for doctor.
func (t *tool) installationStatus(ctx context.Context) []gitagency.Capability {
	req, err := t.installRequest("")
	var planned gitagency.InstallResult
	if err == nil {
		req.DryRun = true
		planned, err = gitagency.Install(ctx, req)
	}
	if err != nil && len(planned.Files) == 0 {
		return []gitagency.Capability{{Name: "manual", State: gitagency.CapabilityUnknown, Detail: err.Error()}}
	}
	var parts []gitagency.Capability
	for _, f := range planned.Files {
		part := gitagency.Capability{Name: f.Kind, State: gitagency.CapabilityMissing, Detail: "install it with 'git agency setup'"}
		if f.Kind != "manual" {
			part.Name = "completion " + f.Kind
		}
		switch f.Action {
		case gitagency.FileUnchanged:
			part.State, part.Detail = gitagency.CapabilityOK, f.Path
		case gitagency.FileReplaced:
			part.Detail = f.Path + " is of another version; 'git agency setup' renews it"
		case gitagency.FileLeft:
			part.State, part.Detail = gitagency.CapabilityUnknown, f.Path+": "+f.Why
		case gitagency.FileWritten, gitagency.FileRemoved, gitagency.FileAbsent:
		}
		parts = append(parts, part)
	}
	return parts
}

// installError marks an error of the installation, whose hints have nothing to do with a repository.
type installError struct{ err error }

func (e *installError) Error() string { return e.err.Error() }
func (e *installError) Unwrap() error { return e.err }

// programPrefix returns the parent of the directory that this program was called from: as named in argv[0], or as
// found in PATH. It does not resolve symlinks, since man and shells search beside the directories in PATH.
func programPrefix(name, path string) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	self, err := os.Stat(exe)
	if err != nil {
		return "", err
	}
	candidates := []string{name}
	if !strings.ContainsRune(name, filepath.Separator) {
		candidates = nil
		for _, dir := range filepath.SplitList(path) {
			candidates = append(candidates, filepath.Join(dir, name))
		}
	}
	for _, candidate := range append(candidates, exe) {
		if fi, err := os.Stat(candidate); err == nil && os.SameFile(fi, self) {
			if candidate, err = filepath.Abs(candidate); err != nil {
				return "", err
			}
			return filepath.Dir(filepath.Dir(candidate)), nil
		}
	}
	return "", fmt.Errorf("%s is gone", exe)
}

// printInstalled prints what was done to each file and directory.
func (t *tool) printInstalled(installed gitagency.InstallResult) {
	said := false
	say := func(done, would, path string) {
		verb := done
		if installed.DryRun {
			verb = would
		}
		fmt.Fprintf(t.stdout, "%s %s\n", verb, printable(path))
		said = true
	}
	if !installed.Undo {
		for _, dir := range installed.Directories {
			say("made", "would make", dir)
		}
	}
	for _, f := range installed.Files {
		switch f.Action {
		case gitagency.FileWritten:
			say("wrote", "would write", f.Path)
		case gitagency.FileReplaced:
			say("replaced", "would replace", f.Path)
		case gitagency.FileRemoved:
			say("removed", "would remove", f.Path)
		case gitagency.FileLeft:
			fmt.Fprintf(t.stderr, "left %s alone: %s\n", printable(f.Path), printable(f.Why))
		case gitagency.FileUnchanged, gitagency.FileAbsent:
		}
	}
	if installed.Undo {
		for _, dir := range installed.Directories {
			say("removed", "would remove", dir)
		}
	}
	if !said {
		fmt.Fprintf(t.stdout, "nothing to do below %s\n", printable(installed.Prefix))
	}
}

// startupHint is a line that the user has to add to a startup file before a program finds what was installed for it.
type startupHint struct {
	Program string `json:"program"`
	What    string `json:"what"`
	File    string `json:"file"` // startup file of the user
	Line    string `json:"line"` // line to add to it
}

// startupHints checks the search paths of git, man and the shells. A setting that it cannot see, such as the fpath of
// zsh, counts as not made.
func startupHints(installed gitagency.InstallResult, getenv func(string) string) []startupHint {
	hints := []startupHint{}
	paths := map[string]string{}
	for _, f := range installed.Files {
		paths[f.Kind] = f.Path
	}
	path := filepath.SplitList(getenv("PATH"))
	shared := xdgDataDirs(getenv)
	isSearched := func(file string) bool { // whether the file is three levels below an XDG data directory
		return slices.ContainsFunc(shared, sameDirectory(filepath.Join(file, "..", "..", "..")))
	}

	bin := filepath.Join(installed.Prefix, "bin")
	if isExecutable(filepath.Join(bin, "git-agency")) && !slices.ContainsFunc(path, sameDirectory(bin)) {
		hints = append(hints, startupHint{"git", "git does not find the program yet", "~/.profile", `export PATH="` + escapeDoubleQuoted(bin) + `:$PATH"`})
		path = append(path, bin) // man then searches beside it too
	}
	if file := paths["manual"]; file != "" {
		if dir := filepath.Dir(filepath.Dir(file)); !manSearches(dir, path, getenv("MANPATH")) {
			hints = append(hints, startupHint{"man", "man does not look there", "~/.profile", `export MANPATH="` + escapeDoubleQuoted(dir) + `:$MANPATH"`})
		}
	}
	if file := paths["bash"]; file != "" && (!isSearched(file) || !hasBashCompletion(shared)) {
		hints = append(hints, startupHint{
			"bash", "bash does not load it by itself", "~/.bashrc, below what loads git's own completion", `. "` + escapeDoubleQuoted(file) + `"`,
		})
	}
	if file := paths["zsh"]; file != "" && hasProgram(path, "zsh") && filepath.Dir(file) != "/usr/local/share/zsh/site-functions" {
		hints = append(hints, startupHint{
			"zsh", "zsh looks there only when it is told to", "~/.zshrc, above compinit", `fpath=("` + escapeDoubleQuoted(filepath.Dir(file)) + `" $fpath)`,
		})
	}
	if file := paths["fish"]; file != "" && hasProgram(path, "fish") && filepath.Base(filepath.Dir(file)) == "vendor_conf.d" && !isSearched(file) {
		hints = append(hints, startupHint{
			"fish", "fish does not look there", "~/.config/fish/config.fish", `source "` + escapeDoubleQuoted(file) + `"`,
		})
	}
	return hints
}

// xdgDataDirs returns the directories where bash and fish look for completions of other packages.
func xdgDataDirs(getenv func(string) string) []string {
	dirs := []string{"/usr/local/share", "/usr/share"}
	if set := getenv("XDG_DATA_DIRS"); set != "" {
		dirs = filepath.SplitList(set)
	}
	switch data, home := getenv("XDG_DATA_HOME"), getenv("HOME"); {
	case data != "":
		dirs = append(dirs, data)
	case home != "":
		dirs = append(dirs, filepath.Join(home, ".local", "share"))
	}
	return dirs
}

// hasBashCompletion reports whether the bash-completion package is there. Without it, git's own completion does not
// load completions of commands that it does not know.
func hasBashCompletion(dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "bash-completion", "bash_completion"))
		return err == nil
	})
}

// manSearches reports whether man searches a directory: it is beside a directory of PATH, or named in MANPATH. If
// MANPATH is set and has no empty entry, only its entries count.
func manSearches(dir string, path []string, manpath string) bool {
	entries := filepath.SplitList(manpath)
	if slices.ContainsFunc(entries, sameDirectory(dir)) {
		return true
	}
	if manpath != "" && !slices.Contains(entries, "") {
		return false
	}
	for _, bin := range path {
		for _, beside := range []string{"man", "share/man", "../man", "../share/man"} {
			if bin != "" && sameDirectory(dir)(filepath.Join(bin, beside)) {
				return true
			}
		}
	}
	return dir == "/usr/share/man" || dir == "/usr/local/share/man"
}

// sameDirectory returns a function that reports whether a path is the directory dir, by any spelling.
func sameDirectory(dir string) func(string) bool {
	dir = filepath.Clean(dir)
	fi, err := os.Stat(dir)
	return func(other string) bool {
		if other == "" {
			return false
		}
		if filepath.Clean(other) == dir {
			return true
		}
		there, otherErr := os.Stat(other)
		return err == nil && otherErr == nil && os.SameFile(fi, there)
	}
}

func hasProgram(path []string, name string) bool {
	return slices.ContainsFunc(path, func(dir string) bool { return dir != "" && isExecutable(filepath.Join(dir, name)) })
}

func isExecutable(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0
}

// escapeDoubleQuoted escapes a path for use between double quotes in a shell.
func escapeDoubleQuoted(path string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(path)
}
