package proc

import (
	"os/exec"
	"runtime"
)

// startRestricted starts a program that inherits the restrictions of a thread.
func startRestricted(cmd *exec.Cmd, restrict func() error) error {
	if restrict == nil {
		return cmd.Start()
	}
	return onDiscardedThread(func() error {
		if err := restrict(); err != nil {
			return err
		}
		return cmd.Start()
	})
}

// onDiscardedThread calls f on a thread that ends afterwards.
func onDiscardedThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and not unlocked, so that the thread ends with this goroutine
		if !isMainThread() {
			done <- f()
			return
		}
		// The main thread never ends. As long as this goroutine holds it, the next one runs on another.
		err := onDiscardedThread(f)
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}
