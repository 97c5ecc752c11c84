package complete

import "embed"

// The scripts do not know our commands; they call __complete of this program, see Answer.
//
//go:embed scripts/git-agency.bash scripts/git-agency.zsh scripts/git-agency.fish
var scripts embed.FS

// Shells lists the shells that have a script.
var Shells = []string{"bash", "zsh", "fish"}

// Script returns the script for a shell.
func Script(shell string) ([]byte, bool) {
	script, err := scripts.ReadFile("scripts/git-agency." + shell)
	return script, err == nil
}
