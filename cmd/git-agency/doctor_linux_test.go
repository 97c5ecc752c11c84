package main

import (
	"os"
	"strconv"
	"testing"
)

// A mend is itself a change of the world: killed anywhere in it, the next one brings it to its end.
func TestAMendKilledAtAnyChangeOfTheDiskIsTakenUpByTheNext(t *testing.T) {
	t.Parallel()
	for i, ill := range ills {
		if !ill.sweep {
			continue
		}
		t.Run(ill.code+"_"+strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			w := newWard(t)
			l := w.lab
			restore := l.save()
			repo, data, env := l.repo, l.data, l.env
			for n := 1; ; n++ {
				ill.wreck(w)
				id := ""
				for _, f := range l.findings() {
					if f.Code == ill.code && (ill.id == "*" || ill.id == f.ID || ill.id == "" && f.ID == sweepID) {
						id = f.ID
					}
				}
				done, last := l.killed(n, "git-agency", "doctor", "--fix", id)
				point := strconv.Itoa(n) + ", before " + last
				l.cure(point)
				ill.cured(w)
				if t.Failed() {
					t.Fatalf("at %s", point)
				}
				if done {
					t.Logf("%d kill points", n-1)
					return
				}
				for _, dir := range []string{l.repo, l.data} {
					if err := os.RemoveAll(dir); err != nil {
						t.Fatal(err)
					}
				}
				l.repo, l.data, l.env = repo, data, env
				restore()
			}
		})
	}
}
