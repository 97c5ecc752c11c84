package git

import (
	"testing"
	"time"
)

// A reflog names a rename of the branch itself, and only one that is not older than the record that names the branch.
func TestLoggedRename(t *testing.T) {
	t.Parallel()
	const log = "0000000000000000000000000000000000000000 1111111111111111111111111111111111111111 A B <a@b> 100 +0000\tcommit (initial): one\n" +
		"1111111111111111111111111111111111111111 1111111111111111111111111111111111111111 A B <a@b> 200 +0000\tBranch: renamed refs/heads/main to refs/heads/trunk\n"
	for _, c := range []struct {
		name, branch string
		since        int64
		want         bool
	}{
		{"renamed", "refs/heads/main", 100, true},
		{"in the same second", "refs/heads/main", 200, true},
		{"renamed before", "refs/heads/main", 201, false},
		{"another branch", "refs/heads/mai", 100, false},
		{"the new name", "refs/heads/trunk", 100, false},
	} {
		if got := loggedRename(log, c.branch, time.Unix(c.since, 0)); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	if loggedRename("\tBranch: renamed refs/heads/main to refs/heads/x\n", "refs/heads/main", time.Unix(0, 0)) {
		t.Error("an entry without a time counts")
	}
}
