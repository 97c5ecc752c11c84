package config

import (
	"fmt"
	rand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

func TestTheSameKeysAreWantedOfBoth(t *testing.T) {
	t.Parallel()
	wanted := regexp.MustCompile(KeyPattern)
	for _, key := range []string{
		"agency.x", "agency.a.b", "agencyx.y", "agency", "color.agency", "color.ui", "color.pager", "color.diff", "pager.agency", "pager.log",
		"checkout.workers", "core.bare", "core.worktree", "core.pager", "core.repositoryformatversion", "core.editor", "xcore.bare",
		"extensions.worktreeconfig", "extensions.objectformat", "extensions.partialclone", "includeif.onbranch:x.path", "includeif.onbranch:x.other", "include.path", "includeif.path",
		"filter.x.clean", "filter.x.y.required", "filter.x.other", "filter.clean",
	} {
		if IsWantedKey(key) != wanted.MatchString(key) {
			t.Errorf("%s: %v", key, IsWantedKey(key))
		}
	}
}

// A configuration means what git takes it for, or is left to git.
func TestConfigurationsMeanWhatGitTakesThemFor(t *testing.T) {
	t.Parallel()
	dir := gittest.TempDir(t)
	words := []string{
		"[a]", "[A \"b.C\"]", "[a \"x\\\"y\\\\\"]", "[a.b]", "[ a]", "[a", "[a]x=1", "[a] # c", "\n", "\n", "\n", "k", "K-2", "k = v", "k=v w  x", "k = \"q # ; \" r",
		"k = a\\\n b", "k = \\t\\n\\\\\\\"", "k = v ; c", "k = v#c", "  ", "\t", "k =", "k = \"", "k=\"\"", "2k = v", "k v", "# c", "; c", "k = a\tb", "=", "\\", "[include]\n path = x",
		"[includeIf \"gitdir:x\"]\n path = x", "k = \\x", "\"", "\r\n", "k = v \\\n", "\xef\xbb\xbf", "k = \xff", "[a \"\"]", "[a \"\n\"]", "k = a\vb",
	}
	random := rand.New(rand.NewPCG(1, 2))
	understood := 0
	for n := range 1500 {
		var text strings.Builder
		text.WriteString("[s]\n")
		for range random.IntN(8) {
			text.WriteString(words[random.IntN(len(words))])
			if random.IntN(3) > 0 {
				text.WriteByte('\n')
			}
		}
		if sameAsGit(t, filepath.Join(dir, fmt.Sprint(n)), text.String()) {
			understood++
		}
	}
	if understood < 300 {
		t.Errorf("only %d were understood", understood)
	}
}

func FuzzConfigurationsMeanWhatGitTakesThemFor(f *testing.F) {
	f.Add("[a \"b\"]\n\tc = \"d # \" e ; f\n\tg\n")
	f.Fuzz(func(t *testing.T, text string) { sameAsGit(t, filepath.Join(t.TempDir(), "config"), text) })
}

// sameAsGit compares what we make of a file with what git does. It is false where that is left to git.
func sameAsGit(t *testing.T, path, text string) bool {
	t.Helper()
	entries, err := ParsePlainFile(text)
	if err != nil {
		return false
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "git", "config", "-z", "--no-includes", "--list", "--file", path)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull}
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("git does not take this for a configuration: %q", text)
		return true
	}
	ours := ""
	for _, e := range entries {
		if e.Ambiguous {
			return false
		}
		if ours += e.Key; !e.NoValue {
			ours += "\n" + e.Value
		}
		ours += "\x00"
	}
	if ours != string(out) {
		t.Errorf("%q\nto us   %q\nto git  %q", text, ours, out)
	}
	return true
}
