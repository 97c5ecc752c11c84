package doctor

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestManualListsAllFindingCodes(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile(filepath.FromSlash("../../../cmd/git-agency/manual/git-agency.1.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(manual), "\n### git agency doctor\n")
	section, _, _ = strings.Cut(section, "\n### ")
	var explained []string
	for _, term := range regexp.MustCompile("(?m)^`([a-z][a-z-]*)`\n: ").FindAllStringSubmatch(section, -1) {
		explained = append(explained, term[1])
	}
	if known := FindingCodes(); !slices.Equal(explained, known) {
		t.Errorf("the manual documents the findings %q, want %q", explained, known)
	}
}
