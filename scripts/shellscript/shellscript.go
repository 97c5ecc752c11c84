// Package shellscript writes programs for tests.
package shellscript

import (
	"os/exec"
	"strings"
)

// Write writes a shell script that can be run at once. Another test may fork meanwhile, and its child has our open files until its exec,
// among them a file that we write, which could then not be run. So a process of its own writes it.
func Write(path, text string) error {
	write := exec.Command("sh", "-c", `cat >"$0" && chmod 755 "$0"`, path)
	write.Stdin = strings.NewReader(text)
	return write.Run()
}
