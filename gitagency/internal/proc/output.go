package proc

import (
	"bytes"
	"errors"
	"unicode/utf8"
)

// CaptureLimit is the number of bytes of each output stream that a result holds.
const CaptureLimit = 16 << 20

// OutputBuffer keeps the first CaptureLimit bytes that are written to it. It accepts and drops the rest, so that a
// command that writes too much is not killed by a failed write.
type OutputBuffer struct {
	data      []byte
	Truncated bool
}

func (c *OutputBuffer) Write(p []byte) (int, error) {
	n := min(len(p), CaptureLimit-len(c.data))
	c.data = append(c.data, p[:n]...)
	c.Truncated = c.Truncated || n < len(p)
	return len(p), nil
}

// Text returns the kept output, without a UTF-8 character that the limit cut in two.
func (c *OutputBuffer) Text() string {
	text := c.data
	for n := 1; c.Truncated && n < utf8.UTFMax && n <= len(text); n++ {
		if last := text[len(text)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				text = text[:len(text)-n]
			}
			break
		}
	}
	return string(text)
}

// LimitedBuffer keeps the bytes written to it. A write beyond the limit fails, which ends the program that writes. The
// buffer is not embedded: io.Copy would call its ReadFrom instead of Write.
type LimitedBuffer struct {
	buffer   bytes.Buffer
	Limit    int  // in bytes; 0: none
	Exceeded bool // a write has failed
}

func (b *LimitedBuffer) Write(p []byte) (int, error) {
	if b.Limit > 0 && b.buffer.Len()+len(p) > b.Limit {
		b.Exceeded = true
		return 0, errors.New("the output is too large")
	}
	return b.buffer.Write(p)
}

// Bytes returns the bytes that were kept.
func (b *LimitedBuffer) Bytes() []byte { return b.buffer.Bytes() }

// String returns the bytes that were kept as text.
func (b *LimitedBuffer) String() string { return b.buffer.String() }
