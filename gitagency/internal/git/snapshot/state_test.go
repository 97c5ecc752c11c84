package snapshot

import (
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// parseState drops values that are no object id or branch, because the commit message may be forged; and it reads the
// trailers that State writes.
func FuzzParseState(f *testing.F) {
	const oid = "0123456789abcdef0123456789abcdef01234567"
	f.Add("words\n\nAgency-Invocation: x\nAgency-Base: " + oid + "\nAgency-Head: " + oid + "\nAgency-On: refs/heads/b\nAgency-Index: " + oid)
	f.Add("Agency-Head: zzz\n\nAgency-On: ../../x")
	f.Add("")
	f.Fuzz(func(t *testing.T, message string) {
		s := parseState(message)
		for _, part := range []string{s.Base, s.Head, s.BranchTip, s.IndexTree, s.OperationCommit} {
			if part != "" && !object.IsOID(part) {
				t.Errorf("%q is not an object id", part)
			}
		}
		if s.HeadRef != "" && s.HeadRef != git.DetachedHead && !strings.HasPrefix(s.HeadRef, "refs/heads/") {
			t.Errorf("%q is not a branch", s.HeadRef)
		}
		if s.Head == "" {
			return
		}
		if again := parseState("words\n" + s.Trailers()); !again.SameContents(State{Head: s.Head, HeadRef: s.HeadRef, BranchTip: s.BranchTip, IndexTree: s.IndexTree, OperationCommit: s.OperationCommit}) {
			t.Errorf("%+v became %+v", s, again)
		}
	})
}
