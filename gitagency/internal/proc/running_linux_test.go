package proc

import (
	"os"
	"testing"
	"time"
)

// RunningTasks finds tasks with a supervisor of their own, with the time of their start, until they end.
func TestRunningTasksFindsTasks(t *testing.T) {
	t.Parallel()
	forContainments(t, supportedContainments(), func(t *testing.T, way Containment) {
		k := newTask(t, way, "read line")
		k.Label = t.TempDir()
		hold, err := os.Open(k.Label)
		must(t, err)
		k.HoldOpen = []*os.File{hold}
		input, answer, err := os.Pipe()
		must(t, err)
		k.Stdin = input
		began := time.Now()
		var since time.Time
		var found bool
		k.OnRunning = func() {
			since, found = RunningTasks()[k.Label]
			_ = answer.Close()
		}
		if _, err := k.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !found || since.Before(began.Add(-time.Second)) || since.After(time.Now()) { // the kernel counts in ticks
			t.Errorf("running: %t, since %s, began at %s", found, since, began)
		}
		must(t, hold.Close())
		must(t, input.Close())
		if _, found := RunningTasks()[k.Label]; found {
			t.Error("a task that has ended is running")
		}
	})
}

// Namespaces without a program in them are not a running task: commands that only read git state open them too.
func TestRunningTasksIgnoresEmptyNamespaces(t *testing.T) {
	t.Parallel()
	r, label := startNamespace(t)
	if since, found := RunningTasks()[label]; found {
		t.Errorf("running since %s", since)
	}
	p := startScript(t, r, "echo up; read line")
	if since, found := RunningTasks()[label]; !found || time.Since(since) > time.Hour || time.Until(since) > 0 {
		t.Errorf("running: %t, since %s", found, since)
	}
	p.writeLine("end")
	if _, err := p.wait(); err != nil {
		t.Error(err)
	}
	if since, found := RunningTasks()[label]; found {
		t.Errorf("after the end: running since %s", since)
	}
}
