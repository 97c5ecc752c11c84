package landing

import (
	"io"
	"os"
)

// maxVerifyLog bounds the size of the log file in bytes. The output writer gets everything.
const maxVerifyLog = 64 << 20

// verifyLog is a writer that copies the output of a command to a log file and to another writer. Write never fails: a
// command must not die because its output could not be stored.
type verifyLog struct {
	output    io.Writer // may be nil
	file      *os.File  // may be nil
	remaining int
	warn      func(format string, args ...any)
}

func (l *verifyLog) Write(p []byte) (int, error) {
	l.writeFile(p)
	if l.output != nil {
		if _, err := l.output.Write(p); err != nil {
			l.output = nil
		}
	}
	return len(p), nil
}

func (l *verifyLog) writeFile(p []byte) {
	if l.file == nil || l.remaining == 0 {
		return
	}
	n := min(len(p), l.remaining)
	_, err := l.file.Write(p[:n])
	if l.remaining -= n; err == nil && l.remaining == 0 {
		_, err = l.file.WriteString("\n# truncated: the output is larger than the log may be\n")
	}
	if err != nil {
		l.warn("the log of the verification is incomplete: %v", err)
		l.remaining = 0
	}
}
