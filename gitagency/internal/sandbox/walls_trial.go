package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"os"

	"github.com/git-agency/git-agency/gitagency/internal/cachefile"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/procfs"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// tryWallsOnce is TryWalls, but trusts an earlier success under the same conditions. A wrong answer is no danger: a command is
// never run without its walls.
func tryWallsOnce(ctx context.Context, r *core.Repository, prims store.Primitives) error {
	if now := wallConditions(r, prims); now != nil && bytes.Equal(r.Store.ReadRadarCache(r.ID, trialCacheName), now) {
		return nil
	}
	return TryWalls(ctx, r, prims)
}

// SaveWallsTrial saves that walls can be built under the present conditions. It is called when the sandbox exists, so that a start
// that fails leaves nothing.
func SaveWallsTrial(r *core.Repository, prims store.Primitives) {
	now := wallConditions(r, prims)
	if now == nil || !NeedsWalls(prims) || bytes.Equal(r.Store.ReadRadarCache(r.ID, trialCacheName), now) {
		return
	}
	_ = r.Store.WriteRadarCache(r.ID, trialCacheName, now) // without it, the next trial takes place
}

// trialCacheName is the name of the cache with the conditions of the last successful trial.
const trialCacheName = "walls" + cachefile.Suffix

// wallConditionFiles are files that say whether the kernel allows this process to build walls, apart from what cannot change before the next
// boot. Not every kernel has all of them.
var wallConditionFiles = []string{
	"/proc/sys/user/max_user_namespaces", "/proc/sys/user/max_mnt_namespaces", "/proc/sys/user/max_pid_namespaces", "/proc/sys/user/max_net_namespaces",
	"/proc/sys/kernel/unprivileged_userns_clone", "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "/proc/self/attr/current",
}

// wallConditions describes everything that decides whether walls can be built, apart from the load of the machine; nil if that
// cannot be found out.
func wallConditions(r *core.Repository, prims store.Primitives) []byte {
	boot := procfs.BootID()
	if boot == "" {
		return nil
	}
	program, err := os.Stat("/proc/self/exe")
	if err != nil {
		return nil
	}
	space, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		return nil
	}
	text := fmt.Appendf(nil, "%s\n%s\n%s\n%d %d\n%s %t\n", boot, durable.StatFingerprint(program), space, os.Geteuid(), os.Getegid(),
		prims.Isolation, prims.Outputs == "open")
	for _, name := range wallConditionFiles {
		value, _ := os.ReadFile(name)
		text = fmt.Appendf(text, "%s %q\n", name, value)
	}
	return fmt.Appendf(text, "%q\n", proc.Getenv(r.Opts.Env, "TMPDIR"))
}
