package git

import (
	"context"
	"fmt"
	"strings"
)

// Config holds the settings the tool cares about, read once in the environment the caller gave:
// "git -c agency.x=y agency …" arrives in a variable that is scrubbed later.
type Config map[string]Setting

// Setting is one value and where it came from.
type Setting struct {
	Value  string
	Scope  string // system, global, local, worktree or command
	Origin string // e.g. file:/home/me/.gitconfig
}

// keys are the settings read: our own, and those of git's that change what we do.
const keys = `^(agency\..*|checkout\.workers|core\.(bare|worktree))$`

func readConfig(ctx context.Context, run runner) (Config, error) {
	out, err := run.git(ctx, "config", "-z", "--show-scope", "--show-origin", "--get-regexp", keys)
	if exitedWith(err, 1) {
		return Config{}, nil // none is set
	}
	if err != nil {
		return nil, err
	}
	return parseConfig(string(out))
}

// parseConfig reads "scope NUL origin NUL key LF value NUL" records; a key without a value, which
// git takes as true, has no LF. The last of several wins, as in git.
func parseConfig(out string) (Config, error) {
	config := Config{}
	fields := strings.Split(out, "\x00")
	for len(fields) >= 3 {
		key, value, hasValue := strings.Cut(fields[2], "\n")
		if !hasValue {
			value = "true"
		}
		config[key] = Setting{Value: value, Scope: fields[0], Origin: fields[1]}
		fields = fields[3:]
	}
	if len(fields) != 1 || fields[0] != "" {
		return nil, fmt.Errorf("git config answered %q", out)
	}
	return config, nil
}
