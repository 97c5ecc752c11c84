package layer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
)

// digestSize is the number of hexadecimal digits of the digest in the name of a layer.
const digestSize = 16

// maxRules bounds the files that the digest covers.
const maxRules = 64 << 20

// withSharedConfig returns the repository with the settings of new worktrees, which are those of the common directory, for gits
// that run in a git directory elsewhere.
func withSharedConfig(ctx context.Context, r *git.Repo, trusted bool) (*git.Repo, error) {
	there, err := r.WithWorktreeConfig(ctx, r.CommonDir, trusted)
	if err == nil && there == r && trusted {
		there = r.WithConfigInEnv()
	}
	return there, err
}

// settingsDigest returns a digest of everything besides the tree that the files of a checkout depend on. r has the settings of
// new worktrees.
func settingsDigest(ctx context.Context, r *git.Repo, skipLFS bool) (string, error) {
	var all strings.Builder
	keys := append([]string{"attr.tree", "core.sparsecheckout", config.WorktreeConfigKey}, config.SafeKeys...)
	for _, key := range slices.Sorted(maps.Keys(r.Config)) {
		if _, is := config.FilterName(key); is {
			keys = append(keys, key)
		}
	}
	for _, key := range keys {
		if s, set := r.Config.Last(key); set {
			fmt.Fprintf(&all, "%s %q %t\n", key, s.Value, s.NoValue)
		}
	}
	for _, file := range ruleFiles(r) {
		content, err := durable.ReadFile(file, maxRules)
		if err != nil && !git.IsNotExist(err) {
			return "", err
		}
		fmt.Fprintf(&all, "%t %q\n", err == nil, content)
	}
	if r.HasReplaceRefs() {
		out, err := r.RunRead(ctx, git.RunOptions{}, "for-each-ref", "--format=%(refname) %(objectname)", "refs/replace/")
		if err != nil {
			return "", err
		}
		all.Write(out)
	}
	fmt.Fprintf(&all, "%t %s\n", skipLFS, umask())
	sum := sha256.Sum256([]byte(all.String()))
	return hex.EncodeToString(sum[:])[:digestSize], nil
}

// ruleFiles returns the files outside of the tree that a checkout depends on, some of which may be missing.
func ruleFiles(r *git.Repo) []string {
	files := status.ExternalAttributeFiles(r)
	if r.ConfigBool(config.WorktreeConfigKey, false) {
		files = append(files, filepath.Join(r.CommonDir, git.WorktreeConfigFile))
	}
	if r.ConfigBool("core.sparsecheckout", false) { // with a setting that r.Config does not have
		files = append(files, filepath.Join(r.CommonDir, sparseRules), filepath.Join(r.CommonDir, "config"))
	}
	return slices.DeleteFunc(files, func(file string) bool { return !filepath.IsAbs(file) }) // of an empty variable
}

// umask returns the umask of this process, on which the permissions of files depend; empty if the system does not tell. It
// cannot be asked for without changing it, for other threads too.
func umask() string {
	text, err := durable.ReadFile("/proc/self/status", 1<<20)
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(string(text), "\nUmask:")
	mask, _, _ := strings.Cut(after, "\n")
	return strings.TrimSpace(mask)
}
