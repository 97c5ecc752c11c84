package gitagency

import "unicode/utf8"

// CaptureLimit is the number of bytes of each output stream that a result holds.
const CaptureLimit = 16 << 20

// outputBuffer keeps the first CaptureLimit bytes that are written to it. It accepts and drops the rest, so that a
// command that writes too much is not killed by a failed write.
type capture struct {
	kept []byte
	over bool
}

func (c *capture) Write(p []byte) (int, error) {
	n := min(len(p), CaptureLimit-len(c.kept))
	c.kept = append(c.kept, p[:n]...)
	c.over = c.over || n < len(p)
	return len(p), nil
}

// text returns the kept output, without a UTF-8 character that the limit cut in two.
func (c *capture) text() string {
	text := c.kept
	for n := 1; c.over && n < utf8.UTFMax && n <= len(text); n++ {
		if last := text[len(text)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				text = text[:len(text)-n]
			}
			break
		}
	}
	return string(text)
}
