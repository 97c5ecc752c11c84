package startflags

import (
	"fmt"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
)

// CopyProgress shows the progress of copying the files of agency.copy, for StartRequest.Progress; end erases it.
func CopyProgress(p *program.Program) (report func(gitagency.CopyProgress), end func()) {
	show, end := term.StartProgress(p.RawStderr, p.ProgressClock, "copying ignored files", func(c gitagency.CopyProgress) string {
		return fmt.Sprintf("%s, %d MiB", format.Count(c.Files, "file", "files"), c.Bytes>>20)
	})
	if show == nil {
		return nil, end
	}
	return func(c gitagency.CopyProgress) {
		if c.Done { // warnings must not be on the same line
			end()
			return
		}
		show(c)
	}, end
}
