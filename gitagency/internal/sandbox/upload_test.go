package sandbox_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
)

func TestUploadWritesFilesInSandbox(t *testing.T) {
	t.Parallel()
	s := sandboxtest.New(t, core.Options{}).Sandbox
	var last sandbox.UploadProgress
	err := s.Upload(t.Context(), sandbox.UploadRequest{
		Files: []sandbox.File{
			{Path: "test.txt", Content: []byte("hello")},
			{Path: "bin/run", Content: []byte("#!/bin/sh\n"), Mode: 0o755},
			{Path: "empty", Mode: fs.ModeDir},
			{Path: "bin/link", Content: []byte("../test.txt"), Mode: fs.ModeSymlink},
		},
		Progress: func(p sandbox.UploadProgress) { last = p },
	})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(s.WorkDir(), "bin", "link")); string(text) != "hello" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if info, err := os.Stat(filepath.Join(s.WorkDir(), "bin", "run")); err != nil || info.Mode() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
	if last != (sandbox.UploadProgress{Files: 3, Total: 3, Bytes: 15}) {
		t.Errorf("progress ended with %+v", last)
	}
	events, err := os.ReadFile(filepath.Join(s.Repo.Store.InvocationDir(s.Repo.ID, s.ID), "events.jsonl"))
	if err != nil || !strings.HasSuffix(string(events), `"event":"put","files":3}`+"\n") {
		t.Errorf("%q, %v", events, err)
	}
	if err := s.UploadFiles(t.Context(), nil); err != nil {
		t.Errorf("empty upload: %v", err)
	}
}

func TestUploadRefusesPathOutsideSandbox(t *testing.T) {
	t.Parallel()
	s := sandboxtest.New(t, core.Options{}).Sandbox
	err := s.UploadFiles(t.Context(), []sandbox.File{{Path: "first"}, {Path: "../escape.txt", Content: []byte("bad")}})
	var confined *fault.ConfinementError
	if !errors.As(err, &confined) || confined.Path != "../escape.txt" || !strings.Contains(err.Error(), "path confinement") {
		t.Error(err)
	}
	if entries, err := os.ReadDir(s.WorkDir()); err != nil || len(entries) != 2 { // .git and .agency
		t.Errorf("%v, %v", entries, err)
	}
}

func TestUploadTimeout(t *testing.T) {
	t.Parallel()
	s := sandboxtest.New(t, core.Options{}).Sandbox
	endless := sandbox.File{Path: "endless", Open: func() (io.ReadCloser, error) { r, _ := io.Pipe(); return r, nil }}
	s.Repo.Git.Config["agency.operationtimeout"] = []config.Setting{{Value: "30ms"}}
	var overdue *fault.OperationTimeoutError
	if err := s.UploadFiles(t.Context(), []sandbox.File{{Path: "first"}, endless}); !errors.As(err, &overdue) {
		t.Error(err)
	}
	// Without a timeout, the upload still ends when its context is cancelled.
	s.Repo.Git.Config["agency.operationtimeout"] = []config.Setting{{Value: "-1"}}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if err := s.UploadFiles(ctx, []sandbox.File{{Path: "first"}, endless}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	s.Repo.Git.Config["agency.operationtimeout"] = []config.Setting{{Value: "soon"}}
	if err := s.UploadFiles(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "soon") {
		t.Error(err)
	}
	if entries, err := os.ReadDir(s.WorkDir()); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
}
