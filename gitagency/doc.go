// Package gitagency lets many coding agents work on one repository at the same time.
//
// A person owns an integration worktree: a branch and a directory that agents never write to. Each
// piece of agent work is an invocation: an id, a record and a sandbox, which is a directory tree of
// its own with a branch of its own. Open finds the repository; its verbs make and end these things:
//
//	repo, err := gitagency.Open(ctx, gitagency.Options{})
//	wt, err := repo.CreateWorktree(ctx, gitagency.CreateWorktreeRequest{Name: "payments"})
//	inv, err := repo.Start(ctx, gitagency.StartRequest{Worktree: "payments", Runner: "claude"})
//	box, err := repo.Sandbox(inv.ID)
//	defer box.Teardown(ctx) // what was in it is kept under a ref
//	err = box.UploadFiles(ctx, []gitagency.File{{Path: "task.md", Content: task}})
//	res, err := box.Exec(ctx, gitagency.ExecOptions{Argv: []string{"make", "test"}})
//	commit, err := box.Snapshot(ctx)
//	changes, err := repo.DiffSnapshots(ctx, gitagency.DiffRequest{Invocation: inv.ID, From: commit})
//	_, err = repo.Prune(ctx, gitagency.PruneRequest{}) // forgets what ended long ago
//
// What belongs to no repository has snapshots too. Onboard gives a plain directory a repository of its own in the data
// directory, and only ever reads the directory itself:
//
//	dir, err := gitagency.Onboard(ctx, gitagency.OnboardRequest{Dir: "notes"}, gitagency.Options{})
//	snapshot, err := dir.Snapshot(ctx, gitagency.SnapshotRequest{Message: "before the move"})
//	diff, err := dir.DiffSnapshots(ctx, gitagency.DiffRequest{From: snapshot.ID}) // with what is there now
//	_, err = dir.CheckoutSnapshot(ctx, gitagency.CheckoutRequest{Snapshot: snapshot.ID, Dir: "copy"})
//	err = dir.Forget(ctx) // takes the snapshots away
//
// Everything that changes the world is a transaction (creation.go is the one to read first): named
// steps under the repository lock, each with its undo, and one commit point, the durable rename of
// meta.json. Before it, whatever goes wrong, what this run made is taken back; after it, the thing
// exists. A process that is killed in between leaves an intent.json that names all it may have made;
// such an invocation is listed as broken, never repaired behind anybody's back.
//
// Commands run in a sandbox under a supervisor, which is the program that imports this package, started
// again under another name: package internal/proc recognises it before main begins. Nothing that a command
// starts outlives it, not even when this program is killed.
//
// All state can be read with cat, ls and git. The package neither parses, forks nor prints: git is
// spoken to in internal/git, records are kept in internal/store, and what a person should know
// besides an error goes through Options.Warn.
package gitagency
