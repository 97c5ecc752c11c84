package gitagency

import "unicode/utf8"

// CaptureLimit is how much of each stream a result holds.
const CaptureLimit = 16 << 20

// capture keeps the beginning of what is written to it. It never refuses the rest: a command that writes
// too much is not ended for it.
type capture struct {
	kept []byte
	over bool
}

func (c *capture) Write(p []byte) (int, error) {
	room := min(len(p), CaptureLimit-len(c.kept))
	c.kept = append(c.kept, p[:room]...)
	c.over = c.over || room < len(p)
	return len(p), nil
}

// text is what was kept, without a character that the limit cut in two.
func (c *capture) text() string {
	text := c.kept
	for n := 1; c.over && n < utf8.UTFMax && n <= len(text); n++ {
		if begun := text[len(text)-n:]; utf8.RuneStart(begun[0]) {
			if !utf8.FullRune(begun) {
				text = text[:len(text)-n]
			}
			break
		}
	}
	return string(text)
}
