package landlock

import "testing"

func TestHandledRightsFollowABI(t *testing.T) {
	t.Parallel()
	for abi, want := range map[int]struct {
		files Rights
		scope uint64
	}{2: {0x3fff, 0}, 3: {0x7fff, 0}, 4: {0x7fff, 0}, 5: {0xffff, 0}, 6: {0xffff, 3}, 8: {0xffff, 3}, 9: {0x1ffff, 3}} {
		if files, scope := handled(abi); files != want.files || scope != want.scope {
			t.Errorf("ABI %d: %#x, %#x", abi, files, scope)
		}
	}
}
