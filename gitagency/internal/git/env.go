package git

import "strings"

// scrubEnv returns the environment for git once the repository is known. Hooks and aliases export GIT_DIR,
// GIT_INDEX_FILE and the like, which beat -C and point at another index; and the author of the commit that the user
// is making is not the author of ours. The variables that say how the user's git is configured and reaches the
// network stay.
func scrubEnv(env []string) []string {
	kept := make([]string, 0, len(env)+2)
	for _, kv := range parseableEnv(env) {
		if name, value, _ := strings.Cut(kv, "="); isKeptVariable(name, value) {
			kept = append(kept, kv)
		}
	}
	return append(kept, "LC_ALL=C", "GIT_TERMINAL_PROMPT=0")
}

// isKeptVariable reports whether scrubEnv keeps a variable.
func isKeptVariable(name, value string) bool {
	if !strings.HasPrefix(name, "GIT_") {
		return true
	}
	switch name {
	case "GIT_EXEC_PATH", "GIT_ASKPASS", "GIT_ALLOW_PROTOCOL", "GIT_PROXY_COMMAND":
		return true
	}
	for _, p := range []string{"GIT_CONFIG_", "GIT_SSH", "GIT_SSL", "GIT_HTTP_", "GIT_LFS_", "GIT_PROTOCOL"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return isTraceVariable(name) && tracesToFile(value)
}

func isTraceVariable(name string) bool { return strings.HasPrefix(name, "GIT_TRACE") }

// tracesToFile reports whether a trace variable writes to a file. A trace on standard output or error would end up in
// the output we parse and in our messages.
func tracesToFile(value string) bool {
	return strings.HasPrefix(value, "/") && !strings.HasPrefix(value, "/dev/") && !strings.HasPrefix(value, "/proc/")
}

// parseableEnv removes variables that would translate git's output or add a trace to it. It also removes GIT_CONFIG,
// which only "git config" heeds: it would hide all settings and let any file pass for the user's trusted
// configuration.
func parseableEnv(env []string) []string {
	kept := make([]string, 0, len(env)+2)
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		if name != "LC_ALL" && name != "LANGUAGE" && name != "GIT_CONFIG" && (!isTraceVariable(name) || tracesToFile(value)) {
			kept = append(kept, kv)
		}
	}
	return kept
}

// WithoutRepoVariables removes the variables that tie git to one repository or one command, so that a git started
// with the result finds the repository of its working directory. The variables for the user's identity and
// configuration stay.
func WithoutRepoVariables(env []string) []string {
	kept := make([]string, 0, len(env))
	for _, kv := range env {
		if name, _, _ := strings.Cut(kv, "="); !isRepoVariable(name) {
			kept = append(kept, kv)
		}
	}
	return kept
}

// isRepoVariable reports whether "git rev-parse --local-env-vars" lists a variable, or whether it belongs to one
// place or one command in another way: repository discovery, settings given by -c, the transaction of a hook.
func isRepoVariable(name string) bool {
	switch name {
	case "GIT_DIR", "GIT_WORK_TREE", "GIT_IMPLICIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_PREFIX",
		"GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_QUARANTINE_PATH", "GIT_GRAFT_FILE",
		"GIT_SHALLOW_FILE", "GIT_NO_REPLACE_OBJECTS", "GIT_REPLACE_REF_BASE", "GIT_NAMESPACE", "GIT_INTERNAL_SUPER_PREFIX",
		"GIT_CEILING_DIRECTORIES", "GIT_DISCOVERY_ACROSS_FILESYSTEM", "GIT_ATTR_SOURCE", "GIT_REFLOG_ACTION",
		"GIT_CONFIG", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT", "GIT_LITERAL_PATHSPECS", "GIT_GLOB_PATHSPECS",
		"GIT_NOGLOB_PATHSPECS", "GIT_ICASE_PATHSPECS", "GIT_PUSH_OPTION_COUNT":
		return true
	}
	for _, p := range []string{"GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_", "GIT_PUSH_OPTION_"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}
