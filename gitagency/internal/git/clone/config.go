package clone

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// clonedConfig returns the configuration of a new git directory: the settings of the repository that decide how files and commits
// are made, without secrets, and the remote "origin". With other settings, git there would convert files in another way.
func clonedConfig(r *git.Repo, req Request) (string, error) {
	data, err := durable.ReadFile(filepath.Join(r.CommonDir, "config"), maxConfigSize)
	if err != nil {
		return "", err
	}
	text, err := config.RemoveSecrets(string(data))
	if err != nil {
		return "", fmt.Errorf("%s cannot be parsed: %w", filepath.Join(r.CommonDir, "config"), err)
	}
	all := config.ParseAnyFile(text)
	entries := []config.FileEntry{{Key: "core.repositoryformatversion", Value: "1"}, {Key: "core.bare", Value: "false"}}
	if object.FormatOf(req.Tip) == object.SHA256 {
		entries = append(entries, config.FileEntry{Key: "extensions.objectformat", Value: "sha256"})
	}
	promisors := promisorRemotes(all)
	for _, e := range all {
		if isCopied(e.Key, promisors) {
			entries = append(entries, withAbsolutePath(r, e))
		}
	}
	entries = append(entries,
		config.FileEntry{Key: "remote.origin.url", Value: req.Source.URL},
		config.FileEntry{Key: "remote.origin.fetch", Value: "+refs/heads/*:refs/remotes/origin/*"})
	if req.Source.Name == ThisRepository {
		for _, prefix := range req.Without {
			entries = append(entries, config.FileEntry{Key: "remote.origin.fetch", Value: "^" + prefix + "*"}) // a negative refspec
		}
	}
	return config.Format(entries), nil
}

// maxConfigSize is the size in bytes of the largest configuration file that is read.
const maxConfigSize = 16 << 20

// promisorRemotes lists the remotes from which git fetches missing objects in a partial clone.
func promisorRemotes(entries []config.FileEntry) (names []string) {
	for _, e := range entries {
		if name, is := strings.CutSuffix(e.Key, ".promisor"); is && strings.HasPrefix(name, "remote.") {
			names = append(names, strings.TrimPrefix(name, "remote."))
		}
		if e.Key == "extensions.partialclone" {
			names = append(names, e.Value)
		}
	}
	return names
}

// isCopied reports whether a setting of the repository is one of its clones too. Those about the repository itself, its
// remotes and its branches are not.
func isCopied(key string, promisors []string) bool {
	section, _, _ := strings.Cut(key, ".")
	switch section {
	case "agency", "branch", "submodule", "worktree":
		return false
	case "extensions":
		return key == "extensions.partialclone"
	case "remote":
		return slices.ContainsFunc(promisors, func(name string) bool { return name != "origin" && strings.HasPrefix(key, "remote."+name+".") }) ||
			slices.Contains([]string{"remote.origin.promisor", "remote.origin.partialclonefilter"}, key)
	}
	return !slices.Contains([]string{"core.bare", "core.worktree", "core.repositoryformatversion", "core.sharedrepository", "core.fsmonitor"}, key)
}

// withAbsolutePath returns a setting that includes another file with the absolute path of that.
func withAbsolutePath(r *git.Repo, e config.FileEntry) config.FileEntry {
	if config.IsIncludeKey(e.Key) && e.Value != "" && !filepath.IsAbs(e.Value) && !strings.HasPrefix(e.Value, "~") {
		e.Value = filepath.Join(r.CommonDir, e.Value)
	}
	return e
}
