package object

import (
	"slices"
	"strings"
	"testing"
)

func FuzzParseCommit(f *testing.F) {
	oid := strings.Repeat("a", 40)
	good := "tree " + oid + "\nparent " + oid + "\nauthor A <a@b> 1 +0000\ncommitter C <> 2 -0130\nencoding latin1\ngpgsig x\n y\n \n z\n\nmessage\n"
	f.Add(good)
	f.Add("")
	f.Fuzz(func(t *testing.T, data string) {
		c, err := ParseCommit(data)
		if err != nil {
			return
		}
		if !IsOID(c.Tree) || strings.ContainsAny(c.Author+c.Committer+c.Encoding, "\n\x00") {
			t.Errorf("%q: %v", data, c)
		}
		tree, parents, _, ok := ParseCommitHeader(data)
		if !ok || tree != c.Tree || !slices.Equal(parents, c.Parents) {
			t.Errorf("%q: %v, and skimmed %v, %v", data, c, tree, parents)
		}
	})
}
