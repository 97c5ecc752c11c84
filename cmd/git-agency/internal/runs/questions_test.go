package runs

import "testing"

func TestChooseOptionTakesNumbersAndTexts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, want string
		options    []string
	}{
		{"2", "no", []string{"yes", "no"}},
		{"3", "3", []string{"yes", "no"}},
		{"0", "0", []string{"yes", "no"}},
		{"no", "no", []string{"yes", "no"}},
		{"2", "2", []string{"2", "4"}}, // an option itself
		{"1", "1", nil},
		{"", "", []string{"yes"}},
	} {
		if got := chooseOption(c.text, c.options); got != c.want {
			t.Errorf("%q of %q: got %q, want %q", c.text, c.options, got, c.want)
		}
	}
}
