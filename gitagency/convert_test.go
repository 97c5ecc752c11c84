package gitagency

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/allow"
	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/diff"
	"github.com/git-agency/git-agency/gitagency/internal/directory"
	"github.com/git-agency/git-agency/gitagency/internal/discard"
	"github.com/git-agency/git-agency/gitagency/internal/doctor"
	"github.com/git-agency/git-agency/gitagency/internal/landing"
	"github.com/git-agency/git-agency/gitagency/internal/radar"
	"github.com/git-agency/git-agency/gitagency/internal/resolve"
	"github.com/git-agency/git-agency/gitagency/internal/runner"
	"github.com/git-agency/git-agency/gitagency/internal/runs"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/treediff"
	"github.com/git-agency/git-agency/gitagency/reason"
)

// Results of the packages below reach callers with all exported fields; the named ones are for these packages only.
func TestResultsKeepAllFields(t *testing.T) {
	t.Parallel()
	checkConversion(t, newWorktree, "Adopted", "Missing", "Entry")
	checkConversion(t, newRemoveWorktreeResult, "Adopted", "Missing", "Entry")
	checkConversion(t, newInvocation, "Entry", "Limits") // Limits has another form in records; TestInvocationKeepsLimits checks it
	checkConversion(t, func(r discard.Result) DiscardResult { return DiscardResult(r) })
	checkConversion(t, newDenial)
	checkConversion(t, newLimits)
	checkConversion(t, newEnforcedLimit)
	checkConversion(t, newExecResult)
	checkConversion(t, newSyncResult)
	checkConversion(t, func(p sandbox.UploadProgress) UploadProgress { return UploadProgress(p) })
	checkConversion(t, newSnapshot)
	checkConversion(t, newSnapshotInfo)
	checkConversion(t, func(r sandbox.RollbackResult) RollbackResult { return RollbackResult(r) })
	checkConversion(t, func(r snapshots.CheckoutResult) CheckoutResult { return CheckoutResult(r) })
	checkConversion(t, newVerifySnapshotResult)
	checkConversion(t, newDiff)
	checkConversion(t, func(c treediff.Colors) DiffColors { return DiffColors(c) })
	checkConversion(t, newLandResult)
	checkConversion(t, newLandReadyResult)
	checkConversion(t, newFinishResult)
	checkConversion(t, func(r landing.UnlandResult) UnlandResult { return UnlandResult(r) })
	checkConversion(t, newPushPlan, "Unlanding") // only for messages of package landing
	checkConversion(t, func(r landing.PushResult) PushResult { return PushResult(r) })
	checkConversion(t, func(r landing.SubmitResult) SubmitResult { return SubmitResult(r) })
	checkConversion(t, func(r landing.RejectResult) RejectResult { return RejectResult(r) })
	checkConversion(t, newAllowResult, "Limits") // as in newInvocation
	checkConversion(t, newWalls)
	checkConversion(t, newRadarResult)
	checkConversion(t, newDiagnosis)
	checkConversion(t, newPruneResult)
	checkConversion(t, newRunResult)
	checkConversion(t, func(e runner.Event) RunEvent { return RunEvent(e) })
	checkConversion(t, newPreflightReport)
	checkConversion(t, newSetting)
	checkConversion(t, newTerminalSettings)
	checkConversion(t, func(d directory.Directory) Directory { return *newDirectory(&d) })
}

// Requests of callers reach the packages below with all fields.
func TestRequestsKeepAllFields(t *testing.T) {
	t.Parallel()
	checkConversion(t, Options.internal, "Recover", "Refresh", "RelockTimeout", "AsRecorded") // set by Open, and for tests
	checkConversion(t, func(req AdoptWorktreeRequest) core.AdoptWorktreeRequest { return core.AdoptWorktreeRequest(req) })
	checkConversion(t, func(req CreateWorktreeRequest) core.CreateWorktreeRequest { return core.CreateWorktreeRequest(req) })
	checkConversion(t, func(req RemoveWorktreeRequest) core.RemoveWorktreeRequest { return core.RemoveWorktreeRequest(req) })
	checkConversion(t, ListRequest.internal, "Activity", "Radar")                        // for packages listing and radar
	checkConversion(t, StartRequest.internal, "Run", "Task", "QuietAuto", "PreferredID") // for packages runs and node
	checkConversion(t, RunRequest.internal, "Start")                                     // StartRequest.internal
	checkConversion(t, ExecuteRunRequest.internal, "Side")                               // for package resolve
	checkConversion(t, ResumeRunRequest.internal, "Question", "Shown")                   // Question is that of Shown
	checkConversion(t, LogsRequest.internal, "CopyJobOutput")                            // set by Logs
	checkConversion(t, func(req EventsRequest) runs.EventsRequest { return runs.EventsRequest(req) })
	checkConversion(t, Limits.internal)
	checkConversion(t, ExecOptions.internal, "Serve") // set by Exec
	checkConversion(t, UploadRequest.internal)
	checkConversion(t, ForwardRequest.internal)
	checkConversion(t, func(req SnapshotRequest) snapshots.TakeRequest { return snapshots.TakeRequest(req) })
	checkConversion(t, func(req SnapshotsRequest) snapshots.DescribeRequest { return snapshots.DescribeRequest(req) })
	checkConversion(t, func(req RollbackRequest) sandbox.RollbackRequest { return sandbox.RollbackRequest(req) })
	checkConversion(t, func(req CheckoutRequest) snapshots.CheckoutRequest { return snapshots.CheckoutRequest(req) })
	checkConversion(t, func(req VerifySnapshotRequest) snapshots.VerifyRequest {
		return snapshots.VerifyRequest(req)
	})
	checkConversion(t, DiffRequest.internal)
	checkConversion(t, DiffFormat.internal)
	checkConversion(t, Diff.internal)
	checkConversion(t, LandRequest.internal, "Resolve") // for package resolve
	checkConversion(t, func(req ResolveRequest) resolve.Request { return *req.internal() })
	checkConversion(t, func(req UnlandRequest) landing.UnlandRequest { return landing.UnlandRequest(req) })
	checkConversion(t, func(req SubmitRequest) landing.SubmitRequest { return landing.SubmitRequest(req) })
	checkConversion(t, func(req RejectRequest) landing.RejectRequest { return landing.RejectRequest(req) })
	checkConversion(t, AllowRequest.internal)
	checkConversion(t, PreflightRequest.internal, "Run", "Task", "QuietAuto", "PreferredID", "Existing") // as in StartRequest; for package runs
	checkConversion(t, func(req PruneRequest) doctor.PruneRequest { return doctor.PruneRequest(req) })
	checkConversion(t, OnboardRequest.internal)
	checkConversion(t, func(s Setting) settings.Setting { return settings.Setting(s) })
}

func TestInvocationKeepsLimits(t *testing.T) {
	t.Parallel()
	record := store.Limits{Memory: 1, Processes: 2, FileSize: 3, TimeoutMS: 4, Nice: 5, BestEffort: true}
	i := newInvocation(core.Invocation{Limits: record})
	if got := newAllowResult(allow.Result{Limits: record}).Limits; got != i.Limits {
		t.Errorf("allow: got %+v, want %+v", got, i.Limits)
	}
	if want := (Limits{Memory: 1, Processes: 2, FileSize: 3, Timeout: 4 * time.Millisecond, Nice: 5, BestEffort: true}); i.Limits != want {
		t.Errorf("got %+v, want %+v", i.Limits, want)
	}
	text, err := i.Limits.MarshalJSON()
	if want := `{"memory":1,"processes":2,"file_size":3,"timeout_ms":4,"nice":5,"best_effort":true}`; err != nil || string(text) != want {
		t.Errorf("got %s, %v, want %s", text, err, want)
	}
	var again Limits
	if err := again.UnmarshalJSON(text); err != nil || again != i.Limits {
		t.Errorf("got %+v, %v, want %+v", again, err, i.Limits)
	}
}

func TestConstantsAgree(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ public, internal any }{
		{MemoryLimit, confine.MemoryLimit},
		{ProcessLimit, confine.ProcessLimit},
		{FileSizeLimit, confine.FileSizeLimit},
		{TimeoutLimit, confine.TimeoutLimit},
		{NiceLimit, confine.NiceLimit},
		{DiffPatch, diff.Patch},
		{DiffStat, diff.Stat},
		{DiffNameStatus, diff.NameStatus},
		{DiffBase, diff.Base},
		{DiffHead, diff.Head},
		{DiffWork, diff.Work},
		{DiffIntegration, diff.Integration},
		{PruneRemove, doctor.PruneRemove},
		{PruneClean, doctor.PruneClean},
		{PruneKeep, doctor.PruneKeep},
		{LeftOutSecret, snapshots.LeftOutSecret},
		{LeftOutRepository, snapshots.LeftOutRepository},
		{LeftOutSubmodule, snapshots.LeftOutSubmodule},
		{LeftOutReserved, snapshots.LeftOutReserved},
		{CapabilityOK, doctor.CapabilityOK},
		{CapabilityMissing, doctor.CapabilityMissing},
		{CapabilityUnknown, doctor.CapabilityUnknown},
		{RadarClean, radar.Clean},
		{RadarConflicts, radar.Conflicts},
		{RadarNothing, radar.Nothing},
		{RadarRefused, radar.Refused},
		{RadarError, radar.Error},
	} {
		if a, b := reflect.ValueOf(c.public), reflect.ValueOf(c.internal); !a.Convert(b.Type()).Equal(b) {
			t.Errorf("%T %v is %T %v", c.public, c.public, c.internal, c.internal)
		}
	}
}

// checkConversion converts a value whose exported fields are all set, and fails for every exported field that is not in
// both types, or has no or another value in the result. It ignores the named fields.
func checkConversion[A, B any](t *testing.T, convert func(A) B, ignored ...string) {
	t.Helper()
	var from A
	f := filler{}
	f.fill(reflect.ValueOf(&from).Elem())
	c := comparer{t: t, ignored: ignored}
	c.compare(reflect.TypeFor[B]().String(), reflect.ValueOf(from), reflect.ValueOf(convert(from)))
}

// filler sets values to something that is not zero, and to another one each time.
type filler struct{ n int }

func (f *filler) fill(v reflect.Value) {
	f.n++
	switch v.Kind() {
	case reflect.String:
		v.SetString(strings.Repeat("x", f.n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(f.n))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(uint64(f.n))
	case reflect.Float64:
		v.SetFloat(float64(f.n))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		f.fill(v.Index(0))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Func:
		v.Set(reflect.MakeFunc(v.Type(), nil))
	case reflect.Chan:
		v.Set(reflect.MakeChan(reflect.ChanOf(reflect.BothDir, v.Type().Elem()), 0).Convert(v.Type()))
	case reflect.Interface:
		v.Set(reflect.ValueOf(struct {
			error
			io.ReadWriter
		}{error: errors.New("set")}))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(int64(f.n), 0)))
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				f.fill(v.Field(i))
			}
		}
	default:
		panic("fill " + v.Type().String())
	}
}

// comparer compares the exported fields of two values by name.
type comparer struct {
	t       *testing.T
	ignored []string
}

func (c comparer) compare(path string, a, b reflect.Value) {
	c.t.Helper()
	if b.IsZero() {
		c.t.Errorf("%s is not set", path)
		return
	}
	switch a.Kind() {
	case reflect.Slice:
		if a.Len() != b.Len() {
			c.t.Errorf("%s has %d elements instead of %d", path, b.Len(), a.Len())
			return
		}
		for i := range a.Len() {
			c.compare(path+"[]", a.Index(i), b.Index(i))
		}
	case reflect.Pointer:
		if a.Pointer() != b.Pointer() { // the same, if it points to a type without exported fields
			c.compare(path, a.Elem(), b.Elem())
		}
	case reflect.Struct:
		if a.Type() == b.Type() {
			if !reflect.DeepEqual(a.Interface(), b.Interface()) {
				c.t.Errorf("%s is %v instead of %v", path, b, a)
			}
			return
		}
		c.compareFields(path, a, b)
	case reflect.Func, reflect.Chan, reflect.Interface: // functions may be wrapped, errors converted
	default:
		if !a.Convert(b.Type()).Equal(b) {
			c.t.Errorf("%s is %v instead of %v", path, b, a)
		}
	}
}

func (c comparer) compareFields(path string, a, b reflect.Value) {
	c.t.Helper()
	for _, name := range c.fields(b.Type()) {
		if !a.FieldByName(name).IsValid() {
			c.t.Errorf("%s.%s is not in %s", path, name, a.Type())
		}
	}
	for _, name := range c.fields(a.Type()) {
		if !b.FieldByName(name).IsValid() {
			c.t.Errorf("%s.%s is not in %s", a.Type(), name, b.Type())
			continue
		}
		c.compare(path+"."+name, a.FieldByName(name), b.FieldByName(name))
	}
}

// fields returns the names of the exported fields of a struct, with those of embedded structs instead of the structs.
func (c comparer) fields(of reflect.Type) []string {
	var names []string
	for _, f := range reflect.VisibleFields(of) {
		if f.IsExported() && !f.Anonymous && !slices.Contains(c.ignored, f.Name) {
			names = append(names, f.Name)
		}
	}
	return names
}

// Every exported function that can fail passes its error through publicError.
func TestErrorsPassThroughEdge(t *testing.T) {
	t.Parallel()
	exempt := []string{
		"MarshalJSON", "UnmarshalJSON", // errors of encoding/json
		"UploadFiles", "Discard", // call Upload and DiscardWith
		"Invocation.Err", "Invocation.Path", "Worktree.Err", "VerifySnapshotResult.Err", // make public errors
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "errors") || strings.HasPrefix(name, "install") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, is := d.(*ast.FuncDecl)
			if !is || !f.Name.IsExported() || f.Type.Results == nil || slices.Contains(exempt, f.Name.Name) || slices.Contains(exempt, receiverName(f)+"."+f.Name.Name) {
				continue
			}
			last := f.Type.Results.List[len(f.Type.Results.List)-1]
			if result, is := last.Type.(*ast.Ident); !is || result.Name != "error" {
				continue
			}
			through := false
			ast.Inspect(f.Body, func(n ast.Node) bool {
				called, is := n.(*ast.Ident)
				through = through || is && (called.Name == "publicError" || called.Name == "edge")
				return true
			})
			if !through {
				t.Errorf("%s: %s does not use publicError", name, f.Name.Name)
			}
		}
	}
}

// receiverName returns the name of the type that a method belongs to; empty for a function.
func receiverName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	typ := f.Recv.List[0].Type
	if pointer, is := typ.(*ast.StarExpr); is {
		typ = pointer.X
	}
	return typ.(*ast.Ident).Name
}

// Err and Path report broken, ended and archived values also if they were decoded from JSON, which lacks the details and
// whether a worktree was adopted.
func TestErrorsOfDecodedValues(t *testing.T) {
	t.Parallel()
	var broken *BrokenError
	if _, err := (Invocation{ID: "i", Broken: true, BrokenReason: "missing-tree"}).Path(); !errors.As(err, &broken) || broken.Kind != "invocation" || broken.Reason != "missing-tree" {
		t.Errorf("got %v", err)
	}
	if _, err := (Worktree{ID: "w", Broken: true}).Path(); !errors.As(err, &broken) || broken.Kind != "worktree" {
		t.Errorf("got %v", err)
	}
	var ended *EndedError
	if path, err := (Invocation{ID: "i", Landing: "landed", SandboxPath: "/x"}).Path(); !errors.As(err, &ended) || path != "" || ended.Ref != "refs/agency/trash/i" {
		t.Errorf("got %q, %v", path, err)
	}
	if _, err := (Worktree{ID: "w", State: "archived"}).Path(); !IsReason(err, reason.Archived) {
		t.Errorf("got %v", err)
	}
	if path, err := (Invocation{ID: "i", Landing: "review", SandboxPath: "/x"}).Path(); path != "/x" || err != nil {
		t.Errorf("got %q, %v", path, err)
	}
	var damaged *DamagedError
	if err := (VerifySnapshotResult{Invocation: "i", Number: 2, Damage: make([]DamagedObject, 3)}).Err(); !errors.As(err, &damaged) || damaged.Snapshot != "i/2" || damaged.Objects != 3 {
		t.Errorf("got %v", err)
	}
}
