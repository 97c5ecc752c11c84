package engine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/git-agency/git-agency/scripts/fakepodman"
	"github.com/git-agency/git-agency/scripts/fakeslurm"
)

// afterTests run when all tests have ended.
var afterTests []func()

// TestMain makes this test binary run as a program of a simulated engine when it is called by its name.
func TestMain(m *testing.M) {
	for _, programs := range []map[string]func(){fakeslurm.Programs(), fakepodman.Programs()} {
		if main := programs[filepath.Base(os.Args[0])]; main != nil {
			main()
		}
	}
	exit := m.Run()
	for _, after := range afterTests {
		after()
	}
	os.Exit(exit)
}
