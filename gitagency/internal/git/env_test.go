package git

import (
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

func TestScrubEnvKeepsConfigurationAndDropsHookVariables(t *testing.T) {
	t.Parallel()
	kept := []string{
		"PATH=/bin", "HOME=/home/me", "LANG=de_DE.UTF-8", "EMPTY=", "GITHUB_TOKEN=x", "NO_EQUALS_SIGN", "MY_GIT_DIR=/x",
		"GIT_EXEC_PATH=/usr/lib/git-core", "GIT_ASKPASS=ask", "GIT_SSH=ssh", "GIT_SSH_COMMAND=ssh -v", "GIT_SSL_NO_VERIFY=1",
		"GIT_HTTP_USER_AGENT=x", "GIT_ALLOW_PROTOCOL=https", "GIT_PROTOCOL=version=2", "GIT_PROXY_COMMAND=p",
		"GIT_CONFIG_GLOBAL=/g", "GIT_CONFIG_SYSTEM=/s", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_PARAMETERS='a.b'='c'",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=a.b", "GIT_CONFIG_VALUE_0=c", "GIT_LFS_SKIP_SMUDGE=1",
		"GIT_TRACE=/tmp/trace", "GIT_TRACE2_EVENT=/tmp/dir", "GIT_TRACE_PACKET=/x",
	}
	dropped := []string{
		// git rev-parse --local-env-vars, without the configuration
		"GIT_ALTERNATE_OBJECT_DIRECTORIES=/x", "GIT_CONFIG=/x", "GIT_OBJECT_DIRECTORY=/x", "GIT_DIR=.git", "GIT_WORK_TREE=.",
		"GIT_IMPLICIT_WORK_TREE=0", "GIT_GRAFT_FILE=/x", "GIT_INDEX_FILE=.git/index", "GIT_NO_REPLACE_OBJECTS=1",
		"GIT_REPLACE_REF_BASE=x", "GIT_PREFIX=sub/", "GIT_INTERNAL_SUPER_PREFIX=x", "GIT_SHALLOW_FILE=/x", "GIT_COMMON_DIR=/x",
		// added by hooks and by options of git
		"GIT_QUARANTINE_PATH=/x", "GIT_NAMESPACE=x", "GIT_LITERAL_PATHSPECS=1", "GIT_GLOB_PATHSPECS=1", "GIT_NOGLOB_PATHSPECS=1",
		"GIT_ICASE_PATHSPECS=1", "GIT_CEILING_DIRECTORIES=/", "GIT_EXTERNAL_DIFF=x", "GIT_REFLOG_ACTION=x", "GIT_EDITOR=:",
		"GIT_SEQUENCE_EDITOR=:", "GIT_PAGER=less", "GIT_AUTHOR_NAME=x", "GIT_AUTHOR_DATE=x", "GIT_COMMITTER_EMAIL=x",
		"GIT_OPTIONAL_LOCKS=1", "GIT_INDEX_VERSION=2", "GIT_DEFAULT_HASH=sha256", "GIT_ATTR_SOURCE=HEAD", "GIT_FLUSH=1",
		"GIT_TRACE=1", "GIT_TRACE2=true", "GIT_TRACE_SETUP=2", "GIT_TRACE2_PERF=5", "GIT_TRACE_CURL=", "GIT_TERMINAL_PROMPT=1",
		"LC_ALL=de_DE.UTF-8", "LANGUAGE=de",
	}
	want := append(slices.Clone(kept), "LC_ALL=C", "GIT_TERMINAL_PROMPT=0")
	// The result must not depend on the order.
	mixed := slices.Concat(dropped[:20], kept[:10], dropped[20:], kept[10:])
	given := slices.Clone(mixed)
	if got := scrubEnv(mixed); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if !slices.Equal(mixed, given) {
		t.Error("scrubEnv changed its argument")
	}
}

// scrubEnv must drop every variable that the installed git, whatever its version, lists as local to a repository.
func TestScrubEnvDropsEveryRepositoryLocalVariable(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	for name := range strings.FieldsSeq(l.Git("rev-parse", "--local-env-vars")) {
		if strings.HasPrefix(name, "GIT_CONFIG_") {
			continue // the user's configuration of git
		}
		if got := scrubEnv([]string{name + "=/x"}); len(got) != 2 {
			t.Errorf("%s is kept", name)
		}
	}
}

// A trace to an absolute path must not mix with the output of git: /dev/stdout is the pipe that we read.
func TestTraceToStandardOutputStaysOutOfGitOutput(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo, err := Open(t.Context(), l.Root, append(l.Env, "GIT_TRACE=/dev/stdout"))
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	if got, err := repo.Lookup(t.Context(), "HEAD"); err != nil || got[0].OID != l.Git("rev-parse", "HEAD") {
		t.Errorf("Lookup: %v, %v", got, err)
	}
}
