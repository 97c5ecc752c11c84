package gitagency_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency"
)

// Onboard a directory outside any repository, take and compare snapshots, check one out, and forget the directory.
func ExampleOnboard() {
	home, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(home)
	notes, todo := filepath.Join(home, "notes"), filepath.Join(home, "notes", "todo.txt")
	write := func(text string) {
		if err := os.WriteFile(todo, []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}
	if err := os.Mkdir(notes, 0o755); err != nil {
		log.Fatal(err)
	}
	write("milk\n")

	ctx := context.Background()
	opts := gitagency.Options{Env: append(os.Environ(), "AGENCY_DATA_DIR="+filepath.Join(home, "data"))}
	dir, err := gitagency.Onboard(ctx, gitagency.OnboardRequest{Dir: notes}, opts)
	if err != nil {
		log.Fatal(err)
	}

	write("milk\nbread\n")
	second, err := dir.Snapshot(ctx, gitagency.SnapshotRequest{Message: "bread, too"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("snapshot", second.Number)

	write("")
	diff, err := dir.DiffSnapshots(ctx, gitagency.DiffRequest{From: second.ID}) // with the current files
	if err != nil {
		log.Fatal(err)
	}
	if err := gitagency.WriteDiff(os.Stdout, diff, gitagency.DiffFormat{Form: gitagency.DiffNameStatus}); err != nil {
		log.Fatal(err)
	}

	then := filepath.Join(home, "then")
	if _, err := dir.CheckoutSnapshot(ctx, gitagency.CheckoutRequest{Snapshot: dir.FirstSnapshot.ID, Dir: then}); err != nil {
		log.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(then, "todo.txt"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(string(text))

	if err := dir.Forget(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// snapshot 2
	// M	todo.txt
	// milk
}
