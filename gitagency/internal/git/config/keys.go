package config

import (
	"slices"
	"strings"
)

// wantedKeys lists the keys that are read: ours, and those of git that change what we do. "*" stands for any text, such
// as a subsection.
var wantedKeys = slices.Concat(
	[]string{
		"agency.*",
		"color.agency", "color.ui", "color.pager", "pager.agency", "core.pager",
		"attr.tree", "checkout.workers", "core.bare", "core.worktree", "core.logallrefupdates", "core.sparsecheckout", "worktree.userelativepaths", "commit.gpgsign", "gpg.format",
		FormatVersionKey, ObjectFormatKey, RefStorageKey, WorktreeConfigKey, CommitEncodingKey, LFSStorageKey,
		IncludeIfPrefix + "*.path", "filter.*.required",
	},
	SafeKeys,
	IndexKeys,
	mergeKeys,
	withPrefix("color.diff.", diffColorSlots),
	withPrefix("filter.*.", FilterCommands),
	withPrefix("merge.*.", MergeDriverKeys),
	withPrefix("user.", identityNames), withPrefix("author.", identityNames), withPrefix("committer.", identityNames),
)

// withPrefix puts a prefix before each name.
func withPrefix(prefix string, names []string) []string {
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = prefix + name
	}
	return keys
}

// KeyPattern returns a regular expression, as git config --get-regexp takes it, for the keys that are read.
func KeyPattern() string {
	pattern := strings.NewReplacer(".", `\.`, "*", ".*").Replace(strings.Join(wantedKeys, "|"))
	return "^(" + pattern + ")$"
}

// IsWantedKey reports whether a key is one that is read.
func IsWantedKey(key string) bool {
	return slices.ContainsFunc(wantedKeys, func(wanted string) bool {
		before, after, family := strings.Cut(wanted, "*")
		if !family {
			return key == wanted
		}
		return len(key) >= len(before)+len(after) && strings.HasPrefix(key, before) && strings.HasSuffix(key, after)
	})
}

// IndexKeys are the settings that change the format or the permissions with which git writes an index.
var IndexKeys = []string{"core.sharedrepository", "core.splitindex", "core.untrackedcache", "feature.manyfiles", "index.skiphash", "index.sparse", "index.version"}

// mergeKeys are the settings that influence the result of a merge.
var mergeKeys = []string{"merge.directoryrenames", "merge.renamelimit", "merge.renames", "merge.renormalize", "diff.renamelimit", "diff.renames"}

// diffColorSlots are the parts of a diff that can have a color.
var diffColorSlots = []string{"context", "plain", "meta", "frag", "func", "old", "new"}

// identityNames are the last parts of the keys that set an identity.
var identityNames = []string{"name", "email"}

// FilterName returns the filter that a key configures.
func FilterName(key string) (name string, is bool) {
	name, is = strings.CutPrefix(key, "filter.")
	end := strings.LastIndexByte(name, '.')
	if !is || end < 0 || name[end+1:] != "required" && !slices.Contains(FilterCommands, name[end+1:]) {
		return "", false
	}
	return name[:end], true
}

// IdentitySections are the sections that can set a name and an email.
var IdentitySections = []string{"user", "author", "committer"}

// FilterCommands are the commands that a filter can run.
var FilterCommands = []string{"clean", "smudge", "process"}

// FormatVersionKey is set in every repository.
const FormatVersionKey = "core.repositoryformatversion"

// IncludeIfPrefix begins the keys of conditional includes. Git lists them also where the condition is false.
const IncludeIfPrefix = "includeif."

// IsIncludeKey reports whether a key names a file to include.
func IsIncludeKey(key string) bool {
	condition, conditional := strings.CutPrefix(key, IncludeIfPrefix)
	return key == "include.path" || conditional && strings.HasSuffix(condition, ".path")
}

const (
	WorktreeConfigKey = "extensions.worktreeconfig" // enables config.worktree
)

// MergeDriverKeys are the last parts of merge.<driver>.* keys.
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

// CommitEncodingKey names the encoding of the user's name and email where they are not UTF-8.
const CommitEncodingKey = "i18n.commitencoding"

// The repository's configuration names programs: above all filters, but also programs that fetch objects, or that a
// filter of the user's starts in turn. An agent that works in a worktree without walls can write this configuration.
// So a git that reads or writes files of such a worktree runs in a git directory with a configuration that we write,
// which has only the settings for the interpretation of files. A program that this configuration does not name cannot
// run, also when an agent changes the repository's configuration at the same time.

// SafeKeys are the settings that are copied from an untrusted repository. None of them names a program.
var SafeKeys = []string{
	"core.attributesfile", "core.autocrlf", "core.bigfilethreshold", "core.checkroundtripencoding", "core.checkstat", "core.eol",
	"core.excludesfile", "core.filemode", "core.ignorecase", "core.precomposeunicode", "core.sharedrepository", "core.symlinks", "core.trustctime",
}

const (
	ObjectFormatKey = "extensions.objectformat"
	RefStorageKey   = "extensions.refstorage" // format of the refs, unless they are files
	LFSStorageKey   = "lfs.storage"
)
