package gitagency

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/landing"
	"github.com/git-agency/git-agency/gitagency/internal/runs"
	"github.com/git-agency/git-agency/gitagency/reason"
)

// withoutView lists the error types of the packages below that callers do not match.
var withoutView = map[string]string{
	"fault.InvocationError": "its id is part of the views of the errors that it wraps",
	"handoff.DivergedError": "the import of a sandbox is repeated",
	"handoff.GitError":      "reported as a warning, or as the ImportError or SetupError that wraps it",
}

// Every error type that the domain packages export has a view, so that no caller has to match texts.
func TestErrorsOfPackagesBelowHaveViews(t *testing.T) {
	t.Parallel()
	source, found := edgeSource(t), 0
	for _, pkg := range []string{"fault", "settings", "core", "handoff", "snapshots", "sandbox", "preflight", "discard", "allow", "landing", "directory", "radar", "doctor"} {
		for _, name := range exportedTypes(t, filepath.Join("internal", pkg)) {
			if !strings.HasSuffix(name, "Error") {
				continue
			}
			found++
			_, excused := withoutView[pkg+"."+name]
			if viewed := strings.Contains(string(source), "case *"+pkg+"."+name+":"); viewed == excused {
				t.Errorf("%s.%s: has a view: %v; listed as one without: %v", pkg, name, viewed, excused)
			}
		}
	}
	if found < 50 {
		t.Errorf("found only %d error types", found)
	}
}

// edgeSource returns the production files that translate errors.
func edgeSource(t *testing.T) (source []byte) {
	t.Helper()
	files, err := filepath.Glob("edge*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		part, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		source = append(source, part...)
	}
	return source
}

// exportedTypes lists the exported types that the production files of a package declare.
func exportedTypes(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok && spec.Name.IsExported() {
				names = append(names, spec.Name.Name)
			}
			return true
		})
	}
	return names
}

// Every reason belongs to a view: one that no error has would be a promise to callers that is never kept.
func TestReasonsAreUsed(t *testing.T) {
	t.Parallel()
	source := edgeSource(t)
	for name := range reasonNames(t) {
		if !regexp.MustCompile(regexp.QuoteMeta(name) + `\b`).Match(source) {
			t.Errorf("no error has %s", name)
		}
	}
}

// reasonNames maps the reasons, as callers write them, to their values.
func reasonNames(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "reason/reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			names["reason."+spec.Names[0].Name] = spec.Values[0].(*ast.BasicLit).Value
		}
		return true
	})
	seen := map[string]bool{}
	for name, value := range names {
		if seen[value] {
			t.Errorf("%s repeats the value %s", name, value)
		}
		seen[value] = true
	}
	if len(names) < 50 {
		t.Errorf("found only %d reasons", len(names))
	}
	return names
}

func TestPublicErrorKeepsMessageAndCauses(t *testing.T) {
	t.Parallel()
	if err := publicError(nil); err != nil {
		t.Errorf("got %v for no error", err)
	}
	if err := publicError(context.Canceled); err != context.Canceled { //nolint:errorlint // the same value
		t.Errorf("an error without a view became %v", err)
	}
	below := fmt.Errorf("land c: %w", errors.Join(
		&fault.SetupError{ID: "c", Err: &fault.UnreadableError{Path: "secret"}},
		&fault.NotIntegrationError{Path: "/p", Worktree: "w"},
	))
	err := publicError(fmt.Errorf("again: %w", publicError(below)))
	if err.Error() != "again: "+below.Error() || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("got %q", err)
	}
	var setup *SetupError
	var state *StateError
	var refused *RefusedError
	if !errors.As(err, &setup) || setup.ID != "c" {
		t.Errorf("no SetupError in %q", err)
	}
	if !errors.As(err, &state) || state.Reason != reason.Unreadable || state.Path != "secret" {
		t.Errorf("no StateError in %q", err)
	}
	if !errors.As(err, &refused) || refused.Reason != reason.MarkerLost || refused.Name != "w" || !IsReason(err, reason.Dirty, reason.MarkerLost) || IsReason(err, reason.Dirty) {
		t.Errorf("no RefusedError in %q", err)
	}
	var internal *fault.NotIntegrationError
	if !errors.As(err, &internal) {
		t.Errorf("the cause is lost in %q", err)
	}
}

// The causes of a failed push and of a failed verification have views of their own, for their hints.
func TestCausesOfPushAndVerifyHaveViews(t *testing.T) {
	t.Parallel()
	err := publicError(&landing.NotPushedError{Err: &fault.OperationTimeoutError{What: "pushing"}})
	var failed *NotPushedError
	if !errors.As(err, &failed) || !IsReason(failed.Err, reason.Timeout) {
		t.Errorf("got %#v", failed)
	}
	err = publicError(&landing.VerifyError{Err: &fault.UnsupportedError{Primitive: "isolation", Value: "vm"}})
	var unverified *VerifyError
	if !errors.As(err, &unverified) || !IsReason(unverified.Err, reason.Unsupported) {
		t.Errorf("got %#v", unverified)
	}
}

// An answer to another question than the agent asks now has a reason of its own: the agent waits, so that it can be answered.
func TestAnswerToOtherQuestionHasReason(t *testing.T) {
	t.Parallel()
	for asksNext, want := range map[bool]reason.Reason{false: reason.NotWaiting, true: reason.OtherQuestion} {
		if err := publicError(&runs.NotWaitingError{ID: "c", AsksNext: asksNext}); !IsReason(err, want) {
			t.Errorf("got %#v, want the reason %s", err, want)
		}
	}
}

// Comments of the facade name only error types and reasons that callers can use.
func TestCommentsNameExistingErrors(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, name := range exportedTypes(t, ".") {
		known[name] = true
	}
	for name := range reasonNames(t) {
		known[name] = true
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`\*[A-Z]\w+Error\b|\breason\.[A-Z]\w+`)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range file.Comments {
			for _, word := range named.FindAllString(group.Text(), -1) {
				if !known[strings.TrimPrefix(word, "*")] {
					t.Errorf("%s names %s, which does not exist", name, word)
				}
			}
		}
	}
}
