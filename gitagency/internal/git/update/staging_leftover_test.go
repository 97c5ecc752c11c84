package update

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

func TestWhatIsLeftOfAnAdvanceThatNobodyHasANoteOfIsFinishedOrUndone(t *testing.T) {
	t.Parallel()
	ad := messy(t)
	before := ad.sum()
	strays := func() []LeftoverStaging {
		t.Helper()
		all, err := LeftoverStagings(ad.repo, ad.Root)
		ad.Must(err)
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
	ad.Must(RecoverStaging(t.Context(), ad.repo, all[0]))
	_ = os.Remove(filepath.Join(ad.repo.CommonDir, "refs/agency/trash")) // which git made, for a lock
	gittest.RequireSame(t, "undone", ad.sum(), before)
	if all := strays(); len(all) > 0 {
		t.Fatalf("%+v", all)
	}

	// One in which nothing was moved only goes.
	dir := filepath.Join(ad.repo.AgencyDir(), stagingPrefix+strings.Repeat("a", 16))
	ad.Must(os.MkdirAll(filepath.Join(dir, "tree"), 0o755))
	if all = strays(); len(all) != 1 || all[0].MayHoldFiles || all[0].Path != dir {
		t.Fatalf("%+v", all)
	}
	ad.Must(RecoverStaging(t.Context(), ad.repo, all[0]))
	gittest.RequireSame(t, "gone", ad.sum(), before)

	// Nor is anything done elsewhere because a plan says so.
	ad.Must(os.MkdirAll(dir, 0o755))
	elsewhere := t.TempDir()
	ad.Must(os.WriteFile(filepath.Join(dir, "plan"), []byte(`{"advance":{"branch":"refs/heads/main","old":"`+strings.Repeat("a", 40)+`","new":"`+strings.Repeat("a", 40)+`","git_dir":"`+elsewhere+`","tree":"`+elsewhere+`"}}`), 0o644))
	if err := RecoverStaging(t.Context(), ad.repo, strays()[0]); err == nil {
		t.Error("it was believed")
	}
}
