package setup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// StartupHint is a line that the user has to add to a startup file before a program finds what was installed for it.
type StartupHint struct {
	Program string `json:"program"`
	What    string `json:"what"`
	File    string `json:"file"` // startup file of the user
	Line    string `json:"line"` // line to add to it
}

// StartupHints checks the search paths of git, man and the shells. A setting that it cannot see, such as the fpath of
// zsh, counts as not made.
func StartupHints(installed Result, getenv func(string) string) []StartupHint {
	hints := []StartupHint{}
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
		hints = append(hints, StartupHint{"git", "git does not find the program yet", "~/.profile", `export PATH="` + escapeDoubleQuoted(bin) + `:$PATH"`})
		path = append(path, bin) // man then searches beside it too
	}
	if file := paths["manual"]; file != "" {
		if dir := filepath.Dir(filepath.Dir(file)); !manSearches(dir, path, getenv("MANPATH")) {
			hints = append(hints, StartupHint{"man", "man does not look there", "~/.profile", `export MANPATH="` + escapeDoubleQuoted(dir) + `:$MANPATH"`})
		}
	}
	if file := paths["bash"]; file != "" && (!isSearched(file) || !hasBashCompletion(shared)) {
		hints = append(hints, StartupHint{
			"bash", "bash does not load it by itself", "~/.bashrc, below what loads git's own completion", `. "` + escapeDoubleQuoted(file) + `"`,
		})
	}
	if file := paths["zsh"]; file != "" && hasProgram(path, "zsh") && filepath.Dir(file) != "/usr/local/share/zsh/site-functions" {
		hints = append(hints, StartupHint{
			"zsh", "zsh looks there only when it is told to", "~/.zshrc, above compinit", `fpath=("` + escapeDoubleQuoted(filepath.Dir(file)) + `" $fpath)`,
		})
	}
	if file := paths["fish"]; file != "" && hasProgram(path, "fish") && filepath.Base(filepath.Dir(file)) == "vendor_conf.d" && !isSearched(file) {
		hints = append(hints, StartupHint{
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

// ProgramPrefix returns the parent of the directory that this program was called from: as named in argv[0], or as
// found in PATH. It does not resolve symlinks, since man and shells search beside the directories in PATH.
func ProgramPrefix(name, path string) (string, error) {
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
