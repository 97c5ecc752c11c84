package update

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

// RecoverStaging undoes an update that was killed and has no record, removes a staging directory without moved files, and
// refuses a plan about another repository.
func TestRecoverStagingUndoesOrRemovesLeftovers(t *testing.T) {
	t.Parallel()
	lab := newDirtyLab(t)
	before := lab.diskState()
	leftovers := func() []LeftoverStaging {
		t.Helper()
		all, err := LeftoverStagings(lab.repo, lab.Root)
		lab.Must(err)
		return all
	}
	if all := leftovers(); len(all) > 0 {
		t.Fatalf("%+v", all)
	}
	lab.killAt("commit")
	all := leftovers()
	if len(all) != 1 || !all[0].MayHoldFiles {
		t.Fatalf("%+v", all)
	}
	lab.Must(RecoverStaging(t.Context(), lab.repo, all[0]))
	_ = os.Remove(filepath.Join(lab.repo.CommonDir, "refs/agency/trash")) // directory that git made for a lock
	gittest.RequireSame(t, "undone", lab.diskState(), before)
	if all := leftovers(); len(all) > 0 {
		t.Fatalf("%+v", all)
	}

	// A staging directory from which no file was moved is removed.
	dir := filepath.Join(lab.repo.AgencyDir(), stagingPrefix+strings.Repeat("a", 16))
	lab.Must(os.MkdirAll(filepath.Join(dir, "tree"), 0o755))
	if all = leftovers(); len(all) != 1 || all[0].MayHoldFiles || all[0].Path != dir {
		t.Fatalf("%+v", all)
	}
	lab.Must(RecoverStaging(t.Context(), lab.repo, all[0]))
	gittest.RequireSame(t, "removed", lab.diskState(), before)

	// A plan that names a directory outside of the repository is refused.
	lab.Must(os.MkdirAll(dir, 0o755))
	elsewhere := t.TempDir()
	lab.Must(os.WriteFile(filepath.Join(dir, "plan"), []byte(`{"advance":{"branch":"refs/heads/main","old":"`+strings.Repeat("a", 40)+`","new":"`+strings.Repeat("a", 40)+`","git_dir":"`+elsewhere+`","tree":"`+elsewhere+`"}}`), 0o644))
	if err := RecoverStaging(t.Context(), lab.repo, leftovers()[0]); err == nil {
		t.Error("the plan was accepted")
	}
}
