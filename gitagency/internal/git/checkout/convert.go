package checkout

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
)

// convertsLineEndings reports whether settings make git write CRLF where a blob has LF.
func convertsLineEndings(r *git.Repo) bool {
	crlf, set := r.Config.Last("core.autocrlf")
	return set && !strings.EqualFold(crlf.Value, "input") && r.ConfigBool("core.autocrlf", false) || strings.EqualFold(r.Config.Value("core.eol"), "crlf")
}

// maxRules is the size up to which an attribute file is read.
const maxRules = 1 << 20

// withoutConverted returns the entries without those that git converts when it checks them out. rules are the entries of all
// attribute files. It returns none where the attributes are not known.
func withoutConverted(ctx context.Context, r *git.Repo, source Source, at git.RunOptions, format object.Format, rules, entries []index.Entry) ([]index.Entry, error) {
	some, known, err := anyConverted(r, source, format, rules)
	if err != nil || !known || !some {
		if !known {
			entries = nil
		}
		return entries, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = string(e.Name)
	}
	converted, err := convertedFiles(ctx, r, at, names)
	return slices.DeleteFunc(entries, func(e index.Entry) bool { return converted[string(e.Name)] }), err
}

// anyConverted reports whether any attribute file has an attribute by which git converts files, and whether that is known: an
// attribute file of the source may have been changed.
func anyConverted(r *git.Repo, source Source, format object.Format, rules []index.Entry) (some, known bool, err error) {
	for _, file := range status.ExternalAttributeFiles(r) {
		content, err := readRules(file)
		if err != nil || len(content) > maxRules {
			return false, false, err
		}
		some = some || namesConversion(content)
	}
	tree, err := beneath.Open(source.Tree)
	if err != nil {
		return false, false, err
	}
	defer tree.Close()
	for _, e := range rules {
		content, _, err := tree.ReadFile(string(e.Name), maxRules)
		if err != nil || content == nil || !bytes.Equal(object.HashObject(format, "blob", content), e.OID) {
			return false, false, nil
		}
		some = some || namesConversion(content)
	}
	return some, true, nil
}

// readRules reads an attribute file outside of the worktree. One that is missing has no rules; of a larger one than maxRules it
// returns more than that.
func readRules(file string) ([]byte, error) {
	if !filepath.IsAbs(file) {
		return nil, nil // of an empty variable
	}
	f, err := os.Open(file)
	if git.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxRules+1))
}

// namesConversion reports whether an attribute file may set an attribute by which git converts files when it checks them out.
// The attribute text is not one, since line endings on disk are LF here.
func namesConversion(rules []byte) bool {
	for _, word := range bytes.Fields(bytes.ReplaceAll(rules, []byte{0}, []byte{' '})) { // a word ends there for git
		name, value, _ := strings.Cut(string(word), "=")
		switch {
		case name == "filter" || name == "ident" || name == "working-tree-encoding":
			return true
		case name == "eol" && strings.EqualFold(value, "crlf"):
			return true
		}
	}
	return false
}

// convertedFiles asks git which files it would convert, by the attributes in the index of the source.
func convertedFiles(ctx context.Context, r *git.Repo, at git.RunOptions, names []string) (map[string]bool, error) {
	at.Stdin = strings.Join(names, "\x00") + "\x00"
	out, err := r.RunRead(ctx, at, "check-attr", "--cached", "-z", "--stdin", "filter", "ident", "working-tree-encoding", "eol")
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	words := strings.Split(string(out), "\x00") // "<path>", "<attribute>", "<value>"
	for i := 0; i+2 < len(words); i += 3 {
		name, attribute, value := words[i], words[i+1], words[i+2]
		switch {
		case value == "unspecified" || value == "unset":
		case attribute == "eol" && value == "lf":
		default:
			found[name] = true
		}
	}
	return found, nil
}
