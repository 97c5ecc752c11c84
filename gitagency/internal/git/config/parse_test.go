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

func TestIsWantedKeyAgreesWithKeyPattern(t *testing.T) {
	t.Parallel()
	wanted := regexp.MustCompile(KeyPattern())
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

// ParsePlainFile must read random configuration files as git does, or return an error, and it must read a fair share of
// them.
func TestParsePlainFileAgreesWithGit(t *testing.T) {
	t.Parallel()
	dir := gittest.TempDir(t)
	words := []string{
		"[a]", "[A \"b.C\"]", "[a \"x\\\"y\\\\\"]", "[a.b]", "[ a]", "[a", "[a]x=1", "[a] # c", "\n", "\n", "\n", "k", "K-2", "k = v", "k=v w  x", "k = \"q # ; \" r",
		"k = a\\\n b", "k = \\t\\n\\\\\\\"", "k = v ; c", "k = v#c", "  ", "\t", "k =", "k = \"", "k=\"\"", "2k = v", "k v", "# c", "; c", "k = a\tb", "=", "\\", "[include]\n path = x",
		"[includeIf \"gitdir:x\"]\n path = x", "k = \\x", "\"", "\r\n", "k = v \\\n", "\xef\xbb\xbf", "k = \xff", "[a \"\"]", "[a \"\n\"]", "k = a\vb",
	}
	random := rand.New(rand.NewPCG(1, 2))
	parsed := 0
	for n := range 1500 {
		var text strings.Builder
		text.WriteString("[s]\n")
		for range random.IntN(8) {
			text.WriteString(words[random.IntN(len(words))])
			if random.IntN(3) > 0 {
				text.WriteByte('\n')
			}
		}
		if compareWithGit(t, filepath.Join(dir, fmt.Sprint(n)), text.String()) {
			parsed++
		}
	}
	if parsed < 300 {
		t.Errorf("only %d files were parsed", parsed)
	}
}

func FuzzParsePlainFile(f *testing.F) {
	f.Add("[a \"b\"]\n\tc = \"d # \" e ; f\n\tg\n")
	f.Fuzz(func(t *testing.T, text string) { compareWithGit(t, filepath.Join(t.TempDir(), "config"), text) })
}

// compareWithGit compares the entries that ParsePlainFile and git read from a configuration file. It returns false where
// ParsePlainFile leaves the file to git.
func compareWithGit(t *testing.T, path, text string) bool {
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
		t.Errorf("git refuses this configuration: %q", text)
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
		t.Errorf("%q\ngot      %q\ngit has  %q", text, ours, out)
	}
	return true
}
