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
	return term.StartProgress(p.RawStderr, p.ProgressClock, "copying ignored files", func(done gitagency.CopyProgress) string {
		return fmt.Sprintf("%s, %d MiB", format.Count(done.Files, "file", "files"), done.Bytes>>20)
	})
}
