package lock

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"
)

func TestAcquireDirExclusiveWaitsForShared(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var inside []*os.File
	for range 3 {
		f, err := AcquireDirShared(t.Context(), dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		inside = append(inside, f)
	}
	var late *TimeoutError
	if _, err := AcquireDirExclusive(t.Context(), dir, 0); !errors.As(err, &late) {
		t.Fatalf("while shared locks are held: %v", err)
	}
	cleared := make(chan *os.File)
	go func() {
		f, err := AcquireDirExclusive(t.Context(), dir, -1)
		if err != nil {
			t.Error(err)
		}
		cleared <- f
	}()
	for _, f := range inside {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	f := <-cleared
	if _, err := AcquireDirShared(t.Context(), dir, 0); !errors.As(err, &late) {
		t.Errorf("while the exclusive lock is held: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	again, err := AcquireDirShared(t.Context(), dir, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("files left in the directory: %v, %v", left, err)
	}
}

// TestAcquireDirFailsWhenDirectoryIsRemoved: a lock on a removed directory excludes no other process.
func TestAcquireDirFailsWhenDirectoryIsRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/dir"
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := AcquireDirExclusive(t.Context(), dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	go func() {
		_, err := AcquireDirShared(t.Context(), dir, -1)
		failed <- err
	}()
	if err := errors.Join(os.Remove(dir), f.Close()); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if _, err := AcquireDirShared(t.Context(), dir, 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestAcquireDirReturnsCancelCause(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := AcquireDirShared(t.Context(), dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	if _, err := AcquireDirExclusive(ctx, dir, -1); !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
}
