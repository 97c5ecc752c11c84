package config

import (
	"slices"
	"strings"
)

// FilterName returns the filter that a key configures.
func FilterName(key string) (name string, is bool) {
	name, is = strings.CutPrefix(key, "filter.")
	end := strings.LastIndexByte(name, '.')
	if !is || end < 0 || name[end+1:] != "required" && !slices.Contains(FilterCommands, name[end+1:]) {
		return "", false
	}
	return name[:end], true
}

// identitySections are the sections that can set a name and an email.
var IdentitySections = []string{"user", "author", "committer"}

// filterCommands are the commands that a filter can run.
var FilterCommands = []string{"clean", "smudge", "process"}

// formatVersionKey is set in every repository.
const FormatVersionKey = "core.repositoryformatversion"

// includeIfPrefix begins the keys of conditional includes. Git lists them also where the condition is false.
const IncludeIfPrefix = "includeif."

// IsIncludeKey reports whether a key names a file to include.
func IsIncludeKey(key string) bool {
	condition, conditional := strings.CutPrefix(key, IncludeIfPrefix)
	return key == "include.path" || conditional && strings.HasSuffix(condition, ".path")
}

const (
	WorktreeConfigKey = "extensions.worktreeconfig" // enables config.worktree
)

// mergeDriverKeys are the last parts of merge.<driver>.* keys.
var MergeDriverKeys = []string{"driver", "name", "recursive"}

// MergeDriverName returns the driver that a config key belongs to.
func MergeDriverName(key string) (name string, is bool) {
	name, is = strings.CutPrefix(key, "merge.")
	end := strings.LastIndexByte(name, '.')
	if !is || end < 0 || !slices.Contains(MergeDriverKeys, name[end+1:]) {
		return "", false
	}
	return name[:end], true
}

// commitEncodingKey names the encoding of the user's name and email where they are not UTF-8.
const CommitEncodingKey = "i18n.commitencoding"

// The repository's configuration names programs: above all filters, but also programs that fetch objects, or that a
// filter of the user's starts in turn. An agent that works in a worktree without walls can write this configuration.
// So a git that reads or writes files of such a worktree runs in a git directory with a configuration that we write,
// which has only the settings for the interpretation of files. A program that this configuration does not name cannot
// run, also when an agent changes the repository's configuration at the same time.

// safeKeys are the settings that are copied from an untrusted repository. None of them names a program.
var SafeKeys = []string{
	"core.attributesfile", "core.autocrlf", "core.bigfilethreshold", "core.checkroundtripencoding", "core.checkstat", "core.eol",
	"core.excludesfile", "core.filemode", "core.ignorecase", "core.precomposeunicode", "core.sharedrepository", "core.symlinks", "core.trustctime",
}

const (
	ObjectFormatKey = "extensions.objectformat"
	LFSStorageKey   = "lfs.storage"
)
