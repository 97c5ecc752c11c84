package seccomp

import (
	"runtime"
	"testing"
)

func TestBlockedCallsHaveNumbers(t *testing.T) {
	t.Parallel()
	a, err := currentArchitecture()
	if err != nil {
		t.Fatal(err)
	}
	// Calls that exist only on older architectures.
	old := map[string]bool{"chmod": true, "creat": true, "ioperm": true, "iopl": true, "mknod": true, "open": true, "uselib": true}
	calls := map[string]bool{}
	for _, b := range blockedCalls() {
		calls[b.call] = true
		if _, there := a.calls[b.call]; !there && (runtime.GOARCH == "amd64" || !old[b.call]) {
			t.Errorf("%s has no number", b.call)
		}
	}
	numbers := map[uint32]string{}
	for call, number := range a.calls {
		if other := numbers[number]; other != "" || !calls[call] {
			t.Errorf("%s is %d, as is %q", call, number, other)
		}
		numbers[number] = call
	}
	t.Logf("%d instructions", len(buildFilter(a, blockedCalls())))
}
