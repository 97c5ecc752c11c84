package gitagency_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency"
)

// List the onboarded directories, and open one of them by its path, also after it was removed.
func ExampleOpenDirectory() {
	home, err := os.MkdirTemp("", "example-")
	check(err)
	defer os.RemoveAll(home)
	ctx := context.Background()
	opts := gitagency.Options{Dir: home, Env: append(os.Environ(), "AGENCY_DATA_DIR="+filepath.Join(home, "data"))}
	for _, name := range []string{"notes", "letters"} {
		check(os.Mkdir(filepath.Join(home, name), 0o755))
		check(os.WriteFile(filepath.Join(home, name, "first.txt"), []byte(name+"\n"), 0o644))
		_, err := gitagency.Onboard(ctx, gitagency.OnboardRequest{Dir: name}, opts)
		check(err)
	}

	all, err := gitagency.Directories(ctx, opts)
	check(err)
	for _, dir := range all {
		fmt.Println(filepath.Base(dir.Path))
	}

	check(os.RemoveAll(filepath.Join(home, "notes")))
	notes, err := gitagency.OpenDirectory(ctx, filepath.Join(home, "notes"), opts)
	check(err)
	snapshots, err := notes.Snapshots(ctx)
	check(err)
	fmt.Println("snapshots:", len(snapshots))

	_, err = gitagency.OpenDirectory(ctx, filepath.Join(home, "pictures"), opts)
	var missing *gitagency.NotFoundError
	fmt.Println("pictures are not onboarded:", errors.As(err, &missing))
	// Output:
	// letters
	// notes
	// snapshots: 1
	// pictures are not onboarded: true
}

// Onboard a directory outside any repository, take and compare snapshots, check one out, and forget the directory.
func ExampleOnboard() {
	home, err := os.MkdirTemp("", "example-")
	check(err)
	defer os.RemoveAll(home)
	notes, todo := filepath.Join(home, "notes"), filepath.Join(home, "notes", "todo.txt")
	write := func(text string) { check(os.WriteFile(todo, []byte(text), 0o644)) }
	check(os.Mkdir(notes, 0o755))
	write("milk\n")

	ctx := context.Background()
	opts := gitagency.Options{Env: append(os.Environ(), "AGENCY_DATA_DIR="+filepath.Join(home, "data"))}
	dir, err := gitagency.Onboard(ctx, gitagency.OnboardRequest{Dir: notes}, opts)
	check(err)

	write("milk\nbread\n")
	second, err := dir.Snapshot(ctx, gitagency.SnapshotRequest{Message: "bread, too"})
	check(err)
	fmt.Println("snapshot", second.Number)

	write("")
	diff, err := dir.DiffSnapshots(ctx, gitagency.DiffRequest{From: second.ID}) // with the current files
	check(err)
	check(gitagency.WriteDiff(os.Stdout, diff, gitagency.DiffFormat{Form: gitagency.DiffNameStatus}))

	then := filepath.Join(home, "then")
	_, err = dir.CheckoutSnapshot(ctx, gitagency.CheckoutRequest{Snapshot: dir.FirstSnapshot.ID, Dir: then})
	check(err)
	text, err := os.ReadFile(filepath.Join(then, "todo.txt"))
	check(err)
	fmt.Print(string(text))

	check(dir.Forget(ctx))
	// Output:
	// snapshot 2
	// M	todo.txt
	// milk
}
