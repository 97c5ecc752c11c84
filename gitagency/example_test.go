package gitagency_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/git-agency/git-agency/gitagency"
)

// noWalls starts sandboxes that need nothing of the machine, so that the examples run everywhere. Leave Primitives out to
// get the walls.
var noWalls = gitagency.Primitives{Isolation: "none"}

// Open a repository, give an agent a sandbox, and run a command in it.
func Example() {
	ctx := context.Background()
	repo, remove := exampleRepository(ctx)
	defer remove()
	wt, err := repo.CreateWorktree(ctx, gitagency.CreateWorktreeRequest{Name: "payments"})
	check(err)

	inv, err := repo.Start(ctx, gitagency.StartRequest{Worktree: wt.Name, Runner: "claude", Primitives: noWalls})
	check(err)
	box, err := repo.Sandbox(inv.ID)
	check(err)
	check(box.UploadFiles(ctx, []gitagency.File{{Path: "task.md", Content: []byte("add a greeting\n")}}))
	res, err := box.Exec(ctx, gitagency.ExecOptions{Argv: []string{"cat", "task.md", "greeting"}})
	check(err)
	fmt.Printf("exit code %d\n%s", res.ExitCode, res.Stdout)

	check(box.Teardown(ctx)) // a ref keeps the content
	inv, err = repo.Invocation(inv.ID)
	check(err)
	fmt.Println(inv.Landing)
	// Output:
	// exit code 0
	// add a greeting
	// hello
	// discarded
}

// Take a snapshot of a sandbox, see what changed since, and go back.
func ExampleSandbox_Rollback() {
	ctx := context.Background()
	repo, remove := exampleRepository(ctx)
	defer remove()
	box := exampleSandbox(ctx, repo, "")

	snapshot, err := box.Snapshot(ctx)
	check(err)
	_, err = box.Exec(ctx, gitagency.ExecOptions{Argv: []string{"sh", "-c", "rm greeting; echo broken >new"}})
	check(err)
	diff, err := repo.DiffSnapshots(ctx, gitagency.DiffRequest{Invocation: box.ID, From: snapshot})
	check(err)
	check(gitagency.WriteDiff(os.Stdout, diff, gitagency.DiffFormat{Form: gitagency.DiffNameStatus}))

	back, err := box.Rollback(ctx, gitagency.RollbackRequest{Snapshot: snapshot})
	check(err)
	fmt.Println(back.Added, "added,", back.Removed, "removed")
	// Output:
	// D	greeting
	// A	new
	// 1 added, 1 removed
}

// Land the work of a sandbox on the integration branch.
func ExampleRepository_Land() {
	ctx := context.Background()
	repo, remove := exampleRepository(ctx)
	defer remove()
	box := exampleSandbox(ctx, repo, "hello, world")

	landed, err := repo.Land(ctx, gitagency.LandRequest{
		ID: box.ID, CommitAll: true, Message: "greet the world", Verify: "grep -q world greeting",
	})
	check(err)
	fmt.Println(landed.Commits, "commit on", landed.Branch, "verified:", landed.Verified)
	wt, err := repo.Worktree("mine")
	check(err)
	text, err := os.ReadFile(filepath.Join(wt.TreePath, "greeting"))
	check(err)
	fmt.Print(string(text))
	// Output:
	// 1 commit on main verified: true
	// hello, world
}

// Find out which sandboxes will conflict before any of them lands.
func ExampleRepository_Radar() {
	ctx := context.Background()
	repo, remove := exampleRepository(ctx)
	defer remove()
	exampleSandbox(ctx, repo, "hello, world")
	exampleSandbox(ctx, repo, "good morning")

	radar, err := repo.Radar(ctx, "mine")
	check(err)
	for _, s := range radar.Sandboxes {
		fmt.Println("sandbox:", s.State)
	}
	for _, p := range radar.Pairs {
		fmt.Println("pair: clean", p.Clean, p.Paths)
	}
	// Output:
	// sandbox: clean
	// sandbox: clean
	// pair: clean false [greeting]
}

// Find and fix what killed processes and other programs have left behind.
func ExampleRepository_Diagnose() {
	ctx := context.Background()
	repo, remove := exampleRepository(ctx)
	defer remove()
	box := exampleSandbox(ctx, repo, "hello, world")
	check(os.RemoveAll(box.WorkDir()))

	diagnosis, err := repo.Diagnose(ctx)
	check(err)
	for _, f := range diagnosis.Findings {
		fmt.Println(f.Code, f.ID == box.ID)
	}
	_, err = repo.Fix(ctx, box.ID)
	check(err)
	diagnosis, err = repo.Diagnose(ctx)
	check(err)
	fmt.Println(len(diagnosis.Findings), "findings")
	// Output:
	// missing-tree true
	// 0 findings
}

// exampleRepository creates a repository with one commit, whose main worktree is the integration worktree "mine", in a
// directory that remove removes.
func exampleRepository(ctx context.Context) (_ *gitagency.Repository, remove func()) {
	home, err := os.MkdirTemp("", "example-")
	check(err)
	dir := filepath.Join(home, "repo")
	env := append(os.Environ(), "HOME="+home, "AGENCY_DATA_DIR="+filepath.Join(home, "data"),
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull,
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com")
	script := exec.CommandContext(ctx, "sh", "-ec", `git init -q "$0"; cd "$0"; git symbolic-ref HEAD refs/heads/main
		echo hello >greeting; git add greeting; git commit -q -m first`, dir)
	script.Env = env
	if out, err := script.CombinedOutput(); err != nil {
		log.Fatalf("%v: %s", err, bytes.TrimSpace(out))
	}
	repo, err := gitagency.Open(ctx, gitagency.Options{Dir: dir, Env: env})
	check(err)
	_, err = repo.AdoptWorktree(ctx, gitagency.AdoptWorktreeRequest{Name: "mine"})
	check(err)
	return repo, func() { check(os.RemoveAll(home)) }
}

// exampleSandbox starts a sandbox in which the file greeting has the text, unless that is empty.
func exampleSandbox(ctx context.Context, repo *gitagency.Repository, text string) *gitagency.Sandbox {
	inv, err := repo.Start(ctx, gitagency.StartRequest{Worktree: "mine", Primitives: noWalls})
	check(err)
	box, err := repo.Sandbox(inv.ID)
	check(err)
	if text != "" {
		check(box.UploadFiles(ctx, []gitagency.File{{Path: "greeting", Content: []byte(strings.TrimSpace(text) + "\n")}}))
	}
	return box
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
