package settings

import (
	"os/exec"
	"testing"
)

// colorSequence gives the same escape sequence as git config --get-color, and refuses the same values.
func TestColorSequenceAgreesWithGit(t *testing.T) {
	t.Parallel()
	for _, color := range []string{
		"", "red", "bold red", "red bold", "green blue", "reverse", "nobold", "no-bold", "noul", "no-reverse", "dim italic ul blink strike",
		"normal", "normal red", "default", "default default", "brightred", "brightred brightblue", "0", "7", "8", "15", "16", "208", "255", "-1",
		"208 17", "#ff8800", "#ff8800 #001122", "reset", "reset red", "bold red reset", "RED Bold", "red Bold", "bold ul", "ul bold", "nobold ul bold nodim", "nodim", "nostrike",
		"nonsense", "red green blue", "256", "#12345", "#gggggg", "no", "nored", "brightnormal",
	} {
		out, err := exec.CommandContext(t.Context(), "git", "-c", "color.diff.old="+color, "config", "--get-color", "color.diff.old").Output()
		got, ok := colorSequence(color)
		if ok != (err == nil) || ok && got != string(out) {
			t.Errorf("%q: got %q, %v; git has %q, %v", color, got, ok, out, err)
		}
	}
}
