package git

import (
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

func FuzzAddPackedRefs(f *testing.F) {
	const oid = "0123456789abcdef0123456789abcdef01234567"
	f.Add("# pack-refs with: peeled\n"+oid+" refs/agency/x/1\n^"+oid+"\n"+oid+" refs/agency/x/2\n", "refs/agency/x/")
	f.Add(" refs/agency/x/", "refs/agency/x/")
	f.Fuzz(func(t *testing.T, packed, prefix string) {
		refs := map[string]string{}
		if !addPackedRefs(refs, []byte(packed), prefix) {
			return
		}
		for ref, at := range refs {
			if !strings.HasPrefix(ref, prefix) || !object.IsOID(at) {
				t.Errorf("%q at %q", ref, at)
			}
		}
	})
}
