package term

import (
	"slices"
	"testing"
)

// TestUseColorPrecedence tries all combinations: the flag wins over NO_COLOR, which wins over
// the setting; the first that is set decides alone.
func TestUseColorPrecedence(t *testing.T) {
	t.Parallel()
	words, truths := []string{"", "always", "auto", "never"}, []bool{false, true}
	combinations := 0
	for _, flag := range words {
		for _, noColor := range truths {
			for _, setting := range words {
				for _, terminal := range truths {
					for _, pager := range truths {
						for _, colorInPager := range truths {
							for _, dumb := range truths {
								q := ColorPolicy{flag, noColor, setting, terminal, pager, colorInPager, dumb}
								combinations++
								able := !dumb && (pager && colorInPager || !pager && terminal)
								environment := ""
								if noColor {
									environment = "never"
								}
								values := []string{flag, environment, setting, "auto"}
								first := values[slices.IndexFunc(values, func(v string) bool { return v != "" })]
								want := map[string]bool{"always": true, "never": false, "auto": able}[first]
								if got := q.UseColor(); got != want {
									t.Errorf("%+v: got %v", q, got)
								}
								if !q.NeedsSetting() {
									other := q
									other.Setting = "always"
									if other.UseColor() != q.UseColor() {
										t.Errorf("%+v: NeedsSetting is false, but the setting changes the result", q)
									}
								}
							}
						}
					}
				}
			}
		}
	}
	if combinations != 512 {
		t.Errorf("tried %d combinations, want 512", combinations)
	}
}

// TestUsePagerFollowsGit checks UsePager for all combinations of its inputs: a pager needs a terminal, a program, and no
// pager that runs already.
func TestUsePagerFollowsGit(t *testing.T) {
	t.Parallel()
	truths := []bool{false, true}
	for _, terminal := range truths {
		for _, inUse := range truths {
			for _, setting := range []string{"", "always", "never"} {
				for _, program := range []string{"", "less"} {
					for _, listing := range truths {
						q := PagerPolicy{terminal, inUse, setting, program, listing}
						possible := terminal && !inUse && program != ""
						wanted := map[string]bool{"always": true, "never": false, "": listing}[setting]
						if got := q.UsePager(); got != (possible && wanted) {
							t.Errorf("%+v: got %v", q, got)
						}
					}
				}
			}
		}
	}
}
