package git

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhatIsLeftOfAnAdvanceThatNobodyHasANoteOfIsFinishedOrUndone(t *testing.T) {
	t.Parallel()
	ad := messy(t)
	before := ad.sum()
	strays := func() []LeftoverStaging {
		t.Helper()
		all, err := ad.repo.LeftoverStagings(ad.dir)
		ad.must(err)
		return all
	}
	if all := strays(); len(all) > 0 {
		t.Fatalf("%+v", all)
	}
	ad.stopped("commit")
	all := strays()
	if len(all) != 1 || !all[0].MayHoldFiles {
		t.Fatalf("%+v", all)
	}
	ad.must(ad.repo.RecoverStaging(t.Context(), all[0]))
	_ = os.Remove(filepath.Join(ad.repo.CommonDir, "refs/agency/trash")) // which git made, for a lock
	requireSame(t, "undone", ad.sum(), before)
	if all := strays(); len(all) > 0 {
		t.Fatalf("%+v", all)
	}

	// One in which nothing was moved only goes.
	dir := filepath.Join(ad.repo.agencyDir(), stagingPrefix+strings.Repeat("a", 16))
	ad.must(os.MkdirAll(filepath.Join(dir, "tree"), 0o755))
	if all = strays(); len(all) != 1 || all[0].MayHoldFiles || all[0].Path != dir {
		t.Fatalf("%+v", all)
	}
	ad.must(ad.repo.RecoverStaging(t.Context(), all[0]))
	requireSame(t, "gone", ad.sum(), before)

	// Nor is anything done elsewhere because a plan says so.
	ad.must(os.MkdirAll(dir, 0o755))
	elsewhere := t.TempDir()
	ad.must(os.WriteFile(filepath.Join(dir, "plan"), []byte(`{"advance":{"branch":"refs/heads/main","old":"`+strings.Repeat("a", 40)+`","new":"`+strings.Repeat("a", 40)+`","git_dir":"`+elsewhere+`","tree":"`+elsewhere+`"}}`), 0o644))
	if err := ad.repo.RecoverStaging(t.Context(), strays()[0]); err == nil {
		t.Error("it was believed")
	}
}
