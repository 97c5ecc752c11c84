package transport

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// BenchmarkReceiveAt100000Files measures the import of a commit of three files from a sandbox, in a repository of 100,000
// files in 2,020 directories: from creating the pack in the sandbox to writing the index outside. It reports the time of
// each step.
func BenchmarkReceiveAt100000Files(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "repo")
	env := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + b.TempDir(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull,
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com",
	}
	gitArgs := func(stdin string, more []string, args ...string) string {
		b.Helper()
		cmd := exec.CommandContext(b.Context(), "git", args...)
		cmd.Dir, cmd.Env, cmd.Stdin = dir, append(env, more...), strings.NewReader(stdin)
		out, err := cmd.Output()
		if err != nil {
			b.Fatalf("git %q: %v", args, err)
		}
		return string(out)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	gitArgs("", nil, "init", "-q", "-b", "main")
	var tree bytes.Buffer
	tree.WriteString("commit refs/heads/main\ncommitter A <a@example.com> 1700000000 +0000\ndata 1\nx\n")
	for i := range 100_000 {
		fmt.Fprintf(&tree, "M 100644 inline top%d/dir%d/file%d.txt\ndata 7\n%06d\n\n", i/5000, i/50%100, i, i)
	}
	gitArgs(tree.String(), nil, "fast-import", "--quiet")
	gitArgs("", nil, "read-tree", "main")
	gitArgs("", nil, "worktree", "add", "-q", "--no-checkout", "-b", "agency/sandbox-"+gittest.SandboxName, filepath.Join(b.TempDir(), gittest.SandboxName))
	repo, err := git.Open(context.Background(), dir, env)
	if err != nil {
		b.Fatal(err)
	}
	base := strings.TrimSpace(gitArgs("", nil, "rev-parse", "main"))
	inside := filepath.Join(b.TempDir(), "inside")
	gitArgs("", nil, "clone", "-q", "--shared", "--no-checkout", dir, inside)
	idx := filepath.Join(inside, ".git/index")
	gitArgs("", nil, "--git-dir="+inside+"/.git", "read-tree", base)
	data, err := os.ReadFile(idx)
	if err != nil {
		b.Fatal(err)
	}
	before, err := index.Read(data, object.SHA1)
	if err != nil {
		b.Fatal(err)
	}
	took := map[string][]time.Duration{}
	old, n := base, 0
	for b.Loop() {
		b.StopTimer()
		n++
		there := []string{"GIT_DIR=" + filepath.Join(inside, ".git")}
		info := ""
		for i := range 3 {
			info += fmt.Sprintf("100644 %s 0\ttop%d/dir7/new.txt\n", strings.TrimSpace(gitArgs(fmt.Sprint(n, i), there, "hash-object", "-w", "--stdin")), i)
		}
		gitArgs(info, there, "update-index", "--index-info")
		tip := strings.TrimSpace(gitArgs("", there, "commit-tree", "-p", old, "-m", "x", strings.TrimSpace(gitArgs("", there, "write-tree"))))
		b.StartTimer()

		last := time.Now()
		step := func(name string) {
			now := time.Now()
			took[name] = append(took[name], now.Sub(last))
			last = now
		}
		pack := gitArgs(tip+"\n^"+old+"\n", there, "pack-objects", "--revs", "--thin", "--stdout", "-q")
		step("pack")
		data, err := os.ReadFile(idx)
		if err != nil {
			b.Fatal(err)
		}
		x, err := index.Read(data, object.SHA1)
		if err != nil {
			b.Fatal(err)
		}
		also := x.NewBlobs(before)
		step("index-read")
		err = Receive(context.Background(), repo, ReceiveRequest{Pack: strings.NewReader(pack), Ref: "refs/heads/agency/sandbox-" + gittest.SandboxName, New: tip, Old: old, Blobs: also})
		if err != nil {
			b.Fatal(err)
		}
		step("take-in")
		if err := repo.WriteIndex(gittest.SandboxName, x, time.Now()); err != nil {
			b.Fatal(err)
		}
		step("index-write")
		old, before = tip, x
	}
	for name, all := range took {
		slices.Sort(all) // the mean means little on a busy machine
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, name+"-ms")
		b.ReportMetric(float64(all[0].Microseconds())/1000, name+"-least-ms")
	}
}
