// Package gitagency lets many coding agents work on one repository at the same time.
//
// A person owns an integration worktree: a branch and a directory that agents never write to. Each
// piece of agent work is an invocation: an id, a record and a sandbox, which is a directory tree of
// its own with a branch of its own. Open opens the repository; its methods create and end these things:
//
//	repo, err := gitagency.Open(ctx, gitagency.Options{})
//	wt, err := repo.CreateWorktree(ctx, gitagency.CreateWorktreeRequest{Name: "payments"})
//	inv, err := repo.Start(ctx, gitagency.StartRequest{Worktree: "payments", Runner: "claude"})
//	box, err := repo.Sandbox(inv.ID)
//	defer box.Teardown(ctx) // its content is kept under a ref
//	err = box.UploadFiles(ctx, []gitagency.File{{Path: "task.md", Content: task}})
//	res, err := box.Exec(ctx, gitagency.ExecOptions{Argv: []string{"make", "test"}})
//	commit, err := box.Snapshot(ctx)
//	changes, err := repo.DiffSnapshots(ctx, gitagency.DiffRequest{Invocation: inv.ID, From: commit})
//	_, err = repo.Prune(ctx, gitagency.PruneRequest{}) // removes what ended long ago
//
// A directory that belongs to no repository can have snapshots too. Onboard gives it a repository in the data directory,
// and never writes to the directory itself:
//
//	dir, err := gitagency.Onboard(ctx, gitagency.OnboardRequest{Dir: "notes"}, gitagency.Options{})
//	snapshot, err := dir.Snapshot(ctx, gitagency.SnapshotRequest{Message: "before the move"})
//	diff, err := dir.DiffSnapshots(ctx, gitagency.DiffRequest{From: snapshot.ID}) // against its present files
//	_, err = dir.CheckoutSnapshot(ctx, gitagency.CheckoutRequest{Snapshot: snapshot.ID, Dir: "copy"})
//	err = dir.Forget(ctx) // removes the snapshots
//
// The creation of a worktree or sandbox is a transaction (read internal/core/creation.go first): named steps under the
// repository lock, each with its undo, and one commit point, the durable rename of meta.json. A failure before the commit
// point undoes everything that this run created; after it, the invocation or worktree exists. A process that is killed
// before the commit point leaves an intent.json that names everything it may have created; such an invocation is listed as
// broken, and is repaired only on request. Other changes follow the same pattern with a commit point of their own: a
// landing the move of its refs, a snapshot the creation of its ref.
//
// Commands run in a sandbox under a supervisor: the program that imports this package, executed again under another
// name, which an init function of package internal/confine recognises before main begins (proc.Supervise). No process
// that a command starts outlives that command, even if this program is killed.
//
// All state can be read with cat, ls and git. This package converts requests, results and errors, and delegates.
// internal/core is the open repository, and internal/sandbox, landing, radar, doctor and directory do the work. Messages
// for the user that are not errors go to Options.Warn. Package reason lists the reasons of StateError and RefusedError;
// package quote writes paths and words for messages.
package gitagency
