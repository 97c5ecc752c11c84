package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"golang.org/x/sys/unix"
)

func TestInvocationOpensNoOtherRecords(t *testing.T) {
	t.Parallel()
	repo, _ := openRepoWithPrograms(t)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	now := time.Date(2026, 1, 28, 12, 5, 0, 0, time.UTC)
	check(repo.Store.EnsureRepo(repo.ID, repo.CommonDir, now))
	check(os.Mkdir(filepath.Join(repo.CommonDir, "worktrees"), 0o700)) // else the records could be those of an earlier repository
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	check(err)
	defer unix.Close(watch)
	const wanted = "20260128120503-0003"
	for n := range 6 {
		at := now.Add(time.Duration(n) * time.Second)
		id := fmt.Sprintf("%s-%04x", at.Format("20060102150405"), n)
		tree := repo.Store.SandboxTreePath(repo.ID, id)
		check(repo.Store.CreateWorktreeDir(repo.ID, id))
		check(repo.Store.CreateInvocationDir(repo.ID, id))
		check(os.MkdirAll(tree, 0o700))
		check(repo.Store.WriteWorktreeMeta(store.WorktreeMeta{
			SchemaVersion: store.SchemaVersion, WorktreeID: id, RepoID: repo.ID, Name: "wt-" + id, TreePath: tree, CreatedAt: at, State: store.Present,
		}))
		check(repo.Store.WriteInvocationMeta(repo.ID, store.InvocationMeta{
			SchemaVersion: store.SchemaVersion, InvocationID: id, IntegrationWorktreeID: id, SandboxPath: tree,
			SandboxBranch: "b", BaseCommit: "c", Status: "starting", StartedAt: at,
		}))
		for _, dir := range []string{repo.Store.InvocationDir(repo.ID, id), repo.Store.WorktreeDir(repo.ID, id)} {
			if id != wanted {
				_, err := unix.InotifyAddWatch(watch, filepath.Join(dir, "meta.json"), unix.IN_OPEN)
				check(err)
			}
		}
	}
	opened := func() bool {
		n, err := unix.Read(watch, make([]byte, 1<<12))
		return n > 0 && err == nil
	}
	for _, query := range []string{wanted, wanted[:16], wanted[:14]} {
		inv, err := repo.Invocation(query)
		if err != nil || inv.ID != wanted || inv.Worktree != "wt-"+wanted {
			t.Errorf("%s: %+v, %v", query, inv, err)
		}
		if opened() {
			t.Errorf("%s: other records were opened", query)
		}
	}
	if _, err := repo.Invocations(core.ListRequest{}); err != nil || !opened() {
		t.Errorf("a listing must open all records: %v", err)
	}
}
