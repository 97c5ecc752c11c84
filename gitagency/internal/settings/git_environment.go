package settings

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// CommitSigningKey is the setting by which git signs commits.
const CommitSigningKey = "commit.gpgSign"

// WithGitSettings adds settings of git to the environment of a command behind walls. Automatic gc is off: it would pack an
// overlay that is thrown away, with each commit again. The signing of commits and tags is off, unless the user lets the
// variable pass that leads to the keys: the keys themselves are hidden, and each commit would fail.
func WithGitSettings(env []string, gpgFormat string) []string {
	added := [][2]string{{"gc.auto", "0"}, {"maintenance.auto", "false"}}
	keys := "GNUPGHOME"
	if strings.EqualFold(gpgFormat, "ssh") {
		keys = "SSH_AUTH_SOCK"
	}
	if !slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, keys+"=") }) {
		added = append(added, [2]string{CommitSigningKey, "false"}, [2]string{"tag.gpgSign", "false"})
	}
	count := 0
	for _, kv := range env {
		if value, ok := strings.CutPrefix(kv, "GIT_CONFIG_COUNT="); ok {
			count, _ = strconv.Atoi(value) // git refuses an invalid one itself
		}
	}
	var variables []string
	for _, setting := range added {
		variables = append(variables, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", count, setting[0]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", count, setting[1]))
		count++
	}
	return DedupeEnv(slices.Concat(env, variables, []string{"GIT_CONFIG_COUNT=" + strconv.Itoa(count)}))
}
