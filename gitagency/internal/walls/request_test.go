package walls

import "testing"

func TestRefusedErrorNamesWhatWasRefused(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]RefusedError{
		"landlock: missing; upgrade":                                  {Wall: Landlock, Why: "missing", Remedy: "upgrade"},
		`agency.sandbox.write "/a": it is a device`:                   {Key: WriteKey, Path: "/a", Why: "it is a device"},
		`git agency allow --write "/a": it is a device; name another`: {Key: WriteKey, Flag: "--write", Path: "/a", Why: "it is a device", Remedy: "name another"},
	} {
		if got := e.Error(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
